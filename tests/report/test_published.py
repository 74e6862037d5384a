"""Published measurements: record checks, derived quantities, and claims that they decide."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.published_records import (
    COLUMNS,
    DATE_MEANINGS,
    DEFAULTED,
    DIVISIBLE,
    NO_LICENCE,
    PUBLISHED,
    RATE_UNITS,
    SCHEMA,
    date_span,
    read_published,
    url_commit,
    value_per_device,
    with_derived,
)
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import exact_estimates
from report.judging.claim_files import read_claims
from report.judging.judge import CLAIMS, judge
from report.judging.rules import CLEAR, PublishedEnds
from report.outcomes import HERE, OTHERS, Side, Threshold, Verdict
from report.quantities import quantities
from report.quantities.published import cpu_kind, gpu_kind
from report.verdict_sentences import rule_text

from .claim_mistakes import HEAD
from .conftest import Factory, SyntheticNode
from .made_estimates import NO_DATA, decide
from .published_runs import CPU, GPU, published_sources, write_source

AWAITING: dict[str, Any] = {
    **HEAD, "quantity": "training.speedup", "scope": {"baseline": "node", "precision": "best"}, "rule": "at_least",
    "threshold": {"value": 5, "why": "?"}, "sensitivity": [2, 5, 50],
    "findings": {"awaiting": "Open."},
}  # fmt: skip
EVIDENCE = {"quantity": "published.speedup", "strength": "direct", "scope": {"task": "train"}, "why": "The same."}
FINDINGS = {"supported": "Others: {least:number} to {most:number}.", "challenged": "Others: at most {most:number}."}


def gemm_claim(threshold: float) -> dict[str, Any]:
    """Build a claim on the gemm rate with published evidence."""
    evidence = [{**EVIDENCE, "quantity": "published.flops", "scope": {"task": "product"}}]
    return {
        **HEAD, "quantity": "gemm.rate", "scope": {"device": "cpu", "threads": 1}, "rule": "at_least",
        "threshold": {"value": threshold, "why": "?"}, "findings": {"supported": "Here."},
        "published": {"evidence": evidence, "findings": FINDINGS},
    }  # fmt: skip


def study_records() -> Any:
    return read_published(PUBLISHED)


def dataset(folder: Path, **sources: Any) -> Dataset:
    return Dataset(NO_DATA.nodes, {}, NO_DATA.table, published_sources(folder, **sources))


# The tests below are on the records of published measurements.


def test_study_records_parse_and_have_stable_addresses() -> None:
    """An address on GitHub must name a commit, because the file at a branch can change."""
    records = study_records().records
    assert len(records) >= 300 and records["source"].nunique() >= 40
    for url in records["url"].unique():
        parts = urlsplit(url)
        assert parts.scheme == "https" and "." in parts.netloc and not re.search(r"[\s<>\"]", url), url
        if parts.netloc == "github.com" and "/blob/" in parts.path:
            assert re.search(r"/blob/[0-9a-f]{40}/.", parts.path), url


def test_study_records_say_what_each_figure_is() -> None:
    """Each rate names what it counts, and each record and source what its figure, spread and date are."""
    published = study_records()
    records = published.records
    assert set(records.loc[records["measure"] == "rate", "unit"]) == set(RATE_UNITS)
    assert "1" not in set(records["unit"]) and set(records["date_means"]) == set(DATE_MEANINGS)
    spread = records[["low", "high"]].notna().any(axis=1)
    assert (records["per"] != "").all() and (spread == (records["spread_kind"] != "")).all()
    # A total of several GPUs must not read as the result of one.
    shared = records[(records["gpus"] > 1) & records["measure"].isin(DIVISIBLE) & (records["per"] != "device")]
    assert len(shared) > 2000 and (value_per_device(shared) == shared["value"] / shared["gpus"]).all()
    for name, source in published.sources.items():
        assert (source["licence"] == NO_LICENCE) <= (source["may_redistribute"] != "yes"), name


def test_schema_of_sources_allows_the_same_words_as_the_columns() -> None:
    fields = SCHEMA["$defs"]["sources"]["items"]["properties"]
    assert {name: fields[name]["enum"] for name in DEFAULTED} == {
        name: list(words) for name, words in DEFAULTED.items()
    }


def test_copies_of_results_are_marked_once() -> None:
    records = study_records().records
    copies = records[records["copy_of"] != ""]
    assert copies["source"].value_counts().to_dict() == {
        "mlperf-training-3.0": 26, "mlperf-training-3.1": 17, "lambda-prices": 6,
    }  # fmt: skip
    prices = records[(records["source"] == "lambda-prices") & (records["copy_of"] == "")]
    assert not prices.duplicated(["gpu", "value"]).any()
    training = records[records["source"].str.startswith("mlperf-training") & (records["copy_of"] == "")]
    same = ["measured_by", "model", "cpu", "gpu", "gpus", "nodes", "value", "low", "high", "runs"]
    assert not training.duplicated(same).any()


def test_records_do_not_mention_private_paths() -> None:
    texts = study_records().records[["where", "note", "setting"]].agg(" ".join, axis=1)
    assert not texts.str.contains(r"helper|/(?:home|opt|root|tmp|work)/|stored text", regex=True).any()


FAULTS = {
    "no source": ({"url": ""}, "needs its source"),
    "no unit": ({"unit": ""}, "unit: is empty"),
    "a wrong unit": ({"unit": "s"}, "must be tokens/s or samples/s or "),
    "no hardware": ({"gpu": " "}, "needs the hardware"),
    "an unknown device": ({"device": "tpu"}, "'tpu' is not allowed"),
    "an unknown task": ({"task": "train-to-targt"}, "Did you mean 'train-to-target'"),
    "an unknown format": ({"dtype": "bf16"}, "Did you mean 'bfloat16'"),
    "words for a figure": ({"value": "fast"}, "'fast' is not a number"),
    "no figure": ({"value": ""}, "value: is empty"),
    "an infinite figure": ({"value": "inf"}, "inf must be between 0 and 1e30"),
    "half a GPU": ({"gpus": 0.5}, "gpus: 0.5 must be a whole number above 0"),
    "a zero rate": ({"value": 0}, "value: must be above 0 for rate"),
    "a share above one": ({"measure": "share", "unit": "share", "value": 1.2}, "more than any such hardware can do"),
    "memory faster than any": ({"measure": "bandwidth", "unit": "B/s", "value": 3e14}, "more than any such hardware"),
    "arithmetic faster than any": ({"measure": "flops", "unit": "FLOP/s", "value": 1e18}, "check the unit"),
    "a range outside its figure": ({"low": 200}, "does not lie between low and high"),
    "an invalid date": ({"date": "last spring"}, "is not a date"),
    "no measured_by": ({"measured_by": ""}, "measured_by: is empty"),
    "threads in words": ({"threads": "all"}, "threads: 'all' is not a number"),
    "half a parameter": ({"parameters": 0.5}, "parameters: 0.5 must be a whole number above 0"),
    "a unit of another measure": ({"unit": "share"}, "the unit for rate"),
    "a rate of something unknown": ({"unit": "pages/s"}, "'pages/s' must be tokens/s or"),
    "a rate of nothing": ({"unit": "1/s"}, "'1/s' must be tokens/s or"),
    "a share without a unit": ({"measure": "share", "unit": "1", "value": 0.5}, "'1' must be share"),
    "a ratio without a unit": ({"measure": "ratio", "unit": "1"}, "'1' must be ratio"),
    "a count without a unit": ({"measure": "count", "unit": "1"}, "'1' must be count"),
    "a figure of something unknown": ({"per": "gpu"}, "per: 'gpu' is not allowed. Allowed: device, node, system"),
    "an unknown kind of spread": ({"low": 90, "spread_kind": "extreme"}, "Did you mean 'extremes'"),
    "a kind of spread without one": ({"spread_kind": "days"}, "spread_kind: 'days' without low or high"),
    "an unknown meaning of the date": ({"date_means": "seen"}, "date_means: 'seen' is not allowed"),
    "a day that no month has": ({"date": "2023-02-29"}, "'2023-02-29' is not in the calendar"),
    "a day before the first": ({"date": "2023-02-00"}, "'2023-02-00' is not in the calendar"),
    "one GPU as fast as eight": (
        {"measure": "flops", "unit": "FLOP/s", "value": 1e17, "gpus": 8, "per": "device"},
        "check the unit",
    ),
    "half a batch": ({"global_batch": 0.5}, "global_batch: 0.5 must be a whole number above 0"),
    "a copy of nothing": ({"copy_of": "made-up/r9"}, "there is no record 'made-up/r9'"),
    "a copy of itself": ({"copy_of": "made-up/r2"}, "made-up/r2 is a copy itself"),
    "a copy with another value": ({"value": 99.0, "copy_of": "made-up/r1"}, "made-up/r1 differs in value"),
    "a copy of other work": ({"model": "dlrm", "copy_of": "made-up/r1"}, "made-up/r1 differs in model"),
    "an unknown kind of copy": ({"copies": "pined"}, "Did you mean 'pinned'"),
    "an unknown back end": ({"back_end": "cudann"}, "Did you mean 'cudnn'"),
    "an id with blanks": ({"id": "row one"}, "id: 'row one'"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_faulty_record_is_refused_with_file_and_line(tmp_path: Path, fault: str) -> None:
    change, message = FAULTS[fault]
    path = write_source(tmp_path, "made-up", [GPU, {**GPU, **change}])
    with pytest.raises(StudyError) as refused:
        read_published(tmp_path)
    assert str(refused.value).startswith(f"{path}, line 3: ") and message in str(refused.value)


@pytest.mark.parametrize(("column", "row"), [("per", {}), ("date_means", {}), ("spread_kind", {"low": 90})])
def test_column_defaults_to_the_source(tmp_path: Path, column: str, row: dict[str, Any]) -> None:
    """A record's own value goes first; without one here and in the source, the record is refused."""
    allowed = list(DEFAULTED[column])
    write_source(
        tmp_path / "a", "made-up", [{**GPU, **row}, {**GPU, **row, column: allowed[0]}], "", {column: allowed[1]}
    )
    assert read_published(tmp_path / "a").records[column].to_list() == [allowed[1], allowed[0]]
    write_source(tmp_path / "b", "made-up", [{**GPU, **row}], "", {column: ""})
    with pytest.raises(StudyError, match=f"line 2: r1: {column}: is empty, here and in sources.yaml. Allowed: "):
        read_published(tmp_path / "b")
    write_source(tmp_path / "c", "made-up", [{**GPU, **row}], "", {column: "unheard-of"})
    with pytest.raises(StudyError, match="unheard-of"):
        read_published(tmp_path / "c")


def test_source_without_a_licence_cannot_be_passed_on(tmp_path: Path) -> None:
    write_source(tmp_path, "made-up", [GPU], "", {"may_redistribute": "yes"})
    with pytest.raises(StudyError, match="made-up: without a licence only facts may be passed on"):
        read_published(tmp_path)


# A figure of 800, by what it is of, its measure, its GPUs and machines: for one GPU.
SHARES = {
    "total of eight": ("system", "rate", 8, 1, 100.0), "already divided": ("device", "rate", 8, 1, 800.0),
    "one of two machines": ("node", "rate", 16, 2, 100.0), "total of two machines": ("system", "rate", 16, 2, 50.0),
    "number not told": ("system", "rate", "", 1, None), "price of eight": ("system", "price", 8, 1, 100.0),
    "time of eight": ("system", "time", 8, 1, None), "time of one": ("device", "time", 1, 1, 800.0),
}  # fmt: skip


@pytest.mark.parametrize("share", SHARES, ids=str)
def test_value_per_device(tmp_path: Path, share: str) -> None:
    per, measure, gpus, nodes, wanted = SHARES[share]
    unit = {"rate": "samples/s", "price": "USD", "time": "s"}[measure]
    record = {**GPU, "per": per, "measure": measure, "unit": unit, "gpus": gpus, "nodes": nodes, "value": 800.0}
    (value,) = with_derived(published_sources(tmp_path, one=[record]).records)["value_per_device"]
    assert value == wanted if wanted is not None else value != value


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)))
def test_dates_span_their_year_month_or_day(day: date) -> None:
    text = day.isoformat()
    assert date_span(text) == (day, day)
    spans = [date_span(text[:length]) for length in (4, 7)]
    for span, unit in zip(spans, ("year", "month"), strict=True):
        assert span is not None and span[0] <= day <= span[1]
        for outside in (span[0] - timedelta(1), span[1] + timedelta(1)):
            assert getattr(outside, unit) != getattr(day, unit)


def test_digest_is_the_commit_in_the_address(tmp_path: Path) -> None:
    threads = {**GPU, "id": "thread", "url": "https://github.com/nobody/nothing/issues/7"}
    digests = with_derived(published_sources(tmp_path, one=[GPU, threads]).records)["digest"].to_list()
    assert digests == [url_commit(GPU["url"]), ""] == ["0123456789abcdef0123456789abcdef01234567", ""]


def test_inconsistent_source_files_are_refused(tmp_path: Path) -> None:
    path = write_source(tmp_path / "a", "made-up", [GPU, {**GPU, "id": "r1"}])
    with pytest.raises(StudyError, match="'r1' is used twice, first in line 2"):
        read_published(tmp_path / "a")
    path.write_text("id,value\nr1,2\n")
    with pytest.raises(StudyError, match="line 1: the columns have to be id,measured_by"):
        read_published(tmp_path / "a")
    for columns in ((*COLUMNS, "colour"), (*COLUMNS, "m", "threads"), (*COLUMNS, "m", "m"), COLUMNS[1:]):
        path.write_text(",".join(columns))
        with pytest.raises(StudyError, match=r"line 1: the columns have to be id,.*where needed, of threads,"):
            read_published(tmp_path / "a")
    path.rename(path.with_stem("made-upp"))
    with pytest.raises(StudyError, match=r"no source 'made-upp'.*Did you mean 'made-up'"):
        read_published(tmp_path / "a")
    path.with_stem("made-upp").unlink()
    with pytest.raises(StudyError, match=r"line 1: made-up: there is no file .*made-up.csv"):
        read_published(tmp_path / "a")
    assert len(read_published(tmp_path / "nowhere").records) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=len(COLUMNS), max_size=len(COLUMNS)))
def test_arbitrary_rows_parse_or_are_refused(tmp_path_factory: pytest.TempPathFactory, row: list[str]) -> None:
    folder = tmp_path_factory.mktemp("others")
    path = write_source(folder, "made-up", [GPU])
    with path.open("a", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file).writerow(row)
    try:
        read_published(folder)
    except StudyError as refused:
        assert str(path) in str(refused) and "Traceback" not in str(refused)


COMPARED = {
    "unlike work": ({"model": "resnet"}, "a ratio of unlike work"),
    "unlike units": ({"measure": "time", "unit": "s"}, "a ratio of unlike work"),
    "no format": ({"dtype": ""}, "a direct comparison needs the number format of both records"),
}


@pytest.mark.parametrize("fault", COMPARED, ids=str)
def test_comparison_between_unlike_records_is_refused(tmp_path: Path, fault: str) -> None:
    change, message = COMPARED[fault]
    write_source(tmp_path, "made-up", [GPU, {**CPU, **change}])
    pair = "- {id: pair, of: made-up/r1, over: made-up/r2, differs: [], strength: direct, why: Because.}\n"
    (tmp_path / "comparisons.yaml").write_text(pair)
    with pytest.raises(StudyError) as refused:
        read_published(tmp_path)
    assert f"{tmp_path / 'comparisons.yaml'}, line 1: pair: " in str(refused.value) and message in str(refused.value)
    (tmp_path / "comparisons.yaml").write_text(pair.replace("made-up/r2", "made-up/r3"))
    with pytest.raises(StudyError, match="no record 'made-up/r3'"):
        read_published(tmp_path)


# The tests below are on quantities that are computed from the records.


def compute_speedups(folder: Path, **sources: Any) -> list[dict[str, Any]]:
    return compute("published.speedup", dataset(folder, **sources))


def compute(quantity: str, data: Dataset) -> list[dict[str, Any]]:
    return list(quantities()[quantity].compute(data).frame.to_dict("records"))


def test_speedup_is_per_gpu_over_one_cpu_machine_at_equal_work(tmp_path: Path) -> None:
    cluster = {**CPU, "nodes": 4, "cpus": 8, "cores": 448, "value": 100.0}
    box = {**GPU, "gpus": 8, "value": 6000.0, "low": 5000.0, "high": 7000.0}
    unlike = {**CPU, "model": "resnet"}
    (speedup,) = compute_speedups(tmp_path, one=[box, cluster, unlike])
    assert speedup["estimate"] == pytest.approx((6000 / 8) / (100 / 4))
    assert (speedup["low"], speedup["high"]) == (pytest.approx(25.0), pytest.approx(35.0))
    assert speedup["detail"] == "at most, scaled from 8 GPUs and 4 machines" and speedup["baseline"] == "server"
    assert speedup["precision"] == "bfloat16 over bfloat16"


def test_speedup_over_servers_names_both_bases_and_the_cpu_result(tmp_path: Path) -> None:
    """A server is one base, and one processor in it the other; a processor alone is neither."""
    server = {**CPU, "nodes": 4, "cpus": 8, "cores": 448, "value": 100.0}
    alone = {**CPU, "cpus": 1, "cores": 8, "value": 5.0}
    repeated = {**server, "setting": "later", "copy_of": "one/r2"}
    data = dataset(tmp_path, one=[{**GPU, "value": 750.0}, server, alone, {**GPU, "setting": "later"}, repeated])
    rows = quantities()["published.speedup_over_servers"].estimates(data).frame.to_dict("records")
    first = {row["baseline"]: row for row in rows if row["setting"] != "later"}
    assert {name: row["estimate"] for name, row in first.items()} == {"server processor": 60.0, "server": 30.0}
    assert first["server"]["cpu"] == f"2 x {first['server processor']['cpu']}"
    assert len(rows) == 4 and {row["cpu_result"] for row in rows} == {"one/r2"}
    assert all(row["detail"].startswith("at most") for row in rows)


def test_speedup_inverts_times_and_uses_the_fastest_cpu(tmp_path: Path) -> None:
    timed = [{**run, "measure": "time", "unit": "s", "value": value} for run, value in ((GPU, 2), (CPU, 30), (CPU, 20))]
    (speedup,) = compute_speedups(tmp_path, one=timed)
    assert speedup["estimate"] == pytest.approx(10.0)


def test_speedup_stays_within_a_source_and_marks_small_processors(tmp_path: Path) -> None:
    phone = {**CPU, "cpu": "Cortex-A72", "cpus": 1, "cores": 4}
    assert not compute_speedups(tmp_path / "a", one=[GPU], two=[CPU])
    (speedup,) = compute_speedups(tmp_path / "b", one=[GPU, phone])
    assert speedup["baseline"] == "one processor"


def test_figures_that_the_source_divided_are_not_divided_again(tmp_path: Path) -> None:
    (speedup,) = compute_speedups(tmp_path, one=[{**GPU, "gpus": 8, "per": "device"}, CPU])
    assert speedup["estimate"] == pytest.approx(10.0)


def test_rates_say_what_they_count(tmp_path: Path) -> None:
    cases = compute("published.rate", dataset(tmp_path, one=[GPU, {**GPU, "unit": "tokens/s"}]))
    assert [case["counted"] for case in cases] == ["samples", "tokens"]
    assert not compute_speedups(tmp_path / "b", one=[GPU, {**CPU, "unit": "tokens/s"}])


def test_copies_count_once(tmp_path: Path) -> None:
    price = {**GPU, "task": "price", "measure": "price", "unit": "USD"}
    (case,) = compute("published.price", dataset(tmp_path, one=[price, {**price, "copy_of": "one/r1"}]))
    assert case["records"] == "one/r1"


def test_thread_count_for_90_percent_and_linearity_below_half(
    tmp_path: Path,
) -> None:
    speeds = {128: 1.0, 256: 2.0, 512: 4.0, 1024: 9.0, 2048: 10.0}
    records = [{**GPU, "task": "threads", "threads": n, "value": value} for n, value in speeds.items()]
    data = dataset(tmp_path / "one", one=records)
    (enough,) = compute("published.threads_for_90_percent", data)
    assert [enough[name] for name in ("low", "estimate", "high")] == [512, 1024, 1024]
    assert enough["detail"] == "tried: 128 to 2,048"
    (growth,) = compute("published.linearity", data)
    assert growth["estimate"] == 1.0 and growth["detail"] == "128 to 512 threads"
    growing = dataset(tmp_path / "two", two=[{**record, "value": record["threads"]} for record in records])
    assert not compute("published.threads_for_90_percent", growing)


def test_matrix_products_leave_the_rest_of_a_step(tmp_path: Path) -> None:
    share = {**GPU, "task": "operators", "measure": "share", "unit": "share"}
    products = {**share, "value": 0.6, "variant": "matrix products"}
    norm = {**share, "value": 0.3, "variant": "normalisation"}
    shares = compute("published.operator_share", dataset(tmp_path, one=[products, norm]))
    assert {row["operators"]: row["estimate"] for row in shares} == {
        "matrix products": 0.6, "all others": 0.4, "normalisation": 0.3,
    }  # fmt: skip


def test_steps_of_a_chain_are_timed_without_its_start(tmp_path: Path) -> None:
    timed = {"task": "chain", "measure": "time", "unit": "s", "dtype": "float32"}
    records = [
        {**run, **timed, "items": items, "value": start + step * items}
        for run, start, step in ((GPU, 0.5, 0.04), (CPU, 0.1, 0.01))
        for items in (10, 100)
    ]
    data = dataset(tmp_path / "a", one=records)
    (chain,) = compute("published.chain_speed_ratio", data)
    assert chain["estimate"] == pytest.approx(4) and chain["precision"] == "float32 over float32"
    (inverse,) = compute("published.gpu_over_cpu_one_thread", data)
    assert inverse["estimate"] == pytest.approx(0.25)
    assert not compute("published.chain_speed_ratio", dataset(tmp_path / "b", one=records[:3]))


def test_whole_chips_are_compared_in_one_format(tmp_path: Path) -> None:
    peak = {"task": "threads", "measure": "flops", "unit": "FLOP/s"}
    gpu, cpu = ({**run, **peak, "dtype": "float32"} for run in (GPU, CPU))
    data = dataset(tmp_path, one=[gpu, cpu, {**cpu, "value": 20.0}, {**gpu, "dtype": "float16", "value": 900.0}])
    (chip,) = compute("published.whole_chip_ratio", data)
    assert chip["estimate"] == pytest.approx(5.0) and chip["precision"] == "float32 over float32"


def test_cpu_is_sooner_only_if_every_run_is_and_the_gpu_leads_elsewhere(tmp_path: Path) -> None:
    def record(run: dict[str, Any], batch: int, value: float, spread: float = 1.0) -> dict[str, Any]:
        ends = {"low": value / spread, "high": value * spread}
        timed = {"task": "infer", "measure": "time", "unit": "s", "parameters": 1000}
        return {**run, **timed, "batch": batch, "value": value, **ends}

    small = [record(GPU, 1, 2.0), record(CPU, 1, 1.0)]
    large = [record(GPU, 64, 2.0), record(CPU, 64, 60.0)]
    unsure = [record(GPU, 1, 2.0, spread=1.5), record(CPU, 1, 1.0, spread=1.5)]
    cases = {"a": [*small, *large], "b": small, "c": [*unsure, *large]}
    sizes = {
        name: [
            row["estimate"] for row in compute("published.sooner_on_cpu_parameters", dataset(tmp_path / name, one=of))
        ]
        for name, of in cases.items()
    }
    assert sizes == {"a": [1000.0], "b": [], "c": [0.0]}


def test_ratings_of_cards_agree_with_measured_ratios() -> None:
    data = Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, study_records())
    errors = compute("published.rating_error", data)
    assert {row["rating"] for row in errors} == {"fp32_flops", "memory_bytes_per_s"} and len(errors) > 5
    assert all(abs(row["estimate"]) < 0.2 for row in errors)
    for row in errors:
        of, to = (data.published.records_by_key[key]["value"] for key in row["records"].split())
        rated = data.figure(f"{row['of']}.{row['rating']}") / data.figure(f"{row['to']}.{row['rating']}")
        assert row["estimate"] == pytest.approx(rated * to / of - 1)


def test_recommended_cards_are_ranked_by_figures_per_dollar() -> None:
    data = Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, study_records())
    ranks = {(row["version"], row["limit"]): row["estimate"] for row in compute("price.rank_per_dollar", data)}
    assert ranks["rtx-3060-12gb", "capacity"] == 1 and ranks["rtx-4060-ti-8gb", "arithmetic"] == 1
    assert len(ranks) == 9 and max(ranks.values()) <= 6


def test_hardware_names_are_normalised() -> None:
    names = {
        "NVIDIA H100-SXM5-80GB": "H100 SXM", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA A100-PCIe-80GB": "A100 PCIe",
        "NVIDIA GeForce RTX 3080 Laptop GPU": "RTX 3080 laptop", "NVIDIA GeForce RTX 3090 24GB": "RTX 3090",
        "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER", "NVIDIA L40S": "L40S",
        "NVIDIA GH200 Grace Hopper Superchip 96GB": "GH200", "NVIDIA GB300": "GB300",
        "Intel(R) Arc Pro(R) B70": "Arc Pro B70",
    }  # fmt: skip
    assert {name: gpu_kind(name) for name in names} == names
    assert cpu_kind("Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz") == "Xeon Platinum 8480+"


def test_published_ratios_recompute_from_their_records() -> None:
    """The ratios are computed again from the records alone, without the code that computes the quantities."""
    records = study_records()
    data = Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, records)

    def speed(key: str) -> float:
        record = records.records_by_key[key]
        value = 1 / record["value"] if record["measure"] in ("time", "latency", "energy") else record["value"]
        units = record["gpus"] if record["device"] == "gpu" else record["nodes"]
        undivided = record["measure"] == "latency" or record["per"] == "device" or units != units
        return float(value / (1.0 if undivided else units))

    count = 0
    for name in ("published.speedup", "published.energy_ratio"):
        for row in quantities()[name].compute(data).frame.to_dict("records"):
            *gpus, cpu = str(row["records"]).split()
            assert row["estimate"] == pytest.approx(statistics.median(map(speed, gpus)) / speed(cpu), rel=1e-9)
            count += 1
    for row in quantities()["published.compared"].compute(data).frame.to_dict("records"):
        top, base = str(row["records"]).split()
        ratio = records.records_by_key[top]["value"] / records.records_by_key[base]["value"]
        assert row["estimate"] == pytest.approx(ratio, rel=1e-12)
        count += 1
    assert count > 300


# The tests below are on claims that published figures decide.


def published_estimates(*rows: tuple[float, str]) -> Any:
    return exact_estimates([{"estimate": value, "family": family} for value, family in rows])


def figure_sides(threshold: float, *rows: tuple[float, str]) -> list[Side]:
    """Return each figure's side (supports, challenges or undecided) under the rule `at_least`."""
    numbers = PublishedEnds(published_estimates(*rows)).side_numbers(Threshold(threshold), "at_least")
    return [list(Side)[number] for number in numbers]


def test_single_figure_decides_only_far_from_the_threshold() -> None:
    for value, side in (
        (10 * CLEAR, Side.SUPPORTS), (14.0, Side.UNDECIDED), (7.0, Side.UNDECIDED), (6.6, Side.CHALLENGES),
    ):  # fmt: skip
        assert figure_sides(10.0, (value, "one")) == [side]


def test_two_independent_figures_that_agree_decide() -> None:
    assert figure_sides(10.0, (12.0, "a"), (13.0, "b")) == [Side.SUPPORTS] * 2
    assert figure_sides(10.0, (12.0, "a"), (13.0, "a")) == [Side.UNDECIDED] * 2
    assert figure_sides(10.0, (12.0, "a and b"), (13.0, "b")) == [Side.UNDECIDED] * 2
    assert figure_sides(10.0, (12.0, "a"), (8.0, "b")) == [Side.UNDECIDED] * 2


def test_contrary_figures_count_by_a_margin_that_grows_with_their_number() -> None:
    many = [(30.0, "a")] * 40
    for contrary, outcome in (((10 / 1.6, "a"),), "supported"), (((10 / 2.0, "a"),), "depends"), (
        ((9.0, "b"), (9.0, "c")), "depends",
    ):  # fmt: skip
        assert decide("at_least", published_estimates(*many, *contrary), 10).outcome == outcome, contrary
    assert decide("at_least", published_estimates((10 / 1.6, "a")), 10).outcome == "challenged"


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.sampled_from("abc")), min_size=1, max_size=6), st.floats(0.1, 1e3))
def test_figures_never_take_the_wrong_side(rows: list[tuple[float, str]], threshold: float) -> None:
    for (value, _), side in zip(rows, figure_sides(threshold, *rows), strict=True):
        assert side is Side.UNDECIDED or (side is Side.SUPPORTS) == (value >= threshold)


class Bench:
    """Folder with one claim, nodes and published records, and their verdicts."""

    def __init__(self, synthetic: Factory, root: Path) -> None:
        self.synthetic, self.root = synthetic, root
        (root / "claims").mkdir()

    def judge(self, claim: Mapping[str, Any], *nodes: SyntheticNode, **sources: Any) -> dict[str, Any]:
        (self.root / "claims" / "W01.yaml").write_text(json.dumps({"id": "W01", **claim}))
        self.synthetic.write(nodes or [self.synthetic().gemm(12)])
        records = published_sources(self.root / "others", **sources)
        data = Dataset(read_nodes([self.synthetic.root], True), {}, published=records)
        return judge(data, self.root / "out.json", self.root / "claims", allow_synthetic=True)


@pytest.fixture
def bench(synthetic: Factory, tmp_path: Path) -> Bench:
    return Bench(synthetic, tmp_path)


def test_direct_evidence_decides_an_awaiting_claim(bench: Bench) -> None:
    document = bench.judge({**AWAITING, "published": {"evidence": [EVIDENCE], "findings": FINDINGS}}, one=[GPU, CPU])
    (result,) = document["verdicts"]
    assert (result["verdict"], result["decided_on"]) == (Verdict.SUPPORTED, OTHERS)
    assert (result["evidence_tier"], result["finding"]) == ("published", "Others: 10 to 10.")
    (part,) = result["parts"]
    assert part["waits"]["experiments"] == ["training"] and part["robustness"] is None and "rejudge" not in part
    trials = [trial for trial in part["others"][0]["trials"] if "side" not in trial]
    assert [(trial["threshold"], trial["outcome"]) for trial in trials] == [(2, "supported"), (50, "challenged")]
    assert result["cases"][0]["labels"]["records"] == "one/r1 one/r2"
    assert {name: count for name, count in document["decided"].items() if count} == {"published": 1}
    assert document["published"][0]["used_by"] == ["W01"] and document["published"][0]["named"] == 2


def test_evidence_may_declare_another_margin_and_the_rule_prints_it(bench: Bench) -> None:
    """With GPU and CPU 10 times apart, a threshold of 9 needs a margin up to 1.11."""
    claim = {**AWAITING, "threshold": {"value": 9, "why": "?"}}
    verdicts = {}
    for more in ({}, {"margin": {"by": 1.1, "why": "One program on one card."}}):
        evidence = {"evidence": [{**EVIDENCE, **more}], "findings": FINDINGS}
        (verdict,) = bench.judge({**claim, "published": evidence}, one=[GPU, CPU])["verdicts"]
        verdicts[bool(more)] = verdict
    assert {own: verdict["verdict"] for own, verdict in verdicts.items()} == {
        False: "awaiting hardware",
        True: "supported",
    }
    (part,) = verdicts[True]["parts"]
    assert (part["margin"], part["ends"]) == (1.1, "source")
    assert "clears the threshold by a factor of 1.1 (one program on one card)" in rule_text(part)


@pytest.mark.parametrize(
    ("change", "strength", "beside"),
    [({}, "indirect", "supported"), ({"value": 60.0}, "direct", "undecided"), ({"dtype": ""}, "direct", None)],
    ids=["indirect", "not clear", "no format"],
)
def test_insufficient_evidence_is_listed_but_does_not_decide(
    bench: Bench, change: dict[str, Any], strength: str, beside: str | None
) -> None:
    claim = {**AWAITING, "published": {"evidence": [{**EVIDENCE, "strength": strength}], "findings": FINDINGS}}
    (result,) = bench.judge(claim, one=[{**GPU, **change}, CPU])["verdicts"]
    assert (result["verdict"], result["decided_on"], result["finding"]) == (Verdict.AWAITING_HARDWARE, "", "Open.")
    (published_part,) = result["parts"][0]["others"]
    assert (published_part["outcome"], published_part["decides"]) == (beside, False)


def test_own_measurement_takes_precedence_over_published_evidence(bench: Bench, synthetic: Factory) -> None:
    claim, record = gemm_claim(1e6), {**CPU, "task": "product", "measure": "flops", "unit": "FLOP/s", "value": 1e3}
    (result,) = bench.judge(claim, synthetic().gemm(12), one=[record])["verdicts"]
    assert (result["verdict"], result["decided_on"], result["finding"]) == (Verdict.SUPPORTED, HERE, "Here.")
    (beside,) = result["parts"][0]["others"]
    assert (beside["outcome"], beside["decides"]) == ("challenged", False) and beside["records"] == ["one/r1"]
    assert beside["beside"] == pytest.approx(result["estimate"] / 1e3)


@pytest.mark.parametrize(
    ("rounds", "verdict", "decided_on"), [((1,), Verdict.CHALLENGED, OTHERS), ((3, 1, 1), Verdict.CHALLENGED, OTHERS),
                                          ((3,), Verdict.SUPPORTED, HERE), ((3, 3, 1), Verdict.UNDECIDED, "")],
)  # fmt: skip
def test_published_evidence_decides_until_most_points_have_two_rounds(
    bench: Bench, synthetic: Factory, rounds: tuple[int, ...], verdict: Verdict, decided_on: str
) -> None:
    claim, record = gemm_claim(40e9), {**CPU, "task": "product", "measure": "flops", "unit": "FLOP/s", "value": 1e3}
    # The first point lies above the threshold, and the later points lie at the threshold.
    node = synthetic()
    for place, number in enumerate(rounds):
        node.gemm(12 if place == 0 else 40 / 6, n=256 * (place + 1), rounds=number)
    (result,) = bench.judge(claim, node, one=[record])["verdicts"]
    assert (result["verdict"], result["decided_on"]) == (verdict, decided_on)
    assert bool(result["parts"][0]["waits"]) == (decided_on == OTHERS)


def test_published_section_with_unknown_names_is_refused(bench: Bench) -> None:
    for evidence, message in (
        ({**EVIDENCE, "quantity": "published.speedups"}, "Did you mean 'published.speedup'"),
        ({**EVIDENCE, "quantity": "gemm.rate"}, "is not allowed"),
        ({**EVIDENCE, "scope": {"tusk": "train"}}, "unknown key"),
        ({**EVIDENCE, "part": "none such"}, "there is no part 'none such'"),
    ):
        with pytest.raises(StudyError, match=re.escape(message)):
            bench.judge({**AWAITING, "published": {"evidence": [evidence], "findings": FINDINGS}})
    with pytest.raises(StudyError, match=r"published\.speedup"):
        bench.judge({**AWAITING, "quantity": "published.speedup", "scope": {}})


def test_awaiting_claims_have_published_evidence_or_a_reason() -> None:
    """Claims that no measured machine decides have published evidence or a reason."""
    for claim in read_claims(CLAIMS, read_reference(REFERENCE)):
        needs = [quantities()[part.quantity] for part in claim.parts if part.quantity in quantities()]
        waits = any("gpu" in need.kinds for need in needs) or any(part.awaits for part in claim.parts)
        waits = waits or any(part.scope.get("device") == "gpu" for part in claim.parts)
        assert not waits or claim.published or claim.unpublished, claim.id
