"""Rates and gains of work on tables are those that the nodes were built to have, and W32 follows from them."""

from __future__ import annotations

from typing import Any

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, measured, verdicts

FEW, MANY = 1000, 1_000_000


def table(
    node: SyntheticNode, rate: float, rows: int, backend: str, op: str = "sort", transfers: str = "none", **more: Any
) -> SyntheticNode:
    """A point that goes through so many rows a second."""
    params = {"op": op, "rows": rows, "transfers": transfers}
    device = "cpu" if transfers == "none" else "cuda:0"
    return node.point(
        "tabular", rows / rate, backend=backend, dtype="", params=params, device=device, spread=1e-4, **more
    )


def host(synthetic: Factory, gpus: int = 0) -> SyntheticNode:
    node = synthetic("node-a", gpus=gpus)
    for rows in (FEW, MANY):
        table(node, 1e7, rows, "pandas")
        table(node, 2e7, rows, "numpy")
        table(node, 3e7, rows, "polars", threads=2)
    table(node, 5e6, FEW, "pandas", "parse_csv")
    return table(node, 2e6, FEW, "polars", "parse_csv", threads=2)


def build(synthetic: Factory) -> Dataset:
    """A GPU behind at a thousand rows, ahead at a million; the way there costs half. Another, faster host."""
    node = host(synthetic, gpus=1)
    for rows, rate in ((FEW, 6e6), (MANY, 6e8), (5000, 1e8)):
        table(node, rate, rows, "torch", transfers="excluded")
        table(node, rate / 2, rows, "torch", transfers="included")
        table(node, rate / 4, rows, "cupy", transfers="included")
    others = table(synthetic("node-b"), 1e9, FEW, "polars", threads=2), table(synthetic("node-c"), 1e7, FEW, "pandas")
    return data(synthetic, node, *others, table(others[1], 1e7, 2000, "numpy"))


found = measured(build)
_SORT = {"op": "sort", "node": "node-a", "device": "cpu"}


@cases(
    case("tabular.rate", {"pandas": 1e7, "numpy": 2e7, "polars": 3e7}, by="backend", rows=FEW, **_SORT),
    case("tabular.rate", {FEW: 3e7, MANY: 3e7}, by="rows", backend="best", detail="polars, 2 threads", **_SORT),
    case("tabular.library_gain", {("sort", FEW): 3, ("sort", MANY): 3, ("parse_csv", FEW): 0.4}, by=("op", "rows"),
         detail="polars, 2 threads"),
    case("tabular.gpu_gain", {(FEW, "excluded"): 0.2, (FEW, "included"): 0.1, (MANY, "excluded"): 20,
         (MANY, "included"): 10}, by=("rows", "transfers"), detail="torch over polars, 2 threads"),
)  # fmt: skip
def test_tables(found: Dataset, one: Case) -> None:
    one.check(found)


def test_w32_is_decided_by_the_rows_from_which_on_the_gpu_is_ahead(found: Dataset) -> None:
    (part,) = verdicts("W32", found).values()
    assert part.outcome == "depends" and part.ruling.boundary
    outcomes = zip(part.ruling.estimates["rows"], part.ruling.sides, strict=True)
    assert sorted(outcomes) == [(FEW, "supports"), (MANY, "challenges")]


def test_w32_waits_for_a_gpu(synthetic: Factory) -> None:
    assert [part.outcome for part in verdicts("W32", data(synthetic, host(synthetic))).values()] == [
        "awaiting hardware"
    ]
