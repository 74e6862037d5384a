"""Rates and gains of work on tables are those that the nodes were built to have, and W32 follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import read_claims
from report.judging.evaluate import QuantityCache, evaluate
from report.judging.judge import CLAIMS
from report.judging.rules import decide

from .conftest import Factory, SyntheticNode
from .evidence import of


def data(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    return Dataset(read_nodes([synthetic.write(nodes)], True), {})


def table(
    node: SyntheticNode, rate: float, op: str, rows: int, backend: str, transfers: str = "none", **more: Any
) -> SyntheticNode:
    """A point that goes through so many rows a second."""
    if transfers != "none":
        more = {"device": "cuda:0", **more}
    params = {"op": op, "rows": rows, "transfers": transfers}
    return node.point("tabular", rows / rate, backend=backend, dtype="", params=params, **{"spread": 0, **more})


def measured(synthetic: Factory, gpus: int = 0) -> SyntheticNode:
    node = synthetic("node-a", gpus=gpus)
    for rows in (1000, 1_000_000):
        table(node, 1e7, "sort", rows, "pandas")
        table(node, 2e7, "sort", rows, "numpy")
        table(node, 3e7, "sort", rows, "polars", threads=2)
    table(node, 5e6, "parse_csv", 1000, "pandas")
    return table(node, 2e6, "parse_csv", 1000, "polars", threads=2)


def test_rows_per_second_of_each_library_and_of_the_best(synthetic: Factory) -> None:
    found = data(synthetic, measured(synthetic))
    sort = of("tabular.rate", found, op="sort", rows=1000)
    assert sorted(sort.frame["estimate"]) == pytest.approx([1e7, 2e7, 3e7])
    one = of("tabular.rate", found, op="sort", rows=1000, backend="numpy").frame.iloc[0]
    assert (one["estimate"], one["threads"], one["transfers"]) == (pytest.approx(2e7), 1, "none")
    best = of("tabular.rate", found, op="sort", backend="best").frame
    assert list(best["rows"]) == [1000, 1_000_000]
    assert list(best["estimate"]) == pytest.approx([3e7, 3e7])
    assert set(best["detail"]) == {"polars, 2 threads"}


def test_a_rate_is_as_uncertain_as_its_time(synthetic: Factory) -> None:
    node = table(synthetic("node-a"), 1e7, "sort", 1000, "numpy", spread=0.02)
    found = data(synthetic, node)
    rate = of("tabular.rate", found, backend="numpy").frame.iloc[0]
    time = found.summary("tabular").frame.iloc[0]
    assert (rate["low"], rate["high"]) == pytest.approx((1000 / time["high"], 1000 / time["low"]))
    assert rate["low"] < rate["estimate"] < rate["high"]


def test_the_gain_of_a_library_is_that_of_the_fastest_other_one(synthetic: Factory) -> None:
    found = data(synthetic, measured(synthetic))
    gains = of("tabular.library_gain", found)
    assert {(row["op"], row["rows"]): round(row["estimate"], 6) for _, row in gains.frame.iterrows()} == {
        ("sort", 1000): 3.0,
        ("sort", 1_000_000): 3.0,
        ("parse_csv", 1000): 0.4,  # none is faster
    }
    assert set(gains.frame["detail"]) == {"polars, 2 threads"}


def test_a_gain_needs_both_sides_at_the_same_rows(synthetic: Factory) -> None:
    only_pandas = table(synthetic("node-a"), 1e7, "sort", 1000, "pandas")
    only_numpy = table(synthetic("node-b"), 1e7, "sort", 1000, "numpy")
    other_rows = table(table(synthetic("node-c"), 1e7, "sort", 1000, "pandas"), 1e7, "sort", 2000, "numpy")
    found = data(synthetic, only_pandas, only_numpy, other_rows)
    assert len(of("tabular.library_gain", found)) == 0
    assert len(of("tabular.gpu_gain", found)) == 0


def with_gpu(synthetic: Factory) -> SyntheticNode:
    """Behind at a thousand rows, ahead at a million; torch ahead of CuPy; the way there costs half."""
    node = measured(synthetic, gpus=1)
    for rows, rate in ((1000, 6e6), (1_000_000, 6e8), (5000, 1e8)):
        table(node, rate, "sort", rows, "torch", "excluded")
        table(node, rate / 2, "sort", rows, "torch", "included")
        table(node, rate / 4, "sort", rows, "cupy", "included")
    return node


def test_the_gpus_gain_is_over_the_hosts_fastest_library(synthetic: Factory) -> None:
    found = data(synthetic, with_gpu(synthetic))
    gains = of("tabular.gpu_gain", found)
    assert {(row["rows"], row["transfers"]): round(row["estimate"], 6) for _, row in gains.frame.iterrows()} == {
        (1000, "excluded"): 0.2,
        (1000, "included"): 0.1,
        (1_000_000, "excluded"): 20.0,
        (1_000_000, "included"): 10.0,
    }
    assert set(gains.frame["detail"]) == {"torch over polars, 2 threads"}
    assert set(gains.frame["device"]) == {"cuda:0"}


def test_a_gpu_is_held_against_its_own_host(synthetic: Factory) -> None:
    faster = table(synthetic("node-b"), 1e9, "sort", 1000, "polars", threads=2)
    gains = of("tabular.gpu_gain", data(synthetic, with_gpu(synthetic), faster), rows=1000, transfers="included")
    assert list(gains.frame["estimate"]) == pytest.approx([0.1])


def w32() -> Any:
    return next(claim for claim in read_claims(CLAIMS, read_reference(REFERENCE)) if claim.id == "W32")


def test_w32_waits_for_a_gpu(synthetic: Factory) -> None:
    claim = w32()
    weighed = evaluate(claim.parts[0], claim, QuantityCache(data(synthetic, measured(synthetic))))
    assert weighed.outcome == "awaiting hardware"
    assert weighed.reason.endswith("no node with a GPU has measured tabular")


def test_w32_names_the_rows_from_which_on_the_gpu_is_ahead(synthetic: Factory) -> None:
    claim = w32()
    weighed = evaluate(claim.parts[0], claim, QuantityCache(data(synthetic, with_gpu(synthetic))))
    assert weighed.outcome == "depends"
    assert weighed.ruling is not None
    assert weighed.ruling.boundary == "holds at rows 1,000, fails at rows 1 million"


def test_the_boundary_is_named_operation_by_operation(synthetic: Factory) -> None:
    node = with_gpu(synthetic)
    for rows in (1000, 1_000_000):
        table(node, 1e8, "filter", rows, "pandas")
        table(node, 1e7, "filter", rows, "torch", "included")
    part = w32().parts[0]
    cells = of("tabular.gpu_gain", data(synthetic, node), **part.scope)
    ruling = decide(part.rule, cells, part.threshold)
    assert ruling.boundary == "filter: holds throughout; sort: holds at rows 1,000, fails at rows 1 million"


def test_a_scope_that_no_cell_can_have_is_refused(tmp_path: Path) -> None:
    text = (CLAIMS / "W32.yaml").read_text(encoding="utf-8")
    for path in CLAIMS.glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "W32.yaml").write_text(text.replace("transfers: included", "transfers: inclusive"), encoding="utf-8")
    with pytest.raises(StudyError, match="inclusive"):
        read_claims(tmp_path, read_reference(REFERENCE))
