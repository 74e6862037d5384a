"""Whole training runs: accuracy and its spread over seeds against the batch size, and the time to the target.

Intervals treat the seeds as samples. A seed's value is the mean over rounds, because every round repeats the same
seeds. All runs train and test on the same images, so an interval covers other initial weights and image orders, but not
other images.

The same runs are evaluated under three rules, each of which chooses a learning rate for a batch size: `fixed`, the base
rate; `linear`, the base rate times batch / BASE_BATCH (Goyal et al. 2017, "Accurate, large minibatch SGD"); and
`tuned`, the rate with the highest mean accuracy on the validation images, which are used neither to train nor to test.
The interval for a tuned batch does not include the uncertainty of that choice.

Batches are compared at equal epochs (passes over the images), where a larger batch gets fewer weight updates, and at
equal updates, where it sees more images. Shallue et al. 2019, "Measuring the effects of data parallelism on neural
network training", show how conclusions about batch sizes depend on that choice.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report import statistics
from report.data.dataset import Dataset, cached_per_dataset
from report.data.summary import POINT
from report.data.table_rows import row_dicts
from report.estimates import Estimates, merge_source_rows
from report.formatting import format_exact
from report.quantities import quantity

BASE_BATCH = 32
RULES = ("fixed", "linear", "tuned")
# FEWEST_RATES: learning rates needed for tuning. FEWEST_BATCHES: batch sizes needed for a trend. FEWEST_SEEDS: seeds
# per batch size needed for a spread or a trend.
FEWEST_RATES, FEWEST_BATCHES, FEWEST_SEEDS = 3, 3, 3

_SERIES = ["node", "device", "backend", "dtype", "threads", "data", "model", "epochs"]
_CHOICE = [*_SERIES, "learning_rate", "batch"]
_SERIES_LABELS = ("data", "model", "epochs", "dtype", "backend", "threads", "learning_rate")
_batch_quantity = partial(quantity, labels=(*_SERIES_LABELS, "batch"))
_series_quantity = partial(quantity, labels=_SERIES_LABELS)
_equal_updates_quantity = partial(
    quantity, labels=tuple("updates" if name == "epochs" else name for name in _SERIES_LABELS)
)

Floats = NDArray[np.float64]


@cached_per_dataset
def seed_values(data: Dataset, metric: str) -> pd.DataFrame:
    """Return one row per run: _SERIES labels, batch, rate, seed (from 0), source_rows, and value (mean over rounds)."""
    samples = data.samples("convergence", columns=[*POINT, "sample", "metric", "status", "value"])
    ok = samples[(samples["metric"] == metric) & (samples["status"] == "ok")]
    runs = ok.groupby([*POINT, "sample"], observed=True)["value"].mean().reset_index()
    # Parse each parameter text only once, because it recurs for every seed and on every node.
    codes, texts = pd.factorize(runs["params"])
    params = pd.DataFrame([json.loads(text) for text in texts], columns=["data", "model", "batch", "rate", "epochs"])
    source_rows = pd.Series(data.source_rows(runs), runs.index, dtype=object)
    runs = runs.assign(source_rows=source_rows).rename(columns={"sample": "seed"})
    runs = runs.astype(dict.fromkeys(["node", "device", "backend", "dtype"], object))
    return runs.join(params.take(codes).set_axis(runs.index))


@cached_per_dataset
def chosen_points(data: Dataset) -> pd.DataFrame:
    """Return one row per batch size and rule for the learning rate.

    Columns: _SERIES labels, batch, learning_rate (the rule's name), rate (the learning rate that the rule chooses,
    relative to the base rate) and detail.
    """
    by = [*_SERIES, "batch"]
    means = seed_values(data, "validation_accuracy").groupby([*by, "rate"], observed=True)["value"].mean().reset_index()
    rates = means.groupby(by, observed=True)["rate"]
    best = means.index.isin(means.groupby(by, observed=True)["value"].idxmax()) & (
        rates.transform("count") >= FEWEST_RATES
    )
    edge = best & ((means["rate"] == rates.transform("min")) | (means["rate"] == rates.transform("max")))
    detail = pd.Series(
        [f"{format_exact(rate)} times the base rate" for rate in means["rate"]], means.index, dtype=object
    )
    rules = {
        "fixed": means[means["rate"] == 1].assign(detail=detail),
        "linear": means[means["rate"] == means["batch"] / BASE_BATCH].assign(detail=detail),
        "tuned": means[best].assign(detail=detail.where(~edge, detail + ", the edge of what was tried")),
    }
    return pd.concat([points.assign(learning_rate=rule) for rule, points in rules.items()]).drop(columns="value")


@cached_per_dataset
def rule_points(data: Dataset, metric: str) -> pd.DataFrame:
    """Return one row per batch size and rule for the learning rate.

    Columns: the labels, n_rounds, n_samples, detail, source_rows, and values (a list with the metric's value per seed).
    """
    runs = (
        seed_values(data, metric)
        .merge(chosen_points(data), on=[*_SERIES, "batch", "rate"])
        .sort_values("seed", kind="stable")
    )
    points = runs.groupby(_CHOICE, observed=True)[["value", "detail", "source_rows"]].agg(
        values=("value", list), detail=("detail", "first"), source_rows=("source_rows", "first")
    )
    n_samples = points["values"].map(len)
    detail = n_samples.astype(str) + " seeds, " + points["detail"]
    return points.assign(detail=detail, n_rounds=1, n_samples=n_samples).reset_index()


def _arrays(points: pd.DataFrame) -> list[Floats]:
    return [np.array(values, float) for values in points["values"]]


@_batch_quantity("convergence.accuracy", "1")
def accuracy(data: Dataset) -> Estimates:
    """Share of test images classified correctly after training.

    The estimate is the mean over seeds, and its interval is Student's t.
    """
    points = rule_points(data, "test_accuracy")
    estimates = statistics.estimate_on_linear_scale(_arrays(points), counted=False, share=True)
    return Estimates.from_points(points.drop(columns="values"), estimates)


@_batch_quantity("convergence.spread", "1")
def spread(data: Dataset) -> Estimates:
    """Spread in test accuracy over seeds, on the scale of a standard deviation.

    The spread is the mean distance between single seeds' accuracies and their mean. It is multiplied by a factor that
    makes it comparable to the standard deviation if the accuracies are normally distributed. A standard deviation
    itself is less robust: one failed run dominates it, and its interval holds for normal values only.
    """
    points = rule_points(data, "test_accuracy")
    points = points[points["n_samples"] >= FEWEST_SEEDS]
    return Estimates.from_points(points.drop(columns="values"), spreads(_arrays(points)))


def spreads(values: list[Floats]) -> statistics.PointEstimates:
    """Compute the spread within each set of values, as `spread` describes it.

    Its interval is Student's t on the logarithm of the mean distance. The expected mean distance from n normal values
    to their own mean is sigma sqrt(2 / pi) sqrt((n - 1) / n).
    """
    n = np.array([len(value) for value in values], dtype=int)
    joined, starts = np.concatenate([np.empty(0), *values]), np.cumsum(n) - n
    distance = np.abs(joined - np.repeat(np.add.reduceat(joined, starts) / n, n))
    distance *= np.repeat(np.sqrt(np.pi / 2 * n / (n - 1)), n)
    mean = np.add.reduceat(distance, starts) / n
    se = np.sqrt(np.add.reduceat((distance - np.repeat(mean, n)) ** 2, starts) / (n - 1) / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = statistics.half_width(se / mean, n - 1)
    # If all values are equal, se / mean is 0 / 0, so the interval is nan. It must be unknown in this case, because
    # other seeds might give other values.
    ends = mean * np.exp(-half), mean * np.exp(half)
    unknown = np.full(len(n), np.nan)
    return statistics.PointEstimates(
        mean,
        *ends,
        se,
        n - 1.0,
        np.zeros(len(n), dtype=bool),
        variance=unknown,
        prior_df=unknown,
        prior_variance=unknown,
        session_variance=unknown,
        session_df=unknown,
    )


def slope_weights(batches: Floats) -> Floats:
    """Return the weight for each batch's value in the least-squares slope over log2(batch)."""
    x = np.log2(batches) - np.log2(batches).mean()
    result: Floats = x / (x @ x)
    return result


def _trend_series(data: Dataset, equal: str) -> list[tuple[dict[str, Any], Floats, list[Floats]]]:
    """Return the series that have enough batch sizes and seeds for a trend.

    For each series, return a row (labels, counts, detail, source_rows), the batch sizes, and an array with the
    accuracies for each batch size. equal: quantity that is equal for all batch sizes in a series, which is `epochs`
    (passes over the images) or `updates` (weight updates).
    """
    points = rule_points(data, "test_accuracy")
    if equal == "updates":
        counted = seed_values(data, "updates").drop_duplicates([*_SERIES, "batch"]).rename(columns={"value": "updates"})
        points = points.merge(counted[[*_SERIES, "batch", "updates"]], on=[*_SERIES, "batch"])
    names = [*(name for name in _SERIES if name != "epochs"), equal, "learning_rate"]
    points = points[points["n_samples"] >= FEWEST_SEEDS]
    counts, batch, source_rows = (points[name].to_numpy() for name in ("n_samples", "batch", "source_rows"))
    values, series = _arrays(points), []
    groups: Any = points.groupby(names, observed=True).indices
    # Series appear in the order of their first row. The loop uses arrays, because data frames are slow for few rows.
    for key, rows in sorted(groups.items(), key=lambda group: group[1][0]):
        if len(rows) >= FEWEST_BATCHES:
            n, batches = int(counts[rows].min()), batch[rows].astype(float)
            detail = f"batches of {batches.min():,.0f} to {batches.max():,.0f}, {n} seeds"
            row = {"n_rounds": 1, "n_samples": n, "detail": detail, "source_rows": merge_source_rows(source_rows[rows])}
            series.append(
                ({**dict(zip(names, key, strict=True)), **row}, batches, [values[index][:n] for index in rows])
            )
    return series


def _slopes(data: Dataset, equal: str) -> Estimates:
    series = _trend_series(data, equal)
    # Remove rounding errors, which differ between processors: equal accuracies have a slope of exactly 0.
    slopes = [np.round(slope_weights(batches) @ np.array(values), 12) for _, batches, values in series]
    estimates = statistics.estimate_on_linear_scale(slopes, counted=False, share=False)
    return Estimates.from_points([row for row, *_ in series], estimates)


@_series_quantity("convergence.accuracy_per_doubling", "1")
def accuracy_per_doubling(data: Dataset) -> Estimates:
    """Change in test accuracy per doubling of the batch size: the slope over log2(batch).

    The slope is fitted to each seed's accuracies. The estimate is the mean over seeds, and the interval is Student's t.
    A straight line shows if accuracy rises or falls overall, but not the shape in between.
    """
    return _slopes(data, "epochs")


@_equal_updates_quantity("convergence.accuracy_per_doubling_of_equal_updates", "1")
def accuracy_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """Like `convergence.accuracy_per_doubling`, for batches with the same number of weight updates.

    With equal updates, larger batches see more images and take longer.
    """
    return _slopes(data, "updates")


@_series_quantity("convergence.spread_per_doubling", "1")
def spread_per_doubling(data: Dataset) -> Estimates:
    """Change in `convergence.spread` per doubling of the batch size: the slope over log2(batch).

    The slope's interval combines the spreads' intervals, as `slope_of_spreads` explains.
    """
    return _slopes_of_spreads(data, "epochs")


@_equal_updates_quantity("convergence.spread_per_doubling_of_equal_updates", "1")
def spread_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """Like `convergence.spread_per_doubling`, for batches with the same number of weight updates."""
    return _slopes_of_spreads(data, "updates")


def _slopes_of_spreads(data: Dataset, equal: str) -> Estimates:
    series = _trend_series(data, equal)
    slopes = slopes_of_spreads([batches for _, batches, _ in series], [values for *_, values in series])
    return Estimates.from_rows([{**row, **slope} for (row, *_), slope in zip(series, slopes, strict=True)])


def slope_of_spreads(batches: Floats, values: list[Floats]) -> dict[str, float]:
    """Fit the least-squares slope of the spread over log2(batch), and return its estimate, low, high, se and df.

    The spreads' intervals are skewed and differ in width. The slope's interval combines them by the method "variance
    estimates recovery" (Zou & Donner 2008, Stat. Med. 27(10):1693). In simulations with ten seeds and with spreads that
    differ up to tenfold, this interval covered the true slope in 94 to 97% of cases for normal values, and in 90 to 95%
    for skewed values and for values from Student's t with 4 df. A t interval for slopes fitted to single seeds covered
    the true slope in 87 to 95% of cases, and a jackknife for standard deviations in 80 to 97%.
    `tests/report/quantities/test_convergence.py` repeats some simulations.
    """
    (slope,) = slopes_of_spreads([batches], [values])
    return slope


def slopes_of_spreads(batches: list[Floats], values: list[list[Floats]]) -> list[dict[str, float]]:
    """Apply `slope_of_spreads` to many series."""
    estimates = spreads([accuracies for series in values for accuracies in series])
    starts = np.cumsum([0, *map(len, batches)])[:-1]
    weight = np.concatenate([np.empty(0), *map(slope_weights, batches)])
    parts, ends = weight * estimates.estimate, weight * np.array([estimates.low, estimates.high])
    slope = np.add.reduceat(parts, starts)
    below, above, se = (
        np.sqrt(np.add.reduceat(part**2, starts))
        for part in (parts - ends.min(axis=0), ends.max(axis=0) - parts, weight * estimates.se)
    )
    columns = {"estimate": slope, "low": slope - below, "high": slope + above, "se": se}
    table = pd.DataFrame({**columns, "df": np.minimum.reduceat(estimates.df, starts)})
    return row_dicts(table)


@_batch_quantity("convergence.time_to_target_s", "s")
def time_to_target_s(data: Dataset) -> Estimates:
    """Training seconds until accuracy on the validation images reaches the target.

    There is no case if any seed does not reach the target.
    """
    shares = rule_points(data, "reached_share")
    reached = shares[shares["values"].map(min) >= 1]
    times = rule_points(data, "time_to_target").merge(reached[_CHOICE], on=_CHOICE)
    # Each machine is its own group, because the variation on one machine says nothing about another machine.
    machines = np.asarray(times.groupby(["node", "device"], observed=True).ngroup(), np.int64)
    estimates = statistics.estimate_on_log_scale(_arrays(times), machines)
    return Estimates.from_points(times.drop(columns="values"), estimates, log=True)
