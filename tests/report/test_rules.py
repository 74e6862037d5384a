"""Rules decide by intervals alone, of the estimates in scope, and name the boundary where a claim holds in part."""

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
def test_the_whole_interval_on_one_side_decides(low: float, high: float, bound: Any, how: str, side: str) -> None:
    # Beside others, each is decided by itself.
    others = rules.interval_sides(
        np.array([-9.0, low, 999.0]), np.array([-8.0, high, 1e4]), Threshold.from_json(bound), how
    )
    assert others[1] == side and len(others) == 3


@given(some_intervals, threshold)
def test_a_claim_and_its_opposite_are_never_both_supported(some: list[tuple[float, float]], bound: float) -> None:
    both = {decide(rule, cases(*some), bound).outcome for rule in ("at_least", "at_most")}
    # What ends on the threshold itself may meet both.
    if bound not in {end for ends in some for end in ends}:
        assert both not in ({"supported"}, {"challenged"})


@given(some_intervals, st.floats(0.1, 50), st.floats(1, 2))
def test_a_harder_threshold_never_helps(some: list[tuple[float, float]], bound: float, factor: float) -> None:
    order = ["challenged", "undecided", "supported"]
    easy, hard = (decide("exists", cases(*some), bound * by).outcome for by in (1, factor))
    assert order.index(hard) <= order.index(easy)


@given(some_intervals, threshold, st.randoms(use_true_random=False))
def test_the_order_of_estimates_does_not_matter(some: list[tuple[float, float]], bound: float, random: Any) -> None:
    mixed = random.sample(some, len(some))
    for rule in ("at_least", "exists"):
        one, other = (decide(rule, cases(*given), bound).outcome for given in (some, mixed))
        assert one == other


@pytest.mark.parametrize(
    ("rule", "some", "bound", "options", "outcome"),
    [
        *(("at_least", some, bound, {}, outcome) for some, bound, outcome in (
            ([(2, 3), (4, 5)], 1, "supported"), ([(2, 3), (4, 5)], 9, "challenged"), ([(2, 3), (4, 9)], 3.5, "depends"),
            ([(2, 9), (1, 9)], 3.5, "undecided"),
            # Those that decide agree: they have to be most.
            ([(5, 9), (1, 9)], 3.5, "undecided"), ([(5, 9), (1, 9), (6, 7)], 3.5, "supported"),
            ([(1, 2), (1, 9)], 3.5, "undecided"), ([(1, 2), (1, 9), (1, 3)], 3.5, "challenged"),
        )),
        *(("exists", [(1, 2), (5, 6), (1, 9)], bound, {}, outcome)
          for bound, outcome in ((4, "supported"), (7, "undecided"), (10, "challenged"))),
        ("exists", [(3, 6), (12, 14)], 9, {"compare": "at_most"}, "supported"),
    ],
)  # fmt: skip
def test_one_outcome_of_all(
    rule: str, some: list[tuple[float, float]], bound: float, options: dict[str, Any], outcome: str
) -> None:
    assert decide(rule, cases(*some), bound, options=options).outcome == outcome


@pytest.mark.parametrize(
    ("rule", "some", "bound", "options", "stands"),
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
def test_the_estimate_that_stands_for_all_is_the_weakest_link(
    rule: str, some: list[tuple[float, float]], bound: Any, options: dict[str, Any], stands: int
) -> None:
    told = cases(*some, model=list(range(len(some))))
    assert decide(rule, told, bound, options=options).representative == stands


@pytest.mark.parametrize(("rule", "estimates"), [("at_least", [5.0, 4.1, 6.0]), ("exists", [5.0, 9.0, 4.5])])
def test_an_estimate_without_an_interval_stands_for_none_that_has_one(rule: str, estimates: list[float]) -> None:
    assert decide(rule, log_cases(estimates), 4).representative == 1
    assert decide(rule, log_cases(estimates, se=[0.01, math.nan, 0.01]), 4).representative == 0
    assert decide(rule, log_cases(estimates, se=math.nan), 4).representative == 1


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ("supported", "supported"), ("supported, supported", "supported"), ("challenged, challenged", "challenged"),
        ("supported, challenged", "depends"), ("supported, depends", "depends"),
        ("supported, undecided", "undecided"), ("challenged, undecided", "undecided"),
        ("challenged, challenged, undecided", "challenged"), ("supported, supported, undecided", "undecided"),
        ("supported, challenged, undecided", "depends"), ("depends, undecided", "depends"),
        ("supported, awaiting source", "awaiting source"), ("depends, awaiting source", "depends"),
        ("challenged, awaiting hardware, awaiting source", "awaiting hardware"),
        ("supported, challenged, awaiting hardware", "depends"),
        ("awaiting source, awaiting hardware, awaiting experiment", "awaiting experiment"),
    ],
)  # fmt: skip
def test_the_verdict_on_a_claim_follows_from_its_parts(outcomes: str, verdict: str) -> None:
    assert {combine_verdicts(order) for order in permutations(outcomes.split(", "))} == {verdict}


def one(log: bool = True, **values: float) -> Estimates:
    known = {"estimate": 2.0, "low": 1.9, "high": 2.1, "se": 0.01, "df": 4.0, "n_rounds": 3, "n_samples": 9}
    return Estimates(pd.DataFrame([{**known, **values, "detail": ""}]), log)


def test_the_ends_at_another_level_are_students() -> None:
    made = Estimates.from_estimates(one().frame)
    half = student.ppf(0.9975, 4) * 0.01
    assert np.ravel(made.ends(0.995)) == pytest.approx((2 * np.exp(-half), 2 * np.exp(half)))
    assert np.ravel(made.ends(statistics.LEVEL)) == pytest.approx([made.frame["low"][0], made.frame["high"][0]])
    # Off the log scale both sides widen in proportion; an end that is clipped stays.
    grown = student.ppf(0.9995, 4) / student.ppf((1 + statistics.LEVEL) / 2, 4)
    share = one(False, estimate=0.9, low=0.85, high=1.0)
    assert np.ravel(share.ends(0.999)) == pytest.approx((0.9 - 0.05 * grown, 1.0))
    # Published figures stand as given, and an unknown interval stays unknown.
    assert np.ravel(cases((1.0, 3.0)).ends(0.999)).tolist() == [1.0, 3.0]
    assert np.isnan(one(low=np.nan, high=np.nan, df=0.0).ends(0.999)).all()


def test_where_one_of_many_is_enough_each_must_be_surer() -> None:
    assert rules.deciding_level("at_least", 10) == rules.deciding_level("exists", 1) == statistics.DECIDING
    assert 1 - rules.deciding_level("exists", 10) == pytest.approx((1 - statistics.DECIDING) / 10)
    assert rules.deciding_level("for_share_of", 4) == rules.deciding_level("at_least", 1)
    single = Estimates.from_estimates(one().frame)
    two = Estimates(pd.concat([single.frame, single.frame], ignore_index=True))
    low = float(single.frame["low"].iloc[0])
    wide = float(two.ends(rules.deciding_level("exists", 2))[0][0])
    assert wide < low
    assert decide("at_least", single, low * 0.999).outcome == decide("at_least", two, low * 0.999).outcome
    assert decide("exists", two, (low + wide) / 2).outcome == "undecided"
    assert decide("exists", two, wide * 0.999).outcome == "supported"


def test_all_threads_are_each_node_s_own_most() -> None:
    """A server with more cores takes nothing from a smaller one; a GPU has no threads of the CPU's."""
    where = {"node": ["small"] * 2 + ["large"] * 4, "device": ["cpu"] * 5 + ["cuda:0"], "threads": [1, 2, 1, 2, 8, 0]}
    some = cases(*[(1, 2)] * 6, **where)
    found = select(some, {"threads": "all"})
    assert found.rows("node", "device", "threads") == [("small", "cpu", 2), ("large", "cpu", 8), ("large", "cuda:0", 0)]
    assert select(some, {"threads": "all", "device": "cpu"}).rows("threads") == [(2,), (8,)]


@pytest.mark.parametrize(
    ("nodes", "dtypes", "left"),
    [
        (("x.1", "x.2"), ("float32", "float32"), ["x.1"]),
        (("x", "x.2"), ("float32", "float32"), ["x"]),
        (("x.1", "x.2"), ("float32", "float64"), ["x.1", "x.2"]),
        (("x.1", "y.2"), ("float32", "float32"), ["x.1", "y.2"]),
    ],
)
def test_a_single_round_goes_where_a_machine_of_its_kind_has_an_interval_for_the_same(
    nodes: tuple[str, str], dtypes: tuple[str, str], left: list[str]
) -> None:
    for order in (slice(None), slice(None, None, -1)):
        intervals = [(1.0, 2.0), (math.nan, math.nan)][order]
        found = select(cases(*intervals, node=nodes[order], dtype=dtypes[order]), {})
        assert sorted(found["node"]) == left
    # Where none is sure, all stay.
    assert len(select(cases(*[(math.nan, math.nan)] * 2, node=nodes, dtype=dtypes), {})) == 2


def test_the_best_library_enters_only_where_it_is_asked_for() -> None:
    some = cases(*[(1, 2)] * 3, backend=["torch", "best", "best"], shape=["512", "512", "best"], threads=[1, 1, 2])
    assert select(some, {}).rows("backend", "shape") == [("torch", "512")]
    assert select(some, {"backend": "best"}).rows("backend", "shape") == [("best", "best")]
    assert select(some, {"threads": [1, 4]}).rows("backend") == [("torch",)]
    assert not len(select(some, {"model": "mlp"})), "a label that nothing bears"


# Estimates that hold, fail, or are too close to 4.
ENDS = {"h": (5, 6), "f": (1, 2), "u": (3, 6)}


def where_it_holds(found: rules.RuleResult) -> str:
    """The boundary in words."""
    record = boundary_record(found)
    assert record is not None
    return verdict_sentences.boundary_text(record)


@pytest.mark.parametrize(
    ("some", "labels", "where"),
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
def test_what_separates_the_sides_is_named(some: str, labels: dict[str, Sequence[Any]], where: str) -> None:
    names = {"x1": "Old CPU", "x2": "New CPU"}
    found = decide("at_least", cases(*(ENDS[one] for one in some), **labels), 4, node_labels=names)
    assert where_it_holds(found) == where


def test_a_ratio_pairs_what_agrees_in_all_else() -> None:
    where = {"node": ["a"] * 4 + ["b"], "device": ["cuda:0", "cpu"] * 2 + ["cuda:0"], "threads": [0, 2, 0, 2, 0]}
    some = log_cases([10, 2, 30, 3, 7], **where, op=["copy", "copy", "add", "add", "add"])
    found = decide("ratio", some, 4, options={"over": "device", "of": "gpu", "to": "cpu"})
    assert found.estimates.rows("op", "estimate") == [("copy", pytest.approx(5)), ("add", pytest.approx(10))]
    assert found.outcome == "supported"
    assert (found.estimates["low"] < found.estimates["estimate"]).all()
    inverse = decide("ratio", some, 4, options={"over": "device", "of": "cpu", "to": "gpu"})
    assert sorted(1 / inverse.estimates["high"]) == pytest.approx(sorted(found.estimates["low"]))
    # Of exact figures it is exact.
    over = {"over": "entry", "of": "a", "to": "b"}
    figures = decide("ratio", cases((8, 8), (4, 4), entry=["a", "b"]), 1, options=over)
    assert figures.estimates.rows("low", "high") == [(2, 2)]


@pytest.mark.parametrize(
    ("rule", "options"),
    [("ratio", {"over": "devise", "of": "a", "to": "b"}), ("trend", {"along": "devise"}),
     ("crossover", {"over": "device", "of": "a", "to": "b", "along": "devise"})],
)  # fmt: skip
def test_an_unknown_label_is_a_mistake(rule: str, options: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="Did you mean 'device'"):
        decide(rule, log_cases([1.0], device=["cpu"]), 1, options=options)


def test_a_trend_is_the_exponent_of_a_power_law() -> None:
    batch, along = np.array([1, 4, 16, 64, 256]), {"along": "batch"}
    found = decide("trend", log_cases(3 * batch**0.5, batch=batch), 0.4, options=along)
    assert found.estimates.rows("estimate") == [(pytest.approx(0.5),)] and found.outcome == "supported"
    bent = log_cases([1, 2, 1, 2, 1], batch=batch)
    assert decide("trend", bent, 0.1, options=along).outcome == "undecided"
    assert not len(decide("trend", log_cases([1.0], batch=[1]), 0.1, options=along).estimates)


def test_slope_intervals_cover_the_true_exponent() -> None:
    random, x = np.random.default_rng(4), np.array([1, 2, 4, 8, 16, 32])
    hits = []
    for _ in range(600):
        noisy = x**0.3 * np.exp(random.normal(0, 0.02, len(x)))
        found = decide("trend", log_cases(noisy, 0.02, batch=x), 0, options={"along": "batch"}).estimates
        hits += [low <= 0.3 <= high for low, high in found.rows("low", "high")]
    assert 0.97 <= np.mean(hits) <= 1.0


def crossing(cpu: Sequence[float], gpu: Sequence[float], bound: float = 1) -> rules.RuleResult:
    """The sizes 1, 10, 100, … from which on the CPU is ahead of the GPU, against a threshold."""
    n = len(cpu)
    where = {"node": ["a"] * 2 * n, "device": ["cpu"] * n + ["cuda:0"] * n, "threads": [2] * n + [0] * n}
    some = log_cases([*cpu, *gpu], **where, size=[10**i for i in range(n)] * 2)
    return decide("crossover", some, bound, options={"over": "device", "of": "cpu", "to": "gpu", "along": "size"})


def test_a_crossover_lies_between_the_points_that_decide() -> None:
    found = crossing([1, 10, 100, 1000], [50] * 4)
    assert found.estimates.rows("low", "estimate", "high") == [(10, pytest.approx(50), 100)]
    assert found.outcome == "supported"
    assert where_it_holds(found) == "cpu is ahead from size 100 on, not up to 10"
    assert crossing([1, 10, 100, 1000], [50] * 4, bound=200).outcome == "challenged"
    # A point that is too close widens what the change lies between.
    assert crossing([1, 10, 50, 1000], [50] * 4).estimates.rows("low", "high") == [(10, 1000)]


def test_series_that_never_cross_challenge_a_crossover() -> None:
    found = crossing([1, 2, 3], [50, 50, 50])
    assert found.outcome == "challenged" and where_it_holds(found) == "gpu is ahead at every size measured"
    assert where_it_holds(crossing([50, 50, 50], [1, 2, 3])) == "cpu is ahead at every size measured"
    assert crossing([1, 2, 50], [50, 50, 50]).outcome == "undecided"


def test_a_crossover_of_which_one_series_is_not_measured_yet_has_no_estimates() -> None:
    only = log_cases([1.0, 2.0], node=["a"] * 2, device=["cuda:0"] * 2, size=[1, 10])
    options = {"over": "device", "of": "cpu", "to": "gpu", "along": "size"}
    assert not len(decide("crossover", only, 1, options=options).estimates)
