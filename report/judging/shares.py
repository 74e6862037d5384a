"""The share of a population that reaches a threshold, with an interval of its own.

What "most" and "usually" mean is a share of models, jobs or processors: those that were looked at stand for others like
them. Each of these units counts once, however many estimates it has, and each estimate counts with the chance, by its
own interval from rounds, that it reaches the threshold; one of several machines of a kind with the chances that bound
those of their median. The interval of the share is that of Clopper and Pearson
(1934), whose formula by the beta distribution takes counts that are not whole: a unit of which a part counts varies
less than one that counts or does not, so that the interval is at the least as wide as it has to be.

What lies so near to the threshold that rounds cannot tell counts as a half. That is right where values spread around
the threshold; where many lie exactly on it, a share that counts them as reaching it is estimated too low.
`tests/report/test_shares.py` simulates how often the rule errs, and what it finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from contract.node import kind_of_node
from report import statistics
from report.estimates import Estimates
from report.judging.instances import Pooled
from report.model import Verdict
from report.statistics import Floats

# A share that misses what is asked for by rounding alone does not miss it.
_ROUNDING = 1e-9


def clopper_pearson(least: float, most: float, units: int, level: float = statistics.DECIDING) -> tuple[float, float]:
    """Interval of a share of so many units of which between `least` and `most` count.

    Clopper and Pearson (1934), Biometrika 26, by quantiles of the beta distribution; counts need not be whole.
    """
    tail = (1 - level) / 2
    low = float(special.betaincinv(least, units - least + 1, tail)) if least > 0 else 0.0
    high = float(special.betaincinv(most + 1, units - most, 1 - tail)) if most < units else 1.0
    # Quantiles of the tiniest counts are exact to a millionth of a millionth only.
    return min(low, least / units), max(high, most / units)


@dataclass(frozen=True)
class Share:
    """A share with its interval, of so many units that differ in the label `of`."""

    estimate: float
    low: float
    high: float
    units: int
    of: str

    def outcome(self, wanted: float) -> Verdict:
        """Whether so large a share reaches the threshold."""
        if self.units and self.low >= wanted - _ROUNDING:
            return Verdict.SUPPORTED
        return Verdict.CHALLENGED if self.units and self.high < wanted - _ROUNDING else Verdict.UNDECIDED


class Population:
    """Estimates whose units are the values of one label, of nodes their kinds. compare: at_least or at_most."""

    def __init__(self, estimates: Estimates, of: str, compare: str) -> None:
        self.of, self.upper = of, compare == "at_most"
        values = estimates[of].map(kind_of_node, na_action="ignore") if of == "node" else estimates[of]
        self.units = pd.factorize(values)[0] if len(estimates) else np.zeros(0, dtype=np.intp)
        self.names = [str(name) for name in values.unique()]
        self.pooled = estimates if isinstance(estimates, Pooled) else None
        each = self.pooled.instances if self.pooled else estimates
        self.log = estimates.log
        self._of: dict[float, tuple[Floats, Floats]] = {}
        self.estimate, self.low, self.high, self.se, self.df = (
            each.numbers(name).to_numpy() for name in ("estimate", "low", "high", "se", "df")
        )

    def _chances(self, threshold: float) -> tuple[Floats, Floats]:
        """Least and most chance of each case to reach the threshold: an unknown one may or may not.

        Kept for the last threshold, at which one unit after the other is left out.
        """
        if threshold in self._of:
            return self._of[threshold]
        value, bound = self.estimate, threshold
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(value / bound) if self.log and bound > 0 else value - bound
            spread = stats.t.cdf((-gap if self.upper else gap) / self.se, np.where(self.df > 0, self.df, 1.0))
        sure = (self.high <= bound, self.low > bound) if self.upper else (self.low >= bound, self.high < bound)
        by_chance = (self.se > 0) & np.isfinite(value)
        if self.log and bound <= 0:
            by_chance &= False
        known = ~(np.isnan(self.low) | np.isnan(self.high))
        least = np.where(by_chance, spread, (known & sure[0]).astype(float))
        most = np.where(by_chance, spread, 1.0 - (known & sure[1]).astype(float))
        if self.pooled:
            least, most = self.pooled.bounds(least, most)
        self._of = {threshold: (least, most)}
        return least, most

    def at(self, threshold: float, keep: NDArray[np.bool_] | None = None) -> Share:
        """The share that reaches a threshold. keep: of these estimates alone, shape (estimates,)."""
        kept = np.ones(len(self.units), dtype=bool) if keep is None else keep
        sizes = np.bincount(self.units[kept], minlength=len(self.names)).astype(float)
        there = int((sizes > 0).sum())
        if not there:
            return Share(math.nan, 0.0, 1.0, 0, self.of)
        weights = 1 / sizes[self.units[kept]]
        least, most = (float((weights * one[kept]).sum()) for one in self._chances(threshold))
        low, high = clopper_pearson(min(least, there), min(most, there), there)
        return Share((least + most) / 2 / there, low, high, there, self.of)
