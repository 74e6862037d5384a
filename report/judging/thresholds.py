"""What a claim comes to at every threshold of the range that is a fair reading of it.

A page looks the outcomes up: it has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from report.judging.evaluate import PartResult
from report.judging.others import DIRECT
from report.judging.rules import CLEAR
from report.judging.sensitivity import Trial
from report.model import Threshold, Verdict

# From this factor between its ends on a range is one of magnitudes.
LOGARITHMIC = 8.0
# Steps in which the place is searched at which a share turns, whose chances change smoothly.
_HALVINGS = 40
# Outcomes that change more often than this are no reading aid: the declared thresholds are given alone.
MOST_PIECES = 60


def by_threshold(found: PartResult, whole: Callable[[Verdict], Verdict]) -> dict[str, Any] | None:
    """The outcomes of a part, and the verdict on its claim, at other thresholds, the other parts held as they are.

    None where no other threshold is declared, nothing was compared, or no threshold has a say. `range`: the least and
    the greatest that is declared, `log`: whether it spans magnitudes, `pieces`: lists of start, outcome, verdict and
    whether the start itself still belongs to the piece before, in rising order. For a threshold with two ends and
    where outcomes change too often, `choices` instead: lists of threshold, outcome and verdict.
    """
    found = _compared(found)
    declared = found.part.thresholds
    if found.result is None or found.unchecked or len(declared) < 2:
        return None
    # Others' measurements stand in for ours only where they decide.
    open_ = found.waits.verdict if found.waits else Verdict.UNDECIDED
    trial = Trial(found.part, found.result, whole, open_)
    if trial.settled:
        return None
    if found.part.threshold.is_range:
        return _choices(trial, declared)
    low, high = declared[0].low, declared[-1].low
    pieces = list(_pieces(trial, low, high))
    if len(pieces) > MOST_PIECES:
        return _choices(trial, declared)
    return {
        "declared": found.part.threshold.low,
        "range": [low, high],
        "log": bool(low > 0 and high / low > LOGARITHMIC),
        "pieces": pieces,
    }


def _compared(found: PartResult) -> PartResult:
    """A part that waits, as what others measured of it would decide it at another threshold."""
    direct = [one for one in found.others if one.strength == DIRECT and one.result is not None]
    if found.missing is None or len(direct) != 1:
        return found
    return replace(found, part=direct[0].part, result=direct[0].result, waits=found.missing)


def _choices(trial: Trial, declared: Sequence[Threshold]) -> dict[str, Any]:
    choices = [[one.json, *trial.record(trial.at(one)).values()] for one in declared]
    return {"declared": trial.part.threshold.json, "choices": choices}


def _pieces(trial: Trial, low: float, high: float) -> Iterator[list[Any]]:
    """Stretches of the range with one outcome each."""
    points = _points(trial, low, high)
    outcome = trial.at(Threshold(points[0]))
    yield [points[0], *trial.record(outcome).values(), 0]
    for start, end in pairwise(points):
        middle = trial.at(Threshold((start + end) / 2))
        last = trial.at(Threshold(end))
        if middle != outcome:
            place, open_ = (_turn(trial, start, (start + end) / 2), 0) if trial.population else (start, 1)
            yield [place, *trial.record(middle).values(), open_]
        if last != middle:
            place = _turn(trial, (start + end) / 2, end) if trial.population else end
            yield [place, *trial.record(last).values(), 0]
        outcome = last


def _points(trial: Trial, low: float, high: float) -> list[float]:
    """The ends of the range and all thresholds in it at which an estimate may change sides."""
    ends = np.concatenate([trial.low[trial.known], trial.high[trial.known]])
    if "family" in trial.result.estimates.labels:
        told = [trial.result.estimates.numbers(name).to_numpy(float) for name in ("low", "high")]
        ends = np.concatenate([ends, *told, *(one * CLEAR for one in told), *(one / CLEAR for one in told)])
    if trial.population:
        ends = np.concatenate([ends, np.linspace(low, high, 33)])
    inside = np.unique(ends[np.isfinite(ends) & (ends > low) & (ends < high)])
    return [low, *inside.tolist(), high]


def _turn(trial: Trial, start: float, end: float) -> float:
    """Where between two thresholds of unlike outcomes that of the end begins."""
    wanted = trial.at(Threshold(end))
    for _ in range(_HALVINGS):
        middle = (start + end) / 2
        if not start < middle < end:
            break
        start, end = (start, middle) if trial.at(Threshold(middle)) == wanted else (middle, end)
    return end


def of_claim(found: Sequence[PartResult], whole: Callable[[Mapping[int, Verdict]], Verdict]) -> list[dict[str, Any]]:
    """`by_threshold` of a claim: for each part, or several that are held against the same thresholds, what they say.

    whole: the claim's verdict if the parts at these places came out as given. Each record has, beside what
    `by_threshold` gives, the `parts` (names) and the `unit` that it is of; of several parts, the outcome in a piece is
    the verdict on the claim.
    """
    records = {}
    for at, one in enumerate(found):
        record = by_threshold(one, lambda outcome, at=at: whole({at: outcome}))  # type: ignore[misc]
        if record:
            records[at] = record
    groups: dict[Any, list[int]] = {}
    for at, record in records.items():
        same = "pieces" in record and (found[at].part.threshold, found[at].unit, *record["range"])
        groups.setdefault(same or at, []).append(at)
    return [
        {
            "parts": [found[at].part.name for at in group],
            "unit": found[group[0]].unit,
            **(records[group[0]] if len(group) == 1 else _together(group, records, whole)),
        }
        for group in groups.values()
    ]


def _together(
    group: Sequence[int],
    records: Mapping[int, Mapping[str, Any]],
    whole: Callable[[Mapping[int, Verdict]], Verdict],
) -> dict[str, Any]:
    """Several parts whose threshold is moved at once."""
    starts = sorted({(piece[0], piece[3]) for at in group for piece in records[at]["pieces"]})
    pieces: list[list[Any]] = []
    for start in starts:
        # The last piece of each part that has begun.
        now = {at: [one for one in records[at]["pieces"] if (one[0], one[3]) <= start][-1][1] for at in group}
        verdict = whole({at: Verdict(outcome) for at, outcome in now.items()})
        if not pieces or pieces[-1][1] != verdict:
            pieces.append([start[0], verdict, verdict, start[1]])
    return {**records[group[0]], "pieces": pieces}
