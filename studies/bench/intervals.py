"""What each method's report says about the ratio of two runs, and what follows from many such ratios.

Everything is on the log scale: the interval of log(a/b) contains 0 where that of a/b contains 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from report import statistics

LEVEL = 0.95
# Of a normal distribution: the interquartile range over the standard deviation, and the standard
# error of a median over that of a mean.
IQR_PER_SIGMA = 1.349
MEDIAN_PER_MEAN = math.sqrt(math.pi / 2)


@dataclass(frozen=True)
class Estimate:
    """One run's estimate of one point: log of its time, standard error of that, degrees of freedom.

    A run that does not tell its spread has se = nan and df = 0.
    """

    log: float
    se: float
    df: float

    @property
    def half(self) -> float:
        """Half the width of its 95% interval, relative; nan where unknown."""
        return float(statistics.half_width(self.se, self.df, LEVEL))


def of_mean(mean: float, stdev: float, n: int) -> Estimate:
    """From the mean and standard deviation of n values that are taken as independent."""
    known = n > 1
    return Estimate(math.log(mean), stdev / mean / math.sqrt(n) if known else math.nan, max(n - 1, 0))


def of_median(median: float, iqr: float, n: int) -> Estimate:
    """From the median and interquartile range of n values, taken as independent and normal."""
    known = n > 1
    sigma = iqr / IQR_PER_SIGMA / median
    return Estimate(math.log(median), MEDIAN_PER_MEAN * sigma / math.sqrt(n) if known else math.nan, max(n - 1, 0))


def of_rounds(group: Sequence[Sequence[float]]) -> list[Estimate]:
    """From the rounds' medians of the points of one experiment: the report's moderated estimates."""
    found = statistics.on_log_scale(group)
    return [
        Estimate(math.log(estimate), float(se), float(df))
        for estimate, se, df in zip(found.estimate, found.se, found.df, strict=True)
    ]


@dataclass(frozen=True)
class Ratio:
    """log(a/b) and half the width of its 95% interval (nan where a side's spread is unknown)."""

    log: float
    half: float

    @property
    def holds_one(self) -> bool:
        """Whether the interval of the ratio contains 1."""
        return abs(self.log) <= self.half


def ratio(a: Estimate, b: Estimate, moderated: bool) -> Ratio:
    """The ratio of two runs: degrees of freedom as in the report if moderated, else Welch and Satterthwaite's."""
    if moderated:
        return Ratio(a.log - b.log, float(statistics.half_width(*statistics.combine(a.se, a.df, b.se, b.df), LEVEL)))
    variances = [side.se**2 for side in (a, b)]
    if not all(math.isfinite(variance) for variance in variances):
        return Ratio(a.log - b.log, math.nan)
    spent = sum(variance**2 / side.df for variance, side in zip(variances, (a, b), strict=True))
    df = sum(variances) ** 2 / spent if spent > 0 else math.inf
    return Ratio(a.log - b.log, float(statistics.half_width(math.sqrt(sum(variances)), df, LEVEL)))


@dataclass(frozen=True)
class Coverage:
    """How often the intervals of ratios of equal things contained 1.

    pairs: ratios with an interval; unknown: those without one. low, high: binomial 95%
    interval of the share (Clopper and Pearson). half: median half-width, relative.
    factor: by which all intervals would have to be scaled for 95% of them to contain 1.
    """

    covered: int
    pairs: int
    unknown: int
    low: float
    high: float
    half: float
    factor: float

    @property
    def share(self) -> float:
        """Share of the intervals that contained 1; nan if there are none."""
        return self.covered / self.pairs if self.pairs else math.nan


def coverage(ratios: Iterable[Ratio]) -> Coverage:
    """Coverage of ratios whose true value is 1."""
    every = list(ratios)
    known = [each for each in every if math.isfinite(each.half)]
    if not known:
        return Coverage(0, 0, len(every), 0.0, 1.0, math.nan, math.nan)
    covered = sum(each.holds_one for each in known)
    between = binomtest(covered, len(known)).proportion_ci(LEVEL, method="exact")
    needed = [abs(each.log) / each.half if each.half > 0 else (math.inf if each.log else 0.0) for each in known]
    return Coverage(
        covered,
        len(known),
        len(every) - len(known),
        float(between.low),
        float(between.high),
        float(np.median([each.half for each in known])),
        # The smallest factor that does it for this set: no interpolation between pairs.
        float(np.quantile(needed, LEVEL, method="inverted_cdf")),
    )


def seconds_to(target: float, half: float, seconds: float) -> float:
    """Seconds until an interval of half-width `half` after `seconds` is within `target`.

    Whole runs are repeated and averaged, which narrows the interval with the root of
    their number; a method is not run for less than once.
    """
    return seconds * max(1.0, (half / target) ** 2)


def against_band(low: float, high: float, band: tuple[float, float]) -> str:
    """An interval against a target band, in words: all inside is met, all outside missed, else undecided."""
    if band[0] <= low and high <= band[1]:
        return "met"
    if high < band[0] or low > band[1]:
        return f"missed: {'below' if high < band[0] else 'above'} {band[0]:g}–{band[1]:g}"
    return f"undecided: the interval reaches out of {band[0]:g}–{band[1]:g}"


def share_against_band(found: Coverage, band: tuple[float, float]) -> str:
    """A share of covered intervals against its target; a miss says whether chance may explain it."""
    if not found.pairs:
        return "missed: no intervals"
    if band[0] <= found.share <= band[1]:
        return "met"
    side = "below" if found.share < band[0] else "above"
    apart = found.high < band[0] or found.low > band[1]
    return f"missed: {side} {band[0]:.0%}–{band[1]:.0%}" + ("" if apart else ", within what chance does")
