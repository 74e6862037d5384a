"""The dataset's ids lead from a verdict to its samples, and its intervals can be recomputed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from contract.errors import StudyError
from contract.sample_dictionary import dictionary, metric_entry, parameter_entry
from contract.sample_flags import FLAGS, Flag, format_flags
from experiments.registry import OWN, experiments
from report.data.gather import gather
from report.dataset.measured import flag_columns, merge_points, point_id
from tests.report.conftest import Factory


def read(dataset: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(dataset / f"{name}.parquet")


def test_intervals_can_be_recomputed_from_samples(dataset: Path) -> None:
    """Recompute every interval by the data card's formula, from the samples and the prior alone."""
    results = read(dataset, "results").filter(pl.col("prior_df").is_not_null())
    assert set(results["scale"]) == {"log", "logit"}
    samples = read(dataset, "samples").filter((pl.col("status") == "ok") & pl.col("counts"))
    series = ["node", "point_id", "metric"]
    medians = samples.group_by(*series, "run_id").agg(pl.col("value").median())
    medians = medians.join(read(dataset, "runs").select("run_id", "session"), on="run_id")
    odds = pl.when(pl.col("scale") == "logit").then(1 - pl.col("value")).otherwise(1.0)
    medians = medians.join(results.select(*series, "scale"), on=series).with_columns((pl.col("value") / odds).log())
    size, value = pl.len().over(*series, "session"), pl.col("value")
    rounds = (
        medians.with_columns(apart=value - value.mean().over(*series, "session"), size=size)
        .group_by(series)
        .agg(count=pl.len(), mean=value.mean(), within=pl.col("apart").pow(2).sum(), sizes=pl.col("size").sum())
    )
    rows = results.join(rounds, on=series)
    assert len(rows) == len(results) > 1000
    n, own = rows["count"].to_numpy().astype(float), rows["variance"].to_numpy()
    df = n - rows["n_sessions"].to_numpy()
    assert (own >= rows["within"].to_numpy() / df * (1 - 1e-6)).all(), "a variance is only ever raised"
    d0, s0 = rows["prior_df"].to_numpy(), rows["prior_variance"].to_numpy()
    between = rows["session_variance"].fill_null(0).to_numpy()
    assert (between > 0).any()
    se = np.sqrt((d0 * s0 + df * own) / (d0 + df) / n + between * rows["sizes"].to_numpy() / n**2)
    half = stats.t.ppf(0.995, rows["df"].to_numpy()) * se
    logit = (rows["scale"] == "logit").to_numpy()
    for name, value in (("estimate", 0.0), ("low", -half), ("high", half)):
        end = rows["mean"].to_numpy() + value
        recomputed = np.where(logit, special.expit(end), np.exp(end))
        assert recomputed == pytest.approx(rows[name].to_numpy(), rel=1e-9), name


def test_verdict_leads_to_its_samples_by_ids_alone(dataset: Path) -> None:
    claim = (
        read(dataset, "claims")
        .filter(pl.col("tier") == "measured", pl.col("verdict") == "supported")
        .row(0, named=True)
    )
    cells = read(dataset, "cells").filter(pl.col("claim_id") == claim["claim_id"])
    evidence = read(dataset, "cell_evidence").filter(pl.col("kind") == "result").join(cells, on="cell_id", how="semi")
    results = read(dataset, "results").join(evidence, left_on="result_id", right_on="evidence_id", how="semi")
    assert len(results) == evidence["evidence_id"].n_unique() > 0
    for row in results.filter(pl.col("unit") == "s").head(5).iter_rows(named=True):
        samples = read(dataset, "samples").filter(
            pl.col("node") == row["node"], pl.col("point_id") == row["point_id"], pl.col("metric") == row["metric"]
        )
        medians = samples.filter(pl.col("status") == "ok").group_by("run_id").agg(pl.col("value").median())
        assert float(np.exp(medians["value"].log().mean())) == pytest.approx(row["estimate"], rel=1e-12)


def test_every_cell_has_evidence(dataset: Path) -> None:
    cells, evidence = read(dataset, "cells"), read(dataset, "cell_evidence")
    assert cells.join(evidence, on="cell_id", how="anti").is_empty()
    bare = evidence.filter(pl.col("kind") == "arithmetic").join(cells, on="cell_id")
    assert set(bare["tier"]) <= {"derived"}


def test_ids_do_not_depend_on_the_other_nodes(synthetic: Factory, tmp_path: Path) -> None:
    first = synthetic("node-a").gemm(20).clock().write()
    gather([first], tmp_path / "alone", allow_synthetic=True)
    synthetic("node-b").gemm(10, n=256).peak(1e9).write()
    gather([synthetic.root], tmp_path / "both", allow_synthetic=True)
    for name, key in (("results", "result_id"), ("points", "point_id"), ("runs", "run_id")):
        alone, both = (set(read(tmp_path / folder, name)[key]) for folder in ("alone", "both"))
        assert alone < both, name
    run = read(tmp_path / "alone", "runs")["run_id"][0]
    assert (synthetic.root / f"{run}.parquet").is_file(), "a run's id is the path of its file"


@given(st.text(), st.text(), st.integers(0, 64))
def test_point_ids_differ_where_points_do(device: str, params: str, threads: int) -> None:
    name = point_id("gemm", device, "torch", "float32", threads, params)
    assert name.startswith("gemm.") and name == point_id("gemm", device, "torch", "float32", threads, params)
    assert name != point_id("gemm", device, "torch", "float32", threads + 1, params)
    assert name != point_id("gemm", f"{device} ", "torch", "float32", threads, params)


def test_two_points_with_one_id_are_refused() -> None:
    points = pl.DataFrame({"point_id": ["gemm.1", "gemm.1"], "params": ["{}", '{"n":1}']})
    with pytest.raises(StudyError, match="lengthen the hash"):
        merge_points([points])


@given(st.lists(st.sampled_from(sorted(FLAGS)), unique=True), st.floats(0.01, 99), st.booleans())
def test_flags_become_codes_and_numbers(names: list[str], number: float, percent: bool) -> None:
    detail = f"{number:.2f}%" if percent else f"{number:.2f} of them"
    (row,) = flag_columns([format_flags(Flag(name, detail) for name in names)]).to_dicts()
    assert row["codes"].split() == names
    expected = pytest.approx(round(number, 2) / (100 if percent else 1))
    for name, column in (
        ("queued", "queued"),
        ("stopped", "stopped_s"),
        ("crowded", "crowded"),
        ("clock", "clock_drop"),
    ):
        assert row[column] == (expected if name in names else None)


def test_throttling_codes_name_the_reason() -> None:
    rows = flag_columns(
        ["throttled: power limit; throttled: heat", "throttled: cgroup quota in 30% of its periods", "busy"]
    )
    assert rows["codes"].to_list() == ["throttled-power throttled-heat", "throttled-quota", "busy"]


def test_dictionary_covers_all_parameters_and_metrics(dataset: Path) -> None:
    for experiment in experiments().values():
        for name in experiment.parameters.keys() - OWN.keys():
            assert experiment.name in parameter_entry(name).get("experiments", []), (experiment.name, name)
    for row in read(dataset, "parameters").iter_rows(named=True):
        assert row["means"] and row["type"] == parameter_entry(row["parameter"])["type"], row["parameter"]
    for row in read(dataset, "metrics").iter_rows(named=True):
        entry = metric_entry(row["metric"])
        assert row["means"] and row["better"] in ("less", "more", "neither"), row["metric"]
        assert entry["experiments"] == "all" or set(row["experiments"].split()) <= set(entry["experiments"]), row[
            "metric"
        ]
    assert set(dictionary()["items"]) <= {*experiments(), "generation"}
