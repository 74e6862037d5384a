"""What would change a verdict: other thresholds, other scopes, one cell less. Plain sentences from the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from report.cells import Cells
from report.claims import Part
from report.evidence import Data
from report.reasons import cell_labels, place
from report.rules import Ruling, decide, distance
from report.scope import in_scope
from report.wording import label_value, number, several, threshold_text, thresholds_text, with_unit

# Scope labels that may be swapped for another value without leaving the question.
_SWAPPED = ("dtype", "threads", "backend", "baseline", "precision", "op")
_MOST_CELLS = 3


def flips(part: Part, cells: Cells, ruling: Ruling, unit: str, data: Data, whole: Callable[[str], str]) -> list[str]:
    """Sentences on what would change the outcome of a part.

    cells: all cells of the quantity, before scope and scale. whole: the claim's
    verdict if this part came out as given.
    """
    if ruling.decisive is None:
        return []
    again = _Again(part, unit, data, whole, ruling.outcome)
    scoped = in_scope(cells, part.scope) * part.scale
    return [
        *_thresholds(part, scoped, ruling, again),
        *_needed(part, ruling),
        *_margin(part, ruling),
        *_swaps(part, cells, again),
        *_without_one(scoped, ruling, part, again, data),
    ]


class _Again:
    """Decides a part anew under one change, and says what that does."""

    def __init__(self, part: Part, unit: str, data: Data, whole: Callable[[str], str], now: str) -> None:
        self.part, self.unit, self.data, self.whole, self.now = part, unit, data, whole, now

    def outcome(self, cells: Cells, threshold: Any = None) -> Ruling:
        bound = self.part.threshold if threshold is None else threshold
        return decide(self.part.rule, cells, bound, self.unit, self.part.options)

    def effect(self, outcome: str) -> str:
        """'the verdict would be supported'; for a part of several, what that does to the whole."""
        before, after = self.whole(self.now), self.whole(outcome)
        if before != after and after == outcome:
            return f"the verdict would be {after}"
        tail = f"the verdict would be {after}" if before != after else f"the verdict would stay {after}"
        return f"this part would be {outcome} and {tail}"


def _thresholds(part: Part, cells: Cells, ruling: Ruling, again: _Again) -> Iterator[str]:
    """The declared sensitivity range, and where in it the outcome changes."""
    if ruling.cells.frame["low"].isna().all() and part.rule != "crossover":
        return
    found: dict[str, list[Any]] = {}
    for value in part.sensitivity:
        if value != part.threshold:
            found.setdefault(again.outcome(cells, value).outcome, []).append(value)
    same = found.pop(ruling.outcome, [])
    now = threshold_text(part.threshold, ruling.unit)
    for outcome, values in found.items():
        bounds = thresholds_text(values, ruling.unit, "or")
        yield f"With a threshold of {bounds} in place of {now}, {again.effect(outcome)}."
    if same and found:
        yield f"With {thresholds_text(same, ruling.unit, 'or')} it stays {ruling.outcome}."
    elif same:
        yield f"No threshold of the declared range changes it: {thresholds_text(same, ruling.unit)} give the same."


def _needed(part: Part, ruling: Ruling) -> Iterator[str]:
    """The threshold at which the outcome would turn, where one number says it."""
    frame = ruling.cells.frame
    plain = part.rule in ("at_least", "at_most", "ratio") and part.options.get("compare") is None
    if not plain or frame[["low", "high"]].isna().to_numpy().any():
        return
    low, high = frame[["low", "high"]].min(axis=0)["low"], frame[["low", "high"]].max(axis=0)["high"]
    at_most = part.rule == "at_most"
    if ruling.outcome == "challenged":
        word, value = ("at least", high) if at_most else ("at most", low)
        yield f"It would be supported with a threshold of {word} about {with_unit(float(value), ruling.unit)}."
    elif ruling.outcome == "supported":
        word, value = ("below", low) if at_most else ("above", high)
        yield f"It would be challenged with a threshold {word} about {with_unit(float(value), ruling.unit)}."


def _margin(part: Part, ruling: Ruling) -> Iterator[str]:
    """How far the decisive cell is from the threshold, in widths of its interval."""
    row = ruling.cells.frame.iloc[ruling.decisive or 0]
    estimate, low, high = float(row["estimate"]), float(row["low"]), float(row["high"])
    if math.isnan(low) or math.isnan(estimate) or low == high or part.rule == "crossover":
        return
    ends = [part.threshold] if isinstance(part.threshold, (int, float)) else part.threshold
    logs = estimate > 0 and low > 0 and all(end > 0 for end in ends)
    width = math.log(high / low) if logs else high - low
    gap = distance(estimate, part.threshold) if logs else min(abs(estimate - end) for end in ends)
    many = "widths" if round(gap / width, 1) != 1 else "width"
    yield f"The nearest result lies {number(gap / width, 2)} interval {many} from the threshold."


def _swaps(part: Part, cells: Cells, again: _Again) -> Iterator[str]:
    """Other values of the scope's labels, where such cells exist."""
    same = []
    for name in _SWAPPED:
        now = part.scope.get(name)
        if now is None or isinstance(now, list) or name not in cells.labels:
            continue
        found: dict[str, list[str]] = {}
        for value in _others(cells, name, now, part):
            scope = {**part.scope, name: value}
            if name == "backend" and "shape" in cells.labels:
                scope["shape"] = "best"
            outcome = again.outcome(in_scope(cells, scope) * part.scale).outcome
            found.setdefault(outcome, []).append(label_value(name, value))
        was = "all threads" if now == "all" else label_value(name, now)
        for turned, values in found.items():
            swap = f"{several(values, 'or')} in place of {was}"
            if turned == again.now:
                same.append(swap)
            else:
                yield f"With {swap}, {again.effect(turned)}."
    if same:
        yield f"It stays {again.now} with {'; with '.join(same)}."


def _others(cells: Cells, name: str, now: Any, part: Part) -> list[Any]:
    """Values of a label that stand beside the scope's own, everything else in scope."""
    scope = {key: value for key, value in part.scope.items() if key != name}
    if name == "backend" and "shape" in cells.labels:
        scope["shape"] = "best"
    if name == "backend":
        values = [value for value in cells.frame[name].dropna().unique() if value != "best"]
        scope[name] = values
    beside = in_scope(cells, scope)
    values = sorted(beside.frame[name].dropna().unique(), key=str) if name in beside.labels else []
    own = in_scope(cells, part.scope)
    used = set(own.frame[name].dropna().unique()) if name in own.labels else set()
    return [value for value in values if value != now and value not in used]


def _without_one(cells: Cells, ruling: Ruling, part: Part, again: _Again, data: Data) -> Iterator[str]:
    """Single cells on which the outcome hangs."""
    if len(cells) < 2 or part.rule in ("ratio", "trend", "crossover"):
        return
    hang: dict[str, list[str]] = {}
    for row in range(len(cells)):
        outcome = again.outcome(cells.at([i for i in range(len(cells)) if i != row])).outcome
        if outcome != ruling.outcome:
            words = [text for text in (place(cells, row, data), cell_labels(cells, row)) if text]
            hang.setdefault(outcome, []).append("; ".join(words))
    for turned, names in hang.items():
        if len(names) <= _MOST_CELLS:
            yield f"Without the cell {several([f'({name})' for name in names], 'or')}, {again.effect(turned)}."
