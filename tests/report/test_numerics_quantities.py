"""Spreads of zero are evidence, distinct results are counted, and contents are held against normal data."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured, verdicts

METHODS = ("cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat")


def spreads(node: SyntheticNode, method: str, ulp: float, **more: Any) -> SyntheticNode:
    params = {"method": method, "m": 64, "n": 48, "k": 768}
    return node.point("numerics", {"spread_ulp": ulp, "error_ulp": 2 * ulp}, params=params, unit="1", samples=1, **more)


def repeated(node: SyntheticNode, n: int, distinct: float, spread: float, **more: Any) -> None:
    about: dict[str, Any] = {"params": {"method": "repeat", "m": n, "n": n, "k": n}, "unit": "1", "samples": 1, **more}
    node.point("numerics", distinct, metric="distinct_results", spread=0, **about)
    node.point("numerics", 1e14, metric="fingerprint", spread=spread, **about)


def product(node: SyntheticNode, content: str, seconds: float, watts: tuple[float, ...] = (), **more: Any) -> None:
    """A product, and what a counter shows beside its samples, in the order of time."""
    begun, params = len(node.rows), {"content": content, "m": 512, "n": 512, "k": 512}
    more = {"spread": 1e-4, "samples": len(watts) or 5, **more}
    node.point("content", seconds, params=params, flop=2.0 * 512**3, **more)
    for row in node.rows[begun:] if watts else ():
        row.update(power_w=watts[row["sample"]] * (1 + 0.01 * row["round"]), elapsed_s=float(row["sample"]))


def build(synthetic: Factory) -> Dataset:
    node = synthetic("node-a", gpus=1)
    for ulp, method in enumerate(METHODS):
        spreads(node, method, ulp, spread=1e-4 if ulp else 0)
    spreads(node, "threads", 3, spread=1.5, dtype="bfloat16")
    spreads(node, "cell_order", 0, spread=0, rounds=1, dtype="float64")
    repeated(node, 8, 4, 0)
    repeated(node, 9, 4, 0.3)
    repeated(node, 10, 1, 0, rounds=1)
    for backend, normal, zeros in (("torch", 1.0, 0.8), ("onednn", 4.0, 2.0)):
        product(node, "normal", normal, backend=backend)
        product(node, "zeros", zeros, backend=backend)
    product(node, "zeros", 2.0, backend="numpy")
    # The power is that of the later half of the samples.
    product(node, "normal", 1.0, (100, 100, 400, 400), device="cuda:0")
    product(node, "zeros", 1.0, (100, 100, 290, 310), device="cuda:0")
    product(node, "zeros", 1.0, (300, 300), device="cuda:0", dtype="float16")  # no normal data beside it
    return data(synthetic, node)


found = measured(build)
_DEFAULT = {"dtype": "float32", "shape": "64x48x768"}


@cases(
    case("numerics.spread_across_cells_ulp", 0, method="cell_order", width="exact", **_DEFAULT),
    case("numerics.spread_across_cells_ulp", 0, dtype="float64", width="unknown"),
    case("numerics.spread_across_cells_ulp", {"cell_order": 0, "permuted": 1}, by="method", width="any", **_DEFAULT),
    case("numerics.spread_within_cell_ulp", {name: ulp for ulp, name in enumerate(METHODS) if 1 < ulp < 6}, by="method",
         **_DEFAULT),
    case("numerics.error_ulp", {name: 2 * ulp for ulp, name in enumerate(METHODS)}, by="method", width="any",
         **_DEFAULT),
    case("numerics.determinism", {"8x8x8": 4, "9x9x9": 4}, by="shape", over="calls", n=[8, 9], width="exact"),
    case("numerics.determinism", {"calls": 1}, by="over", n=10, width="unknown"),
    case("numerics.determinism", {"8x8x8": 1, "9x9x9": 3}, by="shape", over="rounds", width="exact"),
    case("content.speed_ratio", {"torch": 1.25, "onednn": 2.0}, by="backend", content="zeros", device="cpu"),
    case("content.power_ratio", 0.75, device="gpu", labels={"node": "node-a", "device": "cuda:0", "backend": "torch",
         "dtype": "float32", "content": "zeros", "shape": "512x512x512", "m": 512, "n": 512, "k": 512, "threads": 0}),
)  # fmt: skip
def test_numerics_and_content(found: Dataset, one: Case) -> None:
    one.check(found)


def test_a_spread_is_never_negative(found: Dataset) -> None:
    ((low, estimate),) = cells("numerics.spread_within_cell_ulp", found, dtype="bfloat16").rows("low", "estimate")
    assert low == 0 < estimate


@pytest.mark.parametrize(("across", "within"), [(0, 40), (0, 0), (3, 40)])
def test_the_claim_on_order_asks_only_for_what_changes_that_order(
    synthetic: Factory, across: float, within: float
) -> None:
    """Libraries that move cells, or keep their order, stand beside what it asks for."""
    node = spreads(spreads(synthetic("node-a"), "cell_order", across, spread=0), "permuted", 20)
    for method, ulp in (("summation", within), ("split_k", within), ("threads", 0)):
        spreads(node, method, ulp, spread=0)
    outcomes = {name: one.outcome for name, one in verdicts("W13", data(synthetic, node)).items()}
    assert outcomes == {
        "order of the cells": "challenged" if across else "supported",
        "order within a cell": "challenged" if within else "supported",
    }
