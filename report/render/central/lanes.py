"""Draws lanes: what happens one after the other, on one scale of time, a lane for each who does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from report.formatting import prefix
from report.render import strokes
from report.render.central.rungs import WIDTH
from report.render.dots import legend_lines
from report.render.figures import INK, MUTED, PLATE, Drawing, linear_ticks, name_axis, without_interval

# All in inches.
_FOOT, _LANE, _HEAD, _LEGEND, _BAR = 0.46, 0.23, 0.27, 0.22, 0.14
_CHARACTER, _SIZE = 0.061, 7.8
_WITHOUT = " No interval is drawn at the parts of a lane: they share their rounds and vary together."


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of lanes; its text is `about` and the words of every part and mark.

    `shows`: groups of {title, lanes}; a lane of {label, parts, mark, told}; a part of {start, length, kind, words}, in
    seconds; mark: the end of the whole as {estimate, low, high, words}, or None; told is written at the right. colours:
    of each kind, in the order of the legend. x names the axis.
    """
    lanes = [lane for group in shows["groups"] for lane in group["lanes"]]
    marks = [lane["mark"] for lane in lanes if lane["mark"]]
    bare = sum(mark["low"] is None or mark["high"] is None for mark in marks)
    told = []
    for group in shows["groups"]:
        words = [
            one["words"]
            for lane in group["lanes"]
            for one in (*lane["parts"], *([lane["mark"]] if lane["mark"] else []))
        ]
        told.append(f"{group['title']}: {'; '.join(words)}.")
    text = f"{caption}{without_interval(bare, len(marks))}{_WITHOUT}"
    return Drawing(name, shows, draw, " ".join([about, *told]), text)


def draw(shows: Mapping[str, Any]) -> Figure:
    """One axis of time under all groups."""
    groups = shows["groups"]
    lanes = [lane for group in groups for lane in group["lanes"]]
    left = 0.24 + _CHARACTER * max(len(lane["label"]) for lane in lanes)
    right = 0.2 + _CHARACTER * max(len(lane["told"]) for lane in lanes)
    legend = legend_lines([{"label": kind} for kind in shows["colours"]], 0.34, WIDTH)
    body = sum(_HEAD + _LANE * len(group["lanes"]) for group in groups)
    total = _LEGEND * len(legend) + body + _FOOT + 0.05
    figure = Figure(figsize=(WIDTH, total))
    wide = WIDTH - left - right
    axes = figure.add_axes((left / WIDTH, _FOOT / total, wide / WIDTH, body / total))
    ends = [value for lane in lanes for value in _ends(lane)]
    scale, unit = prefix(max(ends), "s")
    axes.set_xlim(0, 1.02 * max(ends) / scale)
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    linear_ticks(axes)
    name_axis(axes, "x", shows["x"], unit, labelpad=2)
    top = 0.0
    for group in groups:
        axes.text(-(left - 0.04) / wide, top + _HEAD - 0.07, group["title"], transform=axes.get_yaxis_transform(),
                  fontsize=9, fontweight="bold")  # fmt: skip
        for place, lane in enumerate(group["lanes"]):
            middle = top + _HEAD + (place + 0.5) * _LANE
            _lane(axes, lane, middle, scale, shows["colours"])
            across = axes.get_yaxis_transform()
            axes.text(-(left - 0.08) / wide, middle, lane["label"], transform=across, fontsize=_SIZE, va="center")
            axes.text(1 + (right - 0.04) / wide, middle, lane["told"], transform=across, fontsize=_SIZE, va="center",
                      ha="right", color=MUTED)  # fmt: skip
        top += _HEAD + _LANE * len(group["lanes"])
    _keys(figure, legend, shows["colours"], total)
    return figure


def _ends(lane: Mapping[str, Any]) -> Sequence[float]:
    mark = lane["mark"] or {}
    known = [float(mark[name]) for name in ("estimate", "high") if mark.get(name) is not None]
    # An interval of many times the estimate runs off the edge: it must not press everything else flat.
    known = [min(end, 2 * known[0]) for end in known]
    return [*known, *(part["start"] + part["length"] for part in lane["parts"])]


def _lane(axes: Axes, lane: Mapping[str, Any], middle: float, scale: float, colours: Mapping[str, str]) -> None:
    for part in lane["parts"]:
        strokes.bar(axes, middle, part["start"] / scale, part["length"] / scale, _BAR, told=[part["words"]],
                    color=colours[part["kind"]], linewidth=0)  # fmt: skip
    mark = lane["mark"]
    if mark:
        known = mark["low"] is not None and mark["high"] is not None
        if known:
            strokes.interval(axes, mark["low"] / scale, mark["high"] / scale, middle, color=INK, linewidth=1.3,
                             solid_capstyle="butt")  # fmt: skip
        strokes.points(axes, [mark["estimate"] / scale], [middle], bare=int(not known), told=[mark["words"]],
                       marker="o", markersize=4.2, color=INK, markeredgewidth=0.8, markeredgecolor=PLATE)  # fmt: skip


def _keys(
    figure: Figure, lines: Sequence[Sequence[tuple[float, Mapping[str, Any]]]], colours: Mapping[str, str], total: float
) -> None:
    for number, line in enumerate(lines):
        y = 1 - (number + 0.5) * _LEGEND / total
        for x, entry in line:
            box = (x / WIDTH, y - 0.05 / total), 0.14 / WIDTH, 0.1 / total
            strokes.key(figure, Rectangle(*box, color=colours[entry["label"]], linewidth=0))
            figure.text((x + 0.2) / WIDTH, y, entry["label"], fontsize=_SIZE, va="center")
