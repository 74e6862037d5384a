"""Synthetic training runs for the tests of convergence: a point with a value for every seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .conftest import SyntheticNode


def runs(
    node: SyntheticNode,
    batch: int,
    rate: float,
    test: Sequence[float],
    validation: float | None = None,
    *,
    device: str = "cpu",
    data: str = "digits",
    reached: float = 1.0,
    rounds: int = 1,
    epochs: int = 30,
    **others: Sequence[float],
) -> SyntheticNode:
    """Runs with these test accuracies, seed by seed. validation: of all; the same as the test's mean without it."""
    mean = sum(test) / len(test)
    metrics: dict[str, Sequence[float]] = {
        "test_accuracy": test,
        "validation_accuracy": [mean if validation is None else validation] * len(test),
        "reached_share": [reached],
        **others,
    }
    params: dict[str, Any] = {
        "data": data, "model": "mlp", "batch": batch, "rate": rate, "epochs": epochs, "seeds": len(test),
    }  # fmt: skip
    for metric, values in metrics.items():
        begun = len(node.rows)
        node.point(
            "convergence", 1.0, params=params, device=device, metric=metric, spread=0, rounds=rounds,
            samples=len(values), unit="s" if "time" in metric else "1",
        )  # fmt: skip
        for row in node.rows[begun:]:
            row["value"] = float(values[row["sample"]])
    return node
