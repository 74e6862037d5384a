"""Intervals for what was measured: rounds are the unit, never samples.

A round is one process. Its samples share its memory layout, clock and
neighbours, so an interval from samples is far too narrow (Hoefler & Belli,
Scientific Benchmarking of Parallel Computing Systems, SC15).

**A point.** y = log of each round's median; the estimate is exp(mean y), the
interval Student's t. With three to eight rounds a point's own variance is badly
known, so it is *moderated*: drawn towards the variances of the other points of
the same node, experiment, device and metric by as much as those agree (Smyth
2004, Stat. Appl. Genet. Mol. Biol. 3(1):3; limma's fitFDist, squeezeVar).

**A ratio** is the difference of two log estimates.

Two departures from limma and Welch, found by simulation (40 points or fewer, 3
to 8 rounds, 2% spread between rounds and 1% within, variances equal or spread
over a factor of 25, round effects normal or Student t with 4 df; nominal 95%):

- Welch and Satterthwaite's degrees of freedom add up those of both sides. That
  is right for two independent estimates of *fixed* variances. A moderated
  variance instead describes a point drawn from a population of variances; the
  difference then follows Behrens and Fisher's distribution, whose tails are no
  lighter than those of either side. With Welch's df ratios covered 91-95%; with
  df = sum(v) / sum(v / df), which matches Behrens and Fisher's quantiles to 1%
  and also falls back to one side's df where the other is exact, 94-96%. Two
  points without others to moderate them are covered conservatively: 97-99% with
  3 rounds, 96-97% with 8.
- limma takes the fitted prior as known. With 40 points that is harmless; with 2
  to 10 it claims agreement that chance produced (coverage down to 91%). Here the
  prior's df are lowered by what the other points cannot know:
  1/d0' = 1/d0 + 2/(sum of the other points' df). Coverage of times: 93.5-96%.
  The price is that ratios are covered up to 98% in groups of two.

With both, 40 points cover 94.3-95.9% of times and 94.6-96.3% of ratios, the
lowest with 3 rounds and unequal variances, the highest with 3 rounds and heavy tails.

- A third departure: points of a group are measured by the same processes, and what
  befalls a round befalls many of them (`alike`). Variances that go together tell less
  of each other than as many independent ones; a group of P points whose rounds
  correlate by r counts as P / (1 + (P - 1) r^2) points.

**The level** is 99%, not 95%: see DECIDING. `studies/calibration` shows how often the
rules err at it; `tests/report/test_statistics.py` repeats the simulation of both levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Floats = NDArray[np.float64]

# Rules decide at DECIDING: with the truth on the threshold, each way of being wrong is to be rarer than 1% on machines
# of every kind simulated (`studies/calibration`), which the 2.5% a side of the usual level is not. Intervals are drawn
# at the same level, so that none that lies clear of a threshold is called undecided.
DECIDING = 0.99
LEVEL = DECIDING
# Degrees of freedom of an interval that does not tell its own: as of three rounds.
_UNKNOWN_DF = 2.0
# Log variances below this (1e-6 relative spread) are finer than any clock used here resolves.
SMALLEST_VARIANCE = 1e-12


def trigamma_inverse(x: float) -> float:
    """Solve trigamma(y) = x for y > 0 by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    if x > 1e7:
        return float(1 / np.sqrt(x))
    if x < 1e-6:
        return 1 / x
    y = 0.5 + 1 / x
    for _ in range(50):
        # polygamma of SciPy computes these zeta functions too, ten times as slowly.
        trigamma = float(special.zeta(2, y))
        step = trigamma * (1 - trigamma / x) / (-2 * float(special.zeta(3, y)))
        y += step
        if -step / y < 1e-10:
            break
    return y


@dataclass(frozen=True)
class Prior:
    """What the points of a group say about each other's variance: `variance`, worth `df` degrees of freedom."""

    df: float
    variance: float


def fit_prior(variances: ArrayLike, dfs: ArrayLike) -> Prior:
    """Fit a scaled F distribution to sample variances by the moments of their logarithms.

    variances, dfs: shape (points,), all positive. The df are 0 for a single
    point (nothing to learn from) and infinite if the variances differ no more
    than chance makes them. Source: Smyth 2004, section 6.2.
    """
    s2, d = np.asarray(variances, float), np.asarray(dfs, float)
    if len(s2) < 2:
        return Prior(0.0, float(s2[0]) if len(s2) else 0.0)
    half = d / 2
    e = np.log(s2) - special.digamma(half) + np.log(half)
    excess = float(np.var(e, ddof=1) - np.mean(special.polygamma(1, half)))
    if excess <= 0:
        return Prior(float("inf"), float(np.sum(d * s2) / np.sum(d)))
    df = 2 * trigamma_inverse(excess)
    return Prior(df, float(np.exp(np.mean(e) + special.digamma(df / 2) - np.log(df / 2))))


def mean_round_correlation(y: Floats, n: NDArray[np.intp], at: NDArray[np.intp]) -> float:
    """Mean correlation, over their rounds, of a group's points: 0 if each varies by itself, 1 if all vary as one.

    A round is one process at one time, and what befalls it may befall all its points. y: as in `log_estimates`, of
    which the points `at` are looked at, as far as they have all the rounds of the group. At least 0.
    """
    rounds = n[at].max(initial=0)
    full = at[n[at] == rounds]
    if rounds < 2 or len(full) < 2:
        return 0.0
    start = np.cumsum(n) - n
    block = y[start[full, None] + np.arange(rounds)]
    block = block - block.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(block, axis=1)
    block = block[norm > 0] / norm[norm > 0, None]
    points = len(block)
    if points < 2:
        return 0.0
    return max(0.0, float((np.sum(block.sum(axis=0) ** 2) - points) / (points * (points - 1))))


def moderate(variances: ArrayLike, dfs: ArrayLike, shared: float = 0.0) -> tuple[Floats, Floats]:
    """Moderated variances of a group's points and their degrees of freedom.

    variances, dfs: shape (points,). A point with df = 0 (one round) gets nan
    and 0: its spread is unknown, and what others show is not put in its place.
    """
    s2, d = np.array(variances, float), np.array(dfs, float)
    post, total = np.full(len(s2), np.nan), np.zeros(len(s2))
    has = d > 0
    if not has.any():
        return post, total
    # A variance of zero is a clock too coarse to see it; its logarithm would rule the fit.
    s2, d = np.maximum(s2[has], max(SMALLEST_VARIANCE, 1e-5 * float(np.median(s2[has])))), d[has]
    prior = fit_prior(s2, d)
    # Variances of points whose rounds go together tell less than as many independent ones.
    known = np.maximum(d, d.sum() / (1 + (len(d) - 1) * shared**2))
    others = known - d
    with np.errstate(divide="ignore"):
        d0 = 1 / (1 / np.float64(prior.df) + 2 / others)
    post[has] = (d0 * prior.variance + d * s2) / (d0 + d)
    total[has] = np.minimum(d0 + d, known)
    return post, total


def half_width(se: ArrayLike, df: ArrayLike, level: float = LEVEL) -> Floats:
    """Half the width of a Student t interval; nan where the standard error is unknown."""
    se, df = np.asarray(se, float), np.asarray(df, float)
    known = np.isfinite(se) & (df > 0)
    quantile = stats.t.ppf((1 + level) / 2, np.where(known, df, 1.0))
    return np.where(known, quantile * np.where(known, se, 0.0), np.nan)


def widening_factor(df: ArrayLike, level: ArrayLike) -> Floats:
    """By what the half-width of a drawn interval (LEVEL) grows at another level; as of three rounds without df."""
    df = np.asarray(df, float)
    df = np.where(df > 0, df, _UNKNOWN_DF)
    return np.asarray(stats.t.ppf((1 + np.asarray(level)) / 2, df) / stats.t.ppf((1 + LEVEL) / 2, df))


def combine(se_a: ArrayLike, df_a: ArrayLike, se_b: ArrayLike, df_b: ArrayLike) -> tuple[Floats, Floats]:
    """Standard error and df of a sum or difference of two independent estimates (module docstring).

    An exact side (se = 0) leaves the other's df; an unknown one (nan) makes the result unknown.
    """
    va, vb = np.square(np.asarray(se_a, float)), np.square(np.asarray(se_b, float))
    v = va + vb
    with np.errstate(divide="ignore", invalid="ignore"):
        spent = np.where(va > 0, va / np.asarray(df_a, float), 0) + np.where(vb > 0, vb / np.asarray(df_b, float), 0)
        df = np.where(v > 0, v / spent, np.inf)
    return np.sqrt(v), np.where(np.isnan(v), 0.0, df)


@dataclass(frozen=True)
class PointEstimates:
    """One entry per point: estimate and interval (LEVEL) in the quantity's unit; nan where unknown.

    se: standard error, of the logarithm if the estimate was made on the log
    scale. exact: all rounds agree on something counted.
    """

    estimate: Floats
    low: Floats
    high: Floats
    se: Floats
    df: Floats
    exact: NDArray[np.bool_]


def estimate_on_log_scale(rounds: Sequence[ArrayLike], group: NDArray[np.int64] | None = None) -> PointEstimates:
    """Estimates of positive quantities.

    rounds: per point the rounds' medians, each > 0, at least one. group: of each point, see `log_estimates`; one of all
    unless given.
    """
    values, n = _concatenate_rounds(rounds)
    return log_estimates(values, n, np.zeros(len(n), dtype=np.int64) if group is None else group)


def log_estimates(values: Floats, n: NDArray[np.intp], group: NDArray[np.int64]) -> PointEstimates:
    """Estimates of positive quantities; points are moderated by those of their own group alone.

    values: the rounds' medians of one point after another; n, group: per point how many those are, and its group.
    """
    logs = np.log(values)
    mean, variance, _ = _moments(logs, n)
    df = (n - 1).astype(float)
    order = np.argsort(group, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        variance[at], df[at] = moderate(variance[at], df[at], mean_round_correlation(logs, n, at))
    se = np.sqrt(variance / n)
    half = half_width(se, df)
    return PointEstimates(np.exp(mean), np.exp(mean - half), np.exp(mean + half), se, df, np.zeros(len(n), dtype=bool))


def estimate_on_linear_scale(rounds: Sequence[ArrayLike], counted: bool, share: bool) -> PointEstimates:
    """Estimates of shares and other quantities that may be zero: Student's t over rounds, point by point.

    A variance of one share says little about another's (it vanishes at 0 and 1),
    so nothing is moderated. counted: equal values in all of at least two rounds
    are exact, with low = high = estimate; something timed is never exact, and
    equal values then leave the interval unknown. share: clip to [0, 1].
    """
    values, n = _concatenate_rounds(rounds)
    return linear_estimates(values, n, np.full(len(n), counted), np.full(len(n), share))


def linear_estimates(
    values: Floats, n: NDArray[np.intp], counted: NDArray[np.bool_], share: NDArray[np.bool_]
) -> PointEstimates:
    """What `estimate_on_linear_scale` says, of points some of which are counted and some of which are shares.

    values: the rounds' medians of one point after another; n, counted, share: per point.
    """
    mean, variance, equal = _moments(values, n)
    exact = equal & counted
    se = np.where(exact, 0.0, np.where(equal | (n < 2), np.nan, np.sqrt(variance) / np.sqrt(n)))
    df = (n - 1).astype(float)
    half = np.where(exact, 0.0, half_width(se, df))
    low, high = mean - half, mean + half
    low, high = np.where(share, np.clip(low, 0, 1), low), np.where(share, np.clip(high, 0, 1), high)
    return PointEstimates(mean, low, high, se, df, exact)


def _concatenate_rounds(rounds: Sequence[ArrayLike]) -> tuple[Floats, NDArray[np.intp]]:
    """All points' values one after another, and how many each has."""
    points = [np.asarray(values, float) for values in rounds]
    return np.concatenate([np.empty(0), *points]), np.array([len(values) for values in points], dtype=np.intp)


def _moments(values: Floats, n: NDArray[np.intp]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Mean and variance of each point's values, which lie one after another, and whether at least two are all equal.

    The variance of a single value is 0.
    """
    start, mean, variance, equal = np.cumsum(n) - n, np.empty(len(n)), np.zeros(len(n)), np.zeros(len(n), dtype=bool)
    # Points with equally many rounds are the rows of one matrix.
    for length in np.unique(n):
        at = np.flatnonzero(n == length)
        block = values[start[at, None] + np.arange(length)]
        mean[at] = block.mean(axis=1)
        if length > 1:
            variance[at] = block.var(axis=1, ddof=1)
            equal[at] = np.ptp(block, axis=1) == 0
    return mean, variance, equal
