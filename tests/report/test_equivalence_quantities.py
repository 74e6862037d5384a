"""Quantities of equivalence: what agrees, what does not, and what does not run, counted over the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.judging.rules import decide
from report.quantities import quantities

from .conftest import Factory, SyntheticNode

MODELS = ("mlp", "cnn", "gpt-1m", "tabular")


def point(
    node: SyntheticNode,
    model: str,
    agrees: Sequence[float] = (1.0, 1.0, 1.0),
    *,
    device: str = "cuda:0",
    dtype: str = "float32",
    backend: str = "torch",
    steps: int = 20,
    status: str = "ok",
    reason: str = "",
    apart: float = 1e-4,
) -> SyntheticNode:
    """A model's curve on a device: whether it agrees in each round."""
    about: dict[str, Any] = {
        "params": {"model": model, "batch": 8, "steps": steps}, "device": device, "dtype": dtype, "backend": backend,
        "status": status, "reason": reason, "rounds": len(agrees), "spread": 0, "unit": "1",
    }  # fmt: skip
    if status not in ("ok", "wrong"):
        return node.point("equivalence", 1.0, **{**about, "unit": "s"})
    begun = len(node.rows)
    node.point("equivalence", 1.0, metric="agrees_share", samples=1, **about)
    for row in node.rows[begun:]:
        row["value"] = agrees[row["round"] - 1]
    node.point("equivalence", 2.0, metric="loss", samples=steps, **about)
    node.point("equivalence", apart, metric="loss_deviation", samples=1, **about)
    return node.point("equivalence", 1e-3, metric="loss_tolerance", samples=1, **about)


def cells(synthetic: Factory, node: SyntheticNode, name: str = "models_that_agree") -> list[Mapping[str, Any]]:
    found = quantities()[f"equivalence.{name}"].compute(Dataset(read_nodes([synthetic.write([node])], True)))
    return [dict(row) for _, row in found.frame.iterrows()]


def test_models_that_all_agree_in_all_rounds_are_an_exact_share(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model)
    (cell,) = cells(synthetic, node)
    assert (cell["low"], cell["estimate"], cell["high"], cell["n_rounds"]) == (1, 1, 1, 3)
    assert (cell["device"], cell["dtype"], cell["backend"]) == ("cuda:0", "float32", "torch")
    assert cell["detail"] == "4 models"


@pytest.mark.parametrize("status", ["unsupported", "failed", "oom", "timeout", "wrong"])
def test_a_model_that_does_not_run_counts_against_it(synthetic: Factory, status: str) -> None:
    node = synthetic(gpus=1)
    for model in MODELS[:3]:
        point(node, model)
    point(node, "tabular", status=status, reason="no kernel")
    (cell,) = cells(synthetic, node)
    assert (cell["low"], cell["estimate"], cell["high"]) == (0.75, 0.75, 0.75)
    verb = "differing" if status == "wrong" else "not running"
    assert cell["detail"] == f"4 models, {verb}: tabular"


def test_a_model_that_differs_counts_against_it_and_is_named(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model, (0.0,) * 3 if model == "cnn" else (1.0,) * 3)
    (cell,) = cells(synthetic, node)
    assert cell["estimate"] == 0.75
    assert cell["detail"] == "4 models, differing: cnn"


def test_rounds_that_disagree_leave_an_interval(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model, (1.0, 0.0, 1.0) if model == "cnn" else (1.0,) * 3)
    (cell,) = cells(synthetic, node)
    assert cell["low"] < cell["estimate"] < cell["high"] == 1


def test_one_round_gives_no_interval(synthetic: Factory) -> None:
    (cell,) = cells(synthetic, point(synthetic(gpus=1), "mlp", (1.0,)))
    assert cell["estimate"] == 1
    assert cell["low"] != cell["low"]


def test_what_was_left_out_says_nothing_of_the_model(synthetic: Factory) -> None:
    node = point(synthetic(gpus=1), "mlp")
    point(node, "gpt-1m", status="skipped", reason="budget")
    (cell,) = cells(synthetic, node)
    assert (cell["estimate"], cell["detail"]) == (1, "1 model")


def test_a_format_that_the_device_lacks_altogether_is_no_cell(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model)
        point(node, model, dtype="tf32", status="unsupported", reason="no TF32")
    assert [cell["dtype"] for cell in cells(synthetic, node)] == ["float32"]


def test_a_device_on_which_everything_fails_agrees_on_nothing(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model, status="failed", reason="RuntimeError")
    (cell,) = cells(synthetic, node)
    assert (cell["estimate"], cell["high"]) == (0, 0)


def test_a_model_measured_twice_must_agree_in_both(synthetic: Factory) -> None:
    node = point(synthetic(gpus=1), "mlp")
    point(node, "mlp", (0.0,) * 3, steps=30)
    (cell,) = cells(synthetic, node)
    assert (cell["estimate"], cell["detail"]) == (0, "1 model, differing: mlp")


def test_libraries_of_the_cpu_are_told_apart_and_the_reference_is_not_its_own_judge(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model, device="cpu")
        point(node, model, device="cpu", backend="onednn")
        point(node, model, (float(model != "cnn"),) * 3, device="cpu", dtype="bfloat16")
    assert cells(synthetic, node) == []
    told = {
        (cell["backend"], cell["dtype"]): cell["estimate"] for cell in cells(synthetic, node, "backends_that_agree")
    }
    assert told == {("onednn", "float32"): 1, ("torch", "bfloat16"): 0.75}


@pytest.mark.parametrize(("failing", "outcome"), [(0, "supported"), (1, "challenged")])
def test_the_claims_rule_decides_on_it(synthetic: Factory, failing: int, outcome: str) -> None:
    node = synthetic(gpus=1)
    for place, model in enumerate(MODELS):
        point(node, model, (float(place >= failing),) * 3)
    found = quantities()["equivalence.models_that_agree"].compute(Dataset(read_nodes([synthetic.write([node])], True)))
    assert decide("at_least", found, 0.99).outcome == outcome


@pytest.mark.parametrize("name", ["models_that_agree", "backends_that_agree"])
def test_without_curves_there_is_nothing(synthetic: Factory, name: str) -> None:
    assert cells(synthetic, synthetic().gemm(10), name) == []
