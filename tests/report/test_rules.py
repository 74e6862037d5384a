"""Rules: outcomes from intervals, scope selection, ratios, trends, crossovers and boundaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from contract.errors import StudyError
from report import statistics, verdict_sentences
from report.estimates import Estimates
from report.judging import rules
from report.judging.part_evaluation import select
from report.judging.verdict_records import boundary_record
from report.outcomes import Threshold, combine_verdicts

from .made_estimates import cases, decide, log_cases

interval = st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)).map(lambda pair: (min(pair), max(pair)))
some_intervals = st.lists(interval, min_size=1, max_size=8)
threshold = st.floats(0.1, 100)


@pytest.mark.parametrize(
    ("low", "high", "bound", "how", "side"),
    [
        *((*ends, 1, "at_least", side) for *ends, side in (
            (2, 3, "supports"), (1, 3, "supports"), (0, 0.9, "challenges"), (0, 1, "undecided"),
            (math.nan, math.nan, "undecided"), (math.nan, 0.5, "undecided"), (2, math.inf, "supports"),
        )),
        *((*ends, 1000, "at_most", side) for *ends, side in (
            (900, 1000, "supports"), (1000, 1100, "undecided"), (1000.1, 1100, "challenges"),
        )),
        *((*ends, [10, 60], "within", side) for *ends, side in (
            (10, 60, "supports"), (5, 9, "challenges"), (5, 10, "undecided"), (60, 61, "undecided"),
            (61, 70, "challenges"), (5, 70, "undecided"),
        )),
    ],
)  # fmt: skip
def test_interval_sides_need_the_whole_interval_on_one_side(
    low: float, high: float, bound: Any, how: str, side: str
) -> None:
    # Each interval is decided independently from its neighbours.
    sides = rules.interval_sides(
        np.array([-9.0, low, 999.0]), np.array([-8.0, high, 1e4]), Threshold.from_json(bound), how
    )
    assert sides[1] == side and len(sides) == 3


@given(some_intervals, threshold)
def test_opposite_claims_are_never_both_supported(intervals: list[tuple[float, float]], bound: float) -> None:
    outcomes = {decide(rule, cases(*intervals), bound).outcome for rule in ("at_least", "at_most")}
    # An interval that ends at the threshold may satisfy both rules.
    if bound not in {end for ends in intervals for end in ends}:
        assert outcomes not in ({"supported"}, {"challenged"})


@given(some_intervals, st.floats(0.1, 50), st.floats(1, 2))
def test_stricter_threshold_never_helps(intervals: list[tuple[float, float]], bound: float, factor: float) -> None:
    order = ["challenged", "undecided", "supported"]
    easy, hard = (decide("exists", cases(*intervals), bound * by).outcome for by in (1, factor))
    assert order.index(hard) <= order.index(easy)


@given(some_intervals, threshold, st.randoms(use_true_random=False))
def test_estimate_order_does_not_matter(intervals: list[tuple[float, float]], bound: float, random: Any) -> None:
    shuffled = random.sample(intervals, len(intervals))
    for rule in ("at_least", "exists"):
        first, second = (decide(rule, cases(*order), bound).outcome for order in (intervals, shuffled))
        assert first == second


@pytest.mark.parametrize(
    ("rule", "intervals", "bound", "options", "outcome"),
    [
        *(("at_least", intervals, bound, {}, outcome) for intervals, bound, outcome in (
            ([(2, 3), (4, 5)], 1, "supported"), ([(2, 3), (4, 5)], 9, "challenged"), ([(2, 3), (4, 9)], 3.5, "depends"),
            ([(2, 9), (1, 9)], 3.5, "undecided"),
            # The cases that are not undecided must agree, and must be more than half of all cases.
            ([(5, 9), (1, 9)], 3.5, "undecided"), ([(5, 9), (1, 9), (6, 7)], 3.5, "supported"),
            ([(1, 2), (1, 9)], 3.5, "undecided"), ([(1, 2), (1, 9), (1, 3)], 3.5, "challenged"),
        )),
        *(("exists", [(1, 2), (5, 6), (1, 9)], bound, {}, outcome)
          for bound, outcome in ((4, "supported"), (7, "undecided"), (10, "challenged"))),
        ("exists", [(3, 6), (12, 14)], 9, {"compare": "at_most"}, "supported"),
    ],
)  # fmt: skip
def test_outcome_over_several_cases(
    rule: str, intervals: list[tuple[float, float]], bound: float, options: dict[str, Any], outcome: str
) -> None:
    assert decide(rule, cases(*intervals), bound, options=options).outcome == outcome


@pytest.mark.parametrize(
    ("rule", "intervals", "bound", "options", "representative"),
    [
        ("at_least", [(20, 21), (5, 6), (50, 60)], 4, {}, 1),
        ("at_most", [(20, 21), (5, 6), (50, 60)], 99, {}, 2),
        ("at_least", [(3.9, 4.1), (5, 6), (1, 2)], 4, {}, 1),
        ("exists", [(1, 2), (5, 6), (1, 9)], 4, {}, 1),
        ("exists", [(1, 2), (5, 6), (1, 9)], 4, {"compare": "at_most"}, 0),
        ("for_share_of", [(1, 2), (9, 10), (5, 6), (7, 8)], 4, {"share": 0.5, "of": "model"}, 3),
        ("for_share_of", [(1, 2), (9, 10), (5, 6), (7, 8)], 4, {"share": 0.75, "of": "model"}, 2),
        ("within", [(20, 30), (58, 59)], [10, 60], {}, 1),
        ("at_least", [(math.nan, math.nan), (5, 6)], 4, {}, 1),
    ],
)
def test_representative_is_the_weakest_deciding_case(
    rule: str, intervals: list[tuple[float, float]], bound: Any, options: dict[str, Any], representative: int
) -> None:
    estimates = cases(*intervals, model=list(range(len(intervals))))
    assert decide(rule, estimates, bound, options=options).representative == representative


@pytest.mark.parametrize(("rule", "estimates"), [("at_least", [5.0, 4.1, 6.0]), ("exists", [5.0, 9.0, 4.5])])
def test_representative_has_an_interval_if_any_case_has(rule: str, estimates: list[float]) -> None:
    assert decide(rule, log_cases(estimates), 4).representative == 1
    assert decide(rule, log_cases(estimates, se=[0.01, math.nan, 0.01]), 4).representative == 0
    assert decide(rule, log_cases(estimates, se=math.nan), 4).representative == 1


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ("supported", "supported"), ("supported, supported", "supported"), ("challenged, challenged", "challenged"),
        ("supported, challenged", "depends"), ("supported, depends", "depends"),
        ("supported, undecided", "undecided"), ("challenged, undecided", "challenged"),
        ("challenged, challenged, undecided", "challenged"), ("supported, supported, undecided", "undecided"),
        ("supported, challenged, undecided", "depends"), ("depends, undecided", "depends"),
        ("supported, awaiting source", "awaiting source"), ("depends, awaiting source", "depends"),
        ("challenged, awaiting hardware, awaiting source", "challenged"),
        ("supported, challenged, awaiting hardware", "depends"),
        ("awaiting source, awaiting hardware, awaiting experiment", "awaiting experiment"),
    ],
)  # fmt: skip
def test_combined_verdict_from_part_outcomes(outcomes: str, verdict: str) -> None:
    assert {combine_verdicts(order) for order in permutations(outcomes.split(", "))} == {verdict}


def single_estimate(log: bool = True, **values: float) -> Estimates:
    row = {"estimate": 2.0, "low": 1.9, "high": 2.1, "se": 0.01, "df": 4.0, "n_rounds": 3, "n_samples": 9}
    return Estimates(pd.DataFrame([{**row, **values, "detail": ""}]), log)


def test_interval_ends_at_another_level_use_student_t() -> None:
    single = Estimates.from_estimates(single_estimate().frame)
    half = student.ppf(0.9975, 4) * 0.01
    assert np.ravel(single.ends(0.995)) == pytest.approx((2 * np.exp(-half), 2 * np.exp(half)))
    assert np.ravel(single.ends(statistics.LEVEL)) == pytest.approx([single.frame["low"][0], single.frame["high"][0]])
    # On a linear scale, both interval ends move away from the estimate by the same factor. However, an end at 1, the
    # limit of a share, stays there.
    grown = student.ppf(0.9995, 4) / student.ppf((1 + statistics.LEVEL) / 2, 4)
    share = single_estimate(False, estimate=0.9, low=0.85, high=1.0)
    assert np.ravel(share.ends(0.999)) == pytest.approx((0.9 - 0.05 * grown, 1.0))
    # Exact intervals are the same at every level, and unknown intervals stay unknown.
    assert np.ravel(cases((1.0, 3.0)).ends(0.999)).tolist() == [1.0, 3.0]
    assert np.isnan(single_estimate(low=np.nan, high=np.nan, df=0.0).ends(0.999)).all()


def test_exists_uses_a_stricter_level_for_more_cases() -> None:
    assert rules.deciding_level("at_least", 10) == rules.deciding_level("exists", 1) == statistics.DECIDING
    assert 1 - rules.deciding_level("exists", 10) == pytest.approx((1 - statistics.DECIDING) / 10)
    assert rules.deciding_level("for_share_of", 4) == rules.deciding_level("at_least", 1)
    single = Estimates.from_estimates(single_estimate().frame)
    two = Estimates(pd.concat([single.frame, single.frame], ignore_index=True))
    low = float(single.frame["low"].iloc[0])
    wide = float(two.ends(rules.deciding_level("exists", 2))[0][0])
    assert wide < low
    assert decide("at_least", single, low * 0.999).outcome == decide("at_least", two, low * 0.999).outcome
    assert decide("exists", two, (low + wide) / 2).outcome == "undecided"
    assert decide("exists", two, wide * 0.999).outcome == "supported"


def test_threads_all_selects_the_largest_count_per_node() -> None:
    """GPU rows have no CPU threads, so `threads: all` selects all GPU rows."""
    where = {"node": ["small"] * 2 + ["large"] * 4, "device": ["cpu"] * 5 + ["cuda:0"], "threads": [1, 2, 1, 2, 8, 0]}
    estimates = cases(*[(1, 2)] * 6, **where)
    picks = select(estimates, {"threads": "all"})
    assert picks.rows("node", "device", "threads") == [("small", "cpu", 2), ("large", "cpu", 8), ("large", "cuda:0", 0)]
    assert select(estimates, {"threads": "all", "device": "cpu"}).rows("threads") == [(2,), (8,)]


@pytest.mark.parametrize(
    ("nodes", "dtypes", "selected"),
    [
        (("x.1", "x.2"), ("float32", "float32"), ["x.1"]),
        (("x", "x.2"), ("float32", "float32"), ["x"]),
        (("x.1", "x.2"), ("float32", "float64"), ["x.1", "x.2"]),
        (("x.1", "y.2"), ("float32", "float32"), ["x.1", "y.2"]),
    ],
)
def test_rows_without_interval_give_way_to_rows_of_their_kind(
    nodes: tuple[str, str], dtypes: tuple[str, str], selected: list[str]
) -> None:
    for order in (slice(None), slice(None, None, -1)):
        intervals = [(1.0, 2.0), (math.nan, math.nan)][order]
        rows = select(cases(*intervals, node=nodes[order], dtype=dtypes[order]), {})
        assert sorted(rows["node"]) == selected
    # If no row has an interval, all rows stay.
    assert len(select(cases(*[(math.nan, math.nan)] * 2, node=nodes, dtype=dtypes), {})) == 2


def test_best_backend_is_selected_only_on_request() -> None:
    estimates = cases(*[(1, 2)] * 3, backend=["torch", "best", "best"], shape=["512", "512", "best"], threads=[1, 1, 2])
    assert select(estimates, {}).rows("backend", "shape") == [("torch", "512")]
    assert select(estimates, {"backend": "best"}).rows("backend", "shape") == [("best", "best")]
    assert select(estimates, {"threads": [1, 4]}).rows("backend") == [("torch",)]
    assert not len(select(estimates, {"model": "mlp"})), "a label without values"


# Intervals at which the rule holds (h), fails (f) or is undecided (u), for the threshold 4.
ENDS = {"h": (5, 6), "f": (1, 2), "u": (3, 6)}


def boundary_text(result: rules.RuleResult) -> str:
    """Format the boundary as text."""
    record = boundary_record(result)
    assert record is not None
    return verdict_sentences.boundary_text(record)


@pytest.mark.parametrize(
    ("kinds", "labels", "text"),
    [
        ("ffhh", {"batch": [8, 16, 64, 256], "model": [*"abab"]}, "holds from batch 64 on, fails up to batch 16"),
        ("hhf", {"batch": [8, 16, 64]}, "holds up to batch 16, fails at batch 64"),
        ("fuh", {"batch": [8, 16, 64]}, "holds at batch 64, fails at batch 8 (1 case undecided)"),
        ("fhh", {"dtype": ["int8", "fp32", "fp32"], "batch": [2, 1, 3]}, "holds for fp32, fails for int8"),
        ("fh", {"node": ["x1", "x2"]}, "holds on New CPU, fails on Old CPU"),
        ("fhhhff", {"model": [*"aabbcc"], "batch": [8, 64] * 3},
         "a: holds at batch 64, fails at batch 8; b: holds throughout; c: fails throughout"),
        ("hhf", {"batch": [8, 16, 16]}, "holds in 2 and fails in 1 of 3 cases, which no one or two labels tell apart"),
        ("fhfh", {"batch": [1] * 4}, "holds in 2 and fails in 2 of 4 cases, which no one or two labels tell apart"),
    ],
)  # fmt: skip
def test_boundary_names_the_labels_that_separate_sides(kinds: str, labels: dict[str, Sequence[Any]], text: str) -> None:
    names = {"x1": "Old CPU", "x2": "New CPU"}
    result = decide("at_least", cases(*(ENDS[kind] for kind in kinds), **labels), 4, node_labels=names)
    assert boundary_text(result) == text


def test_ratio_rule_pairs_cases_with_equal_labels() -> None:
    where = {"node": ["a"] * 4 + ["b"], "device": ["cuda:0", "cpu"] * 2 + ["cuda:0"], "threads": [0, 2, 0, 2, 0]}
    rates = log_cases([10, 2, 30, 3, 7], **where, op=["copy", "copy", "add", "add", "add"])
    result = decide("ratio", rates, 4, options={"over": "device", "of": "gpu", "to": "cpu"})
    assert result.estimates.rows("op", "estimate") == [("copy", pytest.approx(5)), ("add", pytest.approx(10))]
    assert result.outcome == "supported"
    assert (result.estimates["low"] < result.estimates["estimate"]).all()
    inverse = decide("ratio", rates, 4, options={"over": "device", "of": "cpu", "to": "gpu"})
    assert sorted(1 / inverse.estimates["high"]) == pytest.approx(sorted(result.estimates["low"]))
    # A ratio between exact figures is exact.
    over = {"over": "entry", "of": "a", "to": "b"}
    figures = decide("ratio", cases((8, 8), (4, 4), entry=["a", "b"]), 1, options=over)
    assert figures.estimates.rows("low", "high") == [(2, 2)]


@pytest.mark.parametrize(
    ("rule", "options"),
    [("ratio", {"over": "devise", "of": "a", "to": "b"}), ("trend", {"along": "devise"}),
     ("crossover", {"over": "device", "of": "a", "to": "b", "along": "devise"})],
)  # fmt: skip
def test_unknown_label_is_refused(rule: str, options: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="Did you mean 'device'"):
        decide(rule, log_cases([1.0], device=["cpu"]), 1, options=options)


def test_trend_is_a_power_law_exponent() -> None:
    batch, along = np.array([1, 4, 16, 64, 256]), {"along": "batch"}
    result = decide("trend", log_cases(3 * batch**0.5, batch=batch), 0.4, options=along)
    assert result.estimates.rows("estimate") == [(pytest.approx(0.5),)] and result.outcome == "supported"
    bent = log_cases([1, 2, 1, 2, 1], batch=batch)
    assert decide("trend", bent, 0.1, options=along).outcome == "undecided"
    assert not len(decide("trend", log_cases([1.0], batch=[1]), 0.1, options=along).estimates)


def test_slope_intervals_cover_the_true_exponent() -> None:
    random, x = np.random.default_rng(4), np.array([1, 2, 4, 8, 16, 32])
    hits = []
    for _ in range(600):
        noisy = x**0.3 * np.exp(random.normal(0, 0.02, len(x)))
        slopes = decide("trend", log_cases(noisy, 0.02, batch=x), 0, options={"along": "batch"}).estimates
        hits += [low <= 0.3 <= high for low, high in slopes.rows("low", "high")]
    assert 0.97 <= np.mean(hits) <= 1.0


def decide_crossover(cpu: Sequence[float], gpu: Sequence[float], bound: float = 1) -> rules.RuleResult:
    """Apply the crossover rule at sizes 1, 10, 100, … for CPU and GPU rates."""
    n = len(cpu)
    where = {"node": ["a"] * 2 * n, "device": ["cpu"] * n + ["cuda:0"] * n, "threads": [2] * n + [0] * n}
    rates = log_cases([*cpu, *gpu], **where, size=[10**i for i in range(n)] * 2)
    return decide("crossover", rates, bound, options={"over": "device", "of": "cpu", "to": "gpu", "along": "size"})


def test_crossover_lies_between_decided_points() -> None:
    result = decide_crossover([1, 10, 100, 1000], [50] * 4)
    assert result.estimates.rows("low", "estimate", "high") == [(10, pytest.approx(50), 100)]
    assert result.outcome == "supported"
    assert boundary_text(result) == "cpu is ahead from size 100 on, not up to 10"
    assert decide_crossover([1, 10, 100, 1000], [50] * 4, bound=200).outcome == "challenged"
    # An undecided point widens the interval.
    assert decide_crossover([1, 10, 50, 1000], [50] * 4).estimates.rows("low", "high") == [(10, 1000)]


def test_series_without_a_crossing_challenge_a_crossover() -> None:
    result = decide_crossover([1, 2, 3], [50, 50, 50])
    assert result.outcome == "challenged" and boundary_text(result) == "gpu is ahead at every size measured"
    assert boundary_text(decide_crossover([50, 50, 50], [1, 2, 3])) == "cpu is ahead at every size measured"
    assert decide_crossover([1, 2, 50], [50, 50, 50]).outcome == "undecided"


def test_crossover_with_one_series_has_no_estimates() -> None:
    only = log_cases([1.0, 2.0], node=["a"] * 2, device=["cuda:0"] * 2, size=[1, 10])
    options = {"over": "device", "of": "cpu", "to": "gpu", "along": "size"}
    assert not len(decide("crossover", only, 1, options=options).estimates)


def many_cases(supporting: int, challenging: int, near: float, undecided: int = 0) -> Estimates:
    """Return cases for the threshold 1 under at_least, with 3 df and a standard error of 0.05.

    supporting: cases far above. challenging: cases below by `near` standard errors. undecided: cases at the threshold.
    """
    values = [3.0] * supporting + [math.exp(-0.05 * near)] * challenging + [1.0] * undecided
    return log_cases(values, se=[0.05] * len(values), df=3.0)


def test_few_cases_near_the_threshold_do_not_make_a_claim_depend() -> None:
    near = 1.05 * student.ppf(0.995, 3)
    alone, beside_many = decide("at_least", many_cases(0, 1, near), 1), decide("at_least", many_cases(40, 1, near), 1)
    assert alone.outcome == "challenged"
    assert beside_many.outcome == "supported" and beside_many.sides[-1] == "undecided"
    sure = 1.05 * student.ppf(1 - 0.005 / 41, 3)
    assert decide("at_least", many_cases(40, 1, sure), 1).outcome == "depends"


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=9), st.data())
def test_only_an_unsure_smaller_side_becomes_undecided(sides: list[int], data: Any) -> None:
    supports, challenges, undecided = range(3)
    sure = [data.draw(st.sampled_from([side, undecided])) for side in sides]
    kept = rules.without_unsure_minority(np.array(sides), np.array(sure)).tolist()
    for side, other in ((supports, challenges), (challenges, supports)):
        if sides.count(side) > sides.count(other) or side in sure:
            assert [own == side for own in kept] == [own == side for own in sides]
        else:
            assert side not in kept


@pytest.mark.parametrize(
    ("cases_above", "cases_at", "most", "every"),
    [(3, 0, "supported", "supported"), (3, 1, "supported", "undecided"), (1, 1, "undecided", "undecided")],
)
def test_every_needs_all_cases_and_most_more_than_half(cases_above: int, cases_at: int, most: str, every: str) -> None:
    estimates = many_cases(cases_above, 0, 0, cases_at)
    for quantifier, outcome in (("most", most), ("every", every)):
        assert decide("at_least", estimates, 1, options={"quantifier": quantifier}).outcome == outcome
    assert decide("at_least", estimates, 1).outcome == most


@pytest.mark.parametrize(("options", "n_cases", "words"), [
    ({}, 3, "in most cases, with no sure exception"), ({"quantifier": "every"}, 3, "in every case"),
    ({}, 1, "in every case"),
])  # fmt: skip
def test_rule_text_tells_the_quantifier(options: dict[str, Any], n_cases: int, words: str) -> None:
    part = {"rule": "at_least", "unit": "s", "threshold": 2.0, "options": options, "n_cases": n_cases, "scale": 1.0}
    assert verdict_sentences.rule_text(part) == f"supported if at least 2 s {words}"


def test_strength_tells_how_many_cases_are_decided() -> None:
    part = {"rule": "at_least", "outcome": "supported"}
    listed = [{"outcome": "supports"}] * 8 + [{"outcome": "undecided"}] * 4
    assert verdict_sentences.strength_text(part, listed) == (
        "8 of 12 results clearly support it; the others are too uncertain to count."
    )
    assert verdict_sentences.strength_text(part, listed[:8]) == ""
