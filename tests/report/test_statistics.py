"""Statistics: interval coverage by simulation, and invariances by property tests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy.stats import t as student

from report import statistics

POINTS, GROUPS, SAMPLES = 40, 300, 15
BETWEEN, WITHIN = 0.02, 0.01

Effects = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal_effects(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(size=shape)


def heavy_tailed_effects(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw from the Student t distribution with 4 degrees of freedom, scaled to variance 1."""
    return random.standard_t(4, shape) / np.sqrt(2)


def round_medians(seed: int, groups: int, points: int, rounds: int, effects: Effects, spread: float) -> np.ndarray:
    """Draw the logarithm of each round's median time, with shape (groups, points, rounds). The true value is 0.

    spread: factor between the lowest and the highest possible standard deviation between rounds. Each point's
    standard deviation is log-uniform between them.
    """
    random = np.random.default_rng(seed)
    between = BETWEEN * np.exp(random.uniform(-0.5, 0.5, (groups, points, 1)) * np.log(spread))
    samples = random.normal(0, WITHIN, (groups, points, rounds, SAMPLES))
    return between * effects(random, (groups, points, rounds)) + np.median(samples, axis=-1)


def coverage(y: np.ndarray, level: float) -> tuple[float, ...]:
    """Return the coverage of intervals at `level` for times and for ratios, and the standard errors of both coverages.

    A ratio compares two neighbouring points in a group, or a point with the same point in the next group. Pairs do not
    overlap. The standard errors treat groups as independent, but not the points in a group.
    """
    groups, points, _ = y.shape
    centre, se, df = np.empty(y.shape[:2]), np.empty(y.shape[:2]), np.empty(y.shape[:2])
    for group in range(groups):
        group_estimates = statistics.estimate_on_log_scale(list(np.exp(y[group])))
        centre[group], se[group], df[group] = np.log(group_estimates.estimate), group_estimates.se, group_estimates.df
    times = np.abs(centre) <= statistics.half_width(se, df, level)

    def ratio(a: tuple, b: tuple) -> np.ndarray:
        ratio_se, ratio_df = statistics.combine(se[a], df[a], se[b], df[b])
        return np.abs(centre[a] - centre[b]) <= statistics.half_width(ratio_se, ratio_df, level)

    even = points // 2 * 2
    inside = ratio((slice(None), slice(0, even, 2)), (slice(None), slice(1, even, 2))).mean(axis=1)
    across = ratio((slice(0, None, 2),), (slice(1, None, 2),)).mean(axis=1)
    ratios = np.concatenate([inside[0::2] / 2 + inside[1::2] / 2, across])
    shares = (times.mean(axis=1), ratios)
    return (*(share.mean() for share in shares), *(share.std(ddof=1) / np.sqrt(len(share)) for share in shares))


@pytest.mark.parametrize("rounds", [3, 5, 8])
@pytest.mark.parametrize(
    ("effects", "spread"),
    [(normal_effects, 1.0), (heavy_tailed_effects, 1.0), (normal_effects, 5.0), (heavy_tailed_effects, 5.0)],
    ids=["normal", "heavy tails", "unequal variances", "heavy tails and unequal variances"],
)
def test_time_and_ratio_intervals_cover_the_true_value(rounds: int, effects: Effects, spread: float) -> None:
    y = round_medians(7, GROUPS, POINTS, rounds, effects, spread)
    for level, least, most in ((0.95, 0.93, 0.97), (statistics.LEVEL, 0.98, 0.996)):
        times, ratios, se_times, se_ratios = coverage(y, level)
        assert se_times < 0.004 and se_ratios < 0.004, "too few replications"
        assert least <= times <= most
        assert least <= ratios <= most


@pytest.mark.parametrize("points", [2, 5])
@pytest.mark.parametrize(("effects", "spread"), [(normal_effects, 1.0), (heavy_tailed_effects, 5.0)])
def test_coverage_in_small_groups(points: int, effects: Effects, spread: float) -> None:
    times, ratios, _, _ = coverage(round_medians(11, 6000 // points, points, 3, effects, spread), 0.95)
    assert 0.93 <= times <= 0.97
    assert 0.93 <= ratios <= 0.985  # In groups with two points, more than 95% of these intervals cover.


@given(st.floats(1e-3, 1e4))
def test_trigamma_inverse_inverts(x: float) -> None:
    assert special.polygamma(1, statistics.trigamma_inverse(x)) == pytest.approx(x, rel=1e-6)


def test_few_points_with_unequal_variances_pool_less() -> None:
    # The logarithms of the three variances are log(10) apart, so their variance is log(10)^2. The prior's degrees of
    # freedom d0 then follow from trigamma(d0 / 2) = log(10)^2 - trigamma(1), where trigamma(1) is pi^2 / 6.
    d0 = 2 * statistics.trigamma_inverse(np.log(10) ** 2 - np.pi**2 / 6)
    moderated = statistics.moderate([1e-4, 1e-3, 1e-2], [2.0] * 3)
    variances, df = moderated.variance, moderated.df
    assert moderated.own == pytest.approx([1e-4, 1e-3, 1e-2])
    assert moderated.prior_df == pytest.approx([1 / (1 / d0 + 2 / 4)] * 3)
    assert df == pytest.approx([1 / (1 / d0 + 2 / 4) + 2] * 3) and df[0] == pytest.approx(2.748, rel=1e-3)
    assert variances == pytest.approx([2.4524e-4, 9.0017e-4, 7.4495e-3], rel=1e-3)


def test_single_point_gets_a_t_interval_and_widths_are_positive() -> None:
    y = np.log([1.0, 1.1, 1.05])
    half = student.ppf((1 + statistics.LEVEL) / 2, 2) * y.std(ddof=1) / np.sqrt(3)
    points = statistics.estimate_on_log_scale([np.exp(y)])
    assert (points.high[0], points.df[0]) == (pytest.approx(np.exp(y.mean() + half)), 2)
    still = statistics.estimate_on_log_scale([[1.0, 1.0, 1.0], [1.0, 1.02, 1.01]])
    assert still.low[0] < 1 < still.high[0]


def test_equal_variances_pool_up_to_the_group_degrees_of_freedom() -> None:
    # The points are all permutations of three rounds, so they have equal variances and no correlation.
    points = statistics.estimate_on_log_scale(list(permutations([1.0, 1.01, 1.02])))
    assert (points.df <= 12).all() and (points.df > 6).all()


def test_single_round_has_no_interval() -> None:
    points = statistics.estimate_on_log_scale([[1.0], [1.0, 1.02, 1.01], [2.0, 2.1]])
    assert np.isnan(points.low[0]) and np.isnan(points.se[0]) and points.estimate[0] == 1.0
    assert np.isfinite(points.low[1:]).all()


def test_only_counted_shares_are_exact() -> None:
    counted = statistics.estimate_on_linear_scale([[1.0, 1.0, 1.0], [0.9, 1.0, 1.0]], counted=True, share=True)
    assert counted.low[0] == counted.high[0] == 1.0 and counted.exact.tolist() == [True, False]
    assert counted.low[1] < counted.estimate[1] < counted.high[1] == 1.0
    timed = statistics.estimate_on_linear_scale([[0.5, 0.5, 0.5]], counted=False, share=True)
    assert np.isnan(timed.low[0]) and not timed.exact[0]
    once = statistics.estimate_on_linear_scale([[1.0]], counted=True, share=True)
    assert np.isnan(once.low[0])


positive = st.floats(1e-6, 1e3)
group = st.lists(st.lists(positive, min_size=2, max_size=8), min_size=1, max_size=8)


@given(group)
def test_interval_contains_its_estimate(rounds: list[list[float]]) -> None:
    points = statistics.estimate_on_log_scale(rounds)
    assert (points.low <= points.estimate).all() and (points.estimate <= points.high).all()
    assert (points.low < points.high).all()


@given(group, st.floats(1e-3, 1e3))
def test_estimates_scale_with_the_unit(rounds: list[list[float]], unit: float) -> None:
    points = statistics.estimate_on_log_scale(rounds)
    scaled = statistics.estimate_on_log_scale([[value * unit for value in point] for point in rounds])
    assert scaled.estimate == pytest.approx(points.estimate * unit)
    # The tolerance is loose, because rounding noise dominates the interval if rounds agree to the last digit.
    assert scaled.high / scaled.low == pytest.approx(points.high / points.low, rel=1e-4)


@given(group, st.randoms(use_true_random=False))
def test_round_order_does_not_matter(rounds: list[list[float]], random: object) -> None:
    # Each round is one process that measures all points, so points with equally many rounds get the same permutation.
    orders = {n: random.sample(range(n), n) for n in set(map(len, rounds))}  # type: ignore[attr-defined]
    points = statistics.estimate_on_log_scale(rounds)
    mixed = statistics.estimate_on_log_scale([[point[place] for place in orders[len(point)]] for point in rounds])
    assert mixed.low == pytest.approx(points.low, rel=1e-6)


@given(st.floats(1e-4, 1), st.floats(1, 50), st.floats(1e-4, 1), st.floats(1, 50))
def test_ratio_and_inverse_have_equal_width(se_a: float, df_a: float, se_b: float, df_b: float) -> None:
    assert statistics.combine(se_a, df_a, se_b, df_b) == statistics.combine(se_b, df_b, se_a, df_a)
    se, df = statistics.combine(se_a, df_a, se_b, df_b)
    assert statistics.combine(se_a, df_a, 0.0, np.inf) == (pytest.approx(se_a), pytest.approx(df_a))
    assert se >= max(se_a, se_b) and min(df_a, df_b) <= df * (1 + 1e-9) and df <= max(df_a, df_b) * (1 + 1e-9)


def _round_correlation(y: np.ndarray) -> float:
    """Return the mean round correlation for log medians `y`, shape (points, rounds)."""
    return statistics.mean_round_correlation(y.ravel(), np.full(len(y), y.shape[1]), np.arange(len(y)))


def test_fully_correlated_points_count_as_one() -> None:
    y = np.arange(5)[:, None] + np.array([0.01, -0.02, 0.03]) * np.linspace(1, 2, 5)[:, None]
    assert _round_correlation(y) == pytest.approx(1)
    assert statistics.estimate_on_log_scale(list(np.exp(y))).df == pytest.approx(2)


def test_independent_points_keep_their_degrees_of_freedom() -> None:
    y = np.random.default_rng(1).normal(0, 0.02, (200, 5))
    assert _round_correlation(y) < 0.02
    assert (statistics.estimate_on_log_scale(list(np.exp(y))).df > 0.8 * 800 / 2).all()
    for against in ([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], [[1.0, 1.0, 1.0], [3.0, 2.0, 1.0]], [[1.0, 2.0, 3.0]]):
        assert _round_correlation(np.array(against)) == 0
