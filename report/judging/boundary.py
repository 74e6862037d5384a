"""Names the boundary of a claim that holds in part: which label separates where it holds from where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import count, label_value, several

# Most of what a reader can take in within a sentence.
_MOST_VALUES = 6
# Numbers that order named things; the thing's name says more.
_NAMED_BY = {"flop": "run"}


def boundary(cells: Estimates, outcomes: Sequence[str], node_labels: Mapping[str, str]) -> str:
    """Where a claim holds and where not, in words.

    Looks for one label, numeric labels first, that separates supporting from
    challenging cells (or decided from undecided ones, if all decided cells agree);
    then for one label within each value of another.
    """
    rows = [{**labels, "_": outcome} for labels, outcome in zip(cells.all_label_values(), outcomes, strict=True)]
    for row in rows:
        if "node" in row:
            row["node"] = node_labels.get(row["node"], row["node"])
    sides = [side for side in ("supports", "challenges", "undecided") if side in outcomes]
    if "supports" in sides and "challenges" in sides:
        decided = [row for row in rows if row["_"] != "undecided"]
        open_ = len(rows) - len(decided)
        tail = f" ({count(open_, 'cell')} undecided)" if open_ else ""
    else:
        decided, tail = rows, ""
    found = _one_label(decided) or _two_labels(decided)
    if found:
        return found + tail
    parts = [f"{_words(side)} in {outcomes.count(side)}" for side in sides]
    return f"{several(parts)} of {count(len(outcomes), 'cell')}, which no one or two labels tell apart"


def _labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels that all rows bear and that differ among them; numeric ones first."""
    shared = [name for name in rows[0] if name != "_" and all(name in row for row in rows)]
    differ = [name for name in shared if len({row[name] for row in rows}) > 1]
    return sorted(differ, key=lambda name: not _numeric(rows, name))


def _numeric(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(isinstance(row[name], (int, float)) and not isinstance(row[name], bool) for row in rows)


def _words(outcome: str) -> str:
    return {"supports": "holds", "challenges": "fails", "undecided": "is undecided"}[outcome]


def _one_label(rows: Sequence[Mapping[str, Any]]) -> str | None:
    for name in _labels(rows):
        values: dict[str, set[Any]] = {}
        for row in rows:
            values.setdefault(row["_"], set()).add(row[name])
        if len(values) != 2:
            return None
        first, second = sorted(values, key=["supports", "challenges", "undecided"].index)
        if _numeric(rows, name):
            text = _numbers({row[name]: _said(row, name) for row in rows}, values, first, second)
        else:
            text = _names(name, values, first, second)
        if text:
            return text
    return None


def _said(row: Mapping[str, Any], name: str) -> str:
    """A numeric label of a row in words, or the name of what it orders."""
    by = _NAMED_BY.get(name, name)
    return label_value(by, row[by]) if by in row else label_value(name, row[name])


def _numbers(said: Mapping[Any, str], values: Mapping[str, set[Any]], first: str, second: str) -> str | None:
    """'holds from batch 256 on, fails up to batch 64', if the values do not interleave. said: the values in words."""
    low, high = (first, second) if max(values[first]) < min(values[second]) else (second, first)
    if max(values[low]) >= min(values[high]):
        return None
    up = f"{_words(low)} up to {said[max(values[low])]}"
    on = f"{_words(high)} from {said[min(values[high])]} on"
    if len(values[low]) == 1:
        up = f"{_words(low)} at {said[max(values[low])]}"
    if len(values[high]) == 1:
        on = f"{_words(high)} at {said[min(values[high])]}"
    return f"{up}, {on}" if low == first else f"{on}, {up}"


def _names(name: str, values: Mapping[str, set[Any]], first: str, second: str) -> str | None:
    """'holds for cnn, fails for mlp', if no value stands on both sides."""
    if values[first] & values[second] or max(map(len, values.values())) > _MOST_VALUES:
        return None
    listed = {
        outcome: several([label_value(name, value) for value in sorted(found, key=str)])
        for outcome, found in values.items()
    }
    at = "on" if name == "node" else "for"
    return f"{_words(first)} {at} {listed[first]}, {_words(second)} {at} {listed[second]}"


def _two_labels(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """'mlp: holds from batch 256 on, …; cnn: holds throughout'."""
    candidates = sorted(_labels(rows), key=lambda name: (_numeric(rows, name), len({row[name] for row in rows})))
    for name in candidates:
        groups: dict[Any, list[Mapping[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row[name], []).append(row)
        if len(groups) > _MOST_VALUES:
            continue
        parts = []
        for value in sorted(groups, key=lambda v: (str(type(v)), v)):
            inside = groups[value]
            seen = {row["_"] for row in inside}
            text = f"{_words(seen.pop())} throughout" if len(seen) == 1 else _one_label(inside)
            if text is None:
                break
            parts.append(f"{label_value(name, value)}: {text}")
        else:
            return "; ".join(parts)
    return None
