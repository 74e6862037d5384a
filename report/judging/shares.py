"""Shares of units (such as models, jobs or processors) that reach a threshold, for the rule `for_share_of`.

Each unit has the weight 1, which its estimates divide equally. Each estimate adds its probability of reaching the
threshold, which follows from its interval over rounds. The units are of one of two kinds:

**A chosen list.** A claim file that gives its reason for its `cases` has chosen the units. Nobody drew them, so no
interval can say what share of other units would reach the threshold. The count on the list has only the measurements'
error (see `fewest_reaching`), for estimates of one unit that err together and units that err independently, or together
if they have a correction in common. What the choice of the list can do is told by the number of further units, all
contrary, that would turn the outcome. Quantiles of the number of units that reach the threshold, each with its own
chance, would not do as ends: many units right at the threshold add one half each, on whatever side they truly lie.

**A sample**, or all units in a catalogue. The interval is that of Clopper and Pearson (1934), Biometrika 26, whose beta
formula accepts fractional numbers of units. A unit with a fractional contribution varies less than a unit with 0 or 1,
so the interval is at least as wide as necessary. An estimate too near to the threshold to tell adds one half, which is
right if values spread around the threshold. A value exactly at the threshold reaches it and should add 1, so with many
such values the share is estimated too low.

For a pooled estimate, only a lower and an upper bound on the median machine's probability are known: the share's lower
end uses the former, and its upper end the latter. `studies/calibration` simulates how often both kinds err.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from contract.errors import StudyError
from contract.node import kind_of_node
from report import statistics
from report.compared_estimates import PooledEstimates
from report.estimates import Estimates
from report.judging.claim_files import Part
from report.outcomes import Verdict
from report.quantities import quantities
from report.statistics import Floats

# Tolerance for rounding errors when a share is compared with the required share.
_ROUNDING = 1e-9


def share_population(part: Part, estimates: Estimates) -> Population | None:
    """Group estimates into units for the rule `for_share_of`; return None for other rules.

    Raises StudyError if the estimates lack the label that distinguishes the units.
    """
    if part.rule != "for_share_of":
        return None
    of = str(part.options["of"])
    if len(estimates) and of not in estimates.labels:
        raise StudyError(f"options: of: no label {of!r}. Labels: {', '.join(estimates.labels)}")
    quantity = quantities().get(part.quantity)
    return Population(estimates, of, part.compare, bool(part.cases_why), bool(quantity and quantity.common_error))


def clopper_pearson(least: float, most: float, units: int, level: float = statistics.DECIDING) -> tuple[float, float]:
    """Compute the interval for the share of units that satisfy a condition.

    least, most: bounds on how many examined units satisfy the condition; they need not be whole numbers.
    units: how many units were examined.

    Source: Clopper and Pearson (1934), Biometrika 26, by quantiles of the beta distribution.
    """
    tail = (1 - level) / 2
    low = float(special.betaincinv(least, units - least + 1, tail)) if least > 0 else 0.0
    high = float(special.betaincinv(most + 1, units - most, 1 - tail)) if most < units else 1.0
    # Quantiles for the tiniest numbers are accurate to 1e-12 only, so the interval is widened to contain both bounds on
    # the examined share.
    return min(low, least / units), max(high, most / units)


def reach_chances(estimates: Estimates, threshold: float, upper: bool) -> tuple[Floats, Floats]:
    """Return the lowest and the highest probability for each case to reach the threshold; 0 and 1 if it is unknown.

    upper: True if cases must lie at or below the threshold. Both results have the shape (cases,).
    """
    pooled = estimates if isinstance(estimates, PooledEstimates) else None
    each = pooled.instances if pooled else estimates
    estimate, low, high, se, df = (each.numbers(name).to_numpy() for name in ("estimate", "low", "high", "se", "df"))
    gap = each.distances(threshold)
    by_chance = (se > 0) & np.isfinite(estimate) & ~np.isnan(gap)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = special.stdtr(np.where(df > 0, df, 1.0), (-gap if upper else gap) / se)
    certain = (high <= threshold, low > threshold) if upper else (low >= threshold, high < threshold)
    known = ~(np.isnan(low) | np.isnan(high))
    least = np.where(by_chance, spread, (known & certain[0]).astype(float))
    most = np.where(by_chance, spread, 1.0 - (known & certain[1]).astype(float))
    return pooled.bounds(least, most) if pooled else (least, most)


def fewest_reaching(units: NDArray[np.intp], chances: Floats, common_error: bool) -> float:
    """Return a lower bound on the number of listed units that truly reach a threshold, wrong in 0.5% of cases at most.

    units: each estimate's unit number, from 0 without gaps; chances: its probability of reaching the threshold; both of
    shape (estimates,). A unit counts as the fraction of its estimates that reach the threshold.

    The bound is that of partial conjunctions (Benjamini and Heller 2008, Biometrics 64): if at most N - k units reached
    the threshold, then k units would miss it, and Fisher's test would combine the k largest of the units' p-values. The
    bound is N - k for the largest k that the test, at half the tail, does not refuse. A unit's p-value is the largest
    that its estimates have. Estimates that surely reach the threshold, at the other half of the tail (Bonferroni), are
    not among those that may miss it. With `common_error`, estimates may err together, and the bound is the lower of
    this and of the number of estimates with a sure chance, which is the bound if all have one error in common.
    """
    tail = (1 - statistics.DECIDING) / 2
    sizes = np.bincount(units)
    sure = float(np.sum((chances > 1 - tail) / sizes[units]))
    p_values = 1 - chances
    may_miss = np.bincount(units, p_values > tail / 2 / len(chances)) / sizes
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, units, p_values)
    with np.errstate(divide="ignore"):
        evidence = np.cumsum(np.sort(-2 * np.log(largest)))
    k = np.arange(1, len(sizes) + 1)
    # Quantiles of the chi-squared distribution with 2 k degrees of freedom.
    missing = int(np.max(k[evidence <= 2 * special.gammaincinv(k, 1 - tail / 2)], initial=0))
    independent = float(len(sizes) - np.sort(may_miss)[::-1][:missing].sum())
    return min(sure, independent) if common_error else independent


@dataclass(frozen=True)
class Share:
    """Share of units with its interval.

    units: the number of units. of: the label that distinguishes them. listed: True if they are a chosen list; low and
    high then cover only the measurements' error.
    """

    estimate: float
    low: float
    high: float
    units: int
    of: str
    listed: bool = False

    def outcome(self, wanted: float) -> Verdict:
        """Return the verdict for a required share `wanted`."""
        if self.units and self.low >= wanted - _ROUNDING:
            return Verdict.SUPPORTED
        return Verdict.CHALLENGED if self.units and self.high < wanted - _ROUNDING else Verdict.UNDECIDED

    def turning_units(self, wanted: float) -> int | None:
        """Return how many further units, all contrary, would turn the outcome; None if none can, or for a sample."""
        outcome = self.outcome(wanted)
        if not self.listed or not outcome.is_decided or not 0 < wanted < 1:
            return None
        if outcome is Verdict.SUPPORTED:
            return math.floor(self.low * self.units / wanted + _ROUNDING) - self.units + 1
        return math.ceil((wanted - self.high) * self.units / (1 - wanted) - _ROUNDING)


class Population:
    """Estimates grouped into units by one label's values; nodes are grouped by their kind.

    compare: at_least or at_most. listed, common_error: see the module docstring.
    """

    def __init__(
        self, estimates: Estimates, of: str, compare: str, listed: bool = False, common_error: bool = False
    ) -> None:
        self.of, self.upper, self.listed, self.common_error = of, compare == "at_most", listed, common_error
        values = estimates[of].map(kind_of_node, na_action="ignore") if of == "node" else estimates[of]
        self.units = pd.factorize(values)[0] if len(estimates) else np.zeros(0, dtype=np.intp)
        self.names = [str(name) for name in values.unique()]
        self.estimates = estimates
        self._of: dict[float, tuple[Floats, Floats]] = {}

    def _reach_chances(self, threshold: float) -> tuple[Floats, Floats]:
        """Return `reach_chances`; the last result is cached, because trials that leave out cases use it again."""
        if threshold not in self._of:
            self._of = {threshold: reach_chances(self.estimates, threshold, self.upper)}
        return self._of[threshold]

    def share_at(self, threshold: float, keep: NDArray[np.bool_] | None = None) -> Share:
        """Return the share of units that reaches a threshold.

        keep: mask for the estimates to use, shape (estimates,); None for all.
        """
        mask = np.ones(len(self.units), dtype=bool) if keep is None else keep
        units = np.unique(self.units[mask], return_inverse=True)[1]
        if not len(units):
            return Share(math.nan, 0.0, 1.0, 0, self.of, self.listed)
        n, weights = int(units.max()) + 1, 1 / np.bincount(units)[units]
        chances = [chance[mask] for chance in self._reach_chances(threshold)]
        least, most = (float((weights * chance).sum()) for chance in chances)
        if self.listed:
            low = fewest_reaching(units, chances[0], self.common_error) / n
            high = 1 - fewest_reaching(units, 1 - chances[1], self.common_error) / n
        else:
            low, high = clopper_pearson(min(least, n), min(most, n), n)
        return Share((least + most) / 2 / n, low, high, n, self.of, self.listed)
