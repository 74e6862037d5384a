"""Quantities of equivalence: what agrees, what does not, and what does not run, counted over the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from .conftest import Factory, SyntheticNode
from .evidence import data, of

MODELS = ("mlp", "cnn", "gpt-1m", "tabular")
AGREE, DIFFER = (1.0,) * 3, (0.0,) * 3


def point(
    node: SyntheticNode, model: str, agrees: Sequence[float] = AGREE, status: str = "ok", steps: int = 20, **more: Any
) -> None:
    """A model's curve on a device: whether it agrees in each round."""
    about = {"params": {"model": model, "batch": 8, "steps": steps}, "device": "cuda:0", "spread": 0, "unit": "1",
             "status": status, "reason": "" if status == "ok" else "why", "rounds": len(agrees), **more}  # fmt: skip
    if status not in ("ok", "wrong"):
        node.point("equivalence", 1.0, **{**about, "unit": "s"})
        return
    begun = len(node.rows)
    node.point("equivalence", 1.0, metric="agrees_share", samples=1, **about)
    for row in node.rows[begun:]:
        row["value"] = agrees[row["round"] - 1]
    node.point("equivalence", 2.0, metric="loss", samples=steps, **about)
    node.point("equivalence", 1e-4, metric="loss_deviation", samples=1, **about)


NOT_RUNNING = "4 models, not running: tabular"
# What the fourth model does (none: it is not there), and the estimate, its ends, and what is said of it.
FOURTH: dict[str, tuple[dict[str, Any] | None, tuple[Any, ...]]] = {
    "agrees": ({}, (1, 1, 1, "4 models")),
    "differs": ({"agrees": DIFFER}, (0.75, 0.75, 0.75, "4 models, differing: tabular")),
    "differs once": ({"agrees": (1.0, 0.0, 1.0)}, (11 / 12, None, 1, "4 models, differing: tabular")),
    "is wrong": ({"status": "wrong"}, (0.75, 0.75, 0.75, "4 models, differing: tabular")),
    **{status: ({"status": status}, (0.75, 0.75, 0.75, NOT_RUNNING)) for status in ("unsupported", "failed", "oom")},
    "left out": ({"status": "skipped"}, (1, 1, 1, "3 models")),
    "another format": ({"status": "unsupported", "dtype": "tf32"}, (1, 1, 1, "3 models")),
    "twice": ({"agrees": DIFFER, "steps": 30, "model": "mlp"}, (2 / 3, 2 / 3, 2 / 3, "3 models, differing: mlp")),
}


@pytest.mark.parametrize("fourth", FOURTH)
def test_the_share_of_the_models_that_agree(synthetic: Factory, fourth: str) -> None:
    node, (more, (estimate, low, high, detail)) = synthetic(gpus=1), FOURTH[fourth]
    for model in MODELS[:3]:
        point(node, model)
    point(node, **{"model": "tabular", **(more or {})})
    found = data(synthetic, node)
    (row,) = of("equivalence.models_that_agree", found).frame.to_dict("records")
    assert (row["estimate"], row["high"], row["detail"]) == (pytest.approx(estimate), pytest.approx(high), detail)
    assert row["low"] < row["estimate"] if low is None else row["low"] == pytest.approx(low)
    assert (row["device"], row["dtype"], row["backend"], row["n_rounds"]) == ("cuda:0", "float32", "torch", 3)
    own = found.table[(found.table["dtype"] == "float32") & (found.table["experiment"] == "equivalence")]
    assert row["source_rows"] == tuple(own.index)


@pytest.mark.parametrize(("status", "rounds", "expected"), [("ok", 1, (1, None)), ("failed", 3, (0, 0))])
def test_one_round_gives_no_interval_and_where_all_fail_nothing_agrees(
    synthetic: Factory, status: str, rounds: int, expected: tuple[float, float | None]
) -> None:
    node = synthetic(gpus=1)
    point(node, "mlp", AGREE[:rounds], status)
    (row,) = of("equivalence.models_that_agree", data(synthetic, node)).frame.to_dict("records")
    assert (row["estimate"], None if row["low"] != row["low"] else row["low"]) == expected


def test_libraries_of_the_cpu_are_judged_and_the_reference_is_not_its_own_judge(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    for model in MODELS:
        point(node, model, device="cpu")
        point(node, model, device="cpu", backend="onednn")
        point(node, model, DIFFER if model == "cnn" else AGREE, device="cpu", dtype="bfloat16")
    found = data(synthetic, node)
    assert not len(of("equivalence.models_that_agree", found))
    shares = of("equivalence.backends_that_agree", found).rows("backend", "dtype", "estimate")
    assert sorted(shares) == [("onednn", "float32", 1), ("torch", "bfloat16", 0.75)]
