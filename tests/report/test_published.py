"""What others measured: records that are refused, speed-ups that recompute, and claims that are decided on them."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from report.cli import main
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.published_records import COLUMNS, PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import exact_estimates
from report.judging.claim_files import read_claims
from report.judging.judge import CLAIMS, judge
from report.judging.rules import CLEAR, PublishedEnds
from report.outcomes import HERE, OTHERS, Side, Threshold, Verdict
from report.quantities import quantities
from report.quantities.published import cpu_kind, gpu_kind

from .conftest import Factory, SyntheticNode
from .made_estimates import NO_DATA
from .published_runs import CPU, GPU, published_sources, write_source

HEAD = {"article": "whygpu", "section": "One", "says": "Something.", "kind": "measured", "note": "N.", "version": 1}
WAITS: dict[str, Any] = {
    **HEAD, "quantity": "training.speedup", "scope": {"baseline": "node", "precision": "best"}, "rule": "at_least",
    "threshold": {"value": 5, "why": "?"}, "sensitivity": [2, 5, 50],
    "findings": {"awaiting": "Open."},
}  # fmt: skip
EVIDENCE = {"quantity": "published.speedup", "strength": "direct", "scope": {"task": "train"}, "why": "The same."}
TOLD = {"supported": "Others: {least:number} to {most:number}.", "challenged": "Others: at most {most:number}."}


def products(threshold: float) -> dict[str, Any]:
    """A claim on the rate of products, which others measured too."""
    evidence = [{**EVIDENCE, "quantity": "published.flops", "scope": {"task": "product"}}]
    return {
        **HEAD, "quantity": "gemm.rate", "scope": {"device": "cpu", "threads": 1}, "rule": "at_least",
        "threshold": {"value": threshold, "why": "?"}, "findings": {"supported": "Here."},
        "published": {"evidence": evidence, "findings": TOLD},
    }  # fmt: skip


def own() -> Any:
    return read_published(PUBLISHED)


def dataset(folder: Path, **sources: Any) -> Dataset:
    return Dataset(NO_DATA.nodes, {}, NO_DATA.table, published_sources(folder, **sources))


# The records themselves


def test_every_record_of_the_study_is_read_and_leads_to_a_well_formed_address() -> None:
    """A repository's address names a commit, so that the figure cannot move away from under it."""
    records = own().records
    assert len(records) >= 300 and records["source"].nunique() >= 40
    for url in records["url"].unique():
        parts = urlsplit(url)
        assert parts.scheme == "https" and "." in parts.netloc and not re.search(r"[\s<>\"]", url), url
        if parts.netloc == "github.com" and "/blob/" in parts.path:
            assert re.search(r"/blob/[0-9a-f]{40}/.", parts.path), url


def test_no_record_speaks_of_how_it_was_gathered() -> None:
    told = own().records[["where", "note", "setting"]].agg(" ".join, axis=1)
    assert not told.str.contains(r"helper|/(?:home|opt|root|tmp|work)/|stored text", regex=True).any()


FAULTS = {
    "no source": ({"url": ""}, "needs its source"),
    "no unit": ({"unit": ""}, "unit: is empty"),
    "a unit that is another's": ({"unit": "s"}, "must be 1/s, the unit for rate"),
    "no hardware": ({"gpu": " "}, "needs the hardware"),
    "a device that is none": ({"device": "tpu"}, "'tpu' is not allowed"),
    "a task that is unknown": ({"task": "train-to-targt"}, "Did you mean 'train-to-target'"),
    "a format that is unknown": ({"dtype": "bf16"}, "Did you mean 'bfloat16'"),
    "words for a figure": ({"value": "fast"}, "'fast' is not a number"),
    "no figure": ({"value": ""}, "value: is empty"),
    "a figure without end": ({"value": "inf"}, "inf must be between 0 and 1e30"),
    "half a GPU": ({"gpus": 0.5}, "gpus: 0.5 must be a whole number above 0"),
    "nothing done in no time": ({"value": 0}, "value: must be above 0 for rate"),
    "a share above one": ({"measure": "share", "unit": "1", "value": 1.2}, "more than any such hardware can do"),
    "memory faster than any": ({"measure": "bandwidth", "unit": "B/s", "value": 3e14}, "more than any such hardware"),
    "arithmetic faster than any": ({"measure": "flops", "unit": "FLOP/s", "value": 1e18}, "check the unit"),
    "a spread beside its figure": ({"low": 200}, "does not lie between low and high"),
    "a date that is none": ({"date": "last spring"}, "is not a date"),
    "nobody who measured": ({"measured_by": ""}, "measured_by: is empty"),
    "threads in words": ({"threads": "all"}, "threads: 'all' is not a number"),
    "half a parameter": ({"parameters": 0.5}, "parameters: 0.5 must be a whole number above 0"),
    "copies of no known kind": ({"copies": "pined"}, "Did you mean 'pinned'"),
    "a back end that is unknown": ({"back_end": "cudann"}, "Did you mean 'cudnn'"),
    "an id with blanks": ({"id": "row one"}, "id: 'row one'"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_faulty_record_is_refused_with_file_and_line(tmp_path: Path, fault: str) -> None:
    change, says = FAULTS[fault]
    path = write_source(tmp_path, "made-up", [GPU, {**GPU, **change}])
    with pytest.raises(StudyError) as refused:
        read_published(tmp_path)
    assert str(refused.value).startswith(f"{path}, line 3: ") and says in str(refused.value)


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
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
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, row: list[str]) -> None:
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
    "a format that is not told": ({"dtype": ""}, "a direct comparison needs the number format of both records"),
}


@pytest.mark.parametrize("fault", COMPARED, ids=str)
def test_a_comparison_of_unlike_work_is_refused_with_file_and_line(tmp_path: Path, fault: str) -> None:
    change, says = COMPARED[fault]
    write_source(tmp_path, "made-up", [GPU, {**CPU, **change}])
    pair = "- {id: pair, of: made-up/r1, over: made-up/r2, differs: [], strength: direct, why: Because.}\n"
    (tmp_path / "comparisons.yaml").write_text(pair)
    with pytest.raises(StudyError) as refused:
        read_published(tmp_path)
    assert f"{tmp_path / 'comparisons.yaml'}, line 1: pair: " in str(refused.value) and says in str(refused.value)
    (tmp_path / "comparisons.yaml").write_text(pair.replace("made-up/r2", "made-up/r3"))
    with pytest.raises(StudyError, match="no record 'made-up/r3'"):
        read_published(tmp_path)


# What is worked out of them


def speedups(folder: Path, **sources: Any) -> list[dict[str, Any]]:
    return estimated("published.speedup", dataset(folder, **sources))


def estimated(quantity: str, data: Dataset) -> list[dict[str, Any]]:
    return list(quantities()[quantity].compute(data).frame.to_dict("records"))


def test_a_gpu_is_held_against_one_machine_of_cpus_doing_the_same_work(tmp_path: Path) -> None:
    cluster = {**CPU, "nodes": 4, "cpus": 8, "cores": 448, "value": 100.0}
    box = {**GPU, "gpus": 8, "value": 6000.0, "low": 5000.0, "high": 7000.0}
    other = {**CPU, "model": "resnet"}
    (found,) = speedups(tmp_path, one=[box, cluster, other])
    assert found["estimate"] == pytest.approx((6000 / 8) / (100 / 4))
    assert (found["low"], found["high"]) == (pytest.approx(25.0), pytest.approx(35.0))
    assert found["detail"] == "scaled from 8 GPUs and 4 machines" and found["baseline"] == "server"
    assert found["precision"] == "bfloat16 over bfloat16"


def test_a_time_counts_as_one_over_it_and_the_fastest_cpu_is_the_opponent(tmp_path: Path) -> None:
    timed = [{**one, "measure": "time", "unit": "s", "value": value} for one, value in ((GPU, 2), (CPU, 30), (CPU, 20))]
    (found,) = speedups(tmp_path, one=timed)
    assert found["estimate"] == pytest.approx(10.0)


def test_sources_are_not_mixed_and_small_processors_are_told_apart_from_servers(tmp_path: Path) -> None:
    phone = {**CPU, "cpu": "Cortex-A72", "cpus": 1, "cores": 4}
    assert not speedups(tmp_path / "a", one=[GPU], two=[CPU])
    (found,) = speedups(tmp_path / "b", one=[GPU, phone])
    assert found["baseline"] == "one processor"


def test_nine_tenths_of_the_best_throughput_are_enough_threads_and_growth_is_told_below_half_of_them(
    tmp_path: Path,
) -> None:
    speeds = {128: 1.0, 256: 2.0, 512: 4.0, 1024: 9.0, 2048: 10.0}
    records = [{**GPU, "task": "threads", "threads": n, "value": value} for n, value in speeds.items()]
    data = dataset(tmp_path / "one", one=records)
    (enough,) = estimated("published.threads_for_90_percent", data)
    assert [enough[name] for name in ("low", "estimate", "high")] == [512, 1024, 1024]
    assert enough["detail"] == "tried: 128 to 2,048"
    (growth,) = estimated("published.linearity", data)
    assert growth["estimate"] == 1.0 and growth["detail"] == "128 to 512 threads"
    growing = dataset(tmp_path / "two", two=[{**record, "value": record["threads"]} for record in records])
    assert not estimated("published.threads_for_90_percent", growing)


def test_hardware_bears_one_name_whatever_an_entrant_calls_it() -> None:
    names = {
        "NVIDIA H100-SXM5-80GB": "H100 SXM", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA A100-PCIe-80GB": "A100 PCIe",
        "NVIDIA GeForce RTX 3080 Laptop GPU": "RTX 3080 laptop", "NVIDIA GeForce RTX 3090 24GB": "RTX 3090",
        "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER", "NVIDIA L40S": "L40S",
        "NVIDIA GH200 Grace Hopper Superchip 96GB": "GH200", "NVIDIA GB300": "GB300",
        "Intel(R) Arc Pro(R) B70": "Arc Pro B70",
    }  # fmt: skip
    assert {name: gpu_kind(name) for name in names} == names
    assert cpu_kind("Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz") == "Xeon Platinum 8480+"


def test_declared_ratios_and_speed_ups_recompute_from_the_records_that_they_name() -> None:
    """By other arithmetic than the quantities': from the files, record by record."""
    known = own()
    data = Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, known)

    def speed(key: str) -> float:
        record = known.records_by_key[key]
        value = 1 / record["value"] if record["measure"] in ("time", "latency", "energy") else record["value"]
        many = record["gpus"] if record["device"] == "gpu" else record["nodes"]
        alone = record["measure"] == "latency" or many != many
        return float(value / (1.0 if alone else many))

    seen = 0
    for name in ("published.speedup", "published.energy_ratio"):
        for row in quantities()[name].compute(data).frame.to_dict("records"):
            *gpus, cpu = str(row["records"]).split()
            assert row["estimate"] == pytest.approx(statistics.median(map(speed, gpus)) / speed(cpu), rel=1e-9)
            seen += 1
    for row in quantities()["published.compared"].compute(data).frame.to_dict("records"):
        of, over = str(row["records"]).split()
        assert row["estimate"] == pytest.approx(
            known.records_by_key[of]["value"] / known.records_by_key[over]["value"], rel=1e-12
        )
        seen += 1
    assert seen > 300


# How they decide


def published_estimates(*rows: tuple[float, str]) -> Any:
    return exact_estimates([{"estimate": value, "family": family} for value, family in rows])


def sides(at: float, *rows: tuple[float, str]) -> list[Side]:
    """On which side of "at least" a threshold the figures lie."""
    return PublishedEnds(published_estimates(*rows)).sides(Threshold(at), "at_least")


def test_one_figure_decides_alone_only_well_clear_of_the_threshold() -> None:
    for value, side in (
        (10 * CLEAR, Side.SUPPORTS), (14.0, Side.UNDECIDED), (7.0, Side.UNDECIDED), (6.6, Side.CHALLENGES),
    ):  # fmt: skip
        assert sides(10.0, (value, "one")) == [side]


def test_two_that_agree_decide_if_they_are_independent() -> None:
    assert sides(10.0, (12.0, "a"), (13.0, "b")) == [Side.SUPPORTS] * 2
    assert sides(10.0, (12.0, "a"), (13.0, "a")) == [Side.UNDECIDED] * 2
    assert sides(10.0, (12.0, "a and b"), (13.0, "b")) == [Side.UNDECIDED] * 2
    assert sides(10.0, (12.0, "a"), (8.0, "b")) == [Side.UNDECIDED] * 2


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.sampled_from("abc")), min_size=1, max_size=6), st.floats(0.1, 1e3))
def test_no_figure_is_put_on_the_side_on_which_it_does_not_lie(rows: list[tuple[float, str]], at: float) -> None:
    for (value, _), side in zip(rows, sides(at, *rows), strict=True):
        assert side is Side.UNDECIDED or (side is Side.SUPPORTS) == (value >= at)


class Bench:
    """A claim that waits for a GPU, records of others, and what becomes of it."""

    def __init__(self, synthetic: Factory, root: Path) -> None:
        self.synthetic, self.root = synthetic, root
        (root / "claims").mkdir()

    def judge(self, claim: Mapping[str, Any], *nodes: SyntheticNode, **sources: Any) -> dict[str, Any]:
        (self.root / "claims" / "W01.yaml").write_text(json.dumps({"id": "W01", **claim}))
        self.synthetic.write(nodes or [self.synthetic().gemm(12)])
        others = published_sources(self.root / "others", **sources)
        data = Dataset(read_nodes([self.synthetic.root], True), {}, published=others)
        return judge(data, self.root / "out.json", self.root / "claims", allow_synthetic=True)


@pytest.fixture
def bench(synthetic: Factory, tmp_path: Path) -> Bench:
    return Bench(synthetic, tmp_path)


def test_direct_evidence_decides_a_claim_that_waits_by_its_own_rule(bench: Bench) -> None:
    document = bench.judge({**WAITS, "published": {"evidence": [EVIDENCE], "findings": TOLD}}, one=[GPU, CPU])
    (one,) = document["verdicts"]
    assert (one["verdict"], one["decided_on"], one["evidence_tier"]) == (Verdict.SUPPORTED, OTHERS, "published")
    assert one["finding"] == "Others: 10 to 10."
    (part,) = one["parts"]
    assert part["waits"]["experiments"] == ["training"] and part["robustness"] is None and "rejudge" not in part
    trials = [trial for trial in part["others"][0]["trials"] if "side" not in trial]
    assert [(trial["threshold"], trial["outcome"]) for trial in trials] == [(2, "supported"), (50, "challenged")]
    assert one["cases"][0]["labels"]["records"] == "one/r1 one/r2"
    assert document["decided"] == {HERE: 0, OTHERS: 1, "open": 0, "not testable": 0}
    assert document["published"][0]["used_by"] == ["W01"] and document["published"][0]["named"] == 2


@pytest.mark.parametrize(
    ("change", "strength", "beside"),
    [({}, "indirect", "supported"), ({"value": 60.0}, "direct", "undecided"), ({"dtype": ""}, "direct", None)],
    ids=["indirect", "not clear", "of a format that is not told"],
)
def test_evidence_that_is_not_enough_is_shown_and_leaves_the_claim_waiting(
    bench: Bench, change: dict[str, Any], strength: str, beside: str | None
) -> None:
    claim = {**WAITS, "published": {"evidence": [{**EVIDENCE, "strength": strength}], "findings": TOLD}}
    (one,) = bench.judge(claim, one=[{**GPU, **change}, CPU])["verdicts"]
    assert (one["verdict"], one["decided_on"], one["finding"]) == (Verdict.AWAITING_HARDWARE, "", "Open.")
    (shown,) = one["parts"][0]["others"]
    assert (shown["outcome"], shown["decides"]) == (beside, False)


def test_a_measurement_of_ours_takes_precedence_and_both_stand_side_by_side(bench: Bench, synthetic: Factory) -> None:
    claim, record = products(1e6), {**CPU, "task": "product", "measure": "flops", "unit": "FLOP/s", "value": 1e3}
    (one,) = bench.judge(claim, synthetic().gemm(12), one=[record])["verdicts"]
    assert (one["verdict"], one["decided_on"], one["finding"]) == (Verdict.SUPPORTED, HERE, "Here.")
    (beside,) = one["parts"][0]["others"]
    assert (beside["outcome"], beside["decides"]) == ("challenged", False) and beside["records"] == ["one/r1"]
    assert beside["beside"] == pytest.approx(one["estimate"] / 1e3)


@pytest.mark.parametrize(
    ("rounds", "verdict", "decided_on"), [((1,), Verdict.CHALLENGED, OTHERS), ((3, 1, 1), Verdict.CHALLENGED, OTHERS),
                                          ((3,), Verdict.SUPPORTED, HERE), ((3, 3, 1), Verdict.UNDECIDED, "")],
)  # fmt: skip
def test_published_runs_decide_until_most_points_have_a_second_round(
    bench: Bench, synthetic: Factory, rounds: tuple[int, ...], verdict: Verdict, decided_on: str
) -> None:
    claim, record = products(40e9), {**CPU, "task": "product", "measure": "flops", "unit": "FLOP/s", "value": 1e3}
    # The last of several points lies at the threshold.
    node = synthetic()
    for place, number in enumerate(rounds):
        node.gemm(12 if place == 0 else 40 / 6, n=256 * (place + 1), rounds=number)
    (one,) = bench.judge(claim, node, one=[record])["verdicts"]
    assert (one["verdict"], one["decided_on"]) == (verdict, decided_on)
    assert bool(one["parts"][0]["waits"]) == (decided_on == OTHERS)


def test_a_claim_file_names_only_what_is_there(bench: Bench) -> None:
    for evidence, says in (
        ({**EVIDENCE, "quantity": "published.speedups"}, "Did you mean 'published.speedup'"),
        ({**EVIDENCE, "quantity": "gemm.rate"}, "is not allowed"),
        ({**EVIDENCE, "scope": {"tusk": "train"}}, "unknown key"),
        ({**EVIDENCE, "part": "none such"}, "there is no part 'none such'"),
    ):
        with pytest.raises(StudyError, match=re.escape(says)):
            bench.judge({**WAITS, "published": {"evidence": [evidence], "findings": TOLD}})
    with pytest.raises(StudyError, match=r"published\.speedup"):
        bench.judge({**WAITS, "quantity": "published.speedup", "scope": {}})


def test_every_claim_that_waits_has_others_evidence_or_says_why_not() -> None:
    """Each of the claims that no machine of ours decides yet."""
    for claim in read_claims(CLAIMS, read_reference(REFERENCE)):
        needs = [quantities()[part.quantity] for part in claim.parts if part.quantity in quantities()]
        waits = any("gpu" in need.kinds for need in needs) or any(part.awaits for part in claim.parts)
        waits = waits or any(part.scope.get("device") == "gpu" for part in claim.parts)
        assert not waits or claim.published or claim.unpublished, claim.id


def test_references_tell_who_uses_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["references", "--records"]) == 0, "give these a use, or remove them from data/reference"
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "0 used by nobody"
    assert re.search(r"mlperf-training-3\.1: \d+ of \d+ records: .*G09", told)
    assert "mlperf-training-3.1/intel.16-nodes-spr-pytorch.resnet: " in told
