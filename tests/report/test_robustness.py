"""Robustness: each trial agrees with deciding anew, and the sentences say what was tried."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from report import verdict_sentences
from report.estimates import Estimates, exact_estimates
from report.judging.robustness import claim_robustness, joint_turns, margin, part_robustness
from report.outcomes import Threshold
from report.verdicts import Part, Robustness, Trial

from .made_estimates import NO_DATA, cases, decide, part, part_record

NODES = ("node-a", "node-b", "node-c")
RULES = ("at_least", "at_most", "within", "exists")

interval = st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)).map(lambda pair: (min(pair), max(pair)))
# An estimate without an interval decides nothing, whatever the threshold.
case = st.tuples(st.one_of(interval, st.just((math.nan, math.nan))), st.sampled_from(NODES))
some_cases = st.lists(case, min_size=1, max_size=7)


def of_nodes(*some: tuple[tuple[float, float], str]) -> Estimates:
    return cases(*(ends for ends, _ in some), node=[node for _, node in some], place=list(range(len(some))))


def tried(
    some: Estimates,
    rule: str,
    bound: Any,
    sensitivity: Any = (),
    scope: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Part:
    """A claim's only part as `verdicts.json` has it."""
    one = part(rule, bound, options or {}, sensitivity, scope=scope or {})
    result = decide(rule, some.filter(**one.scope), bound, options=options or {})
    record = part_robustness(one, some, result, "1", NO_DATA, lambda outcome: outcome)
    return part_record(
        outcome=result.outcome, threshold=one.threshold.json, n_cases=len(result.sides), robustness=record
    )


def trials(one: Part, kind: str) -> list[Trial]:
    assert one.robustness is not None
    return [trial for trial in one.robustness.trials if trial.kind == kind]


def swept(one: Part) -> list[tuple[Any, str | None]]:
    """Declared thresholds besides the one that decides, each with its outcome."""
    return [(trial.threshold, trial.outcome) for trial in trials(one, "threshold") if trial.side is None]


def turning(one: Part) -> list[Trial]:
    """The nearest thresholds that turn it."""
    return [trial for trial in trials(one, "threshold") if trial.side is not None]


def anew(some: Estimates, rule: str, bound: Any) -> str:
    return decide(rule, some, bound).outcome


def told(*parts: Part, verdict: str = "") -> tuple[str | None, str | None]:
    """How robust the claim is that has these parts, and the sentence on what turns it."""
    robust, turn = claim_robustness(parts, verdict or parts[0].outcome)
    return robust, verdict_sentences.turn_text(to_builtins({"parts": parts, "robust": robust, "turn": turn}))


@given(some_cases, st.floats(0.5, 20), st.sampled_from(RULES))
def test_what_turns_without_one_case_or_machine_is_what_deciding_anew_says(
    given_cases: list[Any], threshold: float, rule: str
) -> None:
    some = of_nodes(*given_cases)
    bound = [threshold, threshold * 1.5] if rule == "within" else threshold
    one = tried(some, rule, bound)
    everything = range(len(some)) if len(some) > 1 else ()
    turned = Counter(anew(some.take([one for one in everything if one != row]), rule, bound) for row in everything)
    del turned[one.outcome]
    without = trials(one, "without")
    found: Counter[str] = Counter()
    for trial in without:
        found[trial.outcome] += trial.number * (trial.of == "case")
    assert +found == turned
    names = some["node"].to_numpy()
    for node in set(names):
        left = some.take(names != node)
        expected = anew(left, rule, bound) if len(left) else one.outcome
        said = {trial.outcome for trial in without if trial.id == node}
        assert said == ({expected} if expected != one.outcome else set())


@given(some_cases, st.floats(0.5, 20), st.sampled_from(("at_least", "at_most", "exists")))
def test_a_threshold_turns_the_verdict_where_it_is_said_to_and_nowhere_nearer(
    given_cases: list[Any], threshold: float, rule: str
) -> None:
    some = of_nodes(*given_cases)
    least, most = 0.1, 30.0
    one = tried(some, rule, threshold, [least, most])
    found = {trial.side: trial for trial in turning(one)}
    every = np.unique(some.frame[["low", "high"]].to_numpy(float))
    step = 1e-9
    # Just beside every end of an interval, and at it: between them nothing changes.
    beside = [value + shift for value in every[~np.isnan(every)] for shift in (-step, 0.0, step)]
    for higher, sides in ((True, ("above", "from")), (False, ("below", "to"))):
        way = [value for value in beside if (value > threshold if higher else value < threshold)]
        way.sort(reverse=not higher)
        first = next((value for value in way if anew(some, rule, value) != one.outcome), None)
        (trial,) = [found[side] for side in sides if side in found] or [None]
        if first is None or trial is None:
            assert trial is None and first is None
            continue
        assert trial.threshold == pytest.approx(first, abs=2 * step)
        assert trial.outcome == anew(some, rule, first) != one.outcome
        # At the place itself nothing has turned yet where it is told as above or below it.
        unturned = anew(some, rule, trial.threshold) == one.outcome
        assert unturned == (trial.side in ("above", "below"))


@given(
    some_cases, st.lists(st.floats(0.5, 20), min_size=1, max_size=5), st.sampled_from(("at_least", "at_most", "exists"))
)
def test_the_sweep_over_the_declared_range_is_what_deciding_anew_says(
    given_cases: list[Any], values: list[float], rule: str
) -> None:
    some = of_nodes(*given_cases)
    expected = [(value, anew(some, rule, value)) for value in sorted(set(values)) if value != values[0]]
    assert swept(tried(some, rule, values[0], values)) == expected


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
    found = margin(decide("at_least", cases(*some), 4.0), Threshold(4.0))
    assert found == pytest.approx(widths, nan_ok=True)


@pytest.mark.parametrize(("low", "word", "factor"), [(14.0, "robust", "3.50"), (5.0, "sensitive", "1.25")])
def test_a_clear_result_is_robust_and_one_near_its_threshold_is_sensitive(low: float, word: str, factor: str) -> None:
    one = tried(cases((low, low * 1.1)), "at_least", 4.0, [1.0, 100.0])
    moved = f"With a threshold above {low:g} in place of 4 ({factor} times as much)"
    assert told(one) == (word, f"{moved}, the verdict would be undecided.")
    listed = "on a chosen list" if word == "robust" else word
    assert told(structs.replace(one, cases_why="they were at hand"))[0] == listed


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
    assert tried(cases(some), "at_least", 4.0, sensitivity).robustness.fragile is fragile


def test_the_threshold_itself_ends_the_declared_range_where_nothing_beyond_it_is_declared() -> None:
    """From 50 to 75 and the threshold of 100: at 91 it turns, which is within them."""
    one = tried(cases((90.0, 91.0)), "at_least", 100.0, [50.0, 75.0])
    assert one.outcome == "challenged"
    assert swept(one) == [(50, "supported"), (75, "supported")]
    (trial,) = turning(one)
    assert (trial.threshold, trial.side, trial.outcome) == (91, "to", "undecided")
    assert one.robustness.fragile and told(one)[0] == "sensitive"
    # Without a declared range it is not varied.
    assert not trials(tried(cases((90.0, 91.0)), "at_least", 100.0), "threshold")


def test_declared_ranges_are_tried_whole() -> None:
    one = tried(cases((20.0, 21.0)), "within", [10, 60], [[10, 60], [30, 90], [5, 100]])
    assert swept(one) == [([5, 100], "supported"), ([30, 90], "challenged")]
    assert [(trial.threshold, trial.factor) for trial in turning(one)] == [([30, 90], 3.0)]
    said = "With a range of 30 to 90 in place of 10 to 60, the verdict would be challenged."
    assert told(one) == ("robust", said), "it is three times the declared end"


def test_a_verdict_that_hangs_on_one_case_is_sensitive_and_says_so() -> None:
    some = of_nodes(((40.0, 41.0), NODES[0]), ((41.0, 42.0), NODES[0]), ((0.1, 0.11), NODES[1]))
    one = tried(some, "at_least", 4.0, [3.0, 5.0])
    assert one.outcome == "depends" and one.robustness.margin_widths > 1
    assert told(one) == ("sensitive", "Without the case (node-b; place 2), the verdict would be supported.")
    # A machine that has this case alone says the same.
    assert [trial.one_case for trial in trials(one, "without") if trial.of == "machine"] == [False, True]


def test_a_verdict_that_hangs_on_a_machine_and_on_no_case_of_it_is_sensitive() -> None:
    some = of_nodes(*[((40.0, 41.0), NODES[0])] * 2, *[((0.1, 0.11), NODES[1])] * 2)
    one = tried(some, "at_least", 4.0, [3.0, 5.0])
    found = [(trial.of, trial.id, trial.outcome, trial.one_case) for trial in trials(one, "without")]
    assert found == [("machine", NODES[0], "challenged", False), ("machine", NODES[1], "supported", False)]
    assert told(one) == ("sensitive", "Without the machine node-a, the verdict would be challenged.")


def test_many_cases_that_would_turn_it_are_counted() -> None:
    some = of_nodes(*[((40.0, 41.0), NODES[0])] * 5, *[((1.0, 9.0), NODES[0])] * 4)
    one = tried(some, "at_least", 4.0, [3.0, 5.0])
    assert one.outcome == "supported", "five of nine that agree are most"
    (trial,) = trials(one, "without")
    assert (trial.of, trial.number, trial.what) == ("case", 5, "")
    assert told(one)[1] == "Without any one of 5 cases, the verdict would be undecided."


def test_a_share_that_hangs_on_one_model_is_sensitive_and_says_so() -> None:
    """Eight of eight models are half of all for certain; seven of seven are not."""
    some = cases(*[(40.0, 41.0)] * 8, model=[f"m{at}" for at in range(8)])
    one = tried(some, "for_share_of", 4.0, [3.0, 5.0], options={"share": 0.5, "of": "model"})
    assert one.outcome == "supported"
    assert {(trial.of, trial.what, trial.outcome) for trial in trials(one, "without")} == {
        ("model", f"m{at}", "undecided") for at in range(8)
    }
    assert told(one) == ("sensitive", "Without the model m0, the verdict would be undecided.")


def test_what_is_not_varied_or_not_decided_is_neither_robust_nor_sensitive() -> None:
    one = tried(cases((1.0, 1.0)), "exists", 1.0)
    assert one.robustness is not None
    word, said = told(structs.replace(one, robustness=structs.replace(one.robustness, fact=True)))
    assert word == "not varied" and "exact figures" in str(said)
    word, said = told(tried(cases((3.0, 5.0)), "at_least", 4.0))
    assert word is None and said, "undecided: what would decide it is told"


def test_parts_that_cannot_turn_a_claim_do_not_make_it_sensitive_but_together_they_may() -> None:
    def part_with(name: str, *trials: Trial) -> Part:
        record = Robustness(
            verdict="depends", decides=False, fragile=True, exact=False, margin_widths=2.0, trials=list(trials)
        )
        return part_record(name=name, outcome="depends", robustness=record)

    alone = [part_with("one"), part_with("other")]
    assert told(*alone) == ("robust", "Nothing that was tried on any part turns it.")
    ends = {"outcome": "challenged", "verdict": "depends"}
    swap = Trial(kind="scope", label="dtype", value="int8", now="float32", **ends)
    machine = Trial(kind="without", of="machine", what="A machine", id="node-a", **ends)
    for trial, begins in (
        (swap, "With int8 in place of float32 in every part that has it"),
        (machine, "Without the machine A machine in every part that has it"),
    ):
        changed = [part_with("one", trial), part_with("other", trial)]
        assert [one.verdict for one in joint_turns(changed, "depends")] == ["challenged"]
        assert told(*changed) == ("sensitive", f"{begins}, the verdict would be challenged.")
        assert joint_turns([changed[0], alone[1]], "depends") == [], "one part's change is told of that part"


def test_another_format_that_turns_it_is_found_and_a_plain_loop_does_not_count() -> None:
    def trial(float64: float) -> Part:
        rows = [
            {"dtype": dtype, "backend": backend, "estimate": value, "low": value * 0.99, "high": value * 1.01}
            for dtype, backend, value in (
                ("float32", "best", 40.0), ("float32", "torch", 40.0), ("float32", "python", 0.1),
                ("float64", "best", float64), ("float64", "torch", 0.2),
            )
        ]  # fmt: skip
        return tried(exact_estimates(rows), "at_least", 4.0, [3.0, 5.0], {"dtype": "float32", "backend": "best"})

    one = trial(39.0)
    found = {swap.value: swap.outcome for swap in trials(one, "scope")}
    assert found == {"float64": "supported", "torch": "supported", "python": "challenged"}
    assert one.robustness is not None and not one.robustness.fragile
    assert ("With python in place of the best library", "challenged (plain code, which does not count)") in list(
        verdict_sentences.trial_lines(to_builtins(one))
    )
    assert told(trial(1.0)) == (
        "sensitive", "With float64 in place of float32, the verdict would be challenged."
    )  # fmt: skip
