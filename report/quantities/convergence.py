"""Quantities of whole training runs: accuracy and its spread over seeds against the batch, and what the target takes.

Seeds are the unit: a seed's value is its mean over rounds, which repeat it. The images that
are trained and tested on are the same in all runs, so that an interval says what other weights and
another order would give, not what other images would.

Three rules choose the learning rate of a batch, all from the same runs: `fixed`, the base rate; `linear`,
the base rate times batch / BASE_BATCH (Goyal et al. 2017, "Accurate, large minibatch SGD"); and
`tuned`, the rate with the highest mean accuracy on the validation images, which neither trains nor
tests. The interval of a tuned batch takes that choice as given.

Batches are compared at equal passes over the images (epochs), which gives a larger batch fewer updates of the
weights, and at equal updates, which shows it more images: Shallue et al. 2019, "Measuring the effects of data
parallelism on neural network training", on how the answer hangs on which of them is held.
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
from report.estimates import Estimates, merge_source_rows
from report.formatting import format_exact
from report.quantities import quantity

BASE_BATCH = 32
RULES = ("fixed", "linear", "tuned")
# Rates from which one is chosen; below that nothing is tuned. Batches and seeds of a trend.
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
    """One row per run: the labels of _SERIES, batch, rate, seed (from 0), source_rows and value: mean over rounds."""
    samples = data.samples("convergence", columns=[*POINT, "sample", "metric", "status", "value"])
    ok = samples[(samples["metric"] == metric) & (samples["status"] == "ok")]
    runs = ok.groupby([*POINT, "sample"])["value"].mean().reset_index()
    # The same point recurs in every seed and on every node: each text is read once.
    codes, texts = pd.factorize(runs["params"])
    params = pd.DataFrame([json.loads(text) for text in texts], columns=["data", "model", "batch", "rate", "epochs"])
    source_rows = pd.Series(data.source_rows(runs), runs.index, dtype=object)
    runs = runs.assign(source_rows=source_rows).rename(columns={"sample": "seed"})
    runs = runs.astype(dict.fromkeys(["node", "device", "backend", "dtype"], object))
    return runs.join(params.take(codes).set_axis(runs.index))


@cached_per_dataset
def chosen_points(data: Dataset) -> pd.DataFrame:
    """The points that each rule chooses: the labels of _SERIES, batch, learning_rate (a rule), rate and detail."""
    by = [*_SERIES, "batch"]
    means = seed_values(data, "validation_accuracy").groupby([*by, "rate"])["value"].mean().reset_index()
    rates = means.groupby(by)["rate"]
    best = means.index.isin(means.groupby(by)["value"].idxmax()) & (rates.transform("count") >= FEWEST_RATES)
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
    """A row for each batch under each rule: its labels, counts, detail, source_rows, and a metric's values by seed."""
    runs = (
        seed_values(data, metric)
        .merge(chosen_points(data), on=[*_SERIES, "batch", "rate"])
        .sort_values("seed", kind="stable")
    )
    points = runs.groupby(_CHOICE)[["value", "detail", "source_rows"]].agg(
        values=("value", list), detail=("detail", "first"), source_rows=("source_rows", "first")
    )
    n_samples = points["values"].map(len)
    detail = n_samples.astype(str) + " seeds, " + points["detail"]
    return points.assign(detail=detail, n_rounds=1, n_samples=n_samples).reset_index()


def _arrays(points: pd.DataFrame) -> list[Floats]:
    return [np.array(values, float) for values in points["values"]]


@_batch_quantity("convergence.accuracy", "1")
def accuracy(data: Dataset) -> Estimates:
    """Share of the test images that are told rightly at the end: mean over seeds, Student's t."""
    points = rule_points(data, "test_accuracy")
    found = statistics.estimate_on_linear_scale(_arrays(points), counted=False, share=True)
    return Estimates.from_points(points.drop(columns="values"), found)


@_batch_quantity("convergence.spread", "1")
def spread(data: Dataset) -> Estimates:
    """Mean distance of the seeds' test accuracy from their mean, scaled to be a standard deviation for normal values.

    One run that fails rules a standard deviation, and the interval of one is right for normal values only.
    """
    points = rule_points(data, "test_accuracy")
    points = points[points["n_samples"] >= FEWEST_SEEDS]
    return Estimates.from_points(points.drop(columns="values"), spreads(_arrays(points)))


def spreads(values: list[Floats]) -> statistics.PointEstimates:
    """Spread of each of several sets of values; the interval is Student's t for the logarithm of the mean distance.

    The mean distance from a set's own mean is sigma sqrt(2 / pi) sqrt((n - 1) / n) for normal values.
    """
    n = np.array([len(value) for value in values], dtype=int)
    joined, starts = np.concatenate([np.empty(0), *values]), np.cumsum(n) - n
    apart = np.abs(joined - np.repeat(np.add.reduceat(joined, starts) / n, n))
    apart *= np.repeat(np.sqrt(np.pi / 2 * n / (n - 1)), n)
    mean = np.add.reduceat(apart, starts) / n
    se = np.sqrt(np.add.reduceat((apart - np.repeat(mean, n)) ** 2, starts) / (n - 1) / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = statistics.half_width(se / mean, n - 1)
    # Seeds that agree to the last image do not show that others would: there se / mean is nan.
    ends = mean * np.exp(-half), mean * np.exp(half)
    return statistics.PointEstimates(mean, *ends, se, n - 1.0, np.zeros(len(n), dtype=bool))


def slope_weights(batches: Floats) -> Floats:
    """What the value at each batch counts in the least-squares slope over log2(batch)."""
    x = np.log2(batches) - np.log2(batches).mean()
    found: Floats = x / (x @ x)
    return found


def _trend_series(data: Dataset, held: str) -> list[tuple[dict[str, Any], Floats, list[Floats]]]:
    """Of each series with a trend a row (labels, counts, detail, source_rows), the batches, and accuracies at each.

    held: what all batches of a series have in common: epochs (passes over the images) or updates of the weights.
    """
    points = rule_points(data, "test_accuracy")
    if held == "updates":
        counted = seed_values(data, "updates").drop_duplicates([*_SERIES, "batch"]).rename(columns={"value": "updates"})
        points = points.merge(counted[[*_SERIES, "batch", "updates"]], on=[*_SERIES, "batch"])
    names = [*(name for name in _SERIES if name != "epochs"), held, "learning_rate"]
    points = points[points["n_samples"] >= FEWEST_SEEDS]
    counts, batch, source_rows = (points[name].to_numpy() for name in ("n_samples", "batch", "source_rows"))
    values, found = _arrays(points), []
    groups: Any = points.groupby(names).indices
    # In the order of their first points; of few points, a table takes far longer than arrays.
    for key, at in sorted(groups.items(), key=lambda group: group[1][0]):
        if len(at) >= FEWEST_BATCHES:
            n, batches = int(counts[at].min()), batch[at].astype(float)
            detail = f"batches of {batches.min():,.0f} to {batches.max():,.0f}, {n} seeds"
            row = {"n_rounds": 1, "n_samples": n, "detail": detail, "source_rows": merge_source_rows(source_rows[at])}
            found.append(({**dict(zip(names, key, strict=True)), **row}, batches, [values[one][:n] for one in at]))
    return found


def _slopes(data: Dataset, held: str) -> Estimates:
    series = _trend_series(data, held)
    slopes = [slope_weights(batches) @ np.array(values) for _, batches, values in series]
    found = statistics.estimate_on_linear_scale(slopes, counted=False, share=False)
    return Estimates.from_points([row for row, *_ in series], found)


@_series_quantity("convergence.accuracy_per_doubling", "1")
def accuracy_per_doubling(data: Dataset) -> Estimates:
    """Slope of the test accuracy over log2(batch): of every seed for itself, then their mean with Student's t.

    A straight line says whether accuracy rises or falls with the batch on the whole, not how it does.
    """
    return _slopes(data, "epochs")


@_equal_updates_quantity("convergence.accuracy_per_doubling_of_equal_updates", "1")
def accuracy_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """As `convergence.accuracy_per_doubling`, of batches that update the weights equally often: larger ones see more
    images, and take longer."""
    return _slopes(data, "updates")


@_series_quantity("convergence.spread_per_doubling", "1")
def spread_per_doubling(data: Dataset) -> Estimates:
    """Slope over log2(batch) of the spread, as `convergence.spread` has it; see `slope_of_spreads` for its interval."""
    return _slopes_of_spreads(data, "epochs")


@_equal_updates_quantity("convergence.spread_per_doubling_of_equal_updates", "1")
def spread_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """As `convergence.spread_per_doubling`, of batches that update the weights equally often."""
    return _slopes_of_spreads(data, "updates")


def _slopes_of_spreads(data: Dataset, held: str) -> Estimates:
    series = _trend_series(data, held)
    slopes = slopes_of_spreads([batches for _, batches, _ in series], [values for *_, values in series])
    return Estimates.of([{**row, **slope} for (row, *_), slope in zip(series, slopes, strict=True)])


def slope_of_spreads(batches: Floats, values: list[Floats]) -> dict[str, float]:
    """Least-squares slope of the spreads of values over log2(batch): estimate, low, high, se and df.

    The interval puts together those of the spreads, which are skewed and differ in width: Zou & Donner
    2008, Stat. Med. 27(10):1693 (the method of variance estimates recovery). In simulations with ten seeds
    and spreads that differ up to tenfold, it held the truth in 94 to 97% of cases with normal values, and
    in 90 to 95% with skewed ones and Student's t of 4 df; a t interval of the seeds' own slopes in 87 to
    95%, a jackknife of standard deviations in 80 to 97%. `tests/report/quantities/test_convergence.py` repeats some.
    """
    (slope,) = slopes_of_spreads([batches], [values])
    return slope


def slopes_of_spreads(batches: list[Floats], values: list[list[Floats]]) -> list[dict[str, float]]:
    """`slope_of_spreads` of many series."""
    found = spreads([one for series in values for one in series])
    starts = np.cumsum([0, *map(len, batches)])[:-1]
    weight = np.concatenate([np.empty(0), *map(slope_weights, batches)])
    parts, ends = weight * found.estimate, weight * np.array([found.low, found.high])
    slope = np.add.reduceat(parts, starts)
    below, above, se = (
        np.sqrt(np.add.reduceat(part**2, starts))
        for part in (parts - ends.min(axis=0), ends.max(axis=0) - parts, weight * found.se)
    )
    columns = {"estimate": slope, "low": slope - below, "high": slope + above, "se": se}
    table = pd.DataFrame({**columns, "df": np.minimum.reduceat(found.df, starts)})
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


@_batch_quantity("convergence.time_to_target_s", "s")
def time_to_target_s(data: Dataset) -> Estimates:
    """Seconds of training until the validation images are told as well as declared, where every seed gets there."""
    shares = rule_points(data, "reached_share")
    reached = shares[shares["values"].map(min) >= 1]
    times = rule_points(data, "time_to_target").merge(reached[_CHOICE], on=_CHOICE)
    # What one machine's times vary by says nothing of another's.
    machines = np.asarray(times.groupby(["node", "device"]).ngroup(), np.int64)
    found = statistics.estimate_on_log_scale(_arrays(times), machines)
    return Estimates.from_points(times.drop(columns="values"), found, log=True)
