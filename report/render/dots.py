"""Draws a dot plot: rows of named marks with their intervals on one axis, narrow enough for a telephone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from report.formatting import exactly, prefix
from report.render import strokes
from report.render.figures import (
    BLUE,
    GRID,
    INK,
    MUTED,
    PLATE,
    Drawing,
    linear_ticks,
    log_ticks,
    name_axis,
    without_interval,
)

# All in inches.
_WIDTH, _FOOT, _GAP, _LINE, _ROW, _HEAD, LEGEND = 4.5, 0.44, 0.06, 0.13, 0.21, 0.22, 0.2
_CHARACTER = 0.061  # of a label, at its size
_SIZE = 7.8
_DECADES = 1e4  # an axis that spans more has a prefix at each tick
PLAIN = [BLUE, "o"]


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of groups of rows; its text is `about` and what each row tells.

    `shows`: groups of {title, rows, lines}; a row of {label, below, marks, told,
    told_below}, told at the right, what is below in a second line; a mark of {estimate,
    low, high, look, hollow, words}, its words for who points at it; a line of {x, label}
    over the group's rows. x and unit name the axis. scale: log, linear, or zero:
    logarithmic with a place of its own for 0, named `none`. legend: {label, look, hollow}
    for each kind of mark. rises: a thin line in each row begins where the row before has
    its first mark. width: in inches, where it is not narrow. bare: why marks have no
    interval, where it is not too few rounds.
    """
    told = []
    for group in shows["groups"]:
        rows = "; ".join(map(_spoken, group["rows"]))
        told.append(f"{group['title']}: {rows}." if group["title"] else f"{rows}.")
    marks = [mark for group in shows["groups"] for row in group["rows"] for mark in row["marks"]]
    bare = sum(mark["low"] is None or mark["high"] is None for mark in marks)
    without = without_interval(bare, len(marks), str(shows.get("bare", "")))
    return Drawing(name, shows, draw, " ".join([about, *told]), f"{caption}{without}")


def _spoken(row: Mapping[str, Any]) -> str:
    """A row in words: what it is, and what it tells."""
    below = f" ({row['below']})" if row.get("below") else ""
    return f"{row['label']}{below}: {row['told']}" if row.get("told") else f"{row['label']}{below}"


def draw(shows: Mapping[str, Any]) -> Figure:
    """One axis under all groups."""
    groups = shows["groups"]
    rows = [row for group in groups for row in group["rows"]]
    deep = _ROW + (_LINE if any(row.get("below") for row in rows) else 0)
    labels = max(len(text) for row in rows for text in (row["label"], row.get("below", "")))
    wide = float(shows.get("width", _WIDTH))
    left = min(2.0 * wide / _WIDTH, 0.12 + _CHARACTER * labels)
    # What is told below is set a little smaller.
    told = [len(row.get("told", "")) for row in rows] + [0.9 * len(row.get("told_below", "")) for row in rows]
    right = 0.14 + _CHARACTER * max(told, default=0)
    legend = LEGEND * len(legend_lines(shows.get("legend", ()), inches=wide))
    heads = [_HEAD * bool(group["title"] or _named(group)) for group in groups]
    body = sum(heads) + deep * len(rows) + _GAP * (len(groups) - 1)
    total = legend + body + _FOOT + 0.05
    figure = Figure(figsize=(wide, total))
    axes = figure.add_axes((left / wide, _FOOT / total, (wide - left - right) / wide, body / total))
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    scale, unit = prefix(_middle(rows, shows["scale"]), shows["unit"])
    zero = _axis(axes, groups, shows["scale"], scale, str(shows.get("none", "0")))
    low, high = axes.get_xlim()
    if shows["scale"] == "log" and high / low > _DECADES:
        unit = _wide_ticks(axes, scale, shows["unit"], wide - left - right)
    name_axis(axes, "x", shows["x"], unit, shows["scale"] != "linear", labelpad=2)
    draw_legend(figure, shows.get("legend", ()))
    top = 0.0
    for group, head in zip(groups, heads, strict=True):
        _group(axes, group, top, head, deep, scale, zero, bool(shows.get("rises")))
        top += head + deep * len(group["rows"]) + _GAP
    return figure


def _named(group: Mapping[str, Any]) -> bool:
    return any(line.get("label") for line in group.get("lines", ()))


def _middle(rows: Sequence[Mapping[str, Any]], kind: str) -> float:
    """The value that sets the unit's prefix: the largest, or the middle of a logarithmic axis."""
    values = [abs(mark["estimate"]) for row in rows for mark in row["marks"] if mark["estimate"]]
    if not values:
        return 0.0
    return max(values) if kind == "linear" else math.sqrt(min(values) * max(values))


def _axis(axes: Axes, groups: Sequence[Mapping[str, Any]], kind: str, scale: float, none: str) -> float:
    """Set the axis so that every mark has its place; give the place of 0 on an axis that has one."""
    marks = [mark for group in groups for row in group["rows"] for mark in row["marks"]]
    points = [mark["estimate"] / scale for mark in marks]
    points += [line["x"] / scale for group in groups for line in group.get("lines", ())]
    ends = [mark[end] / scale for mark in marks for end in ("low", "high") if mark[end] is not None]
    if kind == "linear":
        low, high = min([*points, *ends]), max([*points, *ends])
        axes.set_xlim(low - 0.04 * (high - low or 1.0), high + 0.04 * (high - low or 1.0))
        linear_ticks(axes)
        return 0.0
    positive = [point for point in points if point > 0] or [1.0]
    low, high = min(positive), max(positive)
    near = [end for end in ends if low / 2 < end < high * 2]
    low, high = min([low, *near]), max([high, *near])
    margin = max((high / low) ** 0.04, 1.03)
    zero = low / margin
    if kind == "zero":
        wide = max((high / low) ** 0.14, 2.0)
        zero = low / wide
        strokes.upright(axes, low / wide**0.5, color=MUTED, linewidth=0.8, linestyle=(0, (1, 1.5)))
    axes.set_xlim(zero / margin, high * margin)
    log_ticks(axes)
    if kind == "zero":
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = [tick for tick in axes.xaxis.get_majorticklocs() if low / margin <= tick <= high * margin]
        words = axes.xaxis.get_major_formatter()
        axes.xaxis.set_major_locator(FixedLocator([zero, *ticks]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, place: none if x <= zero else words(x, place)))
    return zero


def _wide_ticks(axes: Axes, scale: float, unit: str, inches: float) -> str:
    """Few ticks over many decades, each with its own prefix; gives the axis's unit, '' if every tick bears it."""
    short = len(unit) == 1

    def words(value: float, _place: int) -> str:
        divisor, name = prefix(value * scale * (1 + 1e-9), unit)
        told = exactly(float(f"{value * scale / divisor:.6g}"))
        return f"{told} {name if short else name.removesuffix(unit)}".strip()

    # Without a unit, '100 million' is told in full.
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=max(2, int(inches / (0.42 if unit else 0.8)))))
    axes.xaxis.set_major_formatter(FuncFormatter(words))
    axes.xaxis.set_minor_locator(NullLocator())
    return "" if short else unit


def _group(
    axes: Axes,
    group: Mapping[str, Any],
    top: float,
    head: float,
    deep: float,
    scale: float,
    zero: float,
    rises: bool,
) -> None:
    across = axes.get_yaxis_transform()
    if group["title"]:
        axes.text(_edge(axes), top + _HEAD - 0.07, group["title"], transform=across, fontsize=9, fontweight="bold",
                  va="baseline", ha="left")  # fmt: skip
    first, last = top + head, top + head + deep * len(group["rows"])
    for line in group.get("lines", ()):
        _line(axes, line["x"] / scale, str(line.get("label", "")), first, last, 0.09 * len(group["title"]))
    before: float | None = None
    for place, row in enumerate(group["rows"]):
        middle = first + (place + 0.5) * deep
        strokes.track(axes, [0, 1], middle - 0.065, middle + 0.065, transform=across, color=GRID, alpha=0.35,
                      linewidth=0, zorder=0)  # fmt: skip
        if rises and row["marks"]:
            here = row["marks"][0]["estimate"] / scale
            if before is not None:
                strokes.rise(axes, before, here, middle, color=MUTED, linewidth=1.0, zorder=1)
            before = here
        # Several marks of a row stand a little apart, so that none hides another's interval.
        for number, mark in enumerate(row["marks"]):
            shift = (number - (len(row["marks"]) - 1) / 2) * min(0.045, 0.11 / len(row["marks"]))
            _mark(axes, mark, middle + shift, scale, zero)
        _words(axes, row, middle)


def _line(axes: Axes, x: float, label: str, first: float, last: float, taken: float) -> None:
    """An upright line over a group, named over its end. taken: inches at the left that the title needs."""
    strokes.reference(axes, [x, x], [first, last], color=INK, linewidth=1.0, linestyle=(0, (5, 2)), zorder=1)
    if label:
        low, high = axes.get_xlim()
        share = math.log(x / low) / math.log(high / low) if axes.get_xscale() == "log" else (x - low) / (high - low)
        box = axes.get_position()
        wide = _inches(axes)
        at = (box.x0 + share * box.width) * wide
        side = "right" if share > 0.5 and at - taken > _CHARACTER * len(label) else "left"
        if side == "left":  # beside the line, or beside a title that reaches beyond it
            share = (max(at, 0.92 * taken) / wide - box.x0) / box.width
        axes.text(share, first - 0.03, label, transform=axes.get_yaxis_transform(), fontsize=7.2, color=INK, ha=side,
                  va="bottom")  # fmt: skip


def _mark(axes: Axes, mark: Mapping[str, Any], middle: float, scale: float, zero: float) -> None:
    colour, marker = mark["look"]
    low, high, at = (mark[name] / scale if mark[name] is not None else None for name in ("low", "high", "estimate"))
    assert at is not None
    if axes.get_xscale() == "log":
        at, low = max(at, zero), max(low, zero) if low is not None else None
    if low is not None and high is not None and high > low:
        strokes.interval(axes, low, high, middle, color=colour, linewidth=1.7, solid_capstyle="butt", alpha=0.8)
    face = PLATE if mark.get("hollow") else colour
    told = [mark["words"]] if mark.get("words") else ()
    strokes.points(axes, [at], [middle], bare=low is None or high is None, told=told, marker=marker, markersize=4.6,
                   color=colour, markeredgewidth=1.0, markerfacecolor=face, markeredgecolor=colour,
                   clip_on=False)  # fmt: skip


def _inches(axes: Axes) -> float:
    """The width of the figure."""
    figure: Any = axes.figure
    return float(figure.get_size_inches()[0])


def _edge(axes: Axes) -> float:
    """The left edge of the figure, in shares of the axis."""
    box = axes.get_position()
    return float(-box.x0 / box.width + 0.04 / (box.width * _inches(axes)))


def _words(axes: Axes, row: Mapping[str, Any], middle: float) -> None:
    across = axes.get_yaxis_transform()
    box, start = axes.get_position(), _edge(axes)
    lift = 0.0 if not row.get("below") else _LINE / 2
    weight = "bold" if row.get("strong") else "normal"
    axes.text(start, middle - lift, row["label"], transform=across, fontsize=_SIZE, va="center", ha="left",
              fontweight=weight)  # fmt: skip
    if lift:
        axes.text(start, middle + lift, row["below"], transform=across, fontsize=7, va="center", ha="left",
                  color=MUTED)  # fmt: skip
    end = (1 - box.x0) / box.width - 0.03 / (box.width * _inches(axes))
    lift = 0.0 if not row.get("told_below") else _LINE / 2
    for text, place, fontsize in ((row.get("told"), -lift, _SIZE), (row.get("told_below"), lift, 7)):
        if text:
            axes.text(end, middle + place, text, transform=across, fontsize=fontsize, va="center", ha="right",
                      color=MUTED)  # fmt: skip


def legend_lines(
    entries: Sequence[Mapping[str, Any]], beside: float = 0.3, inches: float = _WIDTH
) -> list[list[tuple[float, Mapping[str, Any]]]]:
    """Entries with their places from the left, in as many lines of `inches` as they need. beside: besides the label."""
    lines: list[list[tuple[float, Mapping[str, Any]]]] = []
    at = inches
    for entry in entries:
        wide = beside + _CHARACTER * len(entry["label"])
        if at + wide > inches:
            lines.append([])
            at = 0.1
        lines[-1].append((at, entry))
        at += wide
    return lines


def draw_legend(figure: Figure, entries: Sequence[Mapping[str, Any]], beside: float = 0.3) -> None:
    """Kinds of marks at the head of a figure: {label, look, hollow} each, in lines LEGEND inches high."""
    inches, total = map(float, figure.get_size_inches())
    for row, line in enumerate(legend_lines(entries, beside, inches)):
        y = 1 - (row + 0.45) * LEGEND / total
        for x, entry in line:
            colour, marker = entry["look"]
            strokes.key(
                figure,
                Line2D([x / inches], [y], marker=marker, color=colour, linestyle="none", markersize=5.2,
                       markeredgewidth=1.1, markerfacecolor=PLATE if entry.get("hollow") else colour),
            )  # fmt: skip
            figure.text((x + 0.09) / inches, y, entry["label"], fontsize=_SIZE, va="center")
