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
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report import statistics
from report.data.dataset import Dataset, once
from report.data.summary import POINT
from report.estimates import Estimates, merged
from report.formatting import exactly
from report.quantities import quantity

BASE_BATCH = 32
RULES = ("fixed", "linear", "tuned")
# Rates from which one is chosen; below that nothing is tuned. Batches and seeds of a trend.
FEWEST_RATES, FEWEST_BATCHES, FEWEST_SEEDS = 3, 3, 3

_NEEDS = {"experiments": ["convergence"], "device": "any"}
_SERIES = ["node", "device", "backend", "dtype", "threads", "data", "model", "epochs"]
_OF_SERIES = ("data", "model", "epochs", "dtype", "backend", "threads", "learning_rate")
_LABELS = (*_OF_SERIES, "batch")
# What batches have in common that are compared: passes over the images, or updates of the weights.
_HELD = {held: [*(name for name in _SERIES if name != "epochs"), held] for held in ("epochs", "updates")}
_AT_EQUAL_UPDATES = tuple("updates" if name == "epochs" else name for name in _OF_SERIES)

Floats = NDArray[np.float64]
Series = list[tuple[dict[str, Any], Floats, list[Floats]]]


@once
def seeds(data: Dataset, metric: str) -> pd.DataFrame:
    """One row per run: the labels of _SERIES, batch, rate, seed (from 0), source_rows and value, the mean over rounds."""
    samples = data.samples("convergence", columns=[*POINT, "sample", "metric", "status", "value"])
    wanted = (samples["metric"] == metric) & (samples["status"] == "ok")
    if not wanted.any():
        return pd.DataFrame(columns=[*_SERIES, "batch", "rate", "seed", "value", "source_rows"])
    rows = samples.loc[wanted, [*POINT, "sample", "value"]]
    mean = rows.groupby([*POINT, "sample"], sort=True)["value"].mean().reset_index()
    first = ~mean.duplicated(POINT)
    of_point = data.source_rows(mean[first])
    source_rows = pd.Series([of_point[at] for at in first.cumsum() - 1], mean.index, dtype=object)
    # The same point recurs with every seed and node: each text is read once.
    codes, texts = pd.factorize(mean["params"])
    params = pd.DataFrame([json.loads(text) for text in texts]).take(codes).set_axis(mean.index)
    return mean.assign(source_rows=source_rows).rename(columns={"sample": "seed"}).join(params.drop(columns="seeds"))


@once
def chosen(data: Dataset) -> pd.DataFrame:
    """The points that each rule chooses: the labels of _SERIES, batch, learning_rate (a rule), rate and detail."""
    by = [*_SERIES, "batch"]
    means = seeds(data, "validation_accuracy").groupby([*by, "rate"], sort=True)["value"].mean().reset_index()
    if not len(means):
        return pd.DataFrame(columns=[*by, "learning_rate", "rate", "detail"])
    rates, values = means["rate"].to_numpy(float), means["value"].to_numpy(float)
    batches = means["batch"].to_numpy(float)
    starts = np.flatnonzero(~means.duplicated(by).to_numpy(bool))
    found: list[tuple[int, str, str]] = []
    for start, end in zip(starts, [*starts[1:], len(means)], strict=True):
        tried = rates[start:end].tolist()
        wanted = {"fixed": 1.0, "linear": float(batches[start]) / BASE_BATCH}
        if len(tried) >= FEWEST_RATES:
            wanted["tuned"] = tried[int(values[start:end].argmax())]
        for rule, rate in wanted.items():
            if rate in tried:
                edge = rule == "tuned" and rate in (min(tried), max(tried))
                detail = f"{exactly(rate)} times the base rate" + (", the edge of what was tried" if edge else "")
                found.append((start + tried.index(rate), rule, detail))
    rows = means.iloc[[at for at, *_ in found]].drop(columns="value").reset_index(drop=True)
    return rows.assign(learning_rate=[rule for _, rule, _ in found], detail=[detail for *_, detail in found])


@once
def by_rule(data: Dataset, metric: str) -> list[tuple[dict[str, Any], Floats]]:
    """For each batch under each rule its labels with `detail` and `source_rows`, and a metric's values over the seeds."""
    by = [*_SERIES, "learning_rate", "batch"]
    names = [*by, "detail", "source_rows"]
    runs, points = seeds(data, metric), chosen(data)
    if not len(runs) or not len(points):
        return []
    runs = runs.merge(points, on=[*_SERIES, "batch", "rate"])
    runs = runs.sort_values([*by, "seed"], kind="stable", ignore_index=True)
    starts = np.flatnonzero(~runs.duplicated(by).to_numpy(bool))
    values = np.split(runs["value"].to_numpy(float), starts[1:])
    found = []
    for row, one in zip(runs.loc[starts, names].itertuples(index=False, name=None), values, strict=True):
        labels = dict(zip(names, row, strict=True))
        found.append(({**labels, "detail": f"{len(one)} seeds, {labels['detail']}"}, one))
    return found


def _cells(
    rows: list[dict[str, Any]], values: list[Floats], of: Callable[[list[Floats]], statistics.PointEstimates], log: bool
) -> Estimates:
    """Cells with the labels of `rows`, estimated from their values."""
    if not rows:
        return Estimates.empty()
    found = of(values)
    ends = {name: getattr(found, name) for name in ("estimate", "low", "high", "se", "df")}
    return Estimates(pd.DataFrame(rows).assign(**ends, n_rounds=1, n_samples=[len(one) for one in values]), log)


def _means(values: list[Floats], share: bool) -> statistics.PointEstimates:
    return statistics.on_linear_scale(values, counted=False, share=share)


@quantity(
    "convergence.accuracy",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the test accuracy is {value} ({labels})",
)
def accuracy(data: Dataset) -> Estimates:
    """Share of the test images that are told rightly at the end: mean over seeds, Student's t."""
    found = list(by_rule(data, "test_accuracy"))
    return _cells([row for row, _ in found], [one for _, one in found], lambda y: _means(y, True), log=False)


@quantity(
    "convergence.spread",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the test accuracy spreads by {value} over seeds ({labels})",
)
def spread(data: Dataset) -> Estimates:
    """Mean distance of the seeds' test accuracy from their mean, scaled to be a standard deviation for normal values.

    One run that fails rules a standard deviation, and the interval of one is right for normal values only.
    """
    found = [(row, values) for row, values in by_rule(data, "test_accuracy") if len(values) >= FEWEST_SEEDS]
    return _cells([row for row, _ in found], [one for _, one in found], spreads, log=False)


def spreads(values: list[Floats]) -> statistics.PointEstimates:
    """Spread of each of several sets of values; the interval is Student's t for the logarithm of the mean distance.

    The mean distance from a set's own mean is sigma sqrt(2 / pi) sqrt((n - 1) / n) for normal values.
    """
    n = np.array([len(one) for one in values])
    joined, starts = np.concatenate(values), np.cumsum(n) - n
    apart = np.abs(joined - np.repeat(np.add.reduceat(joined, starts) / n, n))
    apart *= np.repeat(np.sqrt(np.pi / 2 * n / (n - 1)), n)
    mean = np.add.reduceat(apart, starts) / n
    se = np.sqrt(np.add.reduceat((apart - np.repeat(mean, n)) ** 2, starts) / (n - 1) / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = statistics.half_width(se / mean, n - 1)
    # Seeds that agree to the last image do not show that others would: there se / mean is nan.
    return statistics.PointEstimates(
        mean, mean * np.exp(-half), mean * np.exp(half), se, n - 1.0, np.zeros(len(n), dtype=bool)
    )


def weights(batches: Floats) -> Floats:
    """What the value at each batch counts in the least-squares slope over log2(batch)."""
    x = np.log2(batches) - np.log2(batches).mean()
    found: Floats = x / (x @ x)
    return found


def _series(data: Dataset, held: str = "epochs") -> Iterator[tuple[dict[str, Any], Floats, list[Floats]]]:
    """Labels with `detail` and `source_rows`, batches, and the test accuracies at each, of every series with a trend.

    held: what all batches of a series have in common, a key of _HELD.
    """
    series: dict[tuple[Any, ...], list[tuple[float, Floats, tuple[int, ...]]]] = {}
    names = [*_HELD[held], "learning_rate"]
    updates = _updates(data) if held == "updates" else {}
    for row, values in by_rule(data, "test_accuracy"):
        if held == "updates":
            row = {**row, held: updates.get(tuple(row[name] for name in (*_SERIES, "batch")))}
        if len(values) >= FEWEST_SEEDS and row[held] is not None:
            key = tuple(row[name] for name in names)
            series.setdefault(key, []).append((float(row["batch"]), values, row["source_rows"]))
    for key, found in series.items():
        if len(found) >= FEWEST_BATCHES:
            batches, n = [batch for batch, *_ in found], min(len(values) for _, values, _ in found)
            detail = f"batches of {min(batches):,.0f} to {max(batches):,.0f}, {n} seeds"
            labels = dict(zip(names, key, strict=True))
            more = {"detail": detail, "source_rows": merged(source_rows for *_, source_rows in found)}
            yield {**labels, **more}, np.array(batches), [values[:n] for _, values, _ in found]


def _updates(data: Dataset) -> dict[tuple[Any, ...], int]:
    """How often the weights are updated in a run of every series, epochs included, and batch."""
    names = [*_SERIES, "batch"]
    counted = seeds(data, "updates").drop_duplicates(names)
    keys = counted[names].itertuples(index=False, name=None)
    return {key: int(value) for key, value in zip(keys, counted["value"], strict=True)}


@quantity(
    "convergence.accuracy_per_doubling",
    unit="1",
    needs=_NEEDS,
    labels=_OF_SERIES,
    says="On {node}, a batch twice as large changes the test accuracy by {value} ({labels})",
)
def accuracy_per_doubling(data: Dataset) -> Estimates:
    """Slope of the test accuracy over log2(batch): of every seed for itself, then their mean with Student's t.

    A straight line says whether accuracy rises or falls with the batch on the whole, not how it does.
    """
    return _slopes(list(_series(data)))


@quantity(
    "convergence.accuracy_per_doubling_of_equal_updates",
    unit="1",
    needs=_NEEDS,
    labels=_AT_EQUAL_UPDATES,
    says="On {node}, after as many updates, a batch twice as large changes the test accuracy by {value} ({labels})",
)
def accuracy_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """As `convergence.accuracy_per_doubling`, of batches that update the weights equally often: larger ones see more
    images, and take longer."""
    return _slopes(list(_series(data, "updates")))


def _slopes(found: Series) -> Estimates:
    slopes = [weights(batches) @ np.array(values) for _, batches, values in found]
    return _cells([row for row, *_ in found], slopes, lambda y: _means(y, False), log=False)


@quantity(
    "convergence.spread_per_doubling",
    unit="1",
    needs=_NEEDS,
    labels=_OF_SERIES,
    says="On {node}, a batch twice as large changes the spread of the test accuracy over seeds by {value} ({labels})",
)
def spread_per_doubling(data: Dataset) -> Estimates:
    """Slope over log2(batch) of the spread, as `convergence.spread` has it; see `slope_of_spreads` for its interval."""
    return _slopes_of_spreads(list(_series(data)))


@quantity(
    "convergence.spread_per_doubling_of_equal_updates",
    unit="1",
    needs=_NEEDS,
    labels=_AT_EQUAL_UPDATES,
    says="On {node}, after as many updates, a batch twice as large changes the spread of the test accuracy over "
    "seeds by {value} ({labels})",
)
def spread_per_doubling_of_equal_updates(data: Dataset) -> Estimates:
    """As `convergence.spread_per_doubling`, of batches that update the weights equally often."""
    return _slopes_of_spreads(list(_series(data, "updates")))


def _slopes_of_spreads(found: Series) -> Estimates:
    if not found:
        return Estimates.empty()
    slopes = slopes_of_spreads([batches for _, batches, _ in found], [values for *_, values in found])
    counts = [{"n_rounds": 1, "n_samples": len(values[0])} for *_, values in found]
    rows = [{**row, **slope, **n} for (row, *_), slope, n in zip(found, slopes, counts, strict=True)]
    return Estimates(pd.DataFrame(rows), log=False)


def slope_of_spreads(batches: Floats, values: list[Floats]) -> dict[str, float]:
    """Least-squares slope of the spreads of values over log2(batch): estimate, low, high, se and df.

    The interval puts together those of the spreads, which are skewed and differ in width: Zou & Donner
    2008, Stat. Med. 27(10):1693 (the method of variance estimates recovery). In simulations with ten seeds
    and spreads that differ up to tenfold, it held the truth in 94 to 97% of cases with normal values, and
    in 90 to 95% with skewed ones and Student's t of 4 df; a t interval of the seeds' own slopes in 87 to
    95%, a jackknife of standard deviations in 80 to 97%. `tests/report/test_convergence_quantities.py` repeats some.
    """
    (slope,) = slopes_of_spreads([batches], [values])
    return slope


def slopes_of_spreads(batches: list[Floats], values: list[list[Floats]]) -> list[dict[str, float]]:
    """`slope_of_spreads` of many series."""
    found = spreads([one for series in values for one in series])
    weight, starts = np.concatenate([weights(one) for one in batches]), np.cumsum([0, *map(len, batches[:-1])])
    parts, ends = weight * found.estimate, np.array([weight * found.low, weight * found.high])
    slope = np.add.reduceat(parts, starts)
    low = slope - np.sqrt(np.add.reduceat((parts - ends.min(axis=0)) ** 2, starts))
    high = slope + np.sqrt(np.add.reduceat((ends.max(axis=0) - parts) ** 2, starts))
    se, df = np.sqrt(np.add.reduceat((weight * found.se) ** 2, starts)), np.minimum.reduceat(found.df, starts)
    columns = (column.tolist() for column in (slope, low, high, se, df))
    return [dict(zip(("estimate", "low", "high", "se", "df"), row, strict=True)) for row in zip(*columns, strict=True)]


@quantity(
    "convergence.time_to_target_s",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training takes {value} to the target accuracy ({labels})",
)
def time_to_target_s(data: Dataset) -> Estimates:
    """Seconds of training until the validation images are told as well as declared, where every seed gets there."""
    shares = seeds(data, "reached_share").merge(chosen(data), on=[*_SERIES, "batch", "rate"])
    all_of_them = {
        tuple(row[name] for name in (*_SERIES, "learning_rate", "batch"))
        for row in shares[shares["value"] >= 1].to_dict("records")
    }
    found = [
        (row, values)
        for row, values in by_rule(data, "time_to_target")
        if tuple(row[name] for name in (*_SERIES, "learning_rate", "batch")) in all_of_them
    ]
    rows, values = [row for row, _ in found], [one for _, one in found]
    # What one machine's times vary by says nothing of another's.
    places = np.unique([f"{row['node']} {row['device']}" for row in rows], return_inverse=True)[1]
    return _cells(rows, values, lambda each: statistics.on_log_scale(each, places), log=True)


@quantity(
    "convergence.noise_scale",
    unit="samples",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the gradient is as much noise as signal at a batch of {value} ({labels})",
)
def noise_scale(data: Dataset) -> Estimates:
    """Simple noise scale where the target is reached: variance of one image's gradient over the mean's square.

    The batch at which both are equal; far above it a larger batch hardly makes a better step. Ratio of
    the means over seeds, as numerator and denominator are unbiased and their ratio is not; interval by
    jackknife over seeds, on the log scale. Source: McCandlish et al. 2018, "An empirical model of large-batch
    training", section 2.2 and appendix A.1.
    """
    above, below = ({_key(row): (row, values) for row, values in by_rule(data, f"gradient_{name}")}
                    for name in ("variance", "square"))  # fmt: skip
    rows = []
    for key, (row, variance) in above.items():
        square = below[key][1] if key in below else np.array([])
        if len(variance) == len(square) >= FEWEST_SEEDS and variance.sum() > 0:
            rows.append({**row, **log_ratio_of_means(variance, square), "n_rounds": 1, "n_samples": len(variance)})
    return Estimates.from_estimates(pd.DataFrame(rows)) if rows else Estimates.empty()


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_SERIES, "learning_rate", "batch"))


def log_ratio_of_means(above: Floats, below: Floats) -> dict[str, float]:
    """Ratio of the means of pairs, standard error of its logarithm by jackknife, and df; nan where a part is negative.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, section 11.5.
    """
    n = len(above)
    with np.errstate(invalid="ignore", divide="ignore"):
        without = np.log((above.sum() - above) / (below.sum() - below))
    se = float(np.sqrt((n - 1) / n * np.sum((without - without.mean()) ** 2)))
    return {"estimate": float(above.sum() / below.sum()), "se": se if np.isfinite(se) else np.nan, "df": n - 1.0}
