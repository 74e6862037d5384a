"""Spreads of zero are evidence, distinct results are counted, and contents are held against normal data."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import read_claims
from report.judging.evaluate import QuantityCache, evaluate
from report.judging.judge import CLAIMS
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, of


def interval(cells: Estimates) -> tuple[float, float, float]:
    assert len(cells) == 1
    row = cells.frame.iloc[0]
    return float(row["low"]), float(row["estimate"]), float(row["high"])


def spreads(node: SyntheticNode, method: str, ulp: float, **more: Any) -> SyntheticNode:
    params = {"method": method, "m": 64, "n": 48, "k": 768}
    return node.point("numerics", {"spread_ulp": ulp, "error_ulp": 2 * ulp}, params=params, unit="1", samples=1, **more)


def test_no_spread_in_any_round_is_a_spread_of_exactly_zero(synthetic: Factory) -> None:
    node = spreads(synthetic("node-a"), "cell_order", 0, spread=0)
    spreads(node, "permuted", 12, spread=0.1)
    found = data(synthetic, node)
    assert interval(of("numerics.spread_across_cells_ulp", found, method="cell_order")) == (0, 0, 0)
    low, estimate, high = interval(of("numerics.spread_across_cells_ulp", found, method="permuted"))
    assert 0 < low < estimate < high


def test_one_round_alone_has_no_interval(synthetic: Factory) -> None:
    node = spreads(synthetic("node-a"), "cell_order", 0, spread=0, rounds=1)
    assert of("numerics.spread_across_cells_ulp", data(synthetic, node)).frame["high"].isna().all()


def test_a_spread_is_never_negative(synthetic: Factory) -> None:
    node = spreads(synthetic("node-a"), "threads", 3, spread=1.5)
    low, estimate, _ = interval(of("numerics.spread_within_cell_ulp", data(synthetic, node)))
    assert low == 0 < estimate


def test_each_method_is_of_the_cells_or_of_the_additions(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for method in ("cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat"):
        spreads(node, method, 1)
    found = data(synthetic, node)
    across = set(of("numerics.spread_across_cells_ulp", found).frame["method"])
    within = set(of("numerics.spread_within_cell_ulp", found).frame["method"])
    assert across == {"cell_order", "permuted"}
    assert within == {"summation", "split_k", "threads", "libraries"}
    assert len(of("numerics.error_ulp", found)) == 7
    assert set(of("numerics.error_ulp", found).frame["shape"]) == {"64x48x768"}


def repeated(node: SyntheticNode, distinct: float, spread: float, **more: Any) -> SyntheticNode:
    params = {"method": "repeat", "m": 8, "n": 8, "k": 8}
    node.point("numerics", distinct, params=params, metric="distinct_results", unit="1", samples=1, spread=0, **more)
    prints = {"metric": "fingerprint", "unit": "1", "samples": 1, "spread": spread}
    return node.point("numerics", 1e14, params=params, **prints, **more)


@pytest.mark.parametrize(("spread", "ways"), [(0, 1), (0.3, 3)])
def test_determinism_counts_over_calls_and_over_rounds(synthetic: Factory, spread: float, ways: int) -> None:
    found = data(synthetic, repeated(synthetic("node-a"), 4, spread))
    assert interval(of("numerics.determinism", found, over="calls")) == (4, 4, 4)
    over = of("numerics.determinism", found, over="rounds", dtype="float32", shape="8x8x8")
    assert interval(over) == (ways, ways, ways)
    assert over.frame["n_rounds"].tolist() == [3]


def test_one_round_says_nothing_about_others(synthetic: Factory) -> None:
    found = data(synthetic, repeated(synthetic("node-a"), 1, 0, rounds=1))
    assert set(of("numerics.determinism", found).frame["over"]) == {"calls"}


def claimed(synthetic: Factory, across: float, within: float) -> dict[str, str]:
    """Outcomes of W13's parts; libraries that move cells, or keep their order, stand beside what it asks for."""
    node = spreads(synthetic("node-a"), "cell_order", across, spread=0)
    spreads(node, "permuted", 20)
    for method in ("summation", "split_k"):
        spreads(node, method, within, spread=0)
    spreads(node, "threads", 0, spread=0)
    claim = next(one for one in read_claims(CLAIMS, read_reference(REFERENCE)) if one.id == "W13")
    evidence = QuantityCache(data(synthetic, node))
    return {part.name: evaluate(part, claim, evidence).outcome for part in claim.parts}


@pytest.mark.parametrize(("across", "within"), [(0, 40), (0, 0), (3, 40)])
def test_the_claim_on_order_asks_only_for_what_changes_that_order(
    synthetic: Factory, across: float, within: float
) -> None:
    outcome = {True: "supported", False: "challenged"}
    assert claimed(synthetic, across, within) == {
        "order of the cells": outcome[across == 0],
        "order within a cell": outcome[within == 0],
    }


def product(node: SyntheticNode, content: str, seconds: float, **more: Any) -> SyntheticNode:
    params = {"content": content, "m": 512, "n": 512, "k": 512}
    return node.point("content", seconds, params=params, flop=2.0 * 512**3, **{"spread": 0, **more})


def test_speed_is_that_on_normal_data_of_the_same_library(synthetic: Factory) -> None:
    node = product(product(synthetic("node-a"), "normal", 1.0), "zeros", 0.8)
    product(node, "normal", 4.0, backend="onednn")
    product(node, "zeros", 2.0, backend="onednn")
    product(node, "zeros", 2.0, backend="numpy")
    found = data(synthetic, node)
    ratios = of("content.speed_ratio", found, content="zeros").frame.set_index("backend")["estimate"].to_dict()
    assert ratios == pytest.approx({"torch": 1.25, "onednn": 2.0})
    assert "normal" not in set(of("content.speed_ratio", found).frame["content"])


def powered(node: SyntheticNode, content: str, watts: list[float], **more: Any) -> SyntheticNode:
    """A point whose samples, in the order of time, show these readings in every round."""
    before = len(node.rows)
    product(node, content, 1.0, device="cuda:0", samples=len(watts), **more)
    for row in node.rows[before:]:
        row["power_w"] = watts[row["sample"]] * (1 + 0.01 * row["round"])
        row["elapsed_s"] = float(row["sample"])
    return node


def test_power_is_that_of_the_later_half_of_the_samples(synthetic: Factory) -> None:
    node = powered(synthetic("node-a", gpus=1), "normal", [100, 100, 400, 400])
    powered(node, "zeros", [100, 100, 290, 310])
    cells = of("content.power_ratio", data(synthetic, node))
    low, estimate, high = interval(cells)
    assert estimate == pytest.approx(0.75)
    assert low < estimate < high
    assert cells.frame["content"].tolist() == ["zeros"]
    assert cells.frame["shape"].tolist() == ["512x512x512"]


def test_without_a_counter_there_is_no_power(synthetic: Factory) -> None:
    node = product(product(synthetic("node-a"), "normal", 1.0), "zeros", 0.8)
    powered(node, "zeros", [300, 300], dtype="float16")
    found = data(synthetic, node)
    assert len(quantities()["content.power_ratio"].compute(found)) == 0
    assert not pd.isna(interval(of("content.speed_ratio", found, dtype="float32"))[0])
