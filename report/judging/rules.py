"""Rules that decide claims. A claim file can use only these rules.

A rule compares the interval of each estimate with the threshold, and derives one outcome from all comparisons.
`report.compared_estimates` prepares the estimates.

The rules `exists` and `for_share_of` name the number of estimates that must reach the threshold. The other rules mean
most estimates and, surely, none to the contrary, or every estimate if the part's `quantifier` is every. Most is judged
as a list's share (see `report.judging.shares`), for one half and errors that all estimates have in common: more than
half of them must lie on the side by their own intervals. Estimates on the smaller side count only if one of them lies
there surely, at the level that keeps the chance of any error among all estimates below 1% (Bonferroni). Otherwise, many
estimates near the threshold would give the outcome DEPENDS by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from report import statistics
from report.compared_estimates import (
    ComparedEstimates,
    crossings,
    nodes_by_kind,
    pool_compared,
    ratios,
    slopes,
    without_settled_sides,
)
from report.estimates import RUNTIMES, Estimates
from report.judging.claim_files import Part
from report.judging.shares import Share, share_population
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
    return pool_compared(transform_machines(part, estimates, unit))


def transform_machines(part: Part, estimates: Estimates, unit: str) -> ComparedEstimates:
    """Form the ratios, slopes or crossings like `transform`, for each machine by itself."""
    transforms = {"ratio": ratios, "trend": slopes, "crossover": crossings}
    if part.rule in transforms:
        return transforms[part.rule](estimates, part.options)
    return without_settled_sides(estimates, unit)


def apply_rule(
    part: Part, estimates: Estimates, unit: str = "1", format_nodes: Callable[[Sequence[str]], str] = ", ".join
) -> RuleResult:
    """Apply a part's rule to estimates that are already selected by scope and scaled.

    format_nodes: formats all nodes of a kind as one name. Raises StudyError if the rule's options do not fit the
    estimates.
    """
    return decide(part, transform(part, estimates, unit), format_nodes)


def decide(part: Part, compared: ComparedEstimates, format_nodes: Callable[[Sequence[str]], str]) -> RuleResult:
    """Apply a part's rule to estimates that are already compared; see `apply_rule`."""
    sides = CaseSides(part, compared.estimates, compared.settled).sides(part.threshold)
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
    sides = CaseSides(part, compared.estimates, compared.settled).sides(part.threshold)
    return _outcome(part, sides, reached_share(part, compared.estimates)) if sides else None


def _with_boundary_labels(estimates: Estimates) -> Estimates:
    """Drop labels that tell how a published figure was obtained: no boundary should rest on them."""
    if not estimates.are_published:
        return estimates
    beside = ("family", "records", "measure", "setting", "precision", "strength", "cpu_result", "cpu")
    return estimates.drop_labels(*(name for name in beside if name in estimates.labels))


def deciding_ends(part: Part, estimates: Estimates) -> tuple[Floats, Floats]:
    """Return low and high interval ends at the deciding level, each with shape (estimates,)."""
    return estimates.ends(deciding_level(part.rule, len(estimates)))


class CaseSides:
    """Each estimate's side of a threshold, for any threshold.

    ends: low and high interval ends at the deciding level, each with shape (estimates,). For published figures,
    `PublishedEnds` takes their place.
    settled: each estimate's side if no threshold can change it, otherwise None.
    """

    def __init__(self, part: Part, estimates: Estimates, settled: Sequence[Side | None]) -> None:
        self.part, self._estimates = part, estimates
        self.ends = deciding_ends(part, estimates)
        self.margin = part.margin or CLEAR
        self.sure_margin = sure_margin(len(estimates), self.margin)
        self.published = PublishedEnds(estimates) if estimates.are_published else None
        self._is_settled = np.array([side is not None for side in settled], dtype=bool)
        self._settled = np.array([list(Side).index(side or Side.UNDECIDED) for side in settled], dtype=np.intp)

    @cached_property
    def sure_ends(self) -> tuple[Floats, Floats]:
        """Interval ends at the level at which an estimate on the smaller side is sure, like `ends`."""
        return self._estimates.ends(sure_level(len(self._estimates)))

    def sides(self, threshold: Threshold) -> list[Side]:
        """Return the sides at a threshold; estimates on a smaller side that is not sure are undecided."""
        return _sides_from_numbers(self._numbers(threshold))

    def separate_sides(self, threshold: Threshold) -> list[Side]:
        """Return the sides at a threshold, each by its own estimate alone."""
        return _sides_from_numbers(self._compare(threshold, self.ends, self.margin))

    def outcome(self, threshold: Threshold) -> Verdict:
        """Return the part's outcome at a threshold; not for shares."""
        supporting, challenging, _ = np.bincount(self._numbers(threshold), minlength=len(Side)).tolist()
        return outcome_from_counts(self.part, len(self._settled), supporting, challenging)

    def _numbers(self, threshold: Threshold) -> NDArray[np.intp]:
        numbers = self._compare(threshold, self.ends, self.margin)
        if (
            self.part.rule in ("exists", "for_share_of")
            or self.part.counts_any_minority
            or not ((numbers == 0).any() and (numbers == 1).any())
        ):
            return numbers
        sure = self._compare(threshold, self.sure_ends, self.sure_margin)
        return without_unsure_minority(numbers, sure)

    def _compare(self, threshold: Threshold, ends: tuple[Floats, Floats], margin: float) -> NDArray[np.intp]:
        if self.published:
            numbers = self.published.side_numbers(threshold, self.part.compare, margin)
        else:
            numbers = _side_numbers(*ends, threshold, self.part.compare)
        return np.where(self._is_settled, self._settled, numbers)


def sure_level(estimates: int) -> float:
    """Return the interval level at which none of so many estimates lies on a wrong side, but for a chance of 1%."""
    return 1 - (1 - statistics.DECIDING) / max(1, estimates)


def sure_margin(estimates: int, margin: float = CLEAR) -> float:
    """Return the factor by which the surest of so many published figures must lie beyond the threshold.

    If `margin` stands for an error at the deciding level, this factor stands for the same error at `sure_level`.
    """
    levels = np.array([sure_level(estimates), statistics.DECIDING])
    wide, usual = stats.norm.ppf((1 + levels) / 2)
    return float(margin ** (wide / usual))


def without_unsure_minority(sides: NDArray[np.intp], sure: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the sides, undecided for the smaller side if none of its estimates is on that side in `sure` too.

    sides, sure: positions in the enumeration `Side`, shape (estimates,).
    """
    counts = [int((sides == side).sum()) for side in (0, 1)]
    unsure = [side for side in (0, 1) if counts[side] <= min(counts) and not ((sides == side) & (sure == side)).any()]
    return np.where(np.isin(sides, unsure), _UNDECIDED, sides)


class PublishedEnds:
    """Interval ends by which published figures decide, because these figures have no rounds to compute intervals from.

    A figure includes the range that its source states, if any. It decides if it lies beyond the threshold by a margin,
    or if a figure from an independent source lies on the same side.
    """

    def __init__(self, estimates: Estimates) -> None:
        low, high = (estimates.numbers(name).to_numpy() for name in ("low", "high"))
        self.stated_ends = low, high
        names, self.family_numbers = np.unique(estimates["family"].astype(str).to_numpy(object), return_inverse=True)
        sources = [frozenset(name.split(" and ")) for name in names]
        # Rows and columns stand for the values in the label `family`. Each value names one family of sources, or
        # several joined by " and ". True if two values have no family in common.
        self.are_independent = np.array([[not source & other for other in sources] for source in sources], bool)

    def ends(self, margin: float) -> tuple[Floats, Floats]:
        """Return the stated ends, each moved outwards by the factor `margin`."""
        low, high = self.stated_ends
        return np.minimum(low / margin, low * margin), np.maximum(high / margin, high * margin)

    def side_numbers(self, threshold: Threshold, compare: str, margin: float = CLEAR) -> NDArray[np.intp]:
        """Find each figure's side of the threshold, as its position in the enumeration `Side`."""
        plain = _side_numbers(*self.stated_ends, threshold, compare)
        numbers = _side_numbers(*self.ends(margin), threshold, compare)
        for side in (0, 1):
            here = plain == side
            there = np.bincount(self.family_numbers[here], minlength=len(self.are_independent)) > 0
            agreed_on = (self.are_independent & there).any(axis=1).take(self.family_numbers)
            numbers = np.where((numbers == _UNDECIDED) & here & agreed_on, side, numbers)
        return numbers


def reached_share(part: Part, estimates: Estimates) -> Share | None:
    """Return the share of units that reaches a part's threshold; None if the part's rule is not for_share_of."""
    population = share_population(part, estimates)
    return population.share_at(part.threshold.low) if population else None


def _outcome(part: Part, sides: Sequence[Side], share: Share | None) -> Verdict:
    if share is not None:
        return share.outcome(part.share)
    return outcome_from_counts(part, len(sides), sides.count(Side.SUPPORTS), sides.count(Side.CHALLENGES))


def outcome_from_counts(part: Part, n: int, supporting: int, challenging: int) -> Verdict:
    """Derive one outcome for n estimates, given how many support and how many challenge the claim.

    For the rule exists, one supporting estimate suffices. The other rules follow `verdict_from_counts`; with the
    quantifier every, undecided estimates leave the outcome undecided that they would leave supported. For for_share_of,
    the outcome does not follow from these numbers (see `Share.outcome`).
    """
    if part.rule == "exists":
        if supporting:
            return Verdict.SUPPORTED
        return Verdict.CHALLENGED if n and challenging == n else Verdict.UNDECIDED
    outcome = verdict_from_counts(n, supporting, challenging)
    open_cases = part.quantifier == "every" and supporting < n
    return Verdict.UNDECIDED if open_cases and outcome is Verdict.SUPPORTED else outcome


def _representative_row(part: Part, estimates: Estimates, sides: Sequence[Side], outcome: Verdict) -> int | None:
    """Find the row for the estimate that represents all estimates; None without estimates.

    The choice depends on the rule:
    exists: the estimate that favours the claim most; for a range, the supporting estimate nearest to its middle.
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
        return (
            min(known, key=lambda at: _middle_distance(part.threshold, values[at]))
            if part.threshold.is_range
            else favour[0]
        )
    if part.rule == "for_share_of":
        return favour[max(0, min(len(favour), math.ceil(part.share * len(values) - 1e-9)) - 1)]
    if outcome is Verdict.DEPENDS:
        undecided = [at for at in known if sides[at] is Side.UNDECIDED]
        known = [at for at in known if sides[at] is not Side.UNDECIDED] or undecided
    return min(known, key=lambda at: (part.threshold.distance(values[at]), at))


def _middle_distance(threshold: Threshold, value: float) -> float:
    """Return the distance from a value to the middle of a range, on logarithms if all are positive."""
    low, high = threshold.ends
    if min(low, value) > 0:
        return abs(math.log(value) - (math.log(low) + math.log(high)) / 2)
    return abs(value - (low + high) / 2)


def may_be_negative(part: Part) -> bool:
    """Return True if a part may have negative thresholds: its rule is trend, or a declared threshold is negative.

    A trend is an exponent, which may be negative. Times, counts, rates and ratios are never negative.
    """
    return (
        part.rule == "trend"
        or min(end for threshold in (part.threshold, *part.sensitivity) for end in threshold.ends) < 0
    )


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
