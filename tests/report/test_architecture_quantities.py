"""What models are made of is exact, and a recurrence is compared with a transformer of like arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data, of
from .quantity_cases_1 import cases, check, dataset

COUNTS = {
    "mlp": {"parameters": 300.0, "levels": 5.0, "span": 29.0, "width": 262.0, "median_width": 51.0, "length": 10.0,
            "step_flop": 18e3, "forward_flop": 6e3},
    "lstm-32": {"levels": 449.0, "span": 969.0, "width": 890.0, "median_width": 512.0},
}  # fmt: skip


def counted(synthetic: Factory) -> SyntheticNode:
    node = synthetic()
    for model, values in COUNTS.items():
        node.point("models", values, params={"model": model}, backend="", dtype="", unit="1", rounds=1, samples=1,
                   spread=0)  # fmt: skip
    return node


def trained(synthetic: Factory, flop: float = 1e9) -> SyntheticNode:
    """A GPU that gains 2 with the LSTM and 20 with the transformer, at batch 16 of each."""
    node = synthetic(gpus=1)
    for model, batch, factor, work in (
        ("lstm-128", 16, 2.0, flop), ("gpt-1m", 16, 20.0, 1.1e9), ("gpt-1m", 256, 100.0, 17.6e9), ("mlp", 32, 1.0, 1e9),
    ):  # fmt: skip
        for device, threads, seconds in (("cpu", 1, 2.0), ("cpu", 2, 1.0), ("cuda:0", 0, 1 / factor)):
            about: dict[str, Any] = {"params": {"model": model, "batch": batch}, "flop": work, "spread": 1e-4}
            node.point("training", seconds, device=device, threads=threads, **about)
    return node


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, counted)


MLP = {"model": "mlp"}


@cases(
    ("sequential.parallel_width", {**MLP, "level": "widest"}, {"estimate": 262.0, "n_rounds": 1}),
    ("sequential.parallel_width", {"model": "lstm-32", "level": "median"}, 512.0),
    ("sequential.dependent_levels", {**MLP, "counted": "operators"}, 5.0),
    ("sequential.dependent_levels", {**MLP, "counted": "operators, sums as trees"}, 29.0),
    ("models.flop_per_parameter_token", {**MLP, "of": "training"}, 6.0),
    ("models.flop_per_parameter_token", {**MLP, "of": "inference"}, 2.0),
)
def test_counts_are_exact_although_they_were_made_once(
    found: Dataset, name: str, scope: dict[str, Any], expected: Any
) -> None:
    check(found, name, scope, expected, exact=True)


def test_the_recurrence_is_compared_with_the_step_of_like_arithmetic(synthetic: Factory) -> None:
    name, found = "sequential.recurrent_over_transformer", data(synthetic, trained(synthetic))
    places = [{"baseline": baseline, "precision": how} for baseline in ("core", "node") for how in ("equal", "best")]
    expected = {"estimate": 0.1, "model": "lstm-128", "batch": 16, "detail": "over gpt-1m, batch 16"}
    for place in places:
        check(found, name, place, expected, rel=0.01)
    assert len(of(name, found)) == len(places)
    ratio = of(name, found, **places[2]).numbers("se")
    sides = of("training.speedup", found, **places[2], model=["lstm-128", "gpt-1m"], batch=16).numbers("se")
    assert list(ratio) == pytest.approx([(sides**2).sum() ** 0.5], rel=1e-6)


def test_steps_of_unlike_arithmetic_are_not_compared(synthetic: Factory) -> None:
    found = data(synthetic, trained(synthetic, flop=1e7))
    assert len(of("training.speedup", found, model="lstm-128")) == 4
    assert len(of("sequential.recurrent_over_transformer", found)) == 0
