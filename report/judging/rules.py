"""Rules: the closed vocabulary by which a claim is decided, and nothing beyond it.

A rule turns a quantity's cells into the cells that are compared (ratios, slopes,
crossings), compares each cell's interval with the threshold, and draws one
outcome from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from report import statistics
from report.estimates import Estimates
from report.formatting import YES_NO, exactly, side_name, threshold_text
from report.judging.boundary import boundary
from report.transforms import ComparedEstimates, as_they_are, crossings, ratios, slopes

Outcome = Literal["supports", "challenges", "undecided"]
Verdict = Literal["supported", "challenged", "depends", "undecided"]
Threshold = float | Sequence[float]
Floats = NDArray[np.float64]

RULES = ("at_least", "at_most", "within", "ratio", "trend", "exists", "crossover", "for_share_of")


@dataclass(frozen=True)
class RuleResult:
    """What a rule says of its cells.

    cells: those that were compared; outcomes: one each. decisive: position of
    the cell that stands for all (see `_decisive`), None without cells.
    """

    outcome: Verdict
    cells: Estimates
    outcomes: list[Outcome]
    representative: int | None
    boundary: str | None
    unit: str


def side(low: float, high: float, threshold: Threshold, how: str) -> Outcome:
    """Where an interval lies: the whole of it on one side decides; an unknown one never does."""
    (outcome,) = sides(np.array([low]), np.array([high]), threshold, how)
    return outcome


def sides(low: Floats, high: Floats, threshold: Threshold, how: str) -> list[Outcome]:
    """Where each interval lies, as `side` says of one. low, high: of shape (cells,)."""
    if isinstance(threshold, (int, float)):
        above, below = low >= threshold, high < threshold
        if how == "at_most":
            above, below = high <= threshold, low > threshold
    else:
        above, below = (threshold[0] <= low) & (high <= threshold[1]), (high < threshold[0]) | (low > threshold[1])
    known = ~(np.isnan(low) | np.isnan(high))
    found: list[Outcome] = np.select([known & above, known & below], ["supports", "challenges"], "undecided").tolist()
    return found


def level(rule: str, cells: int) -> float:
    """Level of the intervals by which a rule decides its cells.

    Where one of many cells is enough, each has a chance to be wrong: the chances of all are kept to that of one
    (Bonferroni). Where all must agree, that is so without doing anything.
    """
    many = max(1, cells) if rule in ("exists", "for_share_of") else 1
    return 1 - (1 - statistics.DECIDING) / many


def direction(rule: str, options: Mapping[str, Any]) -> str:
    """How single cells are compared under a rule: at_least, at_most or within."""
    return rule if rule in ("at_least", "at_most", "within") else str(options.get("compare", "at_least"))


def transform(rule: str, cells: Estimates, unit: str, options: Mapping[str, Any]) -> ComparedEstimates:
    """The cells that a rule compares."""
    if rule == "ratio":
        return ratios(cells, options)
    if rule == "trend":
        return slopes(cells, options)
    if rule == "crossover":
        return crossings(cells, options)
    return as_they_are(cells, unit)


def decide(
    rule: str,
    cells: Estimates,
    threshold: Threshold,
    unit: str = "1",
    options: Mapping[str, Any] | None = None,
    node_labels: Mapping[str, str] | None = None,
) -> RuleResult:
    """Apply a rule to cells. Raises StudyError if its options do not fit the cells."""
    options = options or {}
    compared = transform(rule, cells, unit, options)
    how = direction(rule, options)
    outcomes = _outcomes(rule, compared, threshold, how)
    share = float(options.get("share", 1.0))
    outcome = combine(rule, outcomes, share)
    representative = _decisive(rule, compared.cells, outcomes, outcome, threshold, how, share)
    where = boundary(compared.cells, outcomes, node_labels or {}) if outcome == "depends" else None
    if where is None and rule == "crossover" and representative is not None:
        where = str(compared.cells.frame["detail"].iloc[representative]) or None
    return RuleResult(outcome, compared.cells, outcomes, representative, where, compared.unit)


def outcome_of(
    rule: str, cells: Estimates, threshold: Threshold, unit: str = "1", options: Mapping[str, Any] | None = None
) -> Verdict | None:
    """The outcome alone of what `decide` says; None if nothing can be compared."""
    options = options or {}
    outcomes = _outcomes(rule, transform(rule, cells, unit, options), threshold, direction(rule, options))
    return combine(rule, outcomes, float(options.get("share", 1.0))) if outcomes else None


def _outcomes(rule: str, compared: ComparedEstimates, threshold: Threshold, how: str) -> list[Outcome]:
    low, high = compared.cells.ends(level(rule, len(compared.cells)))
    found = sides(low, high, threshold, how)
    return [preset or outcome for preset, outcome in zip(compared.preset, found, strict=True)]


def combine(rule: str, outcomes: Sequence[Outcome], share: float = 1.0) -> Verdict:
    """One outcome from those of all cells, which it draws from their numbers alone: see `of_counts`."""
    return of_counts(rule, len(outcomes), outcomes.count("supports"), outcomes.count("challenges"), share)


def of_counts(rule: str, n: int, pro: int, contra: int, share: float = 1.0) -> Verdict:
    """One outcome of n cells, of which so many support and so many challenge.

    exists: one supporting cell is enough. for_share_of: so many of the cells must
    support. Otherwise all must agree; a mixture depends.
    """
    if n == 0 or pro + contra == 0:
        return "undecided"
    if rule == "exists":
        return "supported" if pro else "challenged" if contra == n else "undecided"
    if rule == "for_share_of":
        # The tolerance keeps 3 of 10 from missing a share of 0.3 by rounding.
        if pro >= share * n - 1e-9:
            return "supported"
        return "challenged" if n - contra < share * n - 1e-9 else "undecided"
    return "supported" if pro == n else "challenged" if contra == n else "depends"


def _decisive(
    rule: str, cells: Estimates, outcomes: list[Outcome], outcome: Verdict, threshold: Threshold, how: str, share: float
) -> int | None:
    """The cell that stands for all.

    exists: the most favourable. for_share_of: the one that the share just
    reaches. Otherwise the one nearest to the threshold: the weakest link.
    """
    estimates = cells.frame["estimate"].astype(float).tolist()
    known = [i for i, value in enumerate(estimates) if not math.isnan(value)]
    if not known:
        return 0 if estimates else None
    favour = sorted(known, key=lambda i: estimates[i], reverse=how != "at_most")
    if rule == "exists":
        return favour[0]
    if rule == "for_share_of":
        return favour[max(0, min(len(favour), math.ceil(share * len(estimates) - 1e-9)) - 1)]
    if outcome == "depends":
        undecided = [i for i in known if outcomes[i] == "undecided"]
        known = [i for i in known if outcomes[i] != "undecided"] or undecided
    return min(known, key=lambda i: (distance(estimates[i], threshold), i))


def distance(value: float, threshold: Threshold) -> float:
    """How far a value is from a threshold, or the nearer end of a range: in logarithms where both are positive."""
    ends = [threshold] if isinstance(threshold, (int, float)) else list(threshold)
    if value > 0 and all(end > 0 for end in ends):
        return min(abs(math.log(value / end)) for end in ends)
    return min(abs(value - end) for end in ends)


def signed(rule: str, threshold: Threshold, sensitivity: Sequence[Threshold]) -> bool:
    """Whether a threshold below zero makes sense: for exponents, and where such a one is declared. Times, counts, rates
    and ratios are never negative."""
    ends = [end for one in (threshold, *sensitivity) for end in ([one] if isinstance(one, (int, float)) else one)]
    return rule == "trend" or min(ends) < 0


def describe(rule: str, threshold: Threshold, unit: str, options: Mapping[str, Any]) -> str:
    """A rule and its threshold in plain words: 'supported if … is at most 1,000 MAC/cycle in every cell'."""
    how = direction(rule, options)
    words = {"at_least": "at least", "at_most": "at most", "within": "within"}[how]
    if not isinstance(threshold, (int, float)) and threshold[0] == threshold[1]:
        words = "exactly"
    bound = threshold_text(threshold, unit)
    if unit == YES_NO:
        return f"supported if the answer is {bound}"
    if rule == "ratio":
        pair = f"{side_name(options['of'])} over {side_name(options['to'])}"
        return f"supported if the ratio {pair} is {words} {threshold_text(threshold, '1')} in every cell"
    if rule == "trend":
        bound = threshold_text(threshold, "1")
        return f"supported if it grows as {options['along']} to the power of {words} {bound} in every series"
    if rule == "crossover":
        bound = threshold_text(threshold, "1")
        pair = f"{side_name(options['of'])} and {side_name(options['to'])}"
        return f"supported if {pair} change places along {options['along']}, at a value of {words} {bound}"
    if rule == "exists":
        return f"supported if some cell is {words} {bound}"
    if rule == "for_share_of":
        return f"supported if at least {exactly(100 * float(options['share']))}% of the cells are {words} {bound}"
    return f"supported if {words} {bound} in every cell"
