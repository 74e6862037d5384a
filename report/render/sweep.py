"""Draws a sweep: panels of lines with their intervals, labelled at their ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.render.figures import INK, MUTED, log_ticks
from report.render.words import size
from report.wording import prefix

_WIDTH, _HEIGHT, _LEFT, _LABELS, _HEAD, _FOOT = 7.4, 2.05, 0.8, 1.1, 0.4, 0.48
_LINE = 0.125  # height of a label, in inches


def draw(shows: Mapping[str, Any]) -> Figure:
    """Two panels to a row, all on the same logarithmic axes.

    `shows`: panels of {title, series, marks, limits}; x, y and unit for the axes;
    base of the x axis; `sizes` if x is in bytes.
    """
    panels = shows["panels"]
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    tall = rows * (_HEIGHT + _HEAD + _FOOT)
    figure = Figure(figsize=(_WIDTH, tall))
    wide = _WIDTH / columns
    spans = _spans(panels)
    scale, unit = prefix(spans[1][1], shows["unit"])
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        bottom = tall - (row + 1) * (_HEIGHT + _HEAD + _FOOT) + _FOOT
        axes = figure.add_axes(
            ((column * wide + _LEFT) / _WIDTH, bottom / tall, (wide - _LEFT - _LABELS) / _WIDTH, _HEIGHT / tall)
        )
        _panel(axes, panel, spans, scale)
        log_ticks(axes, "x", shows["base"], size if shows.get("sizes") else None)
        log_ticks(axes, "y")
        axes.set_title(panel["title"], pad=12 if panel["marks"] else 7)
        axes.set_xlabel(f"{shows['x']}, log scale", labelpad=2)
        if column == 0:
            axes.set_ylabel(f"{shows['y']} ({unit}), log scale")
        _labels(axes, panel, scale)
    return figure


def _spans(panels: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Ranges of x and y that hold every panel, so that panels can be compared by eye.

    An interval that spans decades runs off the edge: it must not press everything else flat.
    """
    xs = [x for panel in panels for one in panel["series"] for x in one["xs"]]
    points = [y for panel in panels for one in panel["series"] for y in one["y"]]
    points += [limit["y"] for panel in panels for limit in panel["limits"]]
    ends = [y for panel in panels for one in panel["series"] for name in ("low", "high") for y in one[name] if y]
    low, high = min(points), max(points)
    near = [end for end in ends if low / 2 < end < high * 2]
    return [(min(xs), max(xs)), (min([low, *near]), max([high, *near]))]


def _panel(axes: Axes, panel: Mapping[str, Any], spans: Sequence[tuple[float, float]], scale: float) -> None:
    (left, right), (low, high) = spans
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left / 1.25, right * 1.25)
    axes.set_ylim(low / scale / 1.3, high / scale * 1.3)
    for mark in panel["marks"]:
        if left < mark["x"] < right:
            axes.axvline(mark["x"], color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
            axes.text(mark["x"], 1.01, mark["label"], transform=axes.get_xaxis_transform(), color=MUTED, fontsize=7.5,
                      ha="center", va="bottom")  # fmt: skip
    for limit in panel["limits"]:
        axes.axhline(limit["y"] / scale, color=INK, linewidth=1.0, linestyle=(0, (5, 2)))
    for one in panel["series"]:
        colour, marker = one["look"]
        ys = [y / scale for y in one["y"]]
        line = "none" if not one["joined"] else (0, (2, 1.2)) if one["dashed"] else "-"
        axes.plot(one["xs"], ys, color=colour, marker=marker, linestyle=line, markersize=3.6,
                  markerfacecolor="none" if one["dashed"] else colour, markeredgewidth=0.9)  # fmt: skip
        bars = [
            (x, a / scale, b / scale)
            for x, a, b in zip(one["xs"], one["low"], one["high"], strict=True)
            if a is not None and b is not None
        ]
        if bars:
            xs, lows, highs = zip(*bars, strict=True)
            axes.vlines(xs, lows, highs, color=colour, linewidth=1.1)


def _labels(axes: Axes, panel: Mapping[str, Any], scale: float) -> None:
    """Each series' name beside its last point, moved apart where they would overprint."""
    wanted = [(one["y"][-1] / scale, one["label"], one["look"][0]) for one in panel["series"] if one["label"]]
    wanted += [(limit["y"] / scale, limit["label"], INK) for limit in panel["limits"]]
    low, high = (math.log(end) for end in axes.get_ylim())
    step = _LINE / _HEIGHT
    wanted = sorted((((math.log(y) - low) / (high - low), label, colour) for y, label, colour in wanted))
    for at, (_, label, colour) in zip(_apart([place for place, *_ in wanted], step), wanted, strict=True):
        axes.text(1.02, at, label, transform=axes.transAxes, color=colour, fontsize=7.2, va="center", clip_on=False)


def _apart(places: Sequence[float], step: float) -> list[float]:
    """Rising places at least `step` apart, moved as little as can be, within the axes.

    Pool adjacent violators: least squares under the order, on places less what the
    steps before them take up.
    """
    pools: list[list[float]] = []
    for index, place in enumerate(places):
        pools.append([place - index * step])
        while len(pools) > 1 and sum(pools[-2]) / len(pools[-2]) > sum(pools[-1]) / len(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    flat = [sum(pool) / len(pool) for pool in pools for _ in pool]
    ceiling = 1.0 - (len(flat) - 1) * step
    return [min(max(value, 0.0), max(0.0, ceiling)) + index * step for index, value in enumerate(flat)]
