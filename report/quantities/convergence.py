"""Quantities of whole training runs: accuracy and its spread over seeds against the batch, and what the target takes.

Seeds are the unit: a seed's value is its mean over rounds, which repeat it. The images that
are trained and tested on are the same in all runs, so that an interval says what other weights and
another order would give, not what other images would.

Three rules choose the learning rate of a batch, all from the same runs: `fixed`, the base rate; `linear`,
the base rate times batch / BASE_BATCH (Goyal et al. 2017, "Accurate, large minibatch SGD"); and
`tuned`, the rate with the highest mean accuracy on the validation images, which neither trains nor
tests. The interval of a tuned batch takes that choice as given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report import stats
from report.cells import Cells
from report.evidence import Data
from report.quantities import quantity
from report.summary import POINT
from report.wording import exactly

BASE_BATCH = 32
RULES = ("fixed", "linear", "tuned")
# Rates from which one is chosen; below that nothing is tuned. Batches and seeds of a trend.
FEWEST_RATES, FEWEST_BATCHES, FEWEST_SEEDS = 3, 3, 3

_NEEDS = {"experiments": ["convergence"], "device": "any"}
_SERIES = ["node", "device", "backend", "dtype", "threads", "data", "model", "epochs"]
_OF_SERIES = ("data", "model", "epochs", "dtype", "backend", "threads", "learning_rate")
_LABELS = (*_OF_SERIES, "batch")

Floats = NDArray[np.float64]


def seeds(data: Data, metric: str) -> pd.DataFrame:
    """One row per run: the labels of _SERIES, batch, rate, seed (from 0) and value, the mean over the rounds."""
    samples = data.nodes.samples()
    rows = samples[
        (samples["experiment"] == "convergence") & (samples["metric"] == metric) & (samples["status"] == "ok")
    ]
    if not len(rows):
        return pd.DataFrame(columns=[*_SERIES, "batch", "rate", "seed", "value"])
    mean = rows.groupby([*POINT, "sample"], sort=True)["value"].mean().reset_index()
    params = pd.DataFrame([json.loads(text) for text in mean["params"]], index=mean.index)
    return mean.rename(columns={"sample": "seed"}).join(params.drop(columns="seeds"))


def chosen(data: Data) -> pd.DataFrame:
    """The points that each rule chooses: the labels of _SERIES, batch, learning_rate (a rule), rate and detail."""
    found: list[dict[str, Any]] = []
    validation = seeds(data, "validation_accuracy")
    means = validation.groupby([*_SERIES, "batch", "rate"], sort=True)["value"].mean().reset_index()
    for key, tried in means.groupby([*_SERIES, "batch"], sort=True):
        labels: dict[str, Any] = dict(zip([*_SERIES, "batch"], key, strict=True))
        rates = tried["rate"].to_numpy(float)
        best = float(rates[int(tried["value"].to_numpy(float).argmax())])
        wanted = {"fixed": 1.0, "linear": float(labels["batch"]) / BASE_BATCH}
        if len(rates) >= FEWEST_RATES:
            wanted["tuned"] = best
        for rule, rate in wanted.items():
            if rate in rates:
                edge = rule == "tuned" and rate in (rates.min(), rates.max())
                detail = f"{exactly(rate)} times the base rate" + (", the edge of what was tried" if edge else "")
                found.append({**labels, "learning_rate": rule, "rate": rate, "detail": detail})
    return pd.DataFrame(found, columns=[*_SERIES, "batch", "learning_rate", "rate", "detail"])


def by_rule(data: Data, metric: str) -> Iterator[tuple[dict[str, Any], Floats]]:
    """For each batch under each rule its labels with `detail`, and a metric's values over the seeds."""
    runs = seeds(data, metric).merge(chosen(data), on=[*_SERIES, "batch", "rate"])
    for key, part in runs.groupby([*_SERIES, "learning_rate", "batch"], sort=True):
        labels = dict(zip([*_SERIES, "learning_rate", "batch"], key, strict=True))
        values = part.sort_values("seed")["value"].to_numpy(float)
        yield {**labels, "detail": f"{len(values)} seeds, {part['detail'].iloc[0]}"}, values


def _cells(
    rows: list[dict[str, Any]], values: list[Floats], of: Callable[[list[Floats]], stats.Estimates], log: bool
) -> Cells:
    """Cells with the labels of `rows`, estimated from their values."""
    if not rows:
        return Cells.empty()
    found = of(values)
    ends = {name: getattr(found, name) for name in ("estimate", "low", "high", "se", "df")}
    return Cells(pd.DataFrame(rows).assign(**ends, n_rounds=1, n_samples=[len(one) for one in values]), log)


def _means(values: list[Floats], share: bool) -> stats.Estimates:
    return stats.on_linear_scale(values, counted=False, share=share)


@quantity(
    "convergence.accuracy",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the test accuracy is {value} ({labels})",
)
def accuracy(data: Data) -> Cells:
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
def spread(data: Data) -> Cells:
    """Mean distance of the seeds' test accuracy from their mean, scaled to be a standard deviation for normal values.

    One run that fails rules a standard deviation, and the interval of one is right for normal values only.
    """
    found = [(row, values) for row, values in by_rule(data, "test_accuracy") if len(values) >= FEWEST_SEEDS]
    return _cells([row for row, _ in found], [one for _, one in found], spreads, log=False)


def spreads(values: list[Floats]) -> stats.Estimates:
    """Spread of each of several sets of values; the interval is Student's t for the logarithm of the mean distance.

    The mean distance from a set's own mean is sigma sqrt(2 / pi) sqrt((n - 1) / n) for normal values.
    """
    apart = [np.abs(one - one.mean()) * np.sqrt(np.pi / 2 * len(one) / (len(one) - 1)) for one in values]
    mean, n = (np.array([of(one) for one in apart]) for of in (np.mean, len))
    se = np.array([one.std(ddof=1) for one in apart]) / np.sqrt(n)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.half_width(se / mean, n - 1)
    # Seeds that agree to the last image do not show that others would: there se / mean is nan.
    return stats.Estimates(mean, mean * np.exp(-half), mean * np.exp(half), se, n - 1.0, np.zeros(len(n), dtype=bool))


def weights(batches: Floats) -> Floats:
    """What the value at each batch counts in the least-squares slope over log2(batch)."""
    x = np.log2(batches) - np.log2(batches).mean()
    found: Floats = x / (x @ x)
    return found


def _series(data: Data) -> Iterator[tuple[dict[str, Any], Floats, list[Floats]]]:
    """Labels with `detail`, batches, and the test accuracies at each of them, of every series with a trend."""
    series: dict[tuple[Any, ...], list[tuple[float, Floats]]] = {}
    for row, values in by_rule(data, "test_accuracy"):
        if len(values) >= FEWEST_SEEDS:
            key = tuple(row[name] for name in (*_SERIES, "learning_rate"))
            series.setdefault(key, []).append((float(row["batch"]), values))
    for key, found in series.items():
        if len(found) >= FEWEST_BATCHES:
            batches, n = [batch for batch, _ in found], min(len(values) for _, values in found)
            detail = f"batches of {min(batches):,.0f} to {max(batches):,.0f}, {n} seeds"
            labels = dict(zip((*_SERIES, "learning_rate"), key, strict=True))
            yield {**labels, "detail": detail}, np.array(batches), [values[:n] for _, values in found]


@quantity(
    "convergence.accuracy_per_doubling",
    unit="1",
    needs=_NEEDS,
    labels=_OF_SERIES,
    says="On {node}, a batch twice as large changes the test accuracy by {value} ({labels})",
)
def accuracy_per_doubling(data: Data) -> Cells:
    """Slope of the test accuracy over log2(batch): of every seed for itself, then their mean with Student's t.

    A straight line says whether accuracy rises or falls with the batch on the whole, not how it does.
    """
    found = list(_series(data))
    slopes = [weights(batches) @ np.array(values) for _, batches, values in found]
    return _cells([row for row, *_ in found], slopes, lambda y: _means(y, False), log=False)


@quantity(
    "convergence.spread_per_doubling",
    unit="1",
    needs=_NEEDS,
    labels=_OF_SERIES,
    says="On {node}, a batch twice as large changes the spread of the test accuracy over seeds by {value} ({labels})",
)
def spread_per_doubling(data: Data) -> Cells:
    """Slope over log2(batch) of the spread, as `convergence.spread` has it; see `slope_of_spreads` for its interval."""
    rows = [
        {**row, **slope_of_spreads(batches, values), "n_rounds": 1, "n_samples": len(values[0])}
        for row, batches, values in _series(data)
    ]
    return Cells(pd.DataFrame(rows), log=False) if rows else Cells.empty()


def slope_of_spreads(batches: Floats, values: list[Floats]) -> dict[str, float]:
    """Least-squares slope of the spreads of values over log2(batch): estimate, low, high, se and df.

    The interval puts together those of the spreads, which are skewed and differ in width: Zou & Donner
    2008, Stat. Med. 27(10):1693 (the method of variance estimates recovery). In simulations with ten seeds
    and spreads that differ up to tenfold, it held the truth in 94 to 97% of cases with normal values, and
    in 90 to 95% with skewed ones and Student's t of 4 df; a t interval of the seeds' own slopes in 87 to
    95%, a jackknife of standard deviations in 80 to 97%. `tests/report/test_convergence_quantities.py` repeats some.
    """
    found, weight = spreads(values), weights(batches)
    parts, ends = weight * found.estimate, np.array([weight * found.low, weight * found.high])
    slope = float(parts.sum())
    low = slope - float(np.sqrt(np.sum((parts - ends.min(axis=0)) ** 2)))
    high = slope + float(np.sqrt(np.sum((ends.max(axis=0) - parts) ** 2)))
    se = float(np.sqrt(np.sum((weight * found.se) ** 2)))
    return {"estimate": slope, "low": low, "high": high, "se": se, "df": float(found.df.min())}


@quantity(
    "convergence.time_to_target_s",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training takes {value} to the target accuracy ({labels})",
)
def time_to_target_s(data: Data) -> Cells:
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
    return _cells([row for row, _ in found], [one for _, one in found], stats.on_log_scale, log=True)


@quantity(
    "convergence.noise_scale",
    unit="samples",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the gradient is as much noise as signal at a batch of {value} ({labels})",
)
def noise_scale(data: Data) -> Cells:
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
    return Cells.from_estimates(pd.DataFrame(rows)) if rows else Cells.empty()


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
