"""Draws sides: a row for each matter, a column for each party, in it the side that the party takes and how it fares."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.render import strokes
from report.render.central.rungs import WIDTH
from report.render.dots import legend_lines
from report.render.figures import AMBER, BLUE, GREY, GRID, MUTED, PLATE, VERMILION, Drawing

# All in inches, but for sizes of letters and marks.
_LEFT, _RIGHT, _LINE, _UNDER, _PAD, _HEAD, _LEGEND = 2.2, 1.3, 0.16, 0.1, 0.07, 0.26, 0.22
# Places in a cell: of its mark, its name, its ids, and of the first of the marks under these.
_MARK, _LETTERS, _IDS, _FIRST, _STEP = 0.08, 0.17, 0.31, 0.41, 0.255
_IN_A_LINE = 3  # ids
_COLUMN = 21  # characters of a line of a column's head
_CHARACTER, _SIZE, _SMALL = 0.061, 7.8, 7.2
_BIG_MARK, _SMALL_MARK = 6.2, 3.6
# Colour, mark, and whether it is hollow; what it means of a side, and of a claim.
LOOKS = {
    "holds": (BLUE, "o", False, "stands, supported"),
    "in part": (AMBER, "D", False, "in part, depends"),
    "fails": (VERMILION, "X", False, "does not stand, challenged"),
    "undecided": (MUTED, "D", True, "too close to call"),
    "open": (MUTED, "o", True, "open, awaiting"),
    "opinion": (GREY, "s", False, "not testable"),
}


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of sides; its text is `about` and how each matter stands.

    `shows`: columns, by their names; groups of {title, rows}; a row of {label (lines), told, cells}, a list of sides
    for each column; a side of {name, standing, words, claims, marked (whether these have marks of their own)}; a
    claim of {id, standing, words}; standing: of LOOKS.
    """
    told = []
    for group in shows["groups"]:
        rows = [f"{' '.join(row['label'])}: {row['told']}" for row in group["rows"]]
        told.append(f"{group['title']}: {'; '.join(rows)}.")
    return Drawing(name, shows, draw, " ".join([about, *told]), caption)


def draw(shows: Mapping[str, Any]) -> Figure:
    """Groups of rows under the heads of the columns."""
    columns, groups = shows["columns"], shows["groups"]
    heads = [textwrap.wrap(name, _COLUMN, break_on_hyphens=False) for name in columns]
    head = 0.13 * max(map(len, heads)) + 0.08
    every = [side for group in groups for row in group["rows"] for cell in row["cells"] for side in cell]
    seen = {one["standing"] for side in every for one in (side, *side["claims"])}
    entries = [{"label": look[3], "kind": kind} for kind, look in LOOKS.items() if kind in seen]
    legend = legend_lines(entries, 0.28, WIDTH)
    body = sum(_HEAD + sum(map(_height, group["rows"])) for group in groups)
    total = _LEGEND * len(legend) + head + body + 0.06
    figure = Figure(figsize=(WIDTH, total))
    axes = figure.add_axes((0, 0, 1, (head + body + 0.06) / total))
    # One unit is one inch, from the upper left.
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(head + body + 0.06, 0)
    axes.set_axis_off()
    wide = (WIDTH - _LEFT - _RIGHT) / max(1, len(columns))
    for place, lines in enumerate(heads):
        axes.text(_LEFT + place * wide, head - 0.05, "\n".join(lines), fontsize=_SMALL, color=MUTED, va="bottom",
                  linespacing=1.15)  # fmt: skip
    marks: dict[tuple[str, float], list[tuple[float, float, str]]] = {}
    top = head
    for group in groups:
        axes.text(0.04, top + _HEAD - 0.08, group["title"], fontsize=8.6, fontweight="bold")
        top += _HEAD
        for number, row in enumerate(group["rows"]):
            _row(axes, row, top, wide, marks, shaded=number % 2 == 0)
            top += _height(row)
    for (standing, size), found in marks.items():
        _marks(axes, standing, size, found)
    _keys(figure, legend, total)
    return figure


def _height(row: Mapping[str, Any]) -> float:
    """Of a row: its label's lines, or those of the column with the most."""
    deep = [sum(map(_deep, cell)) for cell in row["cells"]]
    return max([_LINE * len(row["label"]), *deep]) + _PAD


def _deep(side: Mapping[str, Any]) -> float:
    lines = -(-len(side["claims"]) // _IN_A_LINE)
    return lines * (_LINE + (_UNDER if side["marked"] else 0.0))


def _row(
    axes: Axes, row: Mapping[str, Any], top: float, wide: float,
    marks: dict[tuple[str, float], list[tuple[float, float, str]]], shaded: bool,
) -> None:  # fmt: skip
    """The words of a row; its marks are put with those of their kind."""
    if shaded:
        strokes.track(axes, [0.02, WIDTH - 0.02], top, top + _height(row), color=GRID, alpha=0.3, linewidth=0, zorder=0)
    first = top + _PAD / 2 + _LINE / 2
    axes.text(0.08, first - _LINE / 2 + 0.02, "\n".join(row["label"]), fontsize=_SIZE, va="top", linespacing=1.2)
    axes.text(WIDTH - 0.08, first, row["told"], fontsize=_SIZE, va="center", ha="right", color=MUTED)
    for place, cell in enumerate(row["cells"]):
        left, y = _LEFT + place * wide, first
        for side in cell:
            marks.setdefault((side["standing"], _BIG_MARK), []).append((left + _MARK, y, side["words"]))
            for place_of, text, claims in _lines(side):
                axes.text(left + place_of, y, text, fontsize=_SMALL, va="center")
                if side["marked"]:
                    for number, claim in enumerate(claims):
                        at = left + _FIRST + number * _STEP, y + 0.115
                        marks.setdefault((claim["standing"], _SMALL_MARK), []).append((*at, claim["words"]))
                    y += _UNDER
                y += _LINE


def _lines(side: Mapping[str, Any]) -> Iterator[tuple[float, str, Sequence[Mapping[str, Any]]]]:
    """The claims of a side in lines, the first with its name: where the text begins, the text, and whose ids it has."""
    for first in range(0, len(side["claims"]), _IN_A_LINE):
        claims = side["claims"][first : first + _IN_A_LINE]
        ids = " ".join(claim["id"] for claim in claims)
        if first:
            yield _IDS, ids, claims
        else:
            # Browsers draw several spaces as one.
            yield _LETTERS, f"{side['name']}{2 * chr(0xA0)}{ids}", claims


def _marks(axes: Axes, standing: str, size: float, found: Sequence[tuple[float, float, str]]) -> None:
    colour, marker, hollow, _ = LOOKS[standing]
    xs, ys, told = zip(*found, strict=True)
    strokes.points(axes, list(xs), list(ys), told=list(told), marker=marker, markersize=size, color=colour,
                   markerfacecolor=PLATE if hollow else colour, markeredgecolor=colour,
                   markeredgewidth=1.0 if hollow else 0.6)  # fmt: skip


def _keys(figure: Figure, lines: Sequence[Sequence[tuple[float, Mapping[str, Any]]]], total: float) -> None:
    for number, line in enumerate(lines):
        y = 1 - (number + 0.5) * _LEGEND / total
        for x, entry in line:
            colour, marker, hollow, _ = LOOKS[entry["kind"]]
            strokes.key(figure, Line2D([(x + 0.04) / WIDTH], [y], marker=marker, color=colour, linestyle="none",
                                       markersize=5, markerfacecolor=PLATE if hollow else colour))  # fmt: skip
            figure.text((x + 0.13) / WIDTH, y, entry["label"], fontsize=_SIZE, va="center")
