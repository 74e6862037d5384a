"""What would turn a verdict: the quick way agrees with deciding anew, and the sentences say what was found."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.estimates import Estimates, exact
from report.judging.counterfactuals import nearest, of_claim, sentences
from report.judging.rules import RuleResult
from report.judging.sensitivity import changed_together, margin, robustness
from report.model import Threshold

from .deciding import NO_DATA, cells, decide, part

NODES = ("node-a", "node-b", "node-c")
RULES = ("at_least", "at_most", "within", "exists")

interval = st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)).map(lambda pair: (min(pair), max(pair)))
# An estimate without an interval decides nothing, whatever the threshold.
cell = st.tuples(st.one_of(interval, st.just((math.nan, math.nan))), st.sampled_from(NODES))
some_cells = st.lists(cell, min_size=1, max_size=7)


def of_nodes(*some: tuple[tuple[float, float], str]) -> Estimates:
    return cells(*(ends for ends, _ in some), node=[node for _, node in some], place=list(range(len(some))))


def tried(
    some: Estimates,
    rule: str,
    bound: Any,
    sensitivity: Any = (),
    scope: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], RuleResult, list[str]]:
    """The record of a claim's only part as `verdicts.json` has it, what its rule said, and the sentences."""
    one = part(rule, bound, options or {}, sensitivity, scope=scope or {})
    result = decide(rule, some.only(**one.scope), bound, options=options or {})
    record = robustness(one, some, result, "1", NO_DATA, lambda outcome: outcome)
    record["fact"] = False
    return {**record, **nearest(one, result, record)}, result, sentences(one, result, record)


def anew(some: Estimates, rule: str, bound: Any) -> str:
    return decide(rule, some, bound).outcome


def told(record: dict[str, Any], cases: str = "") -> dict[str, str | None]:
    """What is said of the claim that has this part alone. cases: why the cases are these, if they were chosen."""
    alone = {"name": "", "outcome": record["outcome"], "robustness": record, "cases": cases}
    return of_claim([alone], record["outcome"])


@given(some_cells, st.floats(0.5, 20), st.sampled_from(RULES))
def test_what_turns_without_one_cell_or_node_is_what_deciding_anew_says(
    given_cells: list[Any], threshold: float, rule: str
) -> None:
    some = of_nodes(*given_cells)
    bound = [threshold, threshold * 1.5] if rule == "within" else threshold
    record, result, _ = tried(some, rule, bound)
    everything = range(len(some)) if len(some) > 1 else ()
    turned = Counter(anew(some.at([one for one in everything if one != row]), rule, bound) for row in everything)
    del turned[result.outcome]
    found: Counter[str] = Counter()
    for one in record["without"]:
        found[one["outcome"]] += one["number"] * (one["kind"] == "cell")
    assert +found == turned
    names = some["node"].to_numpy()
    for node in set(names):
        left = some.at(names != node)
        expected = anew(left, rule, bound) if len(left) else result.outcome
        said = {one["outcome"] for one in record["without"] if one.get("id") == node}
        assert said == ({expected} if expected != result.outcome else set())


@given(some_cells, st.floats(0.5, 20), st.sampled_from(RULES))
def test_a_threshold_turns_the_verdict_where_it_is_said_to_and_nowhere_nearer(
    given_cells: list[Any], threshold: float, rule: str
) -> None:
    some = of_nodes(*given_cells)
    bound: Any = [threshold, threshold * 1.5] if rule == "within" else threshold
    record, result, _ = tried(some, rule, bound)
    every = np.unique(some.frame[["low", "high"]].to_numpy(float))
    every = every[~np.isnan(every)]
    step = 1e-9
    for end in (0, 1) if rule == "within" else (None,):

        def at(value: float, end: int | None = end) -> str:
            moved = value if end is None else [value, bound[1]] if end == 0 else [bound[0], value]
            return anew(some, rule, moved)

        start = threshold if end is None else bound[end]
        stop = math.inf if end is None else bound[1 - end]
        for higher in (True, False):
            turns = [one for one in record["turns_at"] if (one["end"], one["higher"]) == (end, higher)]
            # Just beside every end of an interval, and at it: between them nothing changes.
            beside = [value + shift for value in every for shift in (-step, 0.0, step)]
            way = [one for one in beside if (one > start if higher else one < start)]
            way = [one for one in way if end is None or (one <= stop if end == 0 else one >= stop)]
            way.sort(reverse=not higher)
            first = next((one for one in way if at(one) != result.outcome), None)
            if first is None:
                assert not turns
                continue
            (turn,) = turns
            assert turn["threshold"] == pytest.approx(first, abs=2 * step)
            assert turn["outcome"] == at(first) != result.outcome
            assert turn["past"] == (at(turn["threshold"]) == result.outcome)


@given(
    some_cells, st.lists(st.floats(0.5, 20), min_size=1, max_size=5), st.sampled_from(("at_least", "at_most", "exists"))
)
def test_the_sweep_over_the_declared_range_is_what_deciding_anew_says(
    given_cells: list[Any], values: list[float], rule: str
) -> None:
    some = of_nodes(*given_cells)
    found = [(one["threshold"], one["outcome"]) for one in tried(some, rule, values[0], values)[0]["thresholds"]]
    assert found == [(value, anew(some, rule, value)) for value in sorted(set(values))]


@pytest.mark.parametrize(
    ("some", "widths"),
    [
        ([(8.0, 10.0), (20.0, 30.0)], math.log(9 / 4) / math.log(10 / 8)),
        ([(-1.0, 1.0)], 2.0),
        ([(5.0, 5.0)], math.inf),
        ([(math.nan, math.nan)], math.nan),
        # Of what depends it is that of the less clear side; those beside the threshold do not matter.
        ([(40.0, 42.0), (3.5, 4.1), (1.0, 2.0)], math.log(4 / 1.5) / math.log(2 / 1)),
    ],
)
def test_the_margin_is_told_in_widths_of_the_interval_that_decides(
    some: list[tuple[float, float]], widths: float
) -> None:
    found = margin(decide("at_least", cells(*some), 4.0), Threshold(4.0))
    assert found == pytest.approx(widths, nan_ok=True)


@pytest.mark.parametrize(("low", "word", "factor"), [(14.0, "robust", "3.50"), (5.0, "sensitive", "1.25")])
def test_a_clear_result_is_robust_and_one_near_its_threshold_is_sensitive(low: float, word: str, factor: str) -> None:
    record, _, _ = tried(cells((low, low * 1.1)), "at_least", 4.0, [1.0, 100.0])
    moved = f"With a threshold above {low:g} in place of 4 ({factor} times as much)"
    assert told(record) == {"robust": word, "flip": f"{moved}, the verdict would be undecided."}
    listed = "on a chosen list" if word == "robust" else word
    assert told(record, cases="they were at hand")["robust"] == listed


@pytest.mark.parametrize(
    ("some", "sensitivity", "fragile"),
    [
        ((5.0, 6.0), [], False),
        ((4.1, 5.5), [], True),
        ((math.nan, math.nan), [], True),
        ((4.0, 4.0), [], False),
        ((5.0, 5.1), [3.0, 5.0], False),
        ((5.0, 5.1), [3.0, 5.1], True),
        ((9.0, 9.1), [3.0, 10.0], False),
    ],
)
def test_fragile_is_what_is_close_or_turns_within_the_declared_range_and_twice_the_threshold(
    some: tuple[float, float], sensitivity: list[float], fragile: bool
) -> None:
    assert tried(cells(some), "at_least", 4.0, sensitivity)[0]["fragile"] is fragile


def test_the_threshold_itself_ends_the_declared_range_where_nothing_beyond_it_is_declared() -> None:
    """From 50 to 75 and the threshold of 100: at 91 it turns, which is within them."""
    record, result, _ = tried(cells((90.0, 91.0)), "at_least", 100.0, [50.0, 75.0])
    assert result.outcome == "challenged"
    assert [one["threshold"] for one in record["thresholds"]] == [50, 75, 100]
    (turn,) = record["turns_at"]
    assert (turn["threshold"], turn["outcome"], turn["in_range"]) == (91, "undecided", True)
    assert record["fragile"] and told(record)["robust"] == "sensitive"
    # Without a declared range it is not varied.
    assert not tried(cells((90.0, 91.0)), "at_least", 100.0)[0]["turns_at"][0]["in_range"]


def test_declared_ranges_are_tried_whole() -> None:
    record, _, said = tried(cells((20.0, 21.0)), "within", [10, 60], [[10, 60], [30, 90], [5, 100]])
    assert [(one["threshold"], one["outcome"]) for one in record["thresholds"]] == [
        ([5, 100], "supported"), ([10, 60], "supported"), ([30, 90], "challenged"),
    ]  # fmt: skip
    assert record["turns_at"][0] | {"threshold": [30, 90], "in_range": True, "factor": 3.0} == record["turns_at"][0]
    assert "With a threshold of 30 to 90 in place of 10 to 60, the verdict would be challenged." in said
    assert not record["fragile"], "it is three times the declared end"


def test_a_verdict_that_hangs_on_one_cell_is_sensitive_and_says_so() -> None:
    some = of_nodes(((40.0, 41.0), NODES[0]), ((41.0, 42.0), NODES[0]), ((0.1, 0.11), NODES[1]))
    record, result, said = tried(some, "at_least", 4.0, [3.0, 5.0])
    assert result.outcome == "depends" and record["margin_widths"] > 1
    flip = "Without the cell (node-b; place 2), the verdict would be supported."
    assert told(record) == {"robust": "sensitive", "flip": flip}
    # A node that has this cell alone says the same.
    assert [one["one_cell"] for one in record["without"] if one["kind"] == "node"] == [False, True]
    assert sum(one.startswith("Without") for one in said) == 2


def test_a_verdict_that_hangs_on_a_node_and_on_no_cell_of_it_is_sensitive() -> None:
    some = of_nodes(*[((40.0, 41.0), NODES[0])] * 2, *[((0.1, 0.11), NODES[1])] * 2)
    record, _, said = tried(some, "at_least", 4.0, [3.0, 5.0])
    found = [(one["kind"], one["id"], one["outcome"], one["one_cell"]) for one in record["without"]]
    assert found == [("node", NODES[0], "challenged", False), ("node", NODES[1], "supported", False)]
    assert record["fragile"] and told(record)["robust"] == "sensitive"
    assert "Without the node node-a, the verdict would be challenged." in said


def test_many_cells_that_would_turn_it_are_counted() -> None:
    some = of_nodes(*[((40.0, 41.0), NODES[0])] * 5, *[((1.0, 9.0), NODES[0])] * 4)
    record, result, said = tried(some, "at_least", 4.0, [3.0, 5.0])
    assert result.outcome == "supported", "five of nine that agree are most"
    (one,) = record["without"]
    assert (one["kind"], one["number"], one["what"]) == ("cell", 5, "")
    assert "Without any one of 5 cells, the verdict would be undecided." in said


def test_a_share_that_hangs_on_one_model_is_sensitive_and_says_so() -> None:
    """Eight of eight models are half of all for certain; seven of seven are not."""
    some = cells(*[(40.0, 41.0)] * 8, model=[f"m{at}" for at in range(8)])
    record, result, said = tried(some, "for_share_of", 4.0, [3.0, 5.0], options={"share": 0.5, "of": "model"})
    assert result.outcome == "supported"
    assert {(one["kind"], one["what"], one["outcome"]) for one in record["without"]} == {
        ("model", f"m{at}", "undecided") for at in range(8)
    }
    assert told(record)["robust"] == "sensitive"
    assert any("m0" in one and one.endswith("the verdict would be undecided.") for one in said)


def test_what_is_not_varied_or_not_decided_is_neither_robust_nor_sensitive() -> None:
    fact = tried(cells((1.0, 1.0)), "exists", 1.0)[0] | {"fact": True}
    assert told(fact)["robust"] == "not varied" and "exact figures" in str(told(fact)["flip"])
    close = told(tried(cells((3.0, 5.0)), "at_least", 4.0)[0])
    assert close["robust"] is None and close["flip"], "undecided: what would decide it is told"


def test_parts_that_cannot_turn_a_claim_do_not_make_it_sensitive_but_together_they_may() -> None:
    record: dict[str, Any] = {
        "outcome": "depends", "verdict": "depends", "decides": False, "fragile": True, "rank": None, "sentence": "",
        "thresholds": [1, 2], "exact": False, "fact": False, "without": [], "swaps": [],
    }  # fmt: skip
    parts = [{"name": name, "outcome": "depends", "robustness": dict(record), "cases": ""} for name in ("one", "other")]
    assert of_claim(parts, "depends") == {"flip": "Nothing that was tried on any part turns it.", "robust": "robust"}
    swap = {"label": "dtype", "value": "int8", "now": "float32", "plain_loop": False, "outcome": "challenged",
            "verdict": "depends"}  # fmt: skip
    node = {"kind": "node", "what": "A node", "id": "node-a", "number": 1, "outcome": "challenged", "one_cell": False}
    for key, change, begins in (
        ("swaps", swap, "With int8 in place of float32 in every part that has it"),
        ("without", node, "Without the node A node in every part that has it"),
    ):
        changed = [{**one, "robustness": {**record, key: [change]}} for one in parts]
        assert [one["verdict"] for one in changed_together(changed, "depends")] == ["challenged"]
        flip = f"{begins}, the verdict would be challenged."
        assert of_claim(changed, "depends") == {"flip": flip, "robust": "sensitive"}
        assert changed_together([changed[0], parts[1]], "depends") == [], "one part's change is told of that part"


def test_another_format_that_turns_it_is_found_and_a_plain_loop_does_not_count() -> None:
    def trial(float64: float) -> tuple[dict[str, Any], list[str]]:
        rows = [
            {"dtype": dtype, "backend": backend, "estimate": value, "low": value * 0.99, "high": value * 1.01}
            for dtype, backend, value in (
                ("float32", "best", 40.0), ("float32", "torch", 40.0), ("float32", "python", 0.1),
                ("float64", "best", float64), ("float64", "torch", 0.2),
            )
        ]  # fmt: skip
        record, _, said = tried(exact(rows), "at_least", 4.0, [3.0, 5.0], {"dtype": "float32", "backend": "best"})
        return record, said

    record, said = trial(39.0)
    found = {one["value"]: one["outcome"] for one in record["swaps"]}
    assert found == {"float64": "supported", "torch": "supported", "python": "challenged"}
    assert not record["fragile"]
    assert "With python in place of the best library, the verdict would be challenged." in said
    record, _ = trial(1.0)
    assert record["fragile"]
    assert record["sentence"] == "With float64 in place of float32, the verdict would be challenged."
