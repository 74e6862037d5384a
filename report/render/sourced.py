"""Where a number comes from, beside the number: rows of the summary, else entries of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from report.data.ranges import parse_ranges
from report.data.rows import read_rows
from report.formatting import count, several, with_unit
from report.model import number_of
from report.render.markdown import Markdown, attribute, escape

# Rows beyond so many are told by their number; entries beyond so many stand among the claim's sources alone.
_MOST_ROWS, _MOST_ENTRIES = 3, 4


def sources(cell: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """The attribute that names what a cell rests on: rows, its own entry, or the few of its part; else ''."""
    if cell.get("behind"):
        return f'data-rows="{attribute(str(cell["behind"]))}"'
    entries = [str(cell["entry"])] if cell.get("entry") else [str(name) for name in part.get("entries") or []]
    return f'data-entries="{attribute(" ".join(entries))}"' if 0 < len(entries) <= _MOST_ENTRIES else ""


def sourced(text: str, by: str) -> str:
    """A number with what it rests on, which a reader of the page's source can follow."""
    return Markdown(f"[{escape(text)}]{{.n {by}}}") if text and by else text


def stands_for(verdict: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The cell whose number a verdict is told with, and its part; None if there is none."""
    if verdict.get("estimate") is None:
        return None
    names, part = ("estimate", "low", "high"), number_of(verdict.get("parts") or [], str(verdict["verdict"]))
    same = [cell for cell in verdict.get("cells") or [] if all(cell.get(name) == verdict[name] for name in names)]
    own = [cell for cell in same if cell.get("part") == part.get("name")]
    return next(((cell, part) for cell in own or same), None)


def two_sides(verdicts: Iterable[Mapping[str, Any]], data: Path | None) -> dict[str, str]:
    """By claim whose number is a ratio: the measured values that it was made from; {} without data.

    Raises StudyError if the verdicts name rows that the summary lacks.
    """
    wanted: dict[str, list[int]] = {}
    for verdict in verdicts:
        found = stands_for(verdict)
        if found and found[1].get("unit") == "1" and found[0].get("n_rounds"):
            numbers = parse_ranges(str(found[0].get("behind") or ""))
            if len(numbers) > 1:
                wanted[str(verdict["id"])] = numbers
    if data is None or not wanted:
        return {}
    few = {claim: numbers for claim, numbers in wanted.items() if len(numbers) <= _MOST_ROWS}
    rows = read_rows(data, {number for numbers in few.values() for number in numbers})
    return {
        claim: f"from {several(_values([rows[number] for number in numbers]))}"
        if claim in few
        else f"from {count(len(numbers), 'row')} of the summary"
        for claim, numbers in wanted.items()
    }


def _values(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each row measured: its rate where all are times of unlike works, else its value."""
    values = [(float(row["estimate"]), str(row["unit"])) for row in rows]
    for work, unit in (("flop", "FLOP/s"), ("bytes", "B/s")):
        done = [row[work] or 0.0 for row in rows]
        if all(unit == "s" for _, unit in values) and min(done) > 0 and len(set(done)) > 1:
            values = [(one / value, unit) for one, (value, _) in zip(done, values, strict=True)]
    return [
        f"{with_unit(*value)} ({row['experiment']}, row {row['row']})" for value, row in zip(values, rows, strict=True)
    ]
