"""Draws what several instruments showed during one run: panels one under the other, on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from report.formatting import prefix
from report.render import strokes
from report.render.figures import BLUE, GREY, INK, linear_ticks, name_axis

# In inches.
_WIDTH, _LEFT, _RIGHT, _PANEL, _GAP, _TOP, _FOOT = 4.5, 0.62, 0.12, 0.78, 0.34, 0.3, 0.44


def draw(shows: Mapping[str, Any]) -> Figure:
    """`shows`: panels of {title, unit, xs, ys} and, where there is one, level (a dashed line).

    x and x_unit name the axis.
    spans: [begin, end] of stretches of time that are shaded in every panel.
    """
    panels = shows["panels"]
    tall = _TOP + len(panels) * _PANEL + (len(panels) - 1) * _GAP + _FOOT
    figure = Figure(figsize=(_WIDTH, tall))
    end = max(panel["xs"][-1] for panel in panels)
    for place, panel in enumerate(panels):
        bottom = tall - _TOP - (place + 1) * _PANEL - place * _GAP
        axes = figure.add_axes(
            (_LEFT / _WIDTH, bottom / tall, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, _PANEL / tall),
        )
        scale, unit = prefix(max(map(abs, panel["ys"])), panel["unit"])
        for begin, over in shows["spans"]:
            strokes.band(axes, begin, over, color=GREY, alpha=0.3, linewidth=0, zorder=0.5)
        if "level" in panel:
            strokes.level(axes, panel["level"] / scale, color=INK, linewidth=0.9, linestyle=(0, (5, 2)), zorder=1)
        ys = [y / scale for y in panel["ys"]]
        strokes.join(axes, panel["xs"], ys, "time", bare=len(ys), color=BLUE, linewidth=1.2)
        axes.set_xlim(0, end)
        linear_ticks(axes, "x")
        linear_ticks(axes, "y")
        # Each panel has little room, and a line that is all but level is to look so.
        low, high = axes.get_ylim()
        room = max(0.0, 0.02 * max(abs(low), abs(high)) - (high - low)) / 2
        axes.set_ylim(low - room, high + room)
        # The title of a panel names its y axis, for which there is no room at the side.
        axes.set_title(f"{panel['title']} ({unit or 'no unit'})", fontsize=8.5, pad=3).set_gid(f"title.y.{place}")
        if place < len(panels) - 1:
            axes.tick_params(labelbottom=False)
        else:
            name_axis(axes, "x", shows["x"], shows["x_unit"], labelpad=2)
    return figure
