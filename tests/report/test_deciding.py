"""Intervals at other levels than the drawn one, by which rules decide where one of many cells is enough."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from report import statistics
from report.estimates import Estimates, exact
from report.judging.rules import level
from tests.report.deciding import decide


def cells(log: bool = True, **values: float) -> Estimates:
    given = {"estimate": 2.0, "low": 1.9, "high": 2.1, "se": 0.01, "df": 4.0, "n_rounds": 3, "n_samples": 9}
    return Estimates(pd.DataFrame([{**given, **values, "detail": ""}]), log)


def test_the_ends_at_another_level_are_students() -> None:
    made = Estimates.from_estimates(cells().frame)
    (low,), (high,) = made.ends(0.99)
    half = student.ppf(0.995, 4) * 0.01
    assert (low, high) == pytest.approx((2 * np.exp(-half), 2 * np.exp(half)))
    assert np.array(made.ends(statistics.LEVEL)).ravel() == pytest.approx([made.frame["low"][0], made.frame["high"][0]])


def test_off_the_log_scale_both_sides_widen_and_clipped_ends_stay() -> None:
    grown = student.ppf(0.9995, 4) / student.ppf((1 + statistics.LEVEL) / 2, 4)
    (low,), (high,) = cells(False, estimate=0.9, low=0.85, high=1.0).ends(0.999)
    assert (low, high) == pytest.approx((0.9 - 0.05 * grown, 1.0))


def test_published_figures_stand_as_given_and_an_unknown_interval_stays_unknown() -> None:
    published = exact([{"estimate": 2.0, "low": 1.0, "high": 3.0}])
    assert np.array(published.ends(0.99)).ravel().tolist() == [1.0, 3.0]
    assert np.isnan(np.array(cells(low=np.nan, high=np.nan, df=0.0).ends(0.99))).all()


def test_an_interval_decides_as_it_is_drawn_but_where_one_of_many_cells_is_enough() -> None:
    one = Estimates.from_estimates(cells().frame)
    two = Estimates(pd.concat([one.frame, one.frame], ignore_index=True))
    low = float(one.frame["low"].iloc[0])
    wide = float(two.ends(level("exists", 2))[0][0])
    assert wide < low
    assert decide("at_least", one, low * 0.999).outcome == decide("at_least", two, low * 0.999).outcome == "supported"
    assert decide("exists", two, (low + wide) / 2).outcome == "undecided"
    assert decide("exists", two, wide * 0.999).outcome == "supported"


def test_where_one_of_many_is_enough_each_must_be_surer() -> None:
    assert level("at_least", 10) == level("exists", 1) == statistics.DECIDING
    assert 1 - level("exists", 10) == pytest.approx((1 - statistics.DECIDING) / 10)
    assert level("for_share_of", 4) == level("exists", 4)
