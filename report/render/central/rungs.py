"""Draws rungs: named rows, and beside them one panel or several that share these rows and the scale of their axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from report.render import strokes
from report.render.dots import LEGEND, draw_legend, legend_lines
from report.render.figures import GRID, INK, MUTED, PLATE, Drawing, log_ticks, name_axis, without_interval

# All in inches.
WIDTH = 7.4
_FOOT, _ROW, _HEAD, _GROUP, _BETWEEN = 0.46, 0.2, 0.42, 0.24, 0.16
_CHARACTER, _SIZE, _SMALL = 0.062, 8.0, 7.2
_MOST = 38  # characters of a row's name
_MARGIN = 1.2  # of the axis, beyond its first mark
# What stands in a place that nobody could measure.
AWAITING = "○ "


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of rungs; its text is `about` and what is told of each mark.

    `shows`: panels of {title, below}; groups of {title, rows, lines}; a row of {label, strong, waits, cells}, where
    `waits` says in words why nobody has measured it, and else there is a cell for each panel: {marks, told, start},
    or {text} where this panel has none. A mark of {estimate, low, high, look, hollow, told}; told, in a cell, is
    written beside its last mark; start: where a thin line from the rung before begins. lines: {x, label}, upright
    over the rows of a group. x names the axis, unit is its unit; legend: {label, look, hollow} for kinds of marks.
    """
    marks = [mark for *_, cell in _cells(shows) for mark in cell.get("marks", ())]
    bare = sum(mark["low"] is None or mark["high"] is None for mark in marks)
    spoken = []
    for place, panel in enumerate(shows["panels"]):
        rows = [
            f"{_named(group, row)}: {row['cells'][place]['told']}"
            for group in shows["groups"]
            for row in group["rows"]
            if row.get("cells") and row["cells"][place].get("marks")
        ]
        spoken.append(f"{panel['title']}: {'; '.join(rows)}." if panel["title"] else f"{'; '.join(rows)}.")
    every = [(group, row) for group in shows["groups"] for row in group["rows"]]
    waiting = [f"{_named(group, row)}: {row['waits']}." for group, row in every if row.get("waits")]
    lines = [f"A line marks {line['label']}." for group in shows["groups"] for line in group.get("lines", ())]
    text = " ".join([about, *spoken, *waiting, *lines])
    return Drawing(name, shows, draw, text, f"{caption}{without_interval(bare, len(marks))}")


def fitted(name: str) -> str:
    """A name in as many characters as there is room for; the table has all of it.

    What tells alike machines apart stands in brackets at its end, and stays.
    """
    end = re.search(r" \([^()]{1,12}\)$|$", name)
    kept = end[0] if end else ""
    return name if len(name) <= _MOST else f"{name[: _MOST - 1 - len(kept)].rstrip()}…{kept}"


def _named(group: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f"{group['title']}, {row['label']}" if group["title"] else str(row["label"])


def _cells(shows: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]]:
    for group in shows["groups"]:
        for row in group["rows"]:
            for cell in row.get("cells", ()):
                yield group, row, cell


def draw(shows: Mapping[str, Any]) -> Figure:
    """Rows from the top; all panels as wide as each other."""
    groups, panels = shows["groups"], shows["panels"]
    rows = [row for group in groups for row in group["rows"]]
    left = 0.16 + _CHARACTER * max(len(fitted(row["label"])) for row in rows)
    legend = LEGEND * len(legend_lines(shows.get("legend", ()), inches=WIDTH))
    head = _HEAD if any(panel["title"] for panel in panels) else 0.08
    heads = [_GROUP * bool(group["title"] or group.get("lines")) for group in groups]
    body = sum(heads) + _ROW * len(rows) + 0.05
    total = legend + head + body + _FOOT
    figure = Figure(figsize=(WIDTH, total))
    whole = WIDTH - left - 0.25
    wide = (whole - _BETWEEN * (len(panels) - 1)) / len(panels)
    tops = _tops(groups, heads)
    back = figure.add_axes((left / WIDTH, _FOOT / total, whole / WIDTH, body / total))
    back.set_axis_off()
    back.set_xlim(0, whole)
    back.set_ylim(body, 0)
    _behind(figure, back, groups, tops, left)
    span = _span(shows, wide)
    for place, panel in enumerate(panels):
        at = left + place * (wide + _BETWEEN)
        axes = figure.add_axes((at / WIDTH, _FOOT / total, wide / WIDTH, body / total))
        axes.set_ylim(body, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlim(*span)
        _ticks(axes, wide)
        if place == 0:
            name_axis(axes, "x", shows["x"], shows["unit"], log=True, labelpad=2, x=0, ha="left")
        if panel["title"]:
            axes.text(0, 1 + 0.22 / body, panel["title"], transform=axes.transAxes, fontsize=9, fontweight="bold",
                      va="bottom")  # fmt: skip
            axes.text(0, 1 + 0.07 / body, panel["below"], transform=axes.transAxes, fontsize=_SMALL, color=MUTED,
                      va="bottom")  # fmt: skip
        for group, ys in zip(groups, tops, strict=True):
            for line in group.get("lines", ()):
                _line(axes, line, ys[0] - _ROW / 2, ys[-1] + _ROW / 2)
            for row, y in zip(group["rows"], ys, strict=True):
                if row.get("cells"):
                    _cell(axes, row["cells"][place], y)
    draw_legend(figure, shows.get("legend", ()))
    return figure


def _tops(groups: Sequence[Mapping[str, Any]], heads: Sequence[float]) -> list[list[float]]:
    """The middle of each row, in inches from the top, group by group."""
    found, top = [], 0.0
    for group, head in zip(groups, heads, strict=True):
        found.append([top + head + (place + 0.5) * _ROW for place in range(len(group["rows"]))])
        top += head + _ROW * len(group["rows"])
    return found


def _behind(
    figure: Figure,
    back: Axes,
    groups: Sequence[Mapping[str, Any]],
    tops: Sequence[Sequence[float]],
    left: float,
) -> None:
    """The names of groups and rows, a track for each row, and the words of rows that wait."""
    ends = list(back.get_xlim())
    for group, ys in zip(groups, tops, strict=True):
        if group["title"]:
            back.text(0.04 - left, ys[0] - _ROW / 2 - 0.05, group["title"], fontsize=8.5, fontweight="bold")
        for row, y in zip(group["rows"], ys, strict=True):
            strokes.track(back, ends, y - 0.065, y + 0.065, color=GRID, alpha=0.35, linewidth=0, zorder=0)
            weight = "bold" if row.get("strong") else "normal"
            back.text(0.04 - left, y, fitted(row["label"]), fontsize=_SIZE, va="center", fontweight=weight)
            if row.get("waits"):
                # Above the grid of the panels.
                x, top = back.transAxes.inverted().transform(back.transData.transform((0.06, y)))
                box = back.get_position()
                place = box.x0 + x * box.width, box.y0 + top * box.height
                figure.text(*place, f"{AWAITING}{row['waits']}", fontsize=_SIZE, va="center", color=MUTED,
                            fontstyle="italic")  # fmt: skip


def _span(shows: Mapping[str, Any], wide: float) -> tuple[float, float]:
    """Ends of the axis: all marks and lines, and at the right what is told beside a mark."""
    marks = [(mark, cell) for *_, cell in _cells(shows) for mark in cell.get("marks", ())]
    points = [end for mark, _ in marks for end in _ends(mark)]
    points += [float(line["x"]) for group in shows["groups"] for line in group.get("lines", ())]
    low, high = min(points) / _MARGIN, max(points) * _MARGIN
    for mark, cell in marks:
        room = (0.16 + _CHARACTER * len(cell.get("told", ""))) / wide
        most = max([*_ends(mark), cell.get("start") or 0.0])
        high = max(high, low * (most / low) ** (1 / max(0.2, 1 - room)))
    return low, high


def _ends(mark: Mapping[str, Any]) -> list[float]:
    """The mark and its interval, unless that spans decades: it then runs off the edge."""
    at = float(mark["estimate"])
    ends = [float(mark[name]) for name in ("low", "high") if mark[name] is not None]
    return [at, *(end for end in ends if at / 2 < end < at * 2)]


def _ticks(axes: Axes, wide: float) -> None:
    log_ticks(axes)
    low, high = axes.get_xlim()
    if high / low >= 300:
        axes.xaxis.set_major_locator(LogLocator(base=10, numticks=max(2, int(wide / 0.38))))
    axes.xaxis.set_minor_locator(NullLocator())


def _cell(axes: Axes, cell: Mapping[str, Any], y: float) -> None:
    if cell.get("text"):
        axes.text(0.02, y, cell["text"], transform=axes.get_yaxis_transform(), fontsize=_SMALL, va="center",
                  color=MUTED, fontstyle="italic")  # fmt: skip
    marks = cell.get("marks", ())
    if marks and cell.get("start"):
        strokes.rise(axes, cell["start"], marks[0]["estimate"], y, color=MUTED, linewidth=1.0, zorder=1)
    for mark in marks:
        colour, marker = mark["look"]
        bare = mark["low"] is None or mark["high"] is None
        if not bare and mark["high"] > mark["low"]:
            strokes.interval(axes, mark["low"], mark["high"], y, color=colour, linewidth=1.7, alpha=0.8,
                             solid_capstyle="butt")  # fmt: skip
        strokes.points(axes, [mark["estimate"]], [y], bare=int(bare), told=[mark["told"]], marker=marker,
                       markersize=5, color=colour, markeredgewidth=1.1, markeredgecolor=colour, clip_on=False,
                       markerfacecolor=PLATE if mark.get("hollow") else colour)  # fmt: skip
    if marks and cell.get("told"):
        # A fixed step beside the end of the interval, in points.
        far = max([*_ends(marks[-1]), cell.get("start") or 0.0])
        axes.annotate(cell["told"], (far, y), (6, 0), textcoords="offset points", fontsize=_SMALL,
                      va="center", color=INK, annotation_clip=False)  # fmt: skip


def _line(axes: Axes, line: Mapping[str, Any], first: float, last: float) -> None:
    strokes.reference(axes, [line["x"], line["x"]], [first, last], color=INK, linewidth=1.0, linestyle=(0, (5, 2)),
                      zorder=1)  # fmt: skip
    low, high = (math.log(end) for end in axes.get_xlim())
    right = (math.log(line["x"]) - low) / (high - low) > 0.5
    axes.annotate(line["label"], (line["x"], first), (-3 if right else 3, 3), textcoords="offset points",
                  fontsize=_SMALL, color=INK, ha="right" if right else "left", annotation_clip=False)  # fmt: skip
