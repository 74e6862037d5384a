"""Operations on estimates: ratios, best per group, trends and aggregates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special
from scipy.stats import linregress

from report import statistics
from report.estimates import Estimates, device_kind, exact_estimates
from report.judging import rules


def rates(*rows: tuple[Any, ...], log: bool = True, **more: Any) -> Estimates:
    """Build estimates from (model, backend, estimate) tuples, each with its source row."""
    fields = {"se": 0.01, "df": 4.0, "n_rounds": 3, "n_samples": 15, "detail": "", **more}
    return Estimates.from_rows(
        [{"model": model, "backend": backend, "estimate": estimate, "source_rows": (row,), **fields}
         for row, (model, backend, estimate) in enumerate(rows, 1)], log=log
    )  # fmt: skip


THREE = rates(("a", "torch", 2.0), ("a", "onnx", 6.0), ("b", "torch", 5.0))


def test_ratio_pairs_rows_that_agree_in_all_other_labels() -> None:
    ratio = THREE.ratio("backend", "onnx", "torch")
    assert ratio.rows("model", "estimate", "n_samples", "source_rows") == [("a", pytest.approx(3.0), 30, (2, 1))]
    assert ratio.labels == ["model"] and list(ratio["se"]) == pytest.approx([0.01 * 2**0.5])
    assert not len(THREE.ratio("backend", "inductor", "torch"))
    assert not len(Estimates.empty().ratio("backend", "onnx", "torch"))


def test_linear_ratio_divides_interval_ends_crosswise() -> None:
    above, below = (
        exact_estimates([{"estimate": sum(ends) / 2, "low": ends[0], "high": ends[1]}]) for ends in ((8, 12), (4, 6))
    )
    assert (above / below).rows("low", "estimate", "high") == [(pytest.approx(8 / 6), 2.0, 3.0)]


def test_interval_without_standard_error_widens_by_its_degrees_of_freedom() -> None:
    row = {"estimate": 2.0, "low": 1.5, "high": 3.0, "se": np.nan, "n_rounds": 3, "n_samples": 9, "detail": ""}
    low, high = Estimates.from_rows([{**row, "df": 4.0}, {**row, "df": np.inf}]).ends(0.999)
    grown = float(statistics.half_width(1.0, 4.0, 0.999) / statistics.half_width(1.0, 4.0))
    assert list(low) == pytest.approx([2 - 0.5 * grown, 1.5]) and list(high) == pytest.approx([2 + grown, 3])


@pytest.mark.parametrize(("second", "rivals"), [(9.9, 2), (5.0, 1)])
def test_best_per_group_widens_for_near_ties(second: float, rivals: int) -> None:
    rows = rates(("a", "torch", 10.0), ("a", "onnx", second), ("a", "simd", 1.0))
    (best,) = rows.best_per_group(["model"], detail=["backend"]).frame.to_dict("records")
    quantile = [statistics.half_width(1.0, 4.0, 1 - (1 - statistics.LEVEL) / number) for number in (rivals, 1)]
    half = 0.01 * quantile[0]
    assert (best["estimate"], best["detail"]) == (10.0, "torch")
    assert (best["low"], best["high"]) == (pytest.approx(10 * np.exp(-half)), pytest.approx(10 * np.exp(half)))
    assert best["se"] == pytest.approx(0.01 * quantile[0] / quantile[1])
    if rivals == 2:  # With a third rate close to the best, the interval is wider.
        third = rates(("a", "torch", 10.0), ("a", "onnx", second), ("a", "simd", 9.8)).best_per_group(["model"])
        wider = 0.01 * statistics.half_width(1.0, 4.0, 1 - 0.01 / 3)
        assert third.rows("low", "high") == [(pytest.approx(10 * np.exp(-wider)), pytest.approx(10 * np.exp(wider)))]
        assert third["se"][0] == pytest.approx(wider / quantile[1])


@pytest.mark.parametrize("points", [3, 4])
def test_trend_matches_linear_regression(points: int) -> None:
    n, y = np.array([1.0, 2.0, 4.0, 8.0])[:points], np.array([1.0, 2.9, 3.1, 9.5])[:points]
    fields = {"se": 0.001, "df": 8.0, "n_rounds": 3, "n_samples": 15, "detail": ""}
    series = Estimates.from_rows([{"n": a, "estimate": b, **fields} for a, b in zip(n, y, strict=True)], log=True)
    (trend,) = rules.slopes(series, {"along": "n"}).estimates.frame.to_dict("records")
    regression = linregress(np.log(n), np.log(y))
    assert (trend["estimate"], trend["se"]) == (pytest.approx(regression.slope), pytest.approx(regression.stderr))
    half = float(statistics.half_width(regression.stderr, points - 2.0))
    assert (trend["df"], trend["high"] - trend["low"]) == (points - 2, pytest.approx(2 * half))


def test_counts_aggregate_rows_and_set_unknown_sets_nan() -> None:
    about = {"estimate": 1.0, "low": 1.0, "high": 1.0, "se": 0.1, "df": 2.0, "detail": ""}
    rows = Estimates.from_rows(
        [{"n": 10, "n_rounds": 3, "n_samples": 5, "source_rows": (4,), **about},
         {"n": 9, "n_rounds": 2, "n_samples": 6, "source_rows": (1, 4), **about}]
    )  # fmt: skip
    assert rows.counts() == {"n_rounds": 2, "n_samples": 11, "source_rows": (1, 4)}
    assert list(rows.sort_by("n")["n"]) == [9, 10] and not len(Estimates.empty().sort_by("n"))
    unknown = rows.set_unknown([True, False], "low", "se")
    assert list(unknown["low"].isna()) == [True, False] == list(unknown["se"].isna()) and unknown["high"].notna().all()
    assert not len(Estimates.empty().set_unknown([], "low"))


@pytest.mark.parametrize("name", ["cuda:0", "cuda:1", "xpu:0", "mps"])
def test_device_kind_for_all_gpu_vendors(name: str) -> None:
    estimates = exact_estimates([{"device": name, "estimate": 2.0}, {"device": "cpu", "estimate": 1.0}])
    assert device_kind(name) == "gpu" and list(estimates.filter(device="gpu")["device"]) == [name]


def timed_shares(*medians: list[float]) -> Estimates:
    """Return shares of time on the logit scale, from the rounds' medians of each."""
    n = np.array([len(rounds) for rounds in medians])
    points = statistics.logit_estimates(np.concatenate(medians), n, np.zeros(len(n), dtype=int))
    rows = [{"model": f"m{place}", "n_rounds": len(rounds), "n_samples": 9, "detail": "", "source_rows": (place,)}
            for place, rounds in enumerate(medians)]  # fmt: skip
    return Estimates.from_points(rows, points)


def test_share_of_time_and_its_rest_have_mirrored_intervals() -> None:
    shares, rest = (
        timed_shares([0.9, 0.92, 0.91], [0.5, 0.52, 0.55]),
        timed_shares([0.1, 0.08, 0.09], [0.5, 0.48, 0.45]),
    )
    for level in (statistics.LEVEL, 0.9999):
        low, high = shares.ends(level)
        rest_low, rest_high = rest.ends(level)
        assert list(low) == pytest.approx(list(1 - rest_high)) and list(high) == pytest.approx(list(1 - rest_low))
        assert (low > 0).all() and (high < 1).all()


def test_share_of_time_widens_on_the_scale_of_its_odds() -> None:
    shares = timed_shares([0.9, 0.92, 0.91], [0.5, 0.52, 0.55])
    odds, df = special.logit(shares["estimate"]), shares["df"].to_numpy(float)
    half = statistics.half_width(shares["se"], df, 0.999)
    assert list(shares.ends(0.999)[1]) == pytest.approx(list(special.expit(odds + half)))
    assert list(shares.distances(0.5)) == pytest.approx(list(odds))


def test_multiple_of_a_share_keeps_its_interval_without_a_standard_error() -> None:
    shares = timed_shares([0.9, 0.92, 0.91], [0.5, 0.52, 0.55])
    doubled = shares * 2
    assert list(doubled["high"]) == pytest.approx(list(2 * shares["high"]))
    assert doubled["se"].isna().all() and not doubled.logit_mask.any()
    assert (shares * 1).logit_mask.all()
