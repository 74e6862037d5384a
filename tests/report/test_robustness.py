"""What would turn a verdict: the quick way agrees with deciding anew, and the sentences say what was found."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.judging.robustness import robustness, together
from report.judging.threshold_sensitivity import SIDES, margin

from report.data.dataset import Dataset
from report.data.nodes import Nodes
from report.estimates import Estimates, exact
from report.judging import rules
from report.judging.claims import Part
from report.judging.counterfactuals import flips, nearest, of_claim
from report.judging.rules import RuleResult
from tests.report.deciding import decide

NODES = ("node-a", "node-b", "node-c")
RULES = ("at_least", "at_most", "within", "exists", "for_share_of")

interval = st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)).map(lambda pair: (min(pair), max(pair)))
# A cell without an interval decides nothing, whatever the threshold.
cell = st.tuples(st.one_of(interval, st.just((math.nan, math.nan))), st.sampled_from(NODES))
some_cells = st.lists(cell, min_size=1, max_size=7)


def cells_of(given: list[tuple[tuple[float, float], str]]) -> Estimates:
    rows = []
    for place, ((low, high), node) in enumerate(given):
        middle = 1.0 if math.isnan(low) else (low + high) / 2
        rows.append({"node": node, "place": place, "estimate": middle, "low": low, "high": high})
    return exact(rows)


def tried(
    cells: Estimates, rule: str, threshold: Any, sensitivity: Any = (), **more: Any
) -> tuple[dict[str, Any], RuleResult]:
    options = more.pop("options", {"share": 0.5} if rule == "for_share_of" else {})
    part = Part("", "q", rule, threshold, "why", sensitivity=list(sensitivity), options=options, **more)
    ruling = decide(rule, cells, threshold, "1", options)
    data = Dataset(Nodes([], []), {}, pd.DataFrame(columns=["experiment", "metric", "status"]))
    return robustness(part, cells, ruling, "1", data, lambda outcome: outcome), ruling


def anew(cells: Estimates, rule: str, threshold: Any) -> str:
    return decide(rule, cells, threshold, "1", {"share": 0.5} if rule == "for_share_of" else {}).outcome


@given(some_cells, st.floats(0.5, 20), st.sampled_from(RULES))
@settings(deadline=None)
def test_what_turns_without_one_cell_or_node_is_what_deciding_anew_says(
    given_cells: list[Any], threshold: float, rule: str
) -> None:
    cells = cells_of(given_cells)
    bound = [threshold, threshold * 1.5] if rule == "within" else threshold
    record, ruling = tried(cells, rule, bound)
    everything = range(len(cells))
    turned: dict[str, int] = {}
    for row in everything if len(cells) > 1 else ():
        outcome = anew(cells.at([other for other in everything if other != row]), rule, bound)
        if outcome != ruling.outcome:
            turned[outcome] = turned.get(outcome, 0) + 1
    found: dict[str, int] = {}
    for one in record["without"]:
        if one["kind"] == "cell":
            found[one["outcome"]] = found.get(one["outcome"], 0) + one["number"]
    assert found == turned
    names = cells.frame["node"].to_numpy()
    for node in set(names):
        left = cells.at(names != node)
        expected = anew(left, rule, bound) if len(left) else ruling.outcome
        said = {one["outcome"] for one in record["without"] if one.get("id") == node}
        assert said == ({expected} if expected != ruling.outcome else set())


@given(some_cells, st.floats(0.5, 20), st.sampled_from(RULES))
@settings(deadline=None)
def test_a_threshold_turns_the_verdict_where_it_is_said_to_and_nowhere_nearer(
    given_cells: list[Any], threshold: float, rule: str
) -> None:
    cells = cells_of(given_cells)
    bound: Any = [threshold, threshold * 1.5] if rule == "within" else threshold
    record, ruling = tried(cells, rule, bound)
    every = np.unique(cells.frame[["low", "high"]].to_numpy(float))
    every = every[~np.isnan(every)]
    step = 1e-9
    for end in (0, 1) if rule == "within" else (None,):

        def at(value: float, end: int | None = end) -> str:
            moved = value if end is None else [value, bound[1]] if end == 0 else [bound[0], value]
            return anew(cells, rule, moved)

        start = threshold if end is None else bound[end]
        stop = math.inf if end is None else bound[1 - end]
        for higher in (True, False):
            turns = [one for one in record["turns_at"] if (one["end"], one["higher"]) == (end, higher)]
            # Just beside every end of an interval, and at it: between them nothing changes.
            beside = [value + shift for value in every for shift in (-step, 0.0, step)]
            way = [one for one in beside if (one > start if higher else one < start)]
            if end is not None:
                way = [one for one in way if (one <= stop if end == 0 else one >= stop)]
            way.sort(reverse=not higher)
            first = next((one for one in way if at(one) != ruling.outcome), None)
            if first is None:
                assert not turns
                continue
            (turn,) = turns
            assert turn["threshold"] == pytest.approx(first, abs=2 * step)
            assert turn["outcome"] == at(first) != ruling.outcome
            assert turn["past"] == (at(turn["threshold"]) == ruling.outcome)


@given(some_cells, st.lists(st.floats(0.5, 20), min_size=1, max_size=5), st.sampled_from(RULES[:2] + RULES[3:]))
@settings(deadline=None)
def test_the_sweep_over_the_declared_range_is_what_deciding_anew_says(
    given_cells: list[Any], values: list[float], rule: str
) -> None:
    cells = cells_of(given_cells)
    record, _ = tried(cells, rule, values[0], values)
    assert [one["threshold"] for one in record["thresholds"]] == sorted(values)
    assert [one["outcome"] for one in record["thresholds"]] == [anew(cells, rule, value) for value in sorted(values)]


@given(st.lists(interval, min_size=1, max_size=6), st.floats(0.5, 20), st.sampled_from(["at_least", "at_most"]))
def test_sides_of_many_cells_are_those_of_each(
    intervals: list[tuple[float, float]], threshold: float, how: str
) -> None:
    low, high = (np.array(ends) for ends in zip(*intervals, strict=True))
    assert rules.sides(low, high, threshold, how) == [rules.side(*one, threshold, how) for one in intervals]
    assert set(rules.sides(low, high, threshold, how)) <= set(get_args(rules.Outcome)) == set(SIDES)


# ------------------------------------------------------------------ margins


def ruling_of(*intervals: tuple[float, float], threshold: float = 4.0, rule: str = "at_least") -> RuleResult:
    return decide(rule, cells_of([(one, NODES[0]) for one in intervals]), threshold)


def test_the_margin_is_told_in_widths_of_the_interval_that_decides() -> None:
    found = ruling_of((8.0, 10.0), (20.0, 30.0))
    assert margin(found, 4.0) == pytest.approx(math.log(9 / 4) / math.log(10 / 8))
    assert margin(ruling_of((-1.0, 1.0), threshold=4.0), 4.0) == pytest.approx(2.0)
    assert math.isinf(margin(ruling_of((5.0, 5.0)), 4.0))
    assert math.isnan(margin(ruling_of((math.nan, math.nan)), 4.0))


def test_the_margin_of_what_depends_is_that_of_the_less_clear_side() -> None:
    # Cells beside the threshold do not matter while each side has a clear one.
    found = ruling_of((40.0, 42.0), (3.5, 4.1), (1.0, 2.0))
    assert found.outcome == "depends"
    assert margin(found, 4.0) == pytest.approx(math.log(4 / 1.5) / math.log(2 / 1))


# ------------------------------------------------------------------ what it comes to


def claim(*records: tuple[str, dict[str, Any], RuleResult, Any]) -> list[dict[str, Any]]:
    made = []
    for name, record, ruling, threshold in records:
        part = Part(name, "q", "at_least", threshold, "why", sensitivity=[1.0, 100.0])
        told = {**record, **nearest(part, ruling, record)}
        made.append({"name": name, "outcome": ruling.outcome, "robustness": told})
    return made


def test_a_clear_result_is_robust_and_one_near_its_threshold_is_sensitive() -> None:
    for low, word, said in ((14.0, "robust", "3.50 times as much"), (5.0, "sensitive", "1.25 times as much")):
        cells = cells_of([((low, low * 1.1), NODES[0])])
        record, ruling = tried(cells, "at_least", 4.0, [1.0, 100.0])
        told = of_claim(claim(("", record, ruling, 4.0)), ruling.outcome)
        assert told["robust"] == word and record["fragile"] == (word == "sensitive")
        assert told["flip"] == f"With a threshold above {low:g} in place of 4 ({said}), the verdict would be undecided."


def test_a_verdict_that_hangs_on_one_cell_is_sensitive_and_says_so() -> None:
    cells = cells_of([((40.0, 41.0), NODES[0]), ((41.0, 42.0), NODES[0]), ((0.1, 0.11), NODES[1])])
    record, ruling = tried(cells, "at_least", 4.0, [3.0, 5.0])
    assert ruling.outcome == "depends" and record["margin_widths"] > 1
    told = of_claim(claim(("", record, ruling, 4.0)), "depends")
    assert told["robust"] == "sensitive"
    assert told["flip"] == "Without the cell (node-b; place 2), the verdict would be supported."
    part = Part("", "q", "at_least", 4.0, "why", sensitivity=[3.0, 5.0])
    said = flips(part, ruling, record)
    # A node of one cell is not said again; one of several is.
    assert [text for text in said if text.startswith("Without")] == [
        "Without the cell (node-b; place 2), the verdict would be supported.",
        "Without the node node-a, the verdict would be challenged.",
    ]


def test_many_cells_that_would_turn_it_are_counted() -> None:
    cells = cells_of([((40.0 + i, 41.0 + i), NODES[0]) for i in range(5)] + [((1.0, 2.0), NODES[0])] * 5)
    record, ruling = tried(cells, "for_share_of", 4.0, [3.0, 5.0])
    assert ruling.outcome == "supported"
    (one,) = record["without"]
    assert (one["kind"], one["number"], one["what"]) == ("cell", 5, "")
    part = Part("", "q", "for_share_of", 4.0, "why", sensitivity=[3.0, 5.0], options={"share": 0.5})
    assert "Without any one of 5 cells, the verdict would be challenged." in flips(part, ruling, record)


def test_a_yes_or_no_has_no_threshold_to_vary() -> None:
    record, ruling = tried(cells_of([((1.0, 1.0), NODES[0])]), "exists", 1.0)
    assert of_claim(claim(("", record, ruling, 1.0)), "supported")["robust"] == "not varied"


def test_parts_that_cannot_turn_a_claim_do_not_make_it_sensitive_but_together_they_may() -> None:
    def swap(outcome: str) -> dict[str, Any]:
        return {"label": "dtype", "value": "int8", "now": "float32", "plain_loop": False, "outcome": outcome,
                "verdict": "depends"}  # fmt: skip

    record = {
        "outcome": "depends", "verdict": "depends", "decides": False, "fragile": True, "rank": None, "sentence": "",
        "thresholds": [1, 2], "exact": False, "without": [], "swaps": [],
    }  # fmt: skip
    parts = [{"name": name, "outcome": "depends", "robustness": dict(record)} for name in ("one", "other")]
    assert of_claim(parts, "depends") == {"flip": "Nothing that was tried on any part turns it.", "robust": "robust"}
    for part in parts:
        part["robustness"]["swaps"] = [swap("challenged")]  # type: ignore[index]
    assert [one["verdict"] for one in together(parts, "depends")] == ["challenged"]
    told = of_claim(parts, "depends")
    assert told["robust"] == "sensitive"
    assert told["flip"] == "With int8 in place of float32 in every part that has it, the verdict would be challenged."


def test_what_waits_has_neither() -> None:
    assert of_claim([{"name": "", "outcome": "awaiting hardware", "robustness": None}], "awaiting hardware") == {
        "flip": None,
        "robust": None,
    }


def test_another_format_that_turns_it_is_found_and_a_plain_loop_does_not_count() -> None:
    rows = [
        {"dtype": dtype, "backend": backend, "estimate": value, "low": value * 0.99, "high": value * 1.01}
        for dtype, backend, value in (
            ("float32", "best", 40.0), ("float32", "torch", 40.0), ("float32", "python", 0.1),
            ("float64", "best", 39.0),
        )
    ]  # fmt: skip
    cells, scope = exact(rows), {"dtype": "float32", "backend": "best"}
    part = Part("", "q", "at_least", 4.0, "why", scope=scope, sensitivity=[3.0, 5.0])
    ruling = decide("at_least", cells.only(**scope), 4.0)
    data = Dataset(Nodes([], []), {}, pd.DataFrame(columns=["experiment", "metric", "status"]))
    record = robustness(part, cells, ruling, "1", data, lambda outcome: outcome)
    swaps = {(one["label"], one["value"]): one["outcome"] for one in record["swaps"]}
    assert swaps == {
        ("dtype", "float64"): "supported",
        ("backend", "torch"): "supported",
        ("backend", "python"): "challenged",
    }
    assert not record["fragile"]
    assert "With python in place of the best library, the verdict would be challenged." in flips(part, ruling, record)
    cells.frame.loc[3, ["estimate", "low", "high"]] = [1.0, 0.99, 1.01]
    record = robustness(part, cells, ruling, "1", data, lambda outcome: outcome)
    assert record["fragile"]
    assert (
        nearest(part, ruling, record)["sentence"]
        == "With float64 in place of float32, the verdict would be challenged."
    )
