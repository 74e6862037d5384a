"""Rules decide by intervals alone, and name the boundary where a claim holds in part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from report.estimates import Estimates, exact
from report.judging import rules


def cells(*intervals: tuple[float, float], **labels: Sequence[Any]) -> Estimates:
    """Cells whose intervals stand as given."""
    rows = [{"estimate": (low + high) / 2, "low": low, "high": high} for low, high in intervals]
    return exact([{**row, **{name: values[i] for name, values in labels.items()}} for i, row in enumerate(rows)])


def log_cells(estimates: Sequence[float], se: float = 0.01, **labels: Sequence[Any]) -> Estimates:
    frame = pd.DataFrame({"estimate": estimates, "se": se, "df": 10.0, "n_rounds": 3, "n_samples": 15, **labels})
    return Estimates.from_estimates(frame)


@pytest.mark.parametrize(
    ("low", "high", "threshold", "how", "outcome"),
    [
        (2, 3, 1, "at_least", "supports"),
        (1, 3, 1, "at_least", "supports"),
        (0, 0.9, 1, "at_least", "challenges"),
        (0, 1, 1, "at_least", "undecided"),
        (900, 1000, 1000, "at_most", "supports"),
        (1000, 1100, 1000, "at_most", "undecided"),
        (1000.1, 1100, 1000, "at_most", "challenges"),
        (10, 60, [10, 60], "within", "supports"),
        (5, 9, [10, 60], "within", "challenges"),
        (61, 70, [10, 60], "within", "challenges"),
        (50, 70, [10, 60], "within", "undecided"),
        (math.nan, math.nan, 1, "at_least", "undecided"),
    ],
)
def test_the_whole_interval_on_one_side_decides(
    low: float, high: float, threshold: Any, how: str, outcome: str
) -> None:
    assert rules.side(low, high, threshold, how) == outcome


interval = st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(interval, min_size=1, max_size=8), st.floats(0.1, 100))
def test_a_claim_and_its_opposite_are_never_both_supported(
    intervals: list[tuple[float, float]], threshold: float
) -> None:
    least = rules.decide("at_least", cells(*intervals), threshold).outcome
    most = rules.decide("at_most", cells(*intervals), threshold).outcome
    if any(low != high for low, high in intervals) or threshold not in {low for low, _ in intervals}:
        assert (least, most) not in {("supported", "supported"), ("challenged", "challenged")}


@given(st.lists(interval, min_size=1, max_size=8), st.floats(0.1, 50), st.floats(1, 2))
def test_a_harder_threshold_never_helps(intervals: list[tuple[float, float]], threshold: float, factor: float) -> None:
    order = ["challenged", "undecided", "supported"]
    easy = rules.decide("exists", cells(*intervals), threshold).outcome
    hard = rules.decide("exists", cells(*intervals), threshold * factor).outcome
    assert order.index(hard) <= order.index(easy)


@given(st.lists(interval, min_size=1, max_size=6), st.floats(0.1, 100), st.randoms(use_true_random=False))
def test_the_order_of_cells_does_not_matter(
    intervals: list[tuple[float, float]], threshold: float, random: Any
) -> None:
    mixed = random.sample(intervals, len(intervals))
    for rule, options in (("at_least", {}), ("exists", {}), ("for_share_of", {"share": 0.5})):
        one = rules.decide(rule, cells(*intervals), threshold, options=options).outcome
        assert rules.decide(rule, cells(*mixed), threshold, options=options).outcome == one


def test_all_agree_or_it_depends() -> None:
    assert rules.decide("at_least", cells((2, 3), (4, 5)), 1).outcome == "supported"
    assert rules.decide("at_least", cells((2, 3), (4, 5)), 9).outcome == "challenged"
    assert rules.decide("at_least", cells((2, 3), (4, 9)), 3.5).outcome == "depends"
    assert rules.decide("at_least", cells((2, 9), (1, 9)), 3.5).outcome == "undecided"
    assert rules.decide("at_least", cells((5, 9), (1, 9)), 3.5).outcome == "depends"


def test_exists_and_shares() -> None:
    some = cells((1, 2), (5, 6), (1, 9))
    assert rules.decide("exists", some, 4).outcome == "supported"
    assert rules.decide("exists", some, 7).outcome == "undecided"
    assert rules.decide("exists", some, 10).outcome == "challenged"
    assert rules.decide("for_share_of", some, 4, options={"share": 0.3}).outcome == "supported"
    assert rules.decide("for_share_of", some, 4, options={"share": 0.5}).outcome == "undecided"
    assert rules.decide("for_share_of", some, 4, options={"share": 0.9}).outcome == "challenged"
    ruling = rules.decide("exists", some, 4)
    assert ruling.representative == 1


def test_the_decisive_cell_is_the_weakest_link() -> None:
    assert rules.decide("at_least", cells((20, 21), (5, 6), (50, 60)), 4).representative == 1


# ------------------------------------------------------------------ boundaries


def test_a_numeric_boundary_is_named() -> None:
    some = cells((1, 2), (1, 2), (5, 6), (5, 6), batch=[8, 16, 64, 256], model=["a", "b", "a", "b"])
    assert rules.decide("at_least", some, 4).boundary == "holds from batch 64 on, fails up to batch 16"


def test_undecided_cells_do_not_hide_the_boundary() -> None:
    some = cells((1, 2), (3, 6), (5, 6), batch=[8, 16, 64])
    assert rules.decide("at_least", some, 4).boundary == "holds at batch 64, fails at batch 8 (1 cell undecided)"


def test_a_categorical_boundary_is_named() -> None:
    some = cells((1, 2), (5, 6), (5, 6), dtype=["float64", "float32", "float32"], batch=[2, 1, 3])
    assert rules.decide("at_least", some, 4).boundary == "holds for float32, fails for float64"


def test_a_boundary_within_another_label_is_named() -> None:
    some = cells(
        (1, 2), (5, 6), (5, 6), (5, 6), (1, 2), (1, 2), model=["a", "a", "b", "b", "c", "c"], batch=[8, 64] * 3
    )
    found = rules.decide("at_least", some, 4).boundary
    assert found == "a: holds at batch 64, fails at batch 8; b: holds throughout; c: fails throughout"


def test_no_boundary_is_said_too() -> None:
    some = cells((1, 2), (5, 6), (1, 2), (5, 6), batch=[1, 1, 1, 1])
    assert rules.decide("at_least", some, 4).boundary == (
        "holds in 2 and fails in 2 of 4 cells, which no one or two labels tell apart"
    )


def test_nodes_are_named_by_their_labels() -> None:
    some = cells((1, 2), (5, 6), node=["x1", "x2"])
    found = rules.decide("at_least", some, 4, node_labels={"x1": "Old CPU", "x2": "New CPU"}).boundary
    assert found == "holds on New CPU, fails on Old CPU"


# ------------------------------------------------------------------ transforms


def test_a_ratio_pairs_what_agrees_in_all_else() -> None:
    some = log_cells(
        [10, 2, 30, 3], node=["a"] * 4, device=["cuda:0", "cpu", "cuda:0", "cpu"], op=["copy", "copy", "add", "add"],
        threads=[0, 2, 0, 2],
    )  # fmt: skip
    options = {"over": "device", "of": "gpu", "to": "cpu"}
    ruling = rules.decide("ratio", some, 4, options=options)
    assert sorted(ruling.estimates.frame["estimate"]) == pytest.approx([5, 10])
    assert ruling.outcome == "supported"
    assert (ruling.estimates.frame["low"] < ruling.estimates.frame["estimate"]).all()
    inverse = rules.decide("ratio", some, 4, options={"over": "device", "of": "cpu", "to": "gpu"})
    assert sorted(1 / inverse.cells.frame["high"]) == pytest.approx(sorted(ruling.estimates.frame["low"]))


def test_exact_figures_give_an_exact_ratio() -> None:
    some = exact([{"estimate": 884.0, "entry": "a"}, {"estimate": 681.0, "entry": "b"}])
    ruling = rules.decide("ratio", some, 1, options={"over": "entry", "of": "a", "to": "b"})
    assert ruling.outcome == "supported" and ruling.estimates.frame["low"].iloc[0] == pytest.approx(884 / 681)


def test_a_ratio_over_an_unknown_label_is_a_mistake() -> None:
    with pytest.raises(StudyError, match="Did you mean 'device'"):
        rules.decide("ratio", log_cells([1.0], device=["cpu"]), 1, options={"over": "devise", "of": "a", "to": "b"})


def test_a_trend_is_the_exponent_of_a_power_law() -> None:
    batch = np.array([1, 4, 16, 64, 256])
    ruling = rules.decide("trend", log_cells(3 * batch**0.5, batch=batch), 0.4, options={"along": "batch"})
    assert ruling.estimates.frame["estimate"].iloc[0] == pytest.approx(0.5)
    assert ruling.outcome == "supported"
    bent = log_cells([1, 2, 1, 2, 1], batch=batch)
    assert rules.decide("trend", bent, 0.1, options={"along": "batch"}).outcome == "undecided"
    assert len(rules.decide("trend", log_cells([1.0], batch=[1]), 0.1, options={"along": "batch"}).cells) == 0


def test_slope_intervals_cover_the_true_exponent() -> None:
    random, x = np.random.default_rng(4), np.array([1, 2, 4, 8, 16, 32])
    hits = []
    for _ in range(600):
        noisy = x**0.3 * np.exp(random.normal(0, 0.02, len(x)))
        frame = rules.decide("trend", log_cells(noisy, se=0.02, batch=x), 0, options={"along": "batch"}).cells.frame
        hits.append(bool(frame["low"].iloc[0] <= 0.3 <= frame["high"].iloc[0]))
    assert 0.92 <= np.mean(hits) <= 1.0


OVER = {"over": "device", "of": "cpu", "to": "gpu", "along": "size"}


def crossing(cpu: Sequence[float], gpu: Sequence[float]) -> Estimates:
    n = len(cpu)
    return log_cells(
        [*cpu, *gpu], node=["a"] * 2 * n, device=["cpu"] * n + ["cuda:0"] * n, threads=[2] * n + [0] * n,
        size=[10**i for i in range(n)] * 2,
    )  # fmt: skip


def test_a_crossover_lies_between_the_points_that_decide() -> None:
    ruling = rules.decide("crossover", crossing([1, 10, 100, 1000], [50, 50, 50, 50]), 1, options=OVER)
    row = ruling.estimates.frame.iloc[0]
    assert (row["low"], row["high"]) == (10, 100)
    assert row["estimate"] == pytest.approx(50)
    assert ruling.outcome == "supported"
    assert ruling.boundary == "cpu is ahead from size 100 on, not up to 10"
    assert rules.decide("crossover", crossing([1, 10, 100, 1000], [50] * 4), 200, options=OVER).outcome == "challenged"


def test_series_that_never_cross_challenge_a_crossover() -> None:
    ruling = rules.decide("crossover", crossing([1, 2, 3], [50, 50, 50]), 1, options=OVER)
    assert ruling.outcome == "challenged" and "gpu is ahead at every size" in str(ruling.boundary)
    unsure = rules.decide("crossover", crossing([1, 2, 50], [50, 50, 50]), 1, options=OVER)
    assert unsure.outcome == "undecided"


@pytest.mark.parametrize("rule", rules.RULES)
def test_every_rule_is_put_in_words(rule: str) -> None:
    options = {"over": "device", "of": "gpu", "to": "cpu", "along": "batch", "share": 0.5}
    text = rules.describe(rule, [1, 2] if rule == "within" else 1, "B/s", options)
    assert text.startswith("supported if ") and "1" in text


def test_what_is_a_number_of_its_own_is_told_without_the_unit_of_what_was_measured() -> None:
    options = {"over": "device", "of": "cpu", "to": "gpu", "along": "parameters"}
    crossed = rules.describe("crossover", 1, "s", options)
    assert crossed == "supported if CPU and GPU change places along parameters, at a value of at least 1"
    assert rules.describe("ratio", 2, "s", options) == "supported if the ratio CPU over GPU is at least 2 in every cell"
    assert rules.describe("within", [528, 528], "1", {}) == "supported if exactly 528 in every cell"
    assert rules.describe("exists", 1, "yes or no", {}) == "supported if the answer is yes"
