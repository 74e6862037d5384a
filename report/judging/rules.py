"""Rules that decide claims. A claim file can use only these rules.

A rule compares the interval of each estimate with the threshold, and derives one outcome from all comparisons.
`report.compared_estimates` prepares the estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from contract.errors import StudyError
from contract.node import kind_of_node
from report import statistics
from report.compared_estimates import (
    ComparedEstimates,
    PooledEstimates,
    crossings,
    nodes_by_kind,
    pool_compared,
    ratios,
    slopes,
    without_settled_sides,
)
from report.estimates import RUNTIMES, Estimates
from report.judging.claim_files import Part
from report.outcomes import Side, Threshold, Verdict, verdict_from_counts
from report.statistics import Floats

# A published figure that differs from the threshold by at least this factor decides without a second source.
CLEAR = 1.5
_UNDECIDED = list(Side).index(Side.UNDECIDED)
RULES = ("at_least", "at_most", "within", "ratio", "trend", "exists", "crossover", "for_share_of")


@dataclass(frozen=True)
class RuleResult:
    """Outcome of a rule, with the compared estimates and their sides.

    representative: the representative estimate's row (see `_representative_row`); None without estimates.
    boundary: the boundary between the sides; None unless the outcome is DEPENDS.
    crossover: for the rule crossover, a text on the side that is ahead and the value from which it is ahead.
    share: for the rule for_share_of, the share that reaches the threshold; otherwise None.
    """

    outcome: Verdict
    estimates: Estimates
    sides: list[Side]
    representative: int | None
    boundary: Boundary | None
    unit: str
    crossover: str = ""
    share: Share | None = None

    @property
    def single_round(self) -> NDArray[np.bool_]:
        """Mask for estimates that come from one round and so have no interval, shape (estimates,)."""
        once = self.estimates["n_rounds"].astype(int) == 1
        return (self.estimates["low"].isna() & once).to_numpy(bool)


def interval_sides(low: Floats, high: Floats, threshold: Threshold, compare: str) -> list[Side]:
    """Find each interval's side of the threshold; UNDECIDED if the interval crosses the threshold or is nan.

    low, high: the interval ends, shape (estimates,).
    """
    return _sides_from_numbers(_side_numbers(low, high, threshold, compare))


def _sides_from_numbers(numbers: NDArray[np.intp]) -> list[Side]:
    """Convert numbers to sides; the numbers are positions in the enumeration `Side`."""
    sides = list(Side)
    return [sides[number] for number in numbers.tolist()]


def _side_numbers(low: Floats, high: Floats, threshold: Threshold, compare: str) -> NDArray[np.intp]:
    """Return the sides from `interval_sides` as numbers: positions in the enumeration `Side`."""
    if threshold.high is not None:
        inside = (threshold.low <= low) & (high <= threshold.high)
        outside = (high < threshold.low) | (low > threshold.high)
    elif compare == "at_most":
        inside, outside = high <= threshold.low, low > threshold.low
    else:
        inside, outside = low >= threshold.low, high < threshold.low
    known = ~(np.isnan(low) | np.isnan(high))
    return np.where(known & inside, 0, np.where(known & outside, 1, _UNDECIDED))


def deciding_level(rule: str, estimates: int) -> float:
    """Return the interval level by which a rule decides.

    For the rule exists, one estimate among many suffices, and each may be wrong by chance. A Bonferroni correction
    keeps the chance that any is wrong as low as for one estimate. The other rules never rest on one estimate among
    many, so they need no correction.
    """
    many = max(1, estimates) if rule == "exists" else 1
    return 1 - (1 - statistics.DECIDING) / many


def transform(part: Part, estimates: Estimates, unit: str) -> ComparedEstimates:
    """Form the ratios, slopes or crossings that the part's rule needs, and pool machines by kind.

    Other rules use the estimates unchanged. Raises StudyError if the rule's options do not fit the estimates.
    """
    transforms = {"ratio": ratios, "trend": slopes, "crossover": crossings}
    if part.rule in transforms:
        return pool_compared(transforms[part.rule](estimates, part.options))
    return pool_compared(without_settled_sides(estimates, unit))


def apply_rule(
    part: Part, estimates: Estimates, unit: str = "1", format_nodes: Callable[[Sequence[str]], str] = ", ".join
) -> RuleResult:
    """Apply a part's rule to estimates that are already selected by scope and scaled.

    format_nodes: formats all nodes of a kind as one name. Raises StudyError if the rule's options do not fit the
    estimates.
    """
    compared = transform(part, estimates, unit)
    sides = _compared_sides(part, compared)
    share = reached_share(part, compared.estimates)
    outcome = _outcome(part, sides, share)
    boundary = None
    if outcome is Verdict.DEPENDS:
        node_groups = nodes_by_kind(compared.estimates).values()
        names = {node: format_nodes(nodes) for nodes in node_groups for node in nodes}
        boundary = find_boundary(_with_boundary_labels(compared.estimates), sides, names)
    representative = _representative_row(part, compared.estimates, sides, outcome)
    crossover = ""
    if part.rule == "crossover" and representative is not None:
        crossover = str(compared.estimates.value("detail", representative))
    return RuleResult(outcome, compared.estimates, sides, representative, boundary, compared.unit, crossover, share)


def rule_outcome(part: Part, estimates: Estimates, unit: str = "1") -> Verdict | None:
    """Return only the outcome from `apply_rule`; None if there is nothing to compare."""
    compared = transform(part, estimates, unit)
    sides = _compared_sides(part, compared)
    return _outcome(part, sides, reached_share(part, compared.estimates)) if sides else None


def _with_boundary_labels(estimates: Estimates) -> Estimates:
    """Drop labels that tell how a published figure was obtained: no boundary should rest on them."""
    if "family" not in estimates.labels:
        return estimates
    beside = ("family", "records", "measure", "setting", "precision", "strength")
    return estimates.drop_labels(*(name for name in beside if name in estimates.labels))


def _compared_sides(part: Part, compared: ComparedEstimates) -> list[Side]:
    sides = side_finder(part, compared.estimates, deciding_ends(part, compared.estimates))(part.threshold)
    return [settled or side for settled, side in zip(compared.settled, sides, strict=True)]


def deciding_ends(part: Part, estimates: Estimates) -> tuple[Floats, Floats]:
    """Return low and high interval ends at the deciding level, each with shape (estimates,)."""
    return estimates.ends(deciding_level(part.rule, len(estimates)))


def side_finder(part: Part, estimates: Estimates, ends: tuple[Floats, Floats]) -> Callable[[Threshold], list[Side]]:
    """Return a function that maps a threshold to each estimate's side.

    ends: the interval ends from `deciding_ends`, which do not depend on the threshold. For published figures, the
    function uses `PublishedEnds` instead.
    """
    if "family" in estimates.labels:
        others = PublishedEnds(estimates)
        return lambda threshold: others.sides(threshold, part.compare)
    return lambda threshold: interval_sides(*ends, threshold, part.compare)


class PublishedEnds:
    """Interval ends by which published figures decide, because these figures have no rounds to compute intervals from.

    A figure includes the range that its source states, if any. It decides if it lies beyond the threshold by the factor
    CLEAR, or if a figure from an independent source lies on the same side.
    """

    def __init__(self, estimates: Estimates) -> None:
        low, high = (estimates.numbers(name).to_numpy() for name in ("low", "high"))
        self.stated_ends = low, high
        self.decisive_ends = np.minimum(low / CLEAR, low * CLEAR), np.maximum(high / CLEAR, high * CLEAR)
        names, self.family_numbers = np.unique(estimates["family"].astype(str).to_numpy(object), return_inverse=True)
        sources = [frozenset(name.split(" and ")) for name in names]
        # Rows and columns stand for the values in the label `family`. Each value names one family of sources, or
        # several joined by " and ". True if two values have no family in common.
        self.are_independent = np.array([[not source & other for other in sources] for source in sources], bool)

    def sides(self, threshold: Threshold, compare: str) -> list[Side]:
        """Find each figure's side of the threshold."""
        plain = _side_numbers(*self.stated_ends, threshold, compare)
        numbers = _side_numbers(*self.decisive_ends, threshold, compare)
        for side in (0, 1):
            here = plain == side
            there = np.bincount(self.family_numbers[here], minlength=len(self.are_independent)) > 0
            agreed_on = (self.are_independent & there).any(axis=1).take(self.family_numbers)
            numbers = np.where((numbers == _UNDECIDED) & here & agreed_on, side, numbers)
        return _sides_from_numbers(numbers)


def share_population(part: Part, estimates: Estimates) -> Population | None:
    """Group estimates into units (such as models or nodes) for the rule `for_share_of`; return None for other rules.

    Raises StudyError if the estimates lack the label that distinguishes the units.
    """
    if part.rule != "for_share_of":
        return None
    of = str(part.options["of"])
    if len(estimates) and of not in estimates.labels:
        raise StudyError(f"options: of: no label {of!r}. Labels: {', '.join(estimates.labels)}")
    return Population(estimates, of, part.compare)


def reached_share(part: Part, estimates: Estimates) -> Share | None:
    """Return the share of units that reaches a part's threshold; None if the part's rule is not for_share_of."""
    population = share_population(part, estimates)
    return population.share_at(part.threshold.low) if population else None


def _outcome(part: Part, sides: Sequence[Side], share: Share | None) -> Verdict:
    if share is not None:
        return share.outcome(part.share)
    return outcome_from_sides(part.rule, sides)


def outcome_from_sides(rule: str, sides: Sequence[Side]) -> Verdict:
    """Count the estimates on each side to derive one outcome."""
    return outcome_from_counts(rule, len(sides), sides.count(Side.SUPPORTS), sides.count(Side.CHALLENGES))


def outcome_from_counts(rule: str, n: int, supporting: int, challenging: int) -> Verdict:
    """Derive one outcome for n estimates, given how many support and how many challenge the claim.

    For the rule exists, one supporting estimate suffices. The other rules follow `verdict_from_counts`, except for
    for_share_of, whose outcome does not follow from these numbers (see `Share.outcome`).
    """
    if rule == "exists":
        if supporting:
            return Verdict.SUPPORTED
        return Verdict.CHALLENGED if n and challenging == n else Verdict.UNDECIDED
    return verdict_from_counts(n, supporting, challenging)


def _representative_row(part: Part, estimates: Estimates, sides: Sequence[Side], outcome: Verdict) -> int | None:
    """Find the row for the estimate that represents all estimates; None without estimates.

    The choice depends on the rule:
    exists: the estimate that favours the claim most.
    for_share_of: the estimates that favour the claim most are taken until they make up the required share; the last one
    is chosen.
    other rules: the estimate nearest to the threshold; for DEPENDS, undecided estimates are the last resort.

    For all rules except for_share_of, estimates with an interval are preferred.
    """
    values, lows = estimates.numbers("estimate").tolist(), estimates.numbers("low").tolist()
    known = [at for at, value in enumerate(values) if not math.isnan(value)]
    if not known:
        return 0 if values else None
    if part.rule != "for_share_of":
        known = [at for at in known if not math.isnan(lows[at])] or known
    favour = sorted(known, key=lambda at: values[at], reverse=part.compare != "at_most")
    if part.rule == "exists":
        return favour[0]
    if part.rule == "for_share_of":
        return favour[max(0, min(len(favour), math.ceil(part.share * len(values) - 1e-9)) - 1)]
    if outcome is Verdict.DEPENDS:
        undecided = [at for at in known if sides[at] is Side.UNDECIDED]
        known = [at for at in known if sides[at] is not Side.UNDECIDED] or undecided
    return min(known, key=lambda at: (part.threshold.distance(values[at]), at))


def may_be_negative(part: Part) -> bool:
    """Return True if a part may have negative thresholds: its rule is trend, or a declared threshold is negative.

    A trend is an exponent, which may be negative. Times, counts, rates and ratios are never negative.
    """
    return (
        part.rule == "trend"
        or min(end for threshold in (part.threshold, *part.sensitivity) for end in threshold.ends) < 0
    )


# The following functions and classes compute shares of units.

# Tolerance for rounding errors when a share is compared with the required share.
_ROUNDING = 1e-9


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


@dataclass(frozen=True)
class Share:
    """Share of units with its interval. units: the number of units. of: the label that distinguishes them."""

    estimate: float
    low: float
    high: float
    units: int
    of: str

    def outcome(self, wanted: float) -> Verdict:
        """Return the verdict for a required share `wanted`."""
        if self.units and self.low >= wanted - _ROUNDING:
            return Verdict.SUPPORTED
        return Verdict.CHALLENGED if self.units and self.high < wanted - _ROUNDING else Verdict.UNDECIDED


class Population:
    """Estimates grouped into units by one label's values; nodes are grouped by their kind.

    compare: at_least or at_most.

    In a claim, "most" and "usually" refer to a share of models, jobs or processors. The examined units are a sample of
    others like them. Each unit has the weight 1, which its estimates divide equally. Each estimate adds its probability
    of reaching the threshold, which follows from its interval over rounds. For a pooled estimate, only a lower and an
    upper bound on the median machine's probability are known: the share's lower end uses the former, and its upper end
    the latter. The share's interval is that of Clopper and Pearson (1934), whose beta formula accepts fractional
    numbers of units. A unit with a fractional contribution varies less than a unit with 0 or 1, so the interval is at
    least as wide as necessary.

    An estimate too near to the threshold to tell adds one half, which is right if values spread around the threshold. A
    value exactly at the threshold reaches it and should add 1, so with many such values the share is estimated too low.
    `tests/report/test_shares.py` simulates how often the rule errs.
    """

    def __init__(self, estimates: Estimates, of: str, compare: str) -> None:
        self.of, self.upper = of, compare == "at_most"
        values = estimates[of].map(kind_of_node, na_action="ignore") if of == "node" else estimates[of]
        self.units = pd.factorize(values)[0] if len(estimates) else np.zeros(0, dtype=np.intp)
        self.names = [str(name) for name in values.unique()]
        self.pooled = estimates if isinstance(estimates, PooledEstimates) else None
        each = self.pooled.instances if self.pooled else estimates
        self.log = estimates.log
        self._of: dict[float, tuple[Floats, Floats]] = {}
        self.estimate, self.low, self.high, self.se, self.df = (
            each.numbers(name).to_numpy() for name in ("estimate", "low", "high", "se", "df")
        )

    def _reach_chances(self, threshold: float) -> tuple[Floats, Floats]:
        """Return the lowest and the highest probability for each case to reach the threshold; 0 and 1 if it is unknown.

        The result for the last threshold is cached, because trials that leave out cases use it again.
        """
        if threshold in self._of:
            return self._of[threshold]
        value, bound = self.estimate, threshold
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(value / bound) if self.log and bound > 0 else value - bound
            spread = stats.t.cdf((-gap if self.upper else gap) / self.se, np.where(self.df > 0, self.df, 1.0))
        certain = (self.high <= bound, self.low > bound) if self.upper else (self.low >= bound, self.high < bound)
        by_chance = (self.se > 0) & np.isfinite(value)
        if self.log and bound <= 0:
            by_chance &= False
        known = ~(np.isnan(self.low) | np.isnan(self.high))
        least = np.where(by_chance, spread, (known & certain[0]).astype(float))
        most = np.where(by_chance, spread, 1.0 - (known & certain[1]).astype(float))
        if self.pooled:
            least, most = self.pooled.bounds(least, most)
        self._of = {threshold: (least, most)}
        return least, most

    def share_at(self, threshold: float, keep: NDArray[np.bool_] | None = None) -> Share:
        """Return the share of units that reaches a threshold.

        keep: mask for the estimates to use, shape (estimates,); None for all.
        """
        mask = np.ones(len(self.units), dtype=bool) if keep is None else keep
        sizes = np.bincount(self.units[mask], minlength=len(self.names)).astype(float)
        n_units = int((sizes > 0).sum())
        if not n_units:
            return Share(math.nan, 0.0, 1.0, 0, self.of)
        weights = 1 / sizes[self.units[mask]]
        least, most = (float((weights * chance[mask]).sum()) for chance in self._reach_chances(threshold))
        low, high = clopper_pearson(min(least, n_units), min(most, n_units), n_units)
        return Share((least + most) / 2 / n_units, low, high, n_units, self.of)


# The following classes and functions find the boundary between the sides.

# Sentences list at most this many label values.
_MOST_VALUES = 6
# Numeric labels whose values a sentence replaces by a name, each with the label that holds the name.
_NAMED_BY = {"flop": "run"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Range:
    """One side of a numeric boundary.

    value: the value on this side that is nearest to the other side.
    label: the label that holds this value.
    single: True if this side has no other value.
    """

    label: str
    value: Any
    single: bool


@dataclass(frozen=True)
class Boundary:
    """Label whose values separate the sides.

    label: the label's name; '' if no label separates the sides.
    ranges: for a numeric label, each side's range, the lower range first.
    values: for another label, the values on each side.
    inner: if two labels are needed, each value of the first label, paired with the side on which all its cases lie, or
    with a boundary between its cases along a second label.
    counts: how many estimates lie on each side.
    undecided: the number of undecided estimates, if they were ignored.
    """

    label: str = ""
    ranges: tuple[tuple[Side, Range], ...] = ()
    values: tuple[tuple[Side, tuple[Any, ...]], ...] = ()
    inner: tuple[tuple[Any, Side | Boundary], ...] = ()
    counts: Mapping[Side, int] = field(default_factory=dict)
    undecided: int = 0


def find_boundary(estimates: Estimates, sides: Sequence[Side], node_labels: Mapping[str, str]) -> Boundary:
    """Find the boundary between supporting and challenging estimates.

    If there are not both, the boundary separates decided from undecided estimates. A single label is tried first, and
    numeric labels before others; then one label within each value of another label.

    node_labels: the name to print for each node.
    """
    rows = [{**labels, "_": side} for labels, side in zip(estimates.all_label_values(), sides, strict=True)]
    for row in rows:
        if "node" in row:
            row["node"] = node_labels.get(row["node"], row["node"])
    counts = {side: sides.count(side) for side in Side if side in sides}
    both = Side.SUPPORTS in counts and Side.CHALLENGES in counts
    decided = [row for row in rows if row["_"] != Side.UNDECIDED] if both else rows
    counted = {"counts": counts, "undecided": len(rows) - len(decided)}
    boundary = _one_label_boundary(decided) or _two_label_boundary(decided)
    return Boundary(**{**vars(boundary), **counted}) if boundary else Boundary(**counted)  # type: ignore[arg-type]


def _varying_labels(rows: Sequence[Row]) -> list[str]:
    """Return the labels that all rows have and whose values differ between rows, numeric labels first."""
    shared = [name for name in rows[0] if name not in ("_", *RUNTIMES) and all(name in row for row in rows)]
    differ = [name for name in shared if len({row[name] for row in rows}) > 1]
    return sorted(differ, key=lambda name: not _is_numeric(rows, name))


def _is_numeric(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row[name], (int, float)) and not isinstance(row[name], bool) for row in rows)


def _one_label_boundary(rows: Sequence[Row]) -> Boundary | None:
    sides = [side for side in Side if any(row["_"] == side for row in rows)]
    if len(sides) != 2:
        return None
    for name in _varying_labels(rows):
        values = {side: {row[name] for row in rows if row["_"] == side} for side in sides}
        boundary = _numeric_boundary(name, rows, values) if _is_numeric(rows, name) else _named_boundary(name, values)
        if boundary:
            return boundary
    return None


def _numeric_boundary(name: str, rows: Sequence[Row], values: Mapping[Side, set[Any]]) -> Boundary | None:
    """Return the boundary along a numeric label; None if the two sides' values interleave."""
    low, high = sorted(values, key=lambda side: max(values[side]))
    at = {low: max(values[low]), high: min(values[high])}
    if at[low] >= at[high]:
        return None
    ranges = []
    for side in (low, high):
        row = next(row for row in reversed(rows) if row[name] == at[side])
        label = _NAMED_BY.get(name, name)
        label = label if label in row else name
        ranges.append((side, Range(label, row[label], len(values[side]) == 1)))
    return Boundary(name, ranges=tuple(ranges))


def _named_boundary(name: str, values: Mapping[Side, set[Any]]) -> Boundary | None:
    """Return the boundary along another label; None if the sides have a value in common or too many values."""
    first, second = values.values()
    if first & second or max(map(len, values.values())) > _MOST_VALUES:
        return None
    return Boundary(name, values=tuple((side, tuple(sorted(own, key=str))) for side, own in values.items()))


def _two_label_boundary(rows: Sequence[Row]) -> Boundary | None:
    candidates = sorted(
        _varying_labels(rows), key=lambda name: (_is_numeric(rows, name), len({row[name] for row in rows}))
    )
    for name in candidates:
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(row[name], []).append(row)
        if len(groups) > _MOST_VALUES:
            continue
        inner = []
        for value in sorted(groups, key=lambda item: (str(type(item)), item)):
            sides = {row["_"] for row in groups[value]}
            side_or_boundary = sides.pop() if len(sides) == 1 else _one_label_boundary(groups[value])
            if side_or_boundary is None:
                break
            inner.append((value, side_or_boundary))
        else:
            return Boundary(name, inner=tuple(inner))
    return None
