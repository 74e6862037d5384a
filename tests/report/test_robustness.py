"""Robustness: trials judge a part again with one assumption changed, and sentences describe the trials.

Each trial has the same outcome as a new decision under the changed assumption.
"""

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
# NaN intervals decide nothing at any threshold.
case = st.tuples(st.one_of(interval, st.just((math.nan, math.nan))), st.sampled_from(NODES))
some_cases = st.lists(case, min_size=1, max_size=7)


def node_cases(*pairs: tuple[tuple[float, float], str]) -> Estimates:
    return cases(*(ends for ends, _ in pairs), node=[node for _, node in pairs], place=list(range(len(pairs))))


def evaluate(
    estimates: Estimates,
    rule: str,
    bound: Any,
    sensitivity: Any = (),
    scope: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Part:
    """Decide a single-part claim and return its part as in `verdicts.json`."""
    claim_part = part(rule, bound, options or {}, sensitivity, scope=scope or {})
    result = decide(rule, estimates.filter(**claim_part.scope), bound, options=options or {})
    record = part_robustness(claim_part, estimates, result, "1", NO_DATA, lambda outcome: outcome)
    return part_record(
        outcome=result.outcome, threshold=claim_part.threshold.json, n_cases=len(result.sides), robustness=record
    )


def trials_by_kind(record: Part, kind: str) -> list[Trial]:
    assert record.robustness is not None
    return [trial for trial in record.robustness.trials if trial.kind == kind]


def sweep_outcomes(record: Part) -> list[tuple[Any, str | None]]:
    """List each declared threshold, other than the part's own, with the outcome at this threshold."""
    return [(trial.threshold, trial.outcome) for trial in trials_by_kind(record, "threshold") if trial.side is None]


def nearest_changes(record: Part) -> list[Trial]:
    """List the nearest thresholds that change the outcome."""
    return [trial for trial in trials_by_kind(record, "threshold") if trial.side is not None]


def outcome_at(estimates: Estimates, rule: str, bound: Any) -> str:
    return decide(rule, estimates, bound).outcome


def describe(*parts: Part, verdict: str = "") -> tuple[str | None, str | None]:
    """Return the robustness of a claim with these parts, and the sentence on its nearest change."""
    robust, turn = claim_robustness(parts, verdict or parts[0].outcome)
    return robust, verdict_sentences.turn_text(to_builtins({"parts": parts, "robust": robust, "turn": turn}))


@given(some_cases, st.floats(0.5, 20), st.sampled_from(RULES))
def test_leave_one_out_trials_match_new_decisions(drawn: list[Any], threshold: float, rule: str) -> None:
    estimates = node_cases(*drawn)
    bound = [threshold, threshold * 1.5] if rule == "within" else threshold
    result = evaluate(estimates, rule, bound)
    rows = range(len(estimates)) if len(estimates) > 1 else ()
    expected_changes = Counter(
        outcome_at(estimates.take([other for other in rows if other != row]), rule, bound) for row in rows
    )
    del expected_changes[result.outcome]
    without = trials_by_kind(result, "without")
    changes: Counter[str] = Counter()
    for trial in without:
        changes[trial.outcome] += trial.number * (trial.of == "case")
    assert +changes == expected_changes
    names = estimates["node"].to_numpy()
    for node in set(names):
        rest = estimates.take(names != node)
        expected = outcome_at(rest, rule, bound) if len(rest) else result.outcome
        outcomes = {trial.outcome for trial in without if trial.id == node}
        assert outcomes == ({expected} if expected != result.outcome else set())


@given(some_cases, st.floats(0.5, 20), st.sampled_from(("at_least", "at_most", "exists")))
def test_reported_threshold_is_the_nearest_that_changes_the_verdict(
    drawn: list[Any], threshold: float, rule: str
) -> None:
    estimates = node_cases(*drawn)
    least, most = 0.1, 30.0
    result = evaluate(estimates, rule, threshold, [least, most])
    by_side = {trial.side: trial for trial in nearest_changes(result)}
    ends = np.unique(estimates.frame[["low", "high"]].to_numpy(float))
    step = 1e-9
    # Try thresholds at and just beside every interval end, because the outcome is constant in between.
    nearby = [value + shift for value in ends[~np.isnan(ends)] for shift in (-step, 0.0, step)]
    for higher, sides in ((True, ("above", "from")), (False, ("below", "to"))):
        candidates = [value for value in nearby if (value > threshold if higher else value < threshold)]
        candidates.sort(reverse=not higher)
        first = next((value for value in candidates if outcome_at(estimates, rule, value) != result.outcome), None)
        (trial,) = [by_side[side] for side in sides if side in by_side] or [None]
        if first is None or trial is None:
            assert trial is None and first is None
            continue
        assert trial.threshold == pytest.approx(first, abs=2 * step)
        assert trial.outcome == outcome_at(estimates, rule, first) != result.outcome
        # If the side is `above` or `below`, the outcome changes only beyond the reported threshold, not at it.
        unchanged = outcome_at(estimates, rule, trial.threshold) == result.outcome
        assert unchanged == (trial.side in ("above", "below"))


@given(
    some_cases, st.lists(st.floats(0.5, 20), min_size=1, max_size=5), st.sampled_from(("at_least", "at_most", "exists"))
)
def test_threshold_sweep_matches_new_decisions(drawn: list[Any], values: list[float], rule: str) -> None:
    estimates = node_cases(*drawn)
    expected = [(value, outcome_at(estimates, rule, value)) for value in sorted(set(values)) if value != values[0]]
    assert sweep_outcomes(evaluate(estimates, rule, values[0], values)) == expected


@pytest.mark.parametrize(
    ("intervals", "widths"),
    [
        ([(8.0, 10.0), (20.0, 30.0)], math.log(9 / 4) / math.log(10 / 8)),
        ([(-1.0, 1.0)], 2.0),
        ([(5.0, 5.0)], math.inf),
        ([(math.nan, math.nan)], math.nan),
        # If the outcome is `depends`, each side has the margin of its clearest case, and the smaller margin counts.
        # Undecided cases are ignored.
        ([(40.0, 42.0), (3.5, 4.1), (1.0, 2.0)], math.log(4 / 1.5) / math.log(2 / 1)),
    ],
)
def test_margin_is_in_widths_of_the_deciding_interval(intervals: list[tuple[float, float]], widths: float) -> None:
    in_widths = margin(decide("at_least", cases(*intervals), 4.0), Threshold(4.0))
    assert in_widths == pytest.approx(widths, nan_ok=True)


@pytest.mark.parametrize(("low", "word", "factor"), [(14.0, "robust", "3.50"), (5.0, "sensitive", "1.25")])
def test_robust_or_sensitive_by_distance_to_the_threshold(low: float, word: str, factor: str) -> None:
    result = evaluate(cases((low, low * 1.1)), "at_least", 4.0, [1.0, 100.0])
    change = f"With a threshold above {low:g} instead of 4 ({factor} times as much)"
    assert describe(result) == (word, f"{change}, the verdict would be too close to call.")
    listed = "on a chosen list" if word == "robust" else word
    assert describe(structs.replace(result, cases_why="they were at hand"))[0] == listed


@pytest.mark.parametrize(
    ("interval_ends", "sensitivity", "fragile"),
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
def test_fragile_if_close_or_changed_within_the_declared_range(
    interval_ends: tuple[float, float], sensitivity: list[float], fragile: bool
) -> None:
    assert evaluate(cases(interval_ends), "at_least", 4.0, sensitivity).robustness.fragile is fragile


def test_declared_range_extends_to_the_threshold() -> None:
    """The declared range 50 to 75 is extended to the threshold 100, so it contains 91, where the outcome changes."""
    result = evaluate(cases((90.0, 91.0)), "at_least", 100.0, [50.0, 75.0])
    assert result.outcome == "challenged"
    assert sweep_outcomes(result) == [(50, "supported"), (75, "supported")]
    (trial,) = nearest_changes(result)
    assert (trial.threshold, trial.side, trial.outcome) == (91, "to", "undecided")
    assert result.robustness.fragile and describe(result)[0] == "sensitive"
    # Without a declared range, thresholds are not varied.
    assert not trials_by_kind(evaluate(cases((90.0, 91.0)), "at_least", 100.0), "threshold")


def test_within_trials_use_whole_declared_ranges() -> None:
    result = evaluate(cases((20.0, 21.0)), "within", [10, 60], [[10, 60], [30, 90], [5, 100]])
    assert sweep_outcomes(result) == [([5, 100], "supported"), ([30, 90], "challenged")]
    assert [(trial.threshold, trial.factor) for trial in nearest_changes(result)] == [([30, 90], 3.0)]
    sentence = "With a range of 30 to 90 instead of 10 to 60, the verdict would be challenged."
    assert describe(result) == ("robust", sentence), "three times the declared end"


def test_verdict_that_depends_on_one_case_is_sensitive() -> None:
    estimates = node_cases(((40.0, 41.0), NODES[0]), ((41.0, 42.0), NODES[0]), ((0.1, 0.11), NODES[1]))
    result = evaluate(estimates, "at_least", 4.0, [3.0, 5.0])
    assert result.outcome == "depends" and result.robustness.margin_widths > 1
    assert describe(result) == ("sensitive", "Without the result (node-b; place 2), the verdict would be supported.")
    # node-b has only this case, so a trial without node-b equals the trial without the case.
    assert [trial.one_case for trial in trials_by_kind(result, "without") if trial.of == "machine"] == [False, True]


def test_verdict_that_depends_on_one_machine_is_sensitive() -> None:
    estimates = node_cases(*[((40.0, 41.0), NODES[0])] * 2, *[((0.1, 0.11), NODES[1])] * 2)
    result = evaluate(estimates, "at_least", 4.0, [3.0, 5.0])
    without = [(trial.of, trial.id, trial.outcome, trial.one_case) for trial in trials_by_kind(result, "without")]
    assert without == [("machine", NODES[0], "challenged", False), ("machine", NODES[1], "supported", False)]
    assert describe(result) == ("sensitive", "Without the machine node-a, the verdict would be challenged.")


def test_cases_that_each_change_the_verdict_are_counted() -> None:
    estimates = node_cases(*[((40.0, 41.0), NODES[0])] * 5, *[((1.0, 9.0), NODES[0])] * 4)
    result = evaluate(estimates, "at_least", 4.0, [3.0, 5.0])
    assert result.outcome == "supported", "five of nine agree, a majority"
    (trial,) = trials_by_kind(result, "without")
    assert (trial.of, trial.number, trial.what) == ("case", 5, "")
    assert describe(result)[1] == "Without any one of 5 results, the verdict would be too close to call."


def test_share_that_depends_on_one_model_is_sensitive() -> None:
    """With 8 of 8 models, the interval of the share lies above one half. With 7 of 7, it reaches below one half."""
    estimates = cases(*[(40.0, 41.0)] * 8, model=[f"m{index}" for index in range(8)])
    result = evaluate(estimates, "for_share_of", 4.0, [3.0, 5.0], options={"share": 0.5, "of": "model"})
    assert result.outcome == "supported"
    assert {(trial.of, trial.what, trial.outcome) for trial in trials_by_kind(result, "without")} == {
        ("model", f"m{index}", "undecided") for index in range(8)
    }
    assert describe(result) == ("sensitive", "Without the model m0, the verdict would be too close to call.")


def test_exact_and_undecided_results_are_neither_robust_nor_sensitive() -> None:
    exact = evaluate(cases((1.0, 1.0)), "exists", 1.0)
    assert exact.robustness is not None
    word, sentence = describe(structs.replace(exact, robustness=structs.replace(exact.robustness, fact=True)))
    assert word == "not varied" and "another reading" in str(sentence)
    word, sentence = describe(evaluate(cases((3.0, 5.0)), "at_least", 4.0))
    assert word is None and sentence, "undecided: the sentence tells what would decide it"


def test_parts_make_a_claim_sensitive_only_if_they_change_it_jointly() -> None:
    def part_with(name: str, *own_trials: Trial) -> Part:
        record = Robustness(
            verdict="depends", decides=False, fragile=True, exact=False, margin_widths=2.0, trials=list(own_trials)
        )
        return part_record(name=name, outcome="depends", robustness=record)

    unchanged = [part_with("one"), part_with("other")]
    assert describe(*unchanged) == ("robust", "No other choice that we tried, on any part, changes it.")
    ends = {"outcome": "challenged", "verdict": "depends"}
    swap = Trial(kind="scope", label="dtype", value="int8", now="float32", **ends)
    machine = Trial(kind="without", of="machine", what="A machine", id="node-a", **ends)
    for change, begins in (
        (swap, "With int8 instead of float32 in every part that has it"),
        (machine, "Without the machine A machine in every part that has it"),
    ):
        changed = [part_with("one", change), part_with("other", change)]
        assert [turn.verdict for turn in joint_turns(changed, "depends")] == ["challenged"]
        assert describe(*changed) == ("sensitive", f"{begins}, the verdict would be challenged.")
        assert joint_turns([changed[0], unchanged[1]], "depends") == [], "a change in one part belongs to that part"


def test_scope_trials_ignore_plain_code_backends() -> None:
    def trial(float64: float) -> Part:
        rows = [
            {"dtype": dtype, "backend": backend, "estimate": value, "low": value * 0.99, "high": value * 1.01}
            for dtype, backend, value in (
                ("float32", "best", 40.0), ("float32", "torch", 40.0), ("float32", "python", 0.1),
                ("float64", "best", float64), ("float64", "torch", 0.2),
            )
        ]  # fmt: skip
        return evaluate(exact_estimates(rows), "at_least", 4.0, [3.0, 5.0], {"dtype": "float32", "backend": "best"})

    result = trial(39.0)
    swaps = {swap.value: swap.outcome for swap in trials_by_kind(result, "scope")}
    assert swaps == {"float64": "supported", "torch": "supported", "python": "challenged"}
    assert result.robustness is not None and not result.robustness.fragile
    assert ("With python instead of the best library", "challenged (plain code, which does not count)") in list(
        verdict_sentences.trial_lines(to_builtins(result))
    )
    assert describe(trial(1.0)) == (
        "sensitive", "With float64 instead of float32, the verdict would be challenged."
    )  # fmt: skip
