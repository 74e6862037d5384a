"""What rules compare when it is not the estimates themselves: ratios, slopes, crossings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contract.errors import StudyError
from contract.schema import did_you_mean
from report import statistics
from report.estimates import Estimates, exact, merged
from report.formatting import exactly
from report.model import Side

# Labels that follow from the device and therefore cannot agree across devices.
_FOLLOWS = {"device": ["device", "threads"], "entry": ["entry", "subject"]}
# What a variable puts in order bears a name: a label that goes with it, and does not part a series.
_NAMES = {"parameters": ["model"]}


@dataclass(frozen=True)
class ComparedEstimates:
    """Estimates to compare, their unit, and of each the side where that is settled without comparing."""

    estimates: Estimates
    unit: str
    settled: list[Side | None]


def as_they_are(cases: Estimates, unit: str) -> ComparedEstimates:
    return ComparedEstimates(cases, unit, [None] * len(cases))


def _need(cases: Estimates, label: str, rule: str) -> None:
    if label not in cases.labels:
        raise StudyError(f"rule {rule}: no label {label!r}. Labels: {', '.join(cases.labels)}." + did_you_mean(
            label, cases.labels
        ))  # fmt: skip


def ratios(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Cases with over = of, divided by those with over = to that agree in all other labels.

    Raises StudyError if there is no such label. Cases without a partner give no ratio.
    """
    over = str(options["over"])
    if not len(cases):
        return as_they_are(cases, "1")
    _need(cases, over, "ratio")
    differ = [name for name in _FOLLOWS.get(over, [over]) if name in cases.labels]
    above, below = cases.only(**{over: options["of"]}), cases.only(**{over: options["to"]})
    return as_they_are(above / below.without(*differ), "1")


def _series(cases: Estimates, along: str) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Cases that differ only along one numeric label, and in what it orders, sorted by it."""
    labels = [name for name in cases.keys if name not in (along, *_NAMES.get(along, []))]
    frame = cases.frame.assign(**{along: pd.to_numeric(cases.frame[along])}).dropna(subset=[along])
    if not labels:
        return [({}, frame.sort_values(along))]
    groups: list[tuple[dict[str, Any], pd.DataFrame]] = []
    for key, part in frame.groupby(labels, dropna=False, sort=True):
        values: tuple[Hashable, ...] = key if isinstance(key, tuple) else (key,)
        groups.append((dict(zip(labels, values, strict=True)), part.sort_values(along)))
    return groups


def slopes(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Exponents p of quantity ~ along^p: weighted least squares on logarithms, one per series.

    Weights are the inverse squares of the standard errors. Where the points
    scatter about the line more than their errors explain, the slope's error is
    raised by that much and has n - 2 degrees of freedom. A series of fewer than
    two values of the variable, or with values that have no logarithm or error, gives none.
    """
    along = str(options["along"])
    if not len(cases):
        return as_they_are(cases, "1")
    _need(cases, along, "trend")
    rows = []
    for labels, part in _series(cases, along):
        estimate = part["estimate"].to_numpy(float)
        se = part["se"].to_numpy(float) / (1.0 if cases.log else estimate)
        usable = (estimate > 0) & np.isfinite(se) & (se > 0) & (part[along].to_numpy(float) > 0)
        x, y, w = np.log(part[along].to_numpy(float)[usable]), np.log(estimate[usable]), se[usable] ** -2.0
        if len(np.unique(x)) < 2:
            continue
        slope, error, df = _fit(x, y, w, part["df"].to_numpy(float)[usable])
        half = float(statistics.half_width(error, df))
        x_min, x_max = (float(end) for end in (part[along][usable].min(), part[along][usable].max()))
        ends = f"{along} {exactly(x_min)} to {exactly(x_max)}"
        rows.append(
            {**labels, "estimate": slope, "low": slope - half, "high": slope + half, "detail": ends,
             "se": error, "df": df,
             "n_rounds": int(part["n_rounds"].min()), "n_samples": int(part["n_samples"].sum()),
             "source_rows": merged(part["source_rows"][usable])}
        )  # fmt: skip
    return as_they_are(exact(rows), "1")


def _fit(x: Any, y: Any, w: Any, dfs: Any) -> tuple[float, float, float]:
    """Slope, its standard error and degrees of freedom."""
    centre = np.sum(w * x) / np.sum(w)
    sxx = float(np.sum(w * (x - centre) ** 2))
    slope = float(np.sum(w * (x - centre) * y) / sxx)
    residual = y - np.sum(w * y) / np.sum(w) - slope * (x - centre)
    free = len(x) - 2
    scatter = float(np.sum(w * residual**2) / free) if free > 0 else 0.0
    if scatter > 1:
        return slope, math.sqrt(scatter / sxx), float(free)
    # Each point's share in the slope's variance weighs its df, as in stats.combine.
    part = w * (x - centre) ** 2 / sxx
    return slope, math.sqrt(1 / sxx), float(1 / np.sum(part / dfs))


def crossings(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Where two series change places along a variable, one case per pair of series.

    The ratio of the series decides at each value of the variable whether one is
    above the other. low and high are the neighbouring values at which it decides
    differently; the estimate is interpolated on logarithms between the points
    around the change. A pair that never changes places challenges, unless some
    point could not decide.
    """
    along = str(options["along"])
    if not len(cases):
        return as_they_are(cases, "1")
    _need(cases, along, "crossover")
    rows: list[dict[str, Any]] = []
    settled: list[Side | None] = []
    compared = ratios(cases, options).estimates
    if not len(compared):
        return as_they_are(compared, "1")
    low_ends, high_ends = compared.ends(statistics.DECIDING)
    decided_by = Estimates(compared.frame.assign(low=low_ends, high=high_ends), compared.log)
    for labels, part in _series(decided_by, along):
        x, r = part[along].to_numpy(float), part["estimate"].to_numpy(float)
        sides = np.where(part["low"] > 1, 1, np.where(part["high"] < 1, -1, 0))
        decided = np.flatnonzero(sides)
        turn = next((k for k in range(len(decided) - 1) if sides[decided[k]] != sides[decided[k + 1]]), None)
        row = {
            **labels,
            "n_rounds": int(part["n_rounds"].min()),
            "n_samples": int(part["n_samples"].sum()),
            "source_rows": merged(part["source_rows"]),
        }
        if turn is None:
            surely = len(decided) == len(sides)
            first = options["of"] if (r > 1).all() else options["to"]
            what = f"{first} is ahead at every {along} measured" if surely else "too close to tell at some values"
            rows.append({**row, "estimate": math.nan, "low": math.nan, "high": math.nan, "detail": what})
            settled.append(Side.CHALLENGES if surely else Side.UNDECIDED)
            continue
        a, b = decided[turn], decided[turn + 1]
        low, high = x[a], x[b]
        ahead = options["of"] if sides[b] > 0 else options["to"]
        detail = f"{ahead} is ahead from {along} {exactly(high)} on, not up to {exactly(low)}"
        rows.append(
            {**row, "estimate": _between(x[a : b + 1], r[a : b + 1]), "low": low, "high": high, "detail": detail}
        )
        settled.append(None)
    return ComparedEstimates(exact(rows), "1", settled)


def _between(x: Any, r: Any) -> float:
    """Where the ratio passes 1, linear in logarithms; the first passage if there are several."""
    y = np.log(r)
    k = int(np.flatnonzero(np.sign(y[:-1]) != np.sign(y[1:]))[0])
    share = y[k] / (y[k] - y[k + 1])
    at = np.log(x[k : k + 2]) if x[k] > 0 else x[k : k + 2]
    value = at[0] + share * (at[1] - at[0])
    return float(np.exp(value) if x[k] > 0 else value)
