"""A part of a claim as numbers that can be tried anew: other thresholds, and what they make of the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd

from report.judging.claims import Part
from report.judging.rules import Floats, Outcome, RuleResult, Verdict, combine, direction, level, of_counts, sides

SIDES: tuple[Outcome, ...] = get_args(Outcome)


class ThresholdSensitivity:
    """A part's compared cells as numbers, and what another outcome of it would do to the verdict on its claim."""

    def __init__(self, part: Part, ruling: RuleResult, whole: Callable[[str], str]) -> None:
        self.part, self.ruling, self.whole, self.now = part, ruling, whole, ruling.outcome
        self.how, self.share = direction(part.rule, part.options), float(part.options.get("share", 1.0))
        # The level is that of all cells also where some are left out in thought: by a hair too wide there.
        self.low, self.high = ruling.cells.ends(level(part.rule, len(ruling.cells)))
        self.outcome = np.array(ruling.outcomes)
        # A cell without an interval stays what it is, whatever the threshold.
        self.known = ~(np.isnan(self.low) | np.isnan(self.high))
        self.decides = any(whole(other) != whole(self.now) for other in get_args(Verdict))

    def turned(self, outcome: str) -> bool:
        """Whether that outcome of the part would turn the verdict, or where none can, its own."""
        return self.whole(outcome) != self.whole(self.now) if self.decides else outcome != self.now

    def told(self, outcome: str) -> dict[str, str]:
        """An outcome and the verdict that it makes, as a record has them."""
        return {"outcome": outcome, "verdict": self.whole(outcome)}

    def at(self, threshold: Any) -> dict[str, Any]:
        """The outcome at another threshold."""
        found = sides(self.low, self.high, threshold, self.how)
        kept = [new if known else old for new, known, old in zip(found, self.known, self.ruling.outcomes, strict=True)]
        return {"threshold": threshold, **self.told(combine(self.part.rule, kept, self.share))}

    def counts(self) -> tuple[int, int, int]:
        """How many cells there are, and how many of them support and challenge."""
        return len(self.outcome), int((self.outcome == "supports").sum()), int((self.outcome == "challenges").sum())

    @property
    def settled(self) -> bool:
        """Whether no threshold has a say in any cell, as where two series never change places."""
        return not self.known.any() and self.now in ("supported", "challenged")


def margin(ruling: RuleResult, threshold: Any) -> float:
    """Distance of what decides from the threshold, in widths of its interval; infinite for an exact figure.

    What decides is the cell that stands for all. Of a verdict that depends it is the clearest cell of each
    side, and of these the one that is less clear: the verdict depends as long as there are both. Widths are in
    logarithms where all is positive. nan: no interval.
    """
    widths = _widths(ruling.cells.frame, [threshold] if isinstance(threshold, (int, float)) else threshold)
    if ruling.outcome != "depends":
        return float(widths[ruling.representative or 0])
    outcome = np.array(ruling.outcomes)
    decided = [side for side in SIDES[:2] if side in ruling.outcomes]
    there = decided if len(decided) == 2 else [*decided, "undecided"]
    clearest = [widths[outcome == side] for side in there]
    return float(np.min([np.nanmax(one) if not np.isnan(one).all() else np.nan for one in clearest]))


def _widths(frame: pd.DataFrame, ends: Sequence[float]) -> Floats:
    """Distance of each cell's estimate from the nearest end of the threshold, in widths of its interval."""
    estimate, low, high = (frame[name].to_numpy(float) for name in ("estimate", "low", "high"))
    logs = (estimate > 0) & (low > 0) & all(end > 0 for end in ends)
    with np.errstate(invalid="ignore", divide="ignore"):
        straight = [np.abs(estimate - end) for end in ends]
        by_logs = [np.abs(np.log(estimate / end)) for end in ends if end > 0] or straight
        gap = np.where(logs, np.min(by_logs, axis=0), np.min(straight, axis=0))
        found: Floats = gap / np.where(logs, np.log(high / low), high - low)
    # A figure that is exact is not nearer to a threshold that it equals.
    return np.where(low == high, np.inf, found)


def declared(part: Part) -> list[Any]:
    """The thresholds of the declared range in order, the one that decides among them."""
    values = [*part.sensitivity, *([part.threshold] if part.threshold not in part.sensitivity else [])]
    return sorted(values, key=lambda value: value if isinstance(value, list) else [value])


def turns(trial: ThresholdSensitivity) -> Iterator[dict[str, Any]]:
    """The nearest thresholds on either side at which the verdict turns.

    Each with its threshold, `end`, whether it is `higher`, whether it turns only `past` it, its factor to the
    declared one (None where either is not positive), whether it lies in the declared range, and the outcome
    there. Of a threshold with two ends each is moved by itself (`end` 0 or 1); the range then is the ranges that
    were declared, each a turn of its own (`end` None). Without a declared range the threshold is not varied.
    """
    bound, low, high, known = trial.part.threshold, trial.low, trial.high, trial.known
    always = tuple(int((trial.outcome[~known] == side).sum()) for side in SIDES[:2])
    if isinstance(bound, (int, float)):
        values = declared(trial.part)
        for turn in _nearest(trial, _End(None, bound, trial.how == "at_most", low[known], high[known], always)):
            at = turn["threshold"]
            inside = values[0] < at < values[-1] if turn["past"] else values[0] <= at <= values[-1]
            yield {**turn, "factor": _factor(at, bound), "in_range": inside and len(values) > 1}
        return
    for value in declared(trial.part):
        tried = trial.at(value)
        if trial.turned(tried["outcome"]):
            factors = [_factor(moved, end) for moved, end in zip(value, bound, strict=True)]
            factor = None if None in factors else max(one for one in factors if one is not None)
            yield {**tried, "end": None, "higher": None, "past": False, "factor": factor, "in_range": True}
    # With one end held, the other is a threshold for the cells that the held end leaves open.
    under, over = known & (high <= bound[1]), known & (low >= bound[0])
    meets, reaches = known & (low <= bound[1]), known & (high >= bound[0])
    above, below = ((always[0], always[1] + int((known & ~open_).sum())) for open_ in (meets, reaches))
    for end in (
        _End(0, bound[0], False, low[under], high[meets], above, bound[1]),
        _End(1, bound[1], True, low[reaches], high[over], below, bound[0]),
    ):
        for turn in _nearest(trial, end):
            yield {**turn, "factor": _factor(turn["threshold"], end.value), "in_range": False}


def _factor(at: float, value: float) -> float | None:
    """How many times as large the larger is; None where one is not positive."""
    return max(at / value, value / at) if at > 0 and value > 0 else None


@dataclass(frozen=True)
class _End:
    """An end of the threshold that moves: which (None: there is one), from where, whether cells lie below it.

    low, high: ends of the intervals of the cells that it may make support and challenge. always: how many
    others support and challenge wherever it is. other: the end that it does not pass, if there is one.
    """

    number: int | None
    value: float
    upper: bool
    low: Floats
    high: Floats
    always: Sequence[int]
    other: float | None = None


def _nearest(trial: ThresholdSensitivity, end: _End) -> Iterator[dict[str, Any]]:
    """The nearest places above and below where it is at which an end of the threshold turns the verdict."""
    # An upper end is a lower one seen in a mirror: a cell supports up to its low and challenges past its high.
    sign = -1.0 if end.upper else 1.0
    lows, highs = (np.sort(sign * side) for side in ((end.high, end.low) if end.upper else (end.low, end.high)))
    # The outcome is the same from just past one of these up to the next, and from past the last on.
    breaks = np.unique(np.concatenate([lows, highs]))
    supporting = end.always[0] + len(lows) - np.searchsorted(lows, np.append(breaks, np.inf))
    challenging = end.always[1] + np.searchsorted(highs, np.append(breaks, np.inf))
    here, n = int(np.searchsorted(breaks, sign * end.value)), len(trial.outcome)
    for past, places in ((True, range(here + 1, len(breaks) + 1)), (False, range(here - 1, -1, -1))):
        for at in places:
            outcome = of_counts(trial.part.rule, n, int(supporting[at]), int(challenging[at]), trial.share)
            if trial.turned(outcome):
                turn = float(breaks[at - 1] if past else breaks[at])
                limit = math.inf if end.other is None else sign * end.other
                # Past the other end there would be no range.
                if math.isfinite(turn) and (turn < limit or (turn == limit and not past)):
                    at_end = {"threshold": sign * turn, "end": end.number, "higher": past != end.upper, "past": past}
                    yield {**at_end, **trial.told(outcome)}
                break
