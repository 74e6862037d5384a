"""Shares of models that pass a threshold, in samples and on chosen lists, which count each model once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from report import statistics
from report.estimates import Estimates, exact_estimates
from report.judging.shares import Population, Share, clopper_pearson, fewest_reaching
from report.outcomes import is_sensitive_to_list


def population(values: dict[str, list[float]], compare: str = "at_least", se: float = 0.0) -> Population:
    """Build models, to compute the share that passes a threshold. values: estimates by model.

    se: standard error on the log scale. If it is 0, the estimates are exact.
    """
    rows = [{"model": name, "estimate": value, "detail": ""} for name, points in values.items() for value in points]
    if not se:
        return Population(exact_estimates(rows), "model", compare)
    frame = pd.DataFrame(rows).assign(se=se, df=4.0, n_rounds=3, n_samples=9)
    return Population(Estimates.from_estimates(frame), "model", compare)


@given(st.integers(1, 60), st.data())
def test_whole_counts_match_scipy_clopper_pearson(n: int, data: Any) -> None:
    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(statistics.DECIDING, method="exact")
    assert clopper_pearson(k, k, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1))
def test_fractional_counts_lie_between_whole_counts(n: int, first: float, second: float) -> None:
    least, most = sorted((first * n, second * n))
    low, high = clopper_pearson(least, most, n)
    assert low <= least / n + 1e-12 and most / n <= high + 1e-12
    assert clopper_pearson(np.floor(least), np.ceil(most), n)[0] <= low + 1e-12
    assert clopper_pearson(np.floor(least), np.ceil(most), n)[1] >= high - 1e-12


def test_each_model_counts_once_for_any_number_of_cases() -> None:
    one_odd = population({"odd": [1.0] * 50, "a": [9.0], "b": [9.0], "c": [9.0]})
    assert one_odd.share_at(5).estimate == pytest.approx(0.75) and one_odd.share_at(5).units == 4
    half = population({"a": [1.0, 9.0], "b": [9.0, 9.0]})
    assert half.share_at(5).estimate == pytest.approx(0.75)


def test_models_count_by_their_probability_above_the_threshold() -> None:
    sure, unsure = population({"a": [9.0]}, se=0.01), population({"a": [5.0]}, se=0.1)
    assert sure.share_at(5).estimate == pytest.approx(1.0, abs=1e-6)
    assert unsure.share_at(5).estimate == pytest.approx(0.5)
    assert unsure.share_at(4.5).estimate > 0.5 > unsure.share_at(5.5).estimate
    mirrored = population({"a": [5.0]}, "at_most", se=0.1)
    assert mirrored.share_at(5.5).estimate == pytest.approx(1 - unsure.share_at(5.5).estimate)


def test_unknown_interval_counts_for_both_sides() -> None:
    rows = [{"model": name, "estimate": 9.0, "low": low, "high": low, "detail": ""}
            for name, low in (("a", 9.0), ("b", np.nan))]  # fmt: skip
    share = Population(exact_estimates(rows), "model", "at_least").share_at(5)
    assert share.estimate == pytest.approx(0.75)
    assert (share.low, share.high) == pytest.approx(clopper_pearson(1, 2, 2))


@pytest.mark.parametrize(
    ("above", "count", "threshold", "outcome"),
    [
        (16, 17, 0.5, "supported"),
        (12, 17, 0.5, "undecided"),
        (1, 17, 0.5, "challenged"),
        (7, 7, 0.5, "undecided"),
        (8, 8, 0.5, "supported"),
        (0, 8, 0.5, "challenged"),
        (508, 525, 0.9, "supported"),
        (508, 525, 0.99, "challenged"),
    ],
)
def test_share_outcome_follows_its_interval(above: int, count: int, threshold: float, outcome: str) -> None:
    models = {f"m{index}": [9.0 if index < above else 1.0] for index in range(count)}
    assert population(models).share_at(5).outcome(threshold) == outcome


def draw_population(share: float, draw: np.random.Generator) -> Population:
    """Draw 40 models, about 10% away from the threshold 1. Each model lies above 1 with probability `share`.

    Each model has three rounds with 5% noise.
    """
    distance = np.where(draw.random(40) < share, 1, -1) * draw.exponential(0.1, 40)
    points = statistics.estimate_on_log_scale(list(np.exp(distance[:, None] + draw.normal(0, 0.05, (40, 3)))))
    rows = pd.DataFrame({"model": range(40), "detail": "", "n_rounds": 3, "n_samples": 3})
    return Population(Estimates.from_points(rows, points, log=True), "model", "at_least")


@pytest.mark.parametrize(("share", "supported", "challenged"), [(0.5, (0, 0.02), (0, 0.02)), (0.9, (0.9, 1), (0, 0))])
def test_share_verdicts_have_few_errors_and_enough_power(
    share: float, supported: tuple[float, float], challenged: tuple[float, float]
) -> None:
    draw = np.random.default_rng(20261)
    outcomes = [draw_population(share, draw).share_at(1.0).outcome(0.5) for _ in range(300)]
    for verdict, (low, high) in (("supported", supported), ("challenged", challenged)):
        assert low <= outcomes.count(verdict) / 300 <= high, verdict


def chosen_list(values: dict[str, list[float]], se: float = 0.0, common_error: bool = False) -> Share:
    """Return the share that reaches 5 on a chosen list. values, se: like `population`."""
    drawn = population(values, se=se)
    return Population(drawn.estimates, "model", "at_least", listed=True, common_error=common_error).share_at(5)


def test_list_of_exact_models_has_no_interval() -> None:
    share = chosen_list({"a": [9.0], "b": [9.0, 1.0], "c": [1.0]})
    assert (share.low, share.estimate, share.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("above", "count", "wanted", "outcome"),
    [(4, 6, 0.5, "supported"), (3, 6, 0.5, "supported"), (2, 6, 0.5, "challenged"), (5, 6, 0.9, "challenged")],
)
def test_further_contrary_units_turn_a_list(above: int, count: int, wanted: float, outcome: str) -> None:
    share = chosen_list({f"m{index}": [9.0 if index < above else 1.0] for index in range(count)})
    assert share.outcome(wanted) == outcome
    further = share.turning_units(wanted)
    assert further is not None
    contrary = 0 if outcome == "supported" else 1
    for added in (further - 1, further):
        turned = Share(*[(above + added * contrary) / (count + added)] * 3, count + added, "model", listed=True)
        assert (turned.outcome(wanted) != outcome) == (added == further)
    assert is_sensitive_to_list(further, count) == (further < count / 4)


def test_sample_is_not_turned_by_further_units() -> None:
    assert population({f"m{index}": [9.0] for index in range(9)}).share_at(5).turning_units(0.5) is None


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=6), st.booleans())
def test_sure_estimates_give_the_exact_count(reach: list[list[bool]], common: bool) -> None:
    units = np.repeat(np.arange(len(reach)), [len(unit) for unit in reach])
    chances = np.concatenate([np.array(unit, float) for unit in reach])
    assert fewest_reaching(units, chances, common) == pytest.approx(sum(np.mean(unit) for unit in reach))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 11), st.floats(0, 1))
def test_bound_grows_with_each_chance(chances: list[float], place: int, raised: float) -> None:
    units = np.arange(len(chances)) // 2
    before, after = np.array(chances), np.array(chances)
    after[place % len(chances)] = max(raised, before[place % len(chances)])
    least = fewest_reaching(units, before, False)
    assert 0 <= least <= fewest_reaching(units, after, False) + 1e-12 <= units.max() + 1 + 1e-12


@pytest.mark.parametrize("cases", [1, 3])
@pytest.mark.parametrize("distance", [0.0, -0.3, -1.0])
@pytest.mark.parametrize("common", [False, True])
def test_bound_rarely_exceeds_the_true_count(cases: int, distance: float, common: bool) -> None:
    """Simulate 13 units: 6 reach the threshold far and wide, 7 miss it by `distance` standard errors.

    common: the units may err together, but in truth do not.
    """
    draw = np.random.default_rng(20263)
    units = np.repeat(np.arange(13), cases)
    truth = np.where(units < 6, 9.0, distance)
    exceeded = 0
    for _ in range(2000):
        # The cases of a unit err together.
        gaps = truth + draw.normal(size=13)[units]
        exceeded += fewest_reaching(units, norm.cdf(gaps), common) > 6 + 1e-9
    assert exceeded <= 0.005 * 2000 + 8


def test_many_moderate_chances_count_together() -> None:
    units = np.arange(10)
    assert fewest_reaching(units, np.full(10, 0.97), False) > 5
    assert fewest_reaching(units, np.full(10, 0.97), True) == 0


def test_cases_of_a_unit_err_together() -> None:
    apart = chosen_list({name: [5.9] for name in "abcdefgh"}, se=0.1)
    together = chosen_list({name: [5.9] for name in "abcdefgh"}, se=0.1, common_error=True)
    assert 0 < apart.low < apart.high == 1
    assert (together.low, together.high) == (0, 1)
    one_unit = chosen_list({"a": [5.9] * 8}, se=0.1)
    assert (one_unit.low, one_unit.high) == (0, 1)


@pytest.mark.parametrize(("above", "wrong"), [(6, "supported"), (7, "challenged")])
def test_list_verdicts_rarely_err_near_one_half(above: int, wrong: str) -> None:
    """Simulate 13 models with 5% noise in 3 rounds: `above` models lie 5% above the threshold, the others 5% below."""
    draw = np.random.default_rng(20262)
    truth = np.where(np.arange(13) < above, 0.05, -0.05)
    rows = pd.DataFrame({"model": range(13), "detail": "", "n_rounds": 3, "n_samples": 3})
    outcomes = []
    for _ in range(400):
        points = statistics.estimate_on_log_scale(list(np.exp(truth[:, None] + draw.normal(0, 0.05, (13, 3)))))
        estimates = Estimates.from_points(rows, points, log=True)
        outcomes.append(Population(estimates, "model", "at_least", listed=True).share_at(1.0).outcome(0.5))
    assert outcomes.count(wrong) <= 4
