"""Draws rooflines: a panel for each machine, its ceilings, and all its work as marks with labels beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from report.formatting import prefix
from report.render import strokes
from report.render.central.labels import Places
from report.render.central.rungs import WIDTH, fitted
from report.render.dots import LEGEND, draw_legend, legend_lines
from report.render.figures import INK, log_ticks, name_axis

# In inches.
_LEFT, _RIGHT, _FOOT, _HEAD = 0.62, 0.18, 0.46, 0.3
_HIGH, _LOW = 4.3, 2.7  # a panel alone, and one beside another
_CHARACTER, _LINE, _SMALL = 0.055, 0.12, 7.0
_DASHES = (0, (5, 2))


def draw(shows: Mapping[str, Any]) -> Figure:
    """Two panels to a row, or one alone.

    `shows`: panels of {title, roof, points}; a roof of levels {x, y, label}, each from x on, slope (per unit of x)
    and label; points of {x, y, low, high, look, ring, label, told}; legend of {label, look}; x and y name the axes.
    """
    panels = shows["panels"]
    columns = min(2, len(panels))
    high = _HIGH if len(panels) == 1 else _LOW
    legend = LEGEND * len(legend_lines(shows["legend"], 0.28, WIDTH))
    deep = math.ceil(len(panels) / columns)
    head = _HEAD if any(panel["title"] for panel in panels) else 0.1
    total = legend + deep * (high + head + _FOOT)
    wide = WIDTH / columns - _LEFT - _RIGHT
    figure = Figure(figsize=(WIDTH, total))
    scale, unit = _unit(panels)
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        bottom = total - legend - (row + 1) * (high + head + _FOOT) + _FOOT
        box = ((column * WIDTH / columns + _LEFT) / WIDTH, bottom / total, wide / WIDTH, high / total)
        axes = figure.add_axes(box)
        _panel(axes, panel, scale, wide, high)
        axes.set_title(fitted(panel["title"]), pad=6)
        name_axis(axes, "x", shows["x"], "FLOP/B", log=True, labelpad=2)
        if column == 0:
            name_axis(axes, "y", shows["y"], unit, log=True)
    draw_legend(figure, shows["legend"], 0.28)
    return figure


def _unit(panels: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """Divisor and name of the unit in the middle of all marks."""
    points = [point["y"] for panel in panels for point in panel["points"]]
    return prefix(math.sqrt(min(points) * max(points)), "FLOP/s")


def _panel(axes: Axes, panel: Mapping[str, Any], scale: float, wide: float, high: float) -> None:
    points, roof = panel["points"], panel["roof"]
    xs = [point["x"] for point in points] + [level["x"] for level in roof["levels"]]
    ys = [point["y"] for point in points] + [level["y"] for level in roof["levels"]]
    left, right = min(xs) / 1.6, max(xs) * 2
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(ys) / scale / 1.6, max(ys) / scale * 1.8)
    log_ticks(axes, "x")
    log_ticks(axes, "y")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    places = Places(wide, high, _CHARACTER, _LINE)
    inches = _Inches(axes, wide, high)
    at = [inches.of(point["x"], point["y"] / scale) for point in points]
    places.keep_off([x for x, _ in at], [y for _, y in at])
    for point, (x, _) in zip(points, at, strict=True):
        if point["low"] is not None and point["high"] is not None:
            places.keep_off_line(x, *(inches.of(point["x"], point[end] / scale)[1] for end in ("low", "high")))
    _ceilings(axes, roof, scale, inches, places)
    _marks(axes, points, scale)
    # Marks further up are told first.
    for point, (x, y) in sorted(zip(points, at, strict=True), key=lambda one: -one[1][1]):
        found = places.beside(x, y, point["label"]) if point["label"] else None
        if found:
            axes.text(found[0] / wide, found[1] / high, point["label"], transform=axes.transAxes, fontsize=_SMALL,
                      ha=found[2], va="center", color=point["look"][0])  # fmt: skip


class _Inches:
    """Places in a panel, in inches from its lower left corner."""

    def __init__(self, axes: Axes, wide: float, high: float) -> None:
        self._x, self._y = ([math.log(end) for end in ends] for ends in (axes.get_xlim(), axes.get_ylim()))
        self._wide, self._high = wide, high

    def of(self, x: float, y: float) -> tuple[float, float]:
        (left, right), (low, high) = self._x, self._y
        return self._wide * (math.log(x) - left) / (right - left), self._high * (math.log(y) - low) / (high - low)


def _ceilings(axes: Axes, roof: Mapping[str, Any], scale: float, inches: _Inches, places: Places) -> None:
    left, right = axes.get_xlim()
    look: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": _DASHES, "zorder": 1}
    ridge = max(level["x"] for level in roof["levels"])
    ends = [left, ridge]
    strokes.reference(axes, ends, [x * roof["slope"] / scale for x in ends], **look)
    for level in roof["levels"]:
        strokes.reference(axes, [level["x"], right], [level["y"] / scale] * 2, **look)
        axes.annotate(level["label"], (right, level["y"] / scale), (-2, 2.5), textcoords="offset points",
                      fontsize=_SMALL, ha="right", color=INK)  # fmt: skip
        x, y = inches.of(right, level["y"] / scale)
        long = _CHARACTER * len(level["label"])
        places.taken.append((x - long, y - 0.02, x, y + 0.02 + _LINE))
        places.taken.append((inches.of(level["x"], 1.0)[0], y - 0.02, x, y + 0.02))
    _on_slope(axes, roof, scale, inches, places)


def _on_slope(axes: Axes, roof: Mapping[str, Any], scale: float, inches: _Inches, places: Places) -> None:
    """The name of the slope along it, where no mark is in the way; labels keep off the slope and off its name."""
    ridge = max(level["x"] for level in roof["levels"])
    start = max(axes.get_xlim()[0], axes.get_ylim()[0] * scale / roof["slope"])

    def along(share: float) -> tuple[float, float]:
        """A place on the slope, from its foot (0) to the ridge (1)."""
        return inches.of(at := start ** (1 - share) * ridge**share, at * roof["slope"] / scale)

    (left, low), (right, high) = along(0.0), along(1.0)
    angle = math.atan2(high - low, right - left)
    half = _CHARACTER * len(roof["label"]) / 2
    steps = [half * step / 4 for step in range(-4, 5)]

    def covered(share: float) -> list[tuple[float, float]]:
        """Places under the name, whose middle lies above this share of the slope."""
        x, y = along(share)
        x, y = x - 0.09 * math.sin(angle), y + 0.09 * math.cos(angle)
        return [(x + step * math.cos(angle), y + step * math.sin(angle)) for step in steps]

    side = places.mark / 2
    shares = [share / 20 for share in range(3, 18)]
    taken = {
        share: sum(not places.free((x - side, y - side, x + side, y + side)) for x, y in covered(share))
        for share in shares
    }
    best = min(shares, key=lambda share: (taken[share], abs(share - 0.5)))
    x, y = covered(best)[len(steps) // 2]
    axes.text(x / places.wide, y / places.high, roof["label"], transform=axes.transAxes, fontsize=_SMALL, color=INK,
              rotation=math.degrees(angle), rotation_mode="anchor", ha="center", va="center")  # fmt: skip
    for found in (covered(best), [along(share / 40) for share in range(41)]):
        places.keep_off([x for x, _ in found], [y for _, y in found])


def _marks(axes: Axes, points: Sequence[Mapping[str, Any]], scale: float) -> None:
    """One stroke for the marks of a kind with a ring, and one for those without."""

    def similar(point: Mapping[str, Any]) -> tuple[str, str, bool]:
        return point["look"][0], point["look"][1], bool(point["ring"])

    for (colour, marker, ring), found in groupby(sorted(points, key=similar), key=similar):
        group = list(found)
        held = [one for one in group if one["low"] is not None and one["high"] is not None]
        if held:
            ends = [[one[end] / scale for one in held] for end in ("low", "high")]
            strokes.intervals(axes, [one["x"] for one in held], *ends, color=colour, linewidth=1.1)
        strokes.points(
            axes, [one["x"] for one in group], [one["y"] / scale for one in group], bare=len(group) - len(held),
            told=[one["told"] for one in group], color=colour, marker=marker, markersize=4.8,
            markeredgecolor=INK if ring else "none",
        )  # fmt: skip
