"""What models are made of is exact, and a recurrence is compared with a transformer of like arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import lacking, select
from report.judging.rules import decide
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data

COUNTS = {
    "mlp": {"parameters": 300_000, "levels": 5, "span": 29, "width": 262_144, "median_width": 5_120},
    "lstm-32": {"parameters": 1_200_000, "levels": 449, "span": 969, "width": 8_900_000, "median_width": 512},
}


def counted(node: SyntheticNode) -> SyntheticNode:
    """Two models, counted once."""
    for model, values in COUNTS.items():
        for metric, value in values.items():
            node.point("models", float(value), params={"model": model}, backend="", dtype="", metric=metric, unit="1",
                       rounds=1, samples=1, spread=0.0)  # fmt: skip
    return node


def step(node: SyntheticNode, seconds: float, model: str, batch: int, flop: float, device: str, **more: Any) -> None:
    params = {"model": model, "batch": batch}
    node.point("training", seconds, device=device, params=params, flop=flop, spread=1e-4, **more)


def trained(synthetic: Factory, gain: float = 2.0, transformer: float = 20.0, flop: float = 1e9) -> SyntheticNode:
    """A GPU that gains `gain` with the LSTM and `transformer` with the transformer, at batch 16 of each."""
    node = synthetic("node-a", gpus=1)
    for model, batch, factor, work in (
        ("lstm-128", 16, gain, flop), ("gpt-1m", 16, transformer, 1.1e9), ("gpt-1m", 256, 100.0, 17.6e9),
        ("mlp", 32, 1.0, 1e9),
    ):  # fmt: skip
        for threads, seconds in ((1, 2.0), (2, 1.0)):
            step(node, seconds, model, batch, work, "cpu", threads=threads)
        step(node, 1.0 / factor, model, batch, work, "cuda:0")
    return node


def of(name: str, data: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"sequential.{name}"].compute(data), scope)


def test_counts_are_exact_although_they_were_made_once(synthetic: Factory) -> None:
    found = data(synthetic, counted(synthetic("node-a")))
    widths = of("parallel_width", found).frame
    assert {(m, level): value for m, level, value in widths[["model", "level", "estimate"]].to_numpy()} == {
        ("mlp", "median"): 5_120, ("mlp", "widest"): 262_144,
        ("lstm-32", "median"): 512, ("lstm-32", "widest"): 8_900_000,
    }  # fmt: skip
    assert (widths["low"] == widths["estimate"]).all()
    assert (widths["high"] == widths["estimate"]).all()
    assert set(widths["n_rounds"]) == {1}


def test_every_model_is_deeper_than_one_level(synthetic: Factory) -> None:
    found = data(synthetic, counted(synthetic("node-a")))
    levels = of("dependent_levels", found)
    assert decide("at_most", levels, 1).outcome == "challenged"
    assert list(of("dependent_levels", found, model="mlp").frame["estimate"]) == [5, 29]
    assert decide("at_least", of("parallel_width", found), 1000).outcome == "depends"
    assert decide("at_least", of("parallel_width", found, level="widest"), 1000).outcome == "supported"


def test_the_recurrence_is_compared_with_the_step_of_like_arithmetic(synthetic: Factory) -> None:
    cells = of("recurrent_over_transformer", data(synthetic, trained(synthetic)), device="gpu")
    assert set(cells.frame["model"]) == {"lstm-128"}
    assert list(cells.frame["estimate"]) == pytest.approx([0.1] * len(cells), rel=0.01)
    assert set(cells.frame["detail"]) == {"over gpt-1m, batch 16"}
    assert {"core", "node"} <= set(cells.frame["baseline"])
    assert {"equal", "best"} == set(cells.frame["precision"])
    assert (cells.frame["low"] < cells.frame["estimate"]).all()
    assert decide("at_least", cells, 0.33).outcome == "challenged"


def test_alike_speed_ups_are_a_ratio_of_one(synthetic: Factory) -> None:
    cells = of("recurrent_over_transformer", data(synthetic, trained(synthetic, gain=20.0)), device="gpu")
    assert list(cells.frame["estimate"]) == pytest.approx([1.0] * len(cells), rel=0.01)
    assert decide("at_least", cells, 0.33).outcome == "supported"


def test_steps_of_unlike_arithmetic_are_not_compared(synthetic: Factory) -> None:
    found = data(synthetic, trained(synthetic, flop=1e7))
    assert len(of("recurrent_over_transformer", found)) == 0


def test_a_ratio_carries_both_sides_uncertainty(synthetic: Factory) -> None:
    found = data(synthetic, trained(synthetic))
    ratio = of("recurrent_over_transformer", found, baseline="node", precision="equal").frame.iloc[0]
    speedups = select(quantities()["training.speedup"].compute(found), {"baseline": "node", "precision": "equal"})
    sides = speedups.frame[speedups.frame["model"].isin(["lstm-128", "gpt-1m"]) & (speedups.frame["batch"] == 16)]
    assert float(ratio["se"]) == pytest.approx(float((sides["se"] ** 2).sum()) ** 0.5, rel=1e-6)


def test_without_a_gpu_the_comparison_awaits_hardware(synthetic: Factory) -> None:
    node = synthetic("node-a")
    step(node, 1.0, "lstm-128", 16, 1e9, "cpu")
    found = data(synthetic, node)
    quantity = quantities()["sequential.recurrent_over_transformer"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    verdict, _ = lacking(Part("", quantity.name, "at_least", 1, "", scope={"device": "gpu"}), quantity, cells, found)
    assert verdict == "awaiting hardware"


def test_without_counts_the_models_await_their_experiment(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("node-a").clock())
    quantity = quantities()["sequential.dependent_levels"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    verdict, why = lacking(Part("", quantity.name, "at_most", 1, ""), quantity, cells, found)
    assert verdict == "awaiting experiment"
    assert "models" in why
