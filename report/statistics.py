"""Intervals for measurements, with rounds as the statistical unit, never samples.

A round is one process. Its samples share a memory layout, clock and neighbours, so an interval from samples is far too
narrow (Hoefler & Belli, Scientific Benchmarking of Parallel Computing Systems, SC15).

**A point.** y is the logarithm of each round's median; the estimate is exp(mean y), with a Student t interval. Three to
eight rounds determine a point's variance badly, so it is *moderated*: shrunk towards the variances of other points with
the same node, experiment, device and metric. The better these variances agree, the more it is shrunk (Smyth 2004, Stat.
Appl. Genet. Mol. Biol. 3(1):3; limma's fitFDist, squeezeVar).

**A ratio** is estimated by the difference between two log estimates. They count as independent, except if both were
measured beside each other and one reason changes both, such as the clock: then the difference is taken in each round
(`report.quantities.shared_rounds`).

**Sessions** are parts of a node's measuring time, at least an hour apart (`report.data.sessions`). Rounds of one
session lack the spread between days. If a group has points measured in several sessions, their session means show that
spread (`session_spread`), and the standard error of each point in the group includes it. Otherwise the spread is
unknown, and the interval holds only for the session.

**A share of time** is estimated by its log odds, moderated like the logarithm of a time. In a share a / (a + b), a and
b vary on the log scale, and so do its odds a / b. (The variance of the share itself vanishes at 0 and 1, so shares
could not moderate each other.) With 3 rounds at 99%, the intervals are half as wide as by Student's t on the shares,
and cover the truth as often (`studies/calibration`).

This module departs from limma and Welch in three ways. Simulation showed the first two to be necessary (40 points or
fewer, 3 to 8 rounds, 2% spread between rounds and 1% within, variances equal or spread over a factor 25, round effects
normal or Student t with 4 df; nominal 95%):

- Welch and Satterthwaite add up the two estimates' degrees of freedom. That is right for two independent estimates with
  *fixed* variances. A moderated variance instead describes a point drawn from a distribution of variances. The
  difference then follows Behrens and Fisher's distribution, whose tails are no lighter than either estimate's. With
  Welch's df, intervals for ratios covered the truth in 91-95% of the simulations. With df = sum(v) / sum(v / df), where
  v is an estimate's squared standard error, they covered it in 94-96%. This formula gives the df of one estimate if the
  other is exact. For two estimates with equal errors it matches Behrens and Fisher's quantiles at 95% to 2% from 3 df
  on (at 2 df it is 7% too narrow). At 99% its intervals are 4-6% too wide, at 99.9% 10-13%. Welch's intervals would be
  13-34% too narrow at 99% with 3 to 6 df. Ratios of two points without others to moderate them are covered
  conservatively: 97-99% with 3 rounds, 96-97% with 8.
- limma takes the fitted prior as known. With 40 points that is harmless. With 2 to 10 points, variances that agree by
  chance are taken to agree in truth (coverage down to 91%). Here the prior's df are lowered to allow for the fitting
  error: 1/d0' = 1/d0 + 2/(sum of the other points' df). Times are then covered in 93.5-96%, but ratios in up to 98% in
  groups with two points.

With these two departures and 40 points, the coverage is 94.3-95.9% for times and 94.6-96.3% for ratios. It is lowest
with 3 rounds and unequal variances, and highest with 3 rounds and heavy tails.

The third departure allows for correlated rounds. The same processes measure all points in a group, so a disturbed round
affects many points (`mean_round_correlation`). Correlated variances tell less about each other than independent ones,
so P points whose rounds correlate by r count as P / (1 + (P - 1) r^2) points.

**The level** is 99%, not 95%: see DECIDING. `studies/calibration` simulates how often the rules err at 99%;
`tests/report/test_statistics.py` repeats the simulation at both levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]

# Interval level by which rules decide. If the truth lies on the threshold, a wrong verdict to either side should be
# about as rare as 1% for every kind of machine that `studies/calibration` simulates, unless sessions differ; the usual
# level, 95%, allows 2.5% to either side. Figures draw intervals at this level too, so that the report never calls an
# interval undecided that is drawn clear of the threshold.
DECIDING = 0.99
LEVEL = DECIDING
# Interval level at each of up to three looks (`contract.looks`): together they err to a side in at most 1% of cases.
LOOK_LEVEL = 0.994
# Degrees of freedom to assume for an interval if they are unknown, as if it came from three rounds.
_UNKNOWN_DF = 2.0
# Smallest variance to use for a logarithm. A smaller variance (a relative spread below 1e-6) is finer than any clock
# used here can resolve.
SMALLEST_VARIANCE = 1e-12


def trigamma_inverse(x: float) -> float:
    """Solve trigamma(y) = x for y > 0 by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    if x > 1e7:
        return float(1 / np.sqrt(x))
    if x < 1e-6:
        return 1 / x
    y = 0.5 + 1 / x
    for _ in range(50):
        # SciPy's zeta function computes the same values as SciPy's polygamma, but ten times faster.
        trigamma = float(special.zeta(2, y))
        step = trigamma * (1 - trigamma / x) / (-2 * float(special.zeta(3, y)))
        y += step
        if -step / y < 1e-10:
            break
    return y


@dataclass(frozen=True)
class Prior:
    """Prior for the variances of a group's points: the value `variance`, with the weight of `df` degrees of freedom."""

    df: float
    variance: float


def fit_prior(variances: ArrayLike, dfs: ArrayLike) -> Prior:
    """Fit a scaled F distribution to sample variances by matching the moments of their logarithms.

    variances, dfs: shape (points,), all positive. The returned df are 0 for a single point, from which no prior can be
    learned, and infinite if the variances differ no more than by chance. Source: Smyth 2004, section 6.2.
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
    """Return the mean correlation over rounds between a group's points: 0 if independent, 1 if all vary together.

    The points are correlated if a disturbance in a round (one process at one time) affects all points measured in it.
    y: logarithms of the rounds' medians, point after point.
    n: each point's number of rounds.
    at: the positions of the group's points; only the points with the most rounds are used.
    A negative mean is returned as 0.
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


@dataclass(frozen=True)
class SessionMeans:
    """Means of each point's rounds in each session, with one entry per pair of a point and a session.

    mean: the rounds' mean. size: number of rounds. point: number of the point. per_point: each point's number of
    sessions, shape (points,).
    """

    mean: Floats
    size: NDArray[np.intp]
    point: NDArray[np.intp]
    per_point: NDArray[np.intp]
    _of_round: NDArray[np.intp]

    @classmethod
    def from_rounds(cls, y: Floats, n: NDArray[np.intp], session: NDArray[np.int64]) -> SessionMeans:
        """Average the rounds. y, session: each round's value and session, point after point. n: rounds per point."""
        most = int(session.max(initial=0)) + 1
        pairs = np.repeat(np.arange(len(n)), n) * most + session
        distinct, of_round, size = np.unique(pairs, return_inverse=True, return_counts=True)
        point = distinct // most
        mean = np.bincount(of_round, y, len(size)) / size
        return cls(mean, size, point, np.bincount(point, minlength=len(n)), of_round)

    def residuals(self, y: Floats) -> Floats:
        """Return the rounds' values minus the means of their sessions, shape (rounds,)."""
        return np.asarray(y - self.mean[self._of_round], float)

    def squared_shares(self) -> Floats:
        """Sum over a point's sessions of (rounds in the session / all rounds) squared: 1 for one session."""
        n = np.bincount(self.point, self.size, len(self.per_point))
        return np.asarray(np.bincount(self.point, np.square(self.size), len(self.per_point)) / np.square(n))


@dataclass(frozen=True)
class SessionSpread:
    """A group's variance between sessions, on the group's scale, beyond the variance between rounds; with its df."""

    variance: float
    df: float


def session_spread(sessions: SessionMeans, points: NDArray[np.intp], variances: Floats, shared: float) -> SessionSpread:
    """Estimate a group's variance between sessions from points that have several.

    It is the weighted mean over these points of the variance of their session means, less the variance that the rounds
    explain; 0 if the rounds explain all. The weights are the inverse squares of the explained variances: the larger
    this variance, the worse the session means are known.

    points: the points with several sessions. variances: each point's moderated variance between rounds, shape (points
    of all groups,). shared: the group's `mean_round_correlation`; correlated points count as fewer, as in `moderate`.
    """
    own = [np.flatnonzero(sessions.point == point) for point in points.tolist()]
    explained = np.array([variances[p] * np.mean(1 / sessions.size[at]) for p, at in zip(points, own, strict=True)])
    excess = np.array([np.var(sessions.mean[at], ddof=1) for at in own]) - explained
    df = float((sessions.per_point[points] - 1).sum()) / (1 + (len(points) - 1) * shared**2)
    return SessionSpread(max(0.0, float(np.average(excess, weights=explained**-2.0))), df)


@dataclass(frozen=True)
class Moderated:
    """Moderated variances of a group's points, each with its own variance and prior; shape (points,).

    variance = (prior_df * prior_variance + d * own) / (prior_df + d), where d is the number of rounds minus 1; df: its
    degrees of freedom. own: the variance before moderation, raised if it is tiny.
    """

    variance: Floats
    df: Floats
    own: Floats
    prior_df: Floats
    prior_variance: Floats


def moderate(variances: ArrayLike, dfs: ArrayLike, shared: float = 0.0) -> Moderated:
    """Moderate the variances of a group's points (see the module docstring).

    variances, dfs: shape (points,). shared: the points' `mean_round_correlation`. A point with df = 0 (one round) gets
    the variance nan and df 0, because its spread is unknown and other points' spread is no substitute.
    """
    s2, d = np.array(variances, float), np.array(dfs, float)
    unknown = np.full(len(s2), np.nan)
    moderated = Moderated(unknown, np.zeros(len(s2)), *(unknown.copy() for _ in range(3)))
    has = d > 0
    if not has.any():
        return moderated
    # Tiny variances are raised: a zero variance comes from a coarse clock, and its logarithm would dominate the fit.
    s2, d = np.maximum(s2[has], max(SMALLEST_VARIANCE, 1e-5 * float(np.median(s2[has])))), d[has]
    prior = fit_prior(s2, d)
    # Points with correlated rounds weigh as much as fewer independent points.
    known = np.maximum(d, d.sum() / (1 + (len(d) - 1) * shared**2))
    others = known - d
    with np.errstate(divide="ignore"):
        d0 = 1 / (1 / np.float64(prior.df) + 2 / others)
    moderated.variance[has] = (d0 * prior.variance + d * s2) / (d0 + d)
    moderated.df[has] = np.minimum(d0 + d, known)
    moderated.own[has], moderated.prior_df[has], moderated.prior_variance[has] = s2, d0, prior.variance
    return moderated


def half_width(se: ArrayLike, df: ArrayLike, level: float = LEVEL) -> Floats:
    """Compute the half-width of a Student t interval; nan if the standard error is unknown."""
    se, df = np.asarray(se, float), np.asarray(df, float)
    known = np.isfinite(se) & (df > 0)
    quantile = special.stdtrit(np.where(known, df, 1.0), (1 + level) / 2)
    return np.where(known, quantile * np.where(known, se, 0.0), np.nan)


def widening_factor(df: ArrayLike, level: ArrayLike) -> Floats:
    """Return the factor that widens a half-width from LEVEL to another level.

    If the degrees of freedom are unknown, assume those of three rounds.
    """
    df = np.asarray(df, float)
    df = np.where(df > 0, df, _UNKNOWN_DF)
    return np.asarray(special.stdtrit(df, (1 + np.asarray(level)) / 2) / special.stdtrit(df, (1 + LEVEL) / 2))


def combine(se_a: ArrayLike, df_a: ArrayLike, se_b: ArrayLike, df_b: ArrayLike) -> tuple[Floats, Floats]:
    """Return standard error and df for a sum or difference of two independent estimates (see the module docstring).

    If one estimate is exact (se = 0), the result has the other's df. If one is unknown (nan), the result is nan too.
    """
    va, vb = np.square(np.asarray(se_a, float)), np.square(np.asarray(se_b, float))
    v = va + vb
    with np.errstate(divide="ignore", invalid="ignore"):
        spent = np.where(va > 0, va / np.asarray(df_a, float), 0) + np.where(vb > 0, vb / np.asarray(df_b, float), 0)
        df = np.where(v > 0, v / spent, np.inf)
    return np.sqrt(v), np.where(np.isnan(v), 0.0, df)


@dataclass(frozen=True)
class PointEstimates:
    """Estimates and intervals (at LEVEL) in the quantity's unit, one entry per point; nan if unknown.

    se: standard error of the estimate, of its logarithm on the log scale, or of its log odds on the logit scale.
    exact: True for counts that are equal in all rounds.
    variance: variance between rounds on the same scale, before moderation.
    prior_df, prior_variance: the prior that moderated the variance; nan on the linear scale.
    session_variance, session_df: variance between sessions on the same scale, and its df; nan if unknown.
    logit: True for estimates on the logit scale.
    """

    estimate: Floats
    low: Floats
    high: Floats
    se: Floats
    df: Floats
    exact: NDArray[np.bool_]
    variance: Floats
    prior_df: Floats
    prior_variance: Floats
    session_variance: Floats
    session_df: Floats
    logit: bool = False


def estimate_on_log_scale(rounds: Sequence[ArrayLike], group: NDArray[np.int64] | None = None) -> PointEstimates:
    """Estimate positive quantities on the log scale.

    rounds: the medians of each point's rounds, at least one round per point, all above 0.
    group: each point's group number (see `log_estimates`); by default, all points form one group.
    """
    values, n = _concatenate_rounds(rounds)
    return log_estimates(values, n, np.zeros(len(n), dtype=np.int64) if group is None else group)


def log_estimates(
    values: Floats,
    n: NDArray[np.intp],
    group: NDArray[np.int64],
    session: NDArray[np.int64] | None = None,
    spreads: Mapping[int, SessionSpread] | None = None,
) -> PointEstimates:
    """Estimate positive quantities. Each point's variance is moderated by the points in the same group.

    values: the rounds' medians, point after point. n: the number of rounds of each point. group: each point's group
    number. session: each round's session number; by default, all rounds are in one session. spreads: spread between
    sessions by group number, in place of an estimate from these rounds.
    """
    return _moderated_estimates(np.log(values), np.exp, n, group, session, spreads or {})


def logit_estimates(
    values: Floats,
    n: NDArray[np.intp],
    group: NDArray[np.int64],
    session: NDArray[np.int64] | None = None,
    spreads: Mapping[int, SessionSpread] | None = None,
) -> PointEstimates:
    """Estimate shares strictly between 0 and 1 by their log odds; otherwise like `log_estimates`."""
    estimates = _moderated_estimates(special.logit(values), special.expit, n, group, session, spreads or {})
    return replace(estimates, logit=True)


def _moderated_estimates(
    y: Floats,
    inverse: Callable[[Floats], Floats],
    n: NDArray[np.intp],
    group: NDArray[np.int64],
    session: NDArray[np.int64] | None,
    spreads: Mapping[int, SessionSpread],
) -> PointEstimates:
    """Estimate on the scale of `y`; `inverse` converts the results to the quantity's own scale."""
    sessions = SessionMeans.from_rounds(y, n, np.zeros(len(y), np.int64) if session is None else session)
    mean, variance, _ = _moments(y, n)
    df = (n - 1).astype(float)
    # Sessions of one round each show no spread within sessions: all rounds of such a point count as one session.
    several = (sessions.per_point > 1) & (n > sessions.per_point)
    if several.any():
        point = np.repeat(np.arange(len(n)), n)
        y = np.where(several[point], sessions.residuals(y), y)
        df = np.where(several, n - sessions.per_point, df)
        variance = np.where(several, np.bincount(point, np.square(y), len(n)) / np.maximum(df, 1), variance)
    own, prior_df, prior_variance, between, between_df = (np.full(len(n), np.nan) for _ in range(5))
    order = np.argsort(group, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        shared = mean_round_correlation(y, n, at)
        moderated = moderate(variance[at], df[at], shared)
        variance[at], df[at], own[at] = moderated.variance, moderated.df, moderated.own
        prior_df[at], prior_variance[at] = moderated.prior_df, moderated.prior_variance
        spread = spreads.get(int(group[at[0]])) if len(at) else None
        if spread is None and several[at].any():
            spread = session_spread(sessions, at[several[at]], variance, shared)
        if spread is not None:
            between[at], between_df[at] = spread.variance, spread.df
    se = np.sqrt(variance / n)
    known = np.isfinite(between) & np.isfinite(se)
    both = combine(se, df, np.sqrt(between * sessions.squared_shares()), between_df)
    se, df = np.where(known, both[0], se), np.where(known, both[1], df)
    half = half_width(se, df)
    ends = inverse(mean - half), inverse(mean + half)
    exact = np.zeros(len(n), dtype=bool)
    moderation = own, prior_df, prior_variance
    return PointEstimates(inverse(mean), *ends, se, df, exact, *moderation, between, between_df)


def estimate_on_linear_scale(rounds: Sequence[ArrayLike], counted: bool, share: bool) -> PointEstimates:
    """Estimate quantities that may be zero, and shares that may be 0 or 1, by Student's t over rounds.

    The variances are not moderated.
    counted: True for counts, which are exact if they are equal in two or more rounds: low = high = estimate. Timed
    values are never exact, so their interval is unknown if they are equal in all rounds.
    share: True to clip the interval to [0, 1].
    """
    values, n = _concatenate_rounds(rounds)
    return linear_estimates(values, n, np.full(len(n), counted), np.full(len(n), share))


def linear_estimates(
    values: Floats, n: NDArray[np.intp], counted: NDArray[np.bool_], share: NDArray[np.bool_]
) -> PointEstimates:
    """Estimate like `estimate_on_linear_scale`, with a separate flag for each point.

    values: the rounds' medians, point after point. n: the number of rounds of each point. counted, share: flags of each
    point.
    """
    mean, variance, equal = _moments(values, n)
    exact = equal & counted
    se = np.where(exact, 0.0, np.where(equal | (n < 2), np.nan, np.sqrt(variance) / np.sqrt(n)))
    df = (n - 1).astype(float)
    half = np.where(exact, 0.0, half_width(se, df))
    low, high = mean - half, mean + half
    low, high = np.where(share, np.clip(low, 0, 1), low), np.where(share, np.clip(high, 0, 1), high)
    own, none = np.where(n < 2, np.nan, variance), np.full(len(n), np.nan)
    return PointEstimates(mean, low, high, se, df, exact, own, none, none, none, none)


def _concatenate_rounds(rounds: Sequence[ArrayLike]) -> tuple[Floats, NDArray[np.intp]]:
    """Concatenate all points' values; return also the count per point."""
    points = [np.asarray(values, float) for values in rounds]
    return np.concatenate([np.empty(0), *points]), np.array([len(values) for values in points], dtype=np.intp)


def _moments(values: Floats, n: NDArray[np.intp]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return mean, variance and all-equal flag (two or more values) per point, for concatenated values.

    A single value has variance 0.
    """
    start, mean, variance, equal = np.cumsum(n) - n, np.empty(len(n)), np.zeros(len(n)), np.zeros(len(n), dtype=bool)
    # Points with equal round counts form the rows of one matrix.
    for length in np.unique(n):
        at = np.flatnonzero(n == length)
        block = values[start[at, None] + np.arange(length)]
        mean[at] = block.mean(axis=1)
        if length > 1:
            variance[at] = block.var(axis=1, ddof=1)
            equal[at] = np.ptp(block, axis=1) == 0
    return mean, variance, equal
