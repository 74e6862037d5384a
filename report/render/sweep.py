"""Draws a sweep: panels of lines with their intervals, labelled at their ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.formatting import ALLOWED_PREFIX, capital, prefix, with_unit
from report.render import strokes
from report.render.figures import GREY, INK, MUTED, Drawing, log_ticks, name_axis, without_interval
from report.render.words import size

# In inches.
_WIDTH, _NARROW, _HEIGHT, _LEFT, _HEAD, _FOOT = 7.4, 4.5, 2.05, 0.8, 0.4, 0.48
_LINE, _CHARACTER = 0.125, 0.058  # height of a label, and the width of one character of it
_DASHES = (0, (5, 2))


def drawing(name: str, shows: Mapping[str, Any], caption: str, where: str) -> Drawing:
    """The figure of a sweep, its text from the numbers that are drawn. `where`: node and device."""
    told = []
    for panel in shows["panels"]:
        lines = "; ".join(_spoken(one, shows["unit"]) for one in panel["series"] if _name(one))
        told.append(f"{panel['title']}: {lines}." if panel["title"] else f"{lines}.")
    axis = f"{shows['y']} over {shows['x']}"
    every = [one for panel in shows["panels"] for one in panel["series"]]
    without = without_interval(sum(map(bare, every)), sum(len(one["xs"]) for one in every), str(shows.get("bare", "")))
    text = f"{capital(axis)} on {where}. {' '.join(told)}"
    return Drawing(name, shows, draw, text, f"{caption} {where}.{without}")


def _name(one: Mapping[str, Any]) -> str:
    return str(one.get("told") or one["label"])


def _spoken(one: Mapping[str, Any], unit: str) -> str:
    """A series in words: its name, its lowest and its highest value."""
    low, high = (with_unit(end, unit) for end in (min(one["y"]), max(one["y"])))
    return f"{_name(one)} {low if low == high else f'from {low} to {high}'}"


def draw(shows: Mapping[str, Any]) -> Figure:
    """Two panels to a row, or one if `narrow`, all on the same logarithmic axes.

    `shows`: panels of {title, series} and, where there are any, marks (upright lines
    {x, label}; those that were found, not given, have low and high), limits (level
    ones) and guides (through points); x, y and unit for the axes; base of the x axis;
    `sizes` if x is in bytes; along: the variable of `strokes.INTERPOLABLE` that lines are
    drawn along, where there are any; bare: why points have no interval, where they are not too
    few rounds. A grey series is context and has no label; told is a label
    for those who hear the figure, where the one that is drawn says less.
    """
    panels = shows["panels"]
    width, most = (_NARROW, 1) if shows.get("narrow") else (_WIDTH, 2)
    columns = min(most, len(panels))
    labels = [label for panel in panels for *_, label in _wanted(panel, 1.0)]
    room = 0.2 + _CHARACTER * max(map(len, labels), default=0)
    high = max([_HEIGHT, *(_LINE * len(_wanted(panel, 1.0)) for panel in panels)])
    tall = math.ceil(len(panels) / columns) * (high + _HEAD + _FOOT)
    figure = Figure(figsize=(width, tall))
    wide = width / columns
    spans = _spans(panels)
    scale, unit = _unit(panels, shows["unit"])
    ticks = max(2, round((wide - _LEFT - room) / 0.55))
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        bottom = tall - (row + 1) * (high + _HEAD + _FOOT) + _FOOT
        axes = figure.add_axes(
            ((column * wide + _LEFT) / width, bottom / tall, (wide - _LEFT - room) / width, high / tall)
        )
        _panel(axes, panel, spans, scale, str(shows.get("along", "")))
        log_ticks(axes, "x", shows["base"], size if shows.get("sizes") else None, ticks)
        log_ticks(axes, "y")
        axes.set_title(panel["title"], pad=12 if panel.get("marks", ()) else 7)
        name_axis(axes, "x", shows["x"], log=True, labelpad=2)
        if column == 0:
            name_axis(axes, "y", shows["y"], unit, log=True)
        _labels(axes, panel, scale, wide - _LEFT - room, high)
    return figure


def _unit(panels: Sequence[Mapping[str, Any]], unit: str) -> tuple[float, str]:
    """Divisor and name of the unit in the middle of the axis; what takes no prefix is counted by thousands."""
    points = [y for panel in panels for one in panel["series"] for y in one["y"]]
    middle = math.sqrt(min(points) * max(points))
    if unit not in ALLOWED_PREFIX and max(points) >= 1e5:
        return (1e6, f"million {unit}") if max(points) >= 1e7 else (1e3, f"thousand {unit}")
    return prefix(middle, unit)


def _spans(panels: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Ranges of x and y that hold every panel, so that panels can be compared by eye.

    An interval that spans decades runs off the edge: it must not press everything else flat.
    """
    xs = [x for panel in panels for one in panel["series"] for x in one["xs"]]
    points = [y for panel in panels for one in panel["series"] for y in one["y"]]
    points += [limit["y"] for panel in panels for limit in panel.get("limits", ())]
    points += [y for panel in panels for guide in panel.get("guides", ()) for y in guide["ys"]]
    ends = [y for panel in panels for one in panel["series"] for name in ("low", "high") for y in one[name] if y]
    low, high = min(points), max(points)
    near = [end for end in ends if low / 2 < end < high * 2]
    return [(min(xs), max(xs)), (min([low, *near]), max([high, *near]))]


def _panel(
    axes: Axes, panel: Mapping[str, Any], spans: Sequence[tuple[float, float]], scale: float, along: str
) -> None:
    (left, right), (low, high) = spans
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left / 1.25, right * 1.25)
    axes.set_ylim(low / scale / 1.3, high / scale * 1.3)
    for mark in panel.get("marks", ()):
        if left < mark["x"] < right:
            _upright(axes, mark)
    for limit in panel.get("limits", ()):
        strokes.level(axes, limit["y"] / scale, color=INK, linewidth=1.0, linestyle=_DASHES)
    for guide in panel.get("guides", ()):
        strokes.reference(axes, guide["xs"], [y / scale for y in guide["ys"]], color=INK, linewidth=1.0,
                          linestyle=_DASHES)  # fmt: skip
    for one in panel["series"]:
        _series(axes, one, scale, along)


def _upright(axes: Axes, mark: Mapping[str, Any]) -> None:
    """A given size as a dashed line named at the top; a found one as a band over its interval."""
    across = axes.get_xaxis_transform()
    if "low" not in mark:
        strokes.upright(axes, mark["x"], color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.text(mark["x"], 1.01, mark["label"], transform=across, color=MUTED, fontsize=7.5, ha="center", va="bottom")
        return
    strokes.band(axes, mark["low"], mark["high"], color=GREY, alpha=0.45, linewidth=0, zorder=0.5)
    strokes.upright(axes, mark["x"], color=MUTED, linewidth=1.1, zorder=0.6)


def _series(axes: Axes, one: Mapping[str, Any], scale: float, along: str) -> None:
    ys = [y / scale for y in one["y"]]
    colour, marker = (GREY, ".") if one.get("grey") else one["look"]
    look: dict[str, Any] = {"color": colour, "marker": marker, "bare": bare(one)}
    if one.get("grey"):
        look |= {"linewidth": 0.9, "markersize": 3, "zorder": 1.5}
    else:
        look |= {"markersize": 3.6, "markerfacecolor": "none" if one["dashed"] else colour, "markeredgewidth": 0.9}
    if one["joined"]:
        strokes.join(axes, one["xs"], ys, along, linestyle=(0, (2, 1.2)) if one["dashed"] else "-", **look)
    else:
        strokes.points(axes, one["xs"], ys, **look)
    bars = [
        (x, a / scale, b / scale)
        for x, a, b in zip(one["xs"], one["low"], one["high"], strict=True)
        if a is not None and b is not None
    ]
    if bars:
        xs, lows, highs = zip(*bars, strict=True)
        strokes.intervals(axes, xs, lows, highs, color=colour, linewidth=0.8 if one.get("grey") else 1.1)


def bare(one: Mapping[str, Any]) -> int:
    """How many points of a series have no interval."""
    return sum(low is None or high is None for low, high in zip(one["low"], one["high"], strict=True))


def _wanted(panel: Mapping[str, Any], scale: float) -> list[tuple[float, Sequence[Any], str]]:
    """What is to be named at the right: height, colour with mark, name."""
    wanted = [
        (one["y"][-1] / scale, [*one["look"], one["dashed"]], one["label"]) for one in panel["series"] if one["label"]
    ]
    wanted += [(limit["y"] / scale, [INK], limit["label"]) for limit in panel.get("limits", ())]
    return wanted + [(guide["ys"][-1] / scale, [INK], guide["label"]) for guide in panel.get("guides", ())]


def _labels(axes: Axes, panel: Mapping[str, Any], scale: float, wide: float, tall: float) -> None:
    """Each series' mark and name beside its last point, moved apart where they would overprint."""
    low, high = (math.log(end) for end in axes.get_ylim())
    wanted = sorted(((math.log(y) - low) / (high - low), label, look) for y, look, label in _wanted(panel, scale))
    places = _apart([place for place, *_ in wanted], _LINE / tall)
    for at, (_, label, look) in zip(places, wanted, strict=True):
        if len(look) > 1:
            strokes.key(axes, Line2D([1 + 0.08 / wide], [at], transform=axes.transAxes, marker=look[1], color=look[0],
                                     markersize=3.4, markerfacecolor="none" if look[2] else look[0],
                                     markeredgewidth=0.8, clip_on=False))  # fmt: skip
        axes.text(1 + 0.15 / wide, at, label, transform=axes.transAxes, color=look[0], fontsize=7.2, va="center",
                  clip_on=False)  # fmt: skip


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
