"""Draws curves over the size of a batch: small panels, each on a scale of its own, with rings where they level off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from report.render import strokes
from report.render.central.rungs import WIDTH, fitted
from report.render.dots import LEGEND, draw_legend, legend_lines
from report.render.figures import INK, log_ticks, name_axis

# In inches.
_LEFT, _RIGHT, _FOOT, _HEAD, _HIGH = 0.84, 0.1, 0.46, 0.28, 1.7
_COLUMNS = 3


def draw(shows: Mapping[str, Any]) -> Figure:
    """Three panels to a row at most.

    `shows`: panels of {title, lines}; a line of {xs, y, low, high, look, ring, told}, where ring is the place of the
    point with a ring or None, and told are the words of each point; legend of {label, look}; x, y, unit.
    """
    panels = shows["panels"]
    columns = min(_COLUMNS, len(panels))
    deep = math.ceil(len(panels) / columns)
    legend = LEGEND * len(legend_lines(shows["legend"], inches=WIDTH))
    total = legend + deep * (_HIGH + _HEAD + _FOOT)
    wide = WIDTH / columns - _LEFT - _RIGHT
    figure = Figure(figsize=(WIDTH, total))
    xs = [x for panel in panels for line in panel["lines"] for x in line["xs"]]
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        bottom = total - legend - (row + 1) * (_HIGH + _HEAD + _FOOT) + _FOOT
        box = ((column * WIDTH / columns + _LEFT) / WIDTH, bottom / total, wide / WIDTH, _HIGH / total)
        axes = figure.add_axes(box)
        _panel(axes, panel, (min(xs), max(xs)))
        axes.set_title(fitted(panel["title"]), pad=6)
        if place + columns >= len(panels):  # the lowest of its column
            name_axis(axes, "x", shows["x"], log=True, labelpad=2)
        if column == 0:
            name_axis(axes, "y", shows["y"], shows["unit"], log=True)
    draw_legend(figure, shows["legend"])
    return figure


def _panel(axes: Axes, panel: Mapping[str, Any], span: Sequence[float]) -> None:
    """The sizes of batches are the same in all panels; rates are each model's own."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ys = [y for line in panel["lines"] for y in line["y"]]
    ends = [end for line in panel["lines"] for side in ("low", "high") for end in line[side] if end]
    low, high = min(ys), max(ys)
    # An interval that spans decades runs off the edge.
    near = [end for end in ends if low / 2 < end < high * 2]
    axes.set_xlim(span[0] / 1.5, span[1] * 1.5)
    axes.set_ylim(min([low, *near]) / 1.3, max([high, *near]) * 1.3)
    log_ticks(axes, "x", base=2, most=4)
    log_ticks(axes, "y")
    axes.tick_params(bottom=False, left=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    for line in panel["lines"]:
        _line(axes, line)


def _line(axes: Axes, line: Mapping[str, Any]) -> None:
    colour, marker = line["look"]
    held = [
        (x, low, high)
        for x, low, high in zip(line["xs"], line["low"], line["high"], strict=True)
        if low is not None and high is not None
    ]
    if held:
        xs, lows, highs = zip(*held, strict=True)
        strokes.intervals(axes, xs, lows, highs, color=colour, linewidth=1.1)
    if line["ring"] is not None:
        at = [line["xs"][line["ring"]]], [line["y"][line["ring"]]]
        strokes.points(axes, *at, marker="o", markersize=10, color=INK, markerfacecolor="none", markeredgewidth=1.0)
    strokes.join(
        axes, line["xs"], line["y"], "batch", bare=len(line["xs"]) - len(held), told=line["told"], color=colour,
        marker=marker, markersize=4.2, markeredgewidth=0.9,
    )  # fmt: skip
