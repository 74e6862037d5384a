"""The fit: constants from synthetic outcomes, ranges from held-out errors, and the published record."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract.errors import StudyError
from report.advice.answers import read_calibration
from report.advice.calibration import (
    FEWEST_SOURCES,
    fit_constants,
    held_out_errors,
    range_of_errors,
    weighted_quantile,
)
from report.advice.formulas import BOUNDS, FORMULAS, MEMORY
from report.advice.jobs import KINDS, WORK, Job, examine
from report.advice.outcomes import COLUMNS, OUTCOMES, Outcome, read_outcomes
from report.advice.own_outcomes import own_outcomes
from report.data.names import read_rows

MACHINES = (
    "RTX 3060 12GB",
    "RTX 3090",
    "RTX 4090",
    "A100 80GB",
    "H100",
    "M1 Max",
    "M2 Ultra",
    "Ryzen 9 5950X",
    "EPYC 7763",
)
SIZES = ("Llama 3.2 1B", "Llama 3.1 8B", "Qwen3 14B", "Qwen3 32B")


def synthetic_outcomes(factor: float, noise: float, sources: int = 12, seed: int = 1) -> list[Outcome]:
    """Make outcomes whose times are the usual constants' times a factor, with normal noise in logarithms by source."""
    random = np.random.default_rng(seed)
    formula, outcomes = FORMULAS["decode"], []
    for source in range(sources):
        shift = random.normal(0, noise)
        for number, hardware in enumerate(MACHINES):
            job = Job(
                "",
                "decode",
                SIZES[(number + source) % len(SIZES)],
                hardware,
                precision="Q4_K_M",
                work=dict.fromkeys(WORK),
            )
            situation = examine(job)
            usual = {name: each.usual(situation.hardware_class) for name, each in formula.constants.items()}
            time = formula.time(situation.inputs, usual) * factor * math.exp(shift)
            outcomes.append(Outcome(f"synthetic {source}", str(number), situation, time, 0.0, {}))
    return outcomes


def test_constants_follow_the_outcomes() -> None:
    outcomes = synthetic_outcomes(1.3, 0.02)
    errors = held_out_errors("decode", outcomes)
    assert np.median(np.abs(np.concatenate(list(errors.values())))) < 0.06
    slow, fast = fit_constants("decode", outcomes), fit_constants("decode", synthetic_outcomes(0.8, 0.02))
    situation = outcomes[0].situation
    times = [each.log_time(FORMULAS["decode"], situation) for each in (slow, fast)]
    assert times[0] - times[1] == pytest.approx(math.log(1.3 / 0.8), abs=0.1)


def test_an_outlier_moves_little() -> None:
    outcomes = synthetic_outcomes(1.0, 0.02)
    spoilt = [replace(each, time=each.time * 8) if each.source == "synthetic 0" else each for each in outcomes]
    situation = outcomes[0].situation
    times = [fit_constants("decode", each).log_time(FORMULAS["decode"], situation) for each in (outcomes, spoilt)]
    assert abs(times[1] - times[0]) < 0.1


def test_a_chip_and_a_model_have_factors_of_their_own() -> None:
    def slowness(each: Outcome) -> float:
        features = each.situation.features
        return (1.5 if features["chip"] == "rtx-4090" else 1.0) * (1.3 if features["model"] == "qwen3-14b" else 1.0)

    outcomes = [replace(each, time=each.time * slowness(each)) for each in synthetic_outcomes(1.0, 0.02)]
    factors = fit_constants("decode", outcomes).factors
    assert max(factors["chip"], key=factors["chip"].__getitem__) == "rtx-4090"
    assert max(factors["model"], key=factors["model"].__getitem__) == "qwen3-14b"
    assert 0.2 < factors["chip"]["rtx-4090"] < math.log(1.6)


def test_ranges_hold_their_share_of_new_sources() -> None:
    random = np.random.default_rng(5)
    errors = [random.normal(0, 0.3, random.integers(1, 9)) for _ in range(200)]
    low, high = range_of_errors(errors)
    fresh = random.normal(0, 0.3, 20_000)
    assert 0.77 < np.mean((fresh > low) & (fresh < high)) < 0.83


def test_a_weighted_quantile_of_equal_weights_is_the_usual_one() -> None:
    values = np.arange(1.0, 102)
    assert weighted_quantile(values, np.ones(101), 0.5) == pytest.approx(51)
    assert weighted_quantile(np.array([1.0, 2.0]), np.array([9.0, 1.0]), 0.5) < 1.5


def test_the_published_record_is_that_of_the_published_outcomes() -> None:
    record, outcomes = read_calibration(), read_outcomes()
    by_kind = {kind: [each for each in outcomes if each.situation.job.kind == kind] for kind in FORMULAS}
    for kind, own in by_kind.items():
        held_out = record["kinds"][kind]["held_out"]
        # This study's machines count as sources too.
        published = {
            source: each for source, each in held_out["by_source"].items() if not source.startswith("this study")
        }
        assert set(published) == {each.source for each in own}
        assert sum(each["outcomes"] for each in published.values()) == len(own)
    kind = "serve"
    assert record["kinds"][kind]["constants"]["datacentre"]["reach"] == pytest.approx(
        fit_constants(kind, by_kind[kind]).values["datacentre"]["reach"], rel=0.01
    )


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("value", "fast", "value: 'fast' is not a number"),
        ("count", "two", "count: 'two' is not a number"),
        ("care", "good", "care must be one of as found, maker, tuned, not 'good'"),
        ("date", "today", "date: 'today' is not a year, month or day"),
        ("kind", "dream", "'dream'"),
        ("unit", "parsec", "parsec"),
        ("value", "0", "value must be above 0, not 0"),
        ("hardware", "Abacus 9000", "Abacus 9000"),
    ],
)
def test_a_faulty_outcome_is_refused_with_file_and_name(tmp_path: Path, column: str, value: str, message: str) -> None:
    frame = pd.read_csv(OUTCOMES, dtype=str, keep_default_na=False).iloc[:3]
    path = tmp_path / "outcomes.csv"
    assert not frame.loc[1, "aside"]
    frame.loc[1, column] = value
    frame.to_csv(path, index=False)
    with pytest.raises(StudyError, match=re.escape(str(path))) as refused:
        read_outcomes(path)
    assert frame.loc[1, "id"] in str(refused.value)
    assert message in str(refused.value)


def test_outcomes_without_a_column_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.csv"
    pd.read_csv(OUTCOMES, dtype=str, keep_default_na=False).drop(columns="care").iloc[:3].to_csv(path, index=False)
    with pytest.raises(StudyError, match="line 1: the columns have to be source,id"):
        read_outcomes(path)


def test_held_out_errors_and_ranges_are_as_good_as_is_told() -> None:
    kinds = read_calibration()["kinds"]
    most = {"decode": 0.2, "serve": 0.3, "train": 0.6, "fine-tune": 0.6}
    for kind, error in most.items():
        assert kinds[kind]["held_out"]["median_error"] <= error
    for kind, record in kinds.items():
        assert record["held_out"]["sources"] >= FEWEST_SOURCES
        assert 0.65 <= record["held_out"]["coverage"] <= 0.9, kind
    assert kinds["decode"]["held_out"]["width"] <= 3
    assert kinds["serve"]["held_out"]["width"] <= 3


def test_outcomes_have_their_columns_sources_and_reasons() -> None:
    rows = read_rows(OUTCOMES)
    assert list(rows[0]) == list(COLUMNS)
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["url"].startswith("https://"), row["id"]
        assert row["measured_by"]
        assert row["where"]
        assert row["kind"] in KINDS
        assert 2009 < int(row["date"][:4]) < 2030
    assert len({row["source"] for row in rows}) >= 150


@pytest.mark.parametrize("kind", sorted(FORMULAS))
def test_formulas_need_only_inputs_that_jobs_have(kind: str) -> None:
    hardware = {"tables": "Ryzen 9 5950X"}.get(kind, "RTX 4090")
    models = {
        "classify": "ResNet-50",
        "detect": "YOLOv8m",
        "embed": "BGE-M3",
        "transcribe": "Whisper small",
        "pictures": "SDXL",
    }
    work = {**dict.fromkeys(WORK), "rows": 1e5}
    inputs = examine(Job("", kind, models.get(kind, "Llama 3.1 8B"), hardware, work=work)).inputs
    for names in (FORMULAS[kind].inputs, BOUNDS[kind].inputs, MEMORY[kind].inputs):
        assert set(names) <= set(inputs)
    assert BOUNDS[kind].time(inputs, {}) > 0


def write_gathered(folder: Path, *rows: dict[str, Any], **processors: str) -> Path:
    """Write gathered data with synthetic results. processors: name by node."""
    nodes = [
        {"id": name, "hardware": {"cpu": {"model": model, "usable_cores": 8}, "memory_bytes": 2**34}}
        for name, model in processors.items()
    ]
    (folder / "nodes.json").write_text(json.dumps(nodes), encoding="utf-8")
    usual = {"metric": "time", "status": "ok", "threads": None, "device": "cpu", "estimate": 0.1}
    pd.DataFrame([{"result_id": str(number), **usual, **row} for number, row in enumerate(rows)]).to_parquet(
        folder / "results.parquet"
    )
    return folder


def test_study_without_models_gives_no_outcomes(tmp_path: Path) -> None:
    row = {"node": "a", "experiment": "gemm", "backend": "numpy", "dtype": "float32"}
    assert own_outcomes(write_gathered(tmp_path, row, a="AMD Ryzen 7 5800X")) == ([], {})


def test_unknown_processor_is_left_out_alone(tmp_path: Path) -> None:
    row = {"experiment": "inference", "backend": "onnx", "dtype": "float32", "model": "resnet-50", "batch": 4.0}
    data = write_gathered(
        tmp_path,
        {**row, "node": "a"},
        {**row, "node": "b"},
        {**row, "node": "b", "estimate": math.nan},
        {**row, "node": "b", "batch": None},
        {**row, "node": "b", "experiment": "language-models", "model": "llama-1b", "phase": "decode"},
        a="Abacus 9000",
        b="AMD Ryzen 7 5800X",
    )
    outcomes, left_out = own_outcomes(data)
    assert [(each.source, each.time) for each in outcomes] == [("this study, b", 0.1 / 4)]
    assert list(left_out) == ["a"] and "Abacus 9000" in left_out["a"]
