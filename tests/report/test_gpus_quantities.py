"""How much the choice of GPU matters: predicted by ratings, limited by arithmetic, memory or the start of kernels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from report.derived_estimates import DerivedEstimates
from report.judging.judge import judge
from report.quantities import quantities
from report.quantities.gpus import LAUNCH_S, LAUNCHES, rated

from .conftest import Factory, SyntheticNode
from .evidence import of, value
from .priced import evidence


def model(
    node: SyntheticNode, name: str, flop: float, parameters: float, levels: float, kept: float = 1.0
) -> SyntheticNode:
    """A model as it is counted, by sample."""
    for metric, number in (
        ("step_flop", flop), ("parameters", parameters), ("activation_bytes", kept), ("levels", levels),
    ):  # fmt: skip
        node.point("models", number, metric=metric, params={"model": name}, unit="1", spread=0)
    return node


def test_spread_is_that_of_arithmetic_of_bandwidth_or_none(synthetic: Factory) -> None:
    node = synthetic("node-a")
    model(node, "computes", 1e15, 1e3, 1)
    model(node, "moves", 1.0, 5e8, 1)
    model(node, "waits", 1e3, 1e3, 1000)
    found = evidence(synthetic, node)
    chips = rated(found)
    peaks = [chip.figures["bf16_flops"] for chip in chips]
    assert len(chips) >= 5
    spread = {
        name: value(of("roofline.spread_over_gpus", found, model=name)) for name in ("computes", "moves", "waits")
    }
    assert spread["computes"] == pytest.approx(max(peaks) / min(peaks), rel=1e-3)
    moved = [chip.figures["memory_bytes_per_s"] for chip in chips]
    assert spread["moves"] == pytest.approx(max(moved) / min(moved), rel=1e-2)
    assert spread["waits"] == pytest.approx(1, abs=1e-3)


def test_a_model_that_some_gpu_cannot_hold_has_no_number_but_words(synthetic: Factory, tmp_path: Path) -> None:
    node = model(model(synthetic("node-a"), "large", 1e12, 4e9, 10), "waits", 1e3, 2e3, 1000)
    found = evidence(synthetic, node)
    large = of("roofline.spread_over_gpus", found, model="large")
    assert value(large) == math.inf and "NVIDIA L4" in large.frame["detail"].iloc[0]
    document = judge(found, tmp_path / "verdicts.json", allow_synthetic=True)
    claim = next(one for one in document["verdicts"] if one["id"] == "G26")
    by = {cell["model"]: cell for cell in claim["cells"]}
    assert by["large"]["outcome"] == "supports" and by["large"]["estimate"] is None
    assert by["large"]["label"].endswith("cannot hold it")
    assert "1 without end (" in claim["reason"] and "1,000" not in claim["reason"]


def test_the_arithmetic_of_a_cell_gives_the_cell(synthetic: Factory) -> None:
    found = evidence(synthetic, model(synthetic("node-a"), "gpt", 1e11, 1e7, 50))
    cells = quantities()["roofline.spread_over_gpus"].cells(found)
    assert isinstance(cells, DerivedEstimates)
    inputs = cells.works[0].inputs
    assert inputs["k"].value == LAUNCHES * 50 and inputs["l"].value == LAUNCH_S
    without = cells.moved(0, "l", "low").frame["estimate"].iloc[0]
    assert without > float(cells.frame["estimate"].iloc[0])
