"""Where a claim that holds in part does so: which label separates the estimates that support it from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from report.estimates import RUNTIMES, Estimates
from report.model import Side

# Most of what a reader can take in within a sentence.
_MOST_VALUES = 6
# Numbers that order named things; the thing's name says more.
_NAMED_BY = {"flop": "run"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Range:
    """One side of a numeric boundary: its value next to the other side, by the label that names it."""

    label: str
    value: Any
    single: bool


@dataclass(frozen=True)
class Boundary:
    """What separates the sides.

    sides: those that occur, as ordered here. counts: of all estimates by side. label: which one
    separates them; '' if none does. ranges: of a numeric label, the lower side first. values: of
    a named one, each side's. inner: of a first label that leaves a second to separate them, each
    value with the side of all its estimates, or with what separates those. undecided: estimates
    left aside.
    """

    label: str = ""
    ranges: tuple[tuple[Side, Range], ...] = ()
    values: tuple[tuple[Side, tuple[Any, ...]], ...] = ()
    inner: tuple[tuple[Any, Side | Boundary], ...] = ()
    counts: Mapping[Side, int] = field(default_factory=dict)
    undecided: int = 0


def find_boundary(estimates: Estimates, sides: Sequence[Side], node_labels: Mapping[str, str]) -> Boundary:
    """The boundary between sides.

    Looks for one label, numeric labels first, that separates supporting from
    challenging estimates (or decided from undecided ones, if all decided ones agree);
    then for one label within each value of another.
    """
    rows = [{**labels, "_": side} for labels, side in zip(estimates.all_label_values(), sides, strict=True)]
    for row in rows:
        if "node" in row:
            row["node"] = node_labels.get(row["node"], row["node"])
    counts = {side: sides.count(side) for side in Side if side in sides}
    both = Side.SUPPORTS in counts and Side.CHALLENGES in counts
    decided = [row for row in rows if row["_"] != Side.UNDECIDED] if both else rows
    left = {"counts": counts, "undecided": len(rows) - len(decided)}
    found = _one_label(decided) or _two_labels(decided)
    return Boundary(**{**vars(found), **left}) if found else Boundary(**left)  # type: ignore[arg-type]


def _labels(rows: Sequence[Row]) -> list[str]:
    """Labels that all rows bear and that differ among them; numeric ones first."""
    shared = [name for name in rows[0] if name not in ("_", *RUNTIMES) and all(name in row for row in rows)]
    differ = [name for name in shared if len({row[name] for row in rows}) > 1]
    return sorted(differ, key=lambda name: not _numeric(rows, name))


def _numeric(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row[name], (int, float)) and not isinstance(row[name], bool) for row in rows)


def _one_label(rows: Sequence[Row]) -> Boundary | None:
    sides = [side for side in Side if any(row["_"] == side for row in rows)]
    if len(sides) != 2:
        return None
    for name in _labels(rows):
        values = {side: {row[name] for row in rows if row["_"] == side} for side in sides}
        found = _ranges(name, rows, values) if _numeric(rows, name) else _values(name, values)
        if found:
            return found
    return None


def _ranges(name: str, rows: Sequence[Row], values: Mapping[Side, set[Any]]) -> Boundary | None:
    """The two ranges of a numeric label, if its values do not interleave."""
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


def _values(name: str, values: Mapping[Side, set[Any]]) -> Boundary | None:
    """Each side's values of a named label, if no value stands on both."""
    first, second = values.values()
    if first & second or max(map(len, values.values())) > _MOST_VALUES:
        return None
    return Boundary(name, values=tuple((side, tuple(sorted(own, key=str))) for side, own in values.items()))


def _two_labels(rows: Sequence[Row]) -> Boundary | None:
    candidates = sorted(_labels(rows), key=lambda name: (_numeric(rows, name), len({row[name] for row in rows})))
    for name in candidates:
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(row[name], []).append(row)
        if len(groups) > _MOST_VALUES:
            continue
        inner = []
        for value in sorted(groups, key=lambda one: (str(type(one)), one)):
            sides = {row["_"] for row in groups[value]}
            found = sides.pop() if len(sides) == 1 else _one_label(groups[value])
            if found is None:
                break
            inner.append((value, found))
        else:
            return Boundary(name, inner=tuple(inner))
    return None
