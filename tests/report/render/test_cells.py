"""A card lists the cells that could turn the verdict, and says of where they are once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from report.render.cells import MOST_CELLS, only_place, place, shown


def verdict(sizes: list[int], thresholds: list[float]) -> dict[str, Any]:
    """A verdict of parts with so many cells; the n-th cell of each lies n + 1 times above its threshold."""
    parts = [{"name": f"part {n}", "threshold": threshold} for n, threshold in enumerate(thresholds)]
    cells = [
        {"part": part["name"], "estimate": part["threshold"] * (n + 2), "node": "node-a", "device": "cpu", "n": n}
        for part, size in zip(parts, sizes, strict=True)
        for n in range(size)
    ]
    return {"parts": parts, "cells": cells}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.data())
def test_few_are_listed_in_order_and_the_nearest_of_each_part(sizes: list[int], data: st.DataObject) -> None:
    thresholds = data.draw(st.lists(st.floats(0.1, 1e6), min_size=len(sizes), max_size=len(sizes)))
    given_ = verdict(sizes, thresholds)
    listed = shown(given_)
    assert len(listed) == min(MOST_CELLS, sum(sizes))
    places = [given_["cells"].index(cell) for cell in listed]
    assert places == sorted(places)
    for part, size in zip(given_["parts"], sizes, strict=True):
        of = [cell["n"] for cell in listed if cell["part"] == part["name"]]
        assert of == list(range(len(of))), "those nearest to the threshold"
        assert len(of) >= min(size, MOST_CELLS // len(sizes))


def test_a_range_and_a_missing_estimate_are_borne() -> None:
    cells = [{"part": "", "estimate": None if n == 3 else float(n), "node": None, "device": None} for n in range(40)]
    listed = shown({"parts": [{"name": "", "threshold": [10.0, 20.0]}], "cells": cells})
    assert len(listed) == MOST_CELLS
    assert {10.0, 20.0} <= {cell["estimate"] for cell in listed}
    assert None not in [cell["estimate"] for cell in listed]


def test_one_place_is_said_once_and_several_are_said_each() -> None:
    here = {"node": "node-a", "device": "cpu"}
    assert only_place([here, here]) == "node-a, cpu"
    assert only_place([here, {**here, "device": "cuda:0"}]) == ""
    assert only_place([{"node": None, "device": None}]) == ""
    assert place({"node": None}) == "–"
