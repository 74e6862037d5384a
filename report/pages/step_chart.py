"""A step chart: a row per case, with a mark for the gain after each step. A line joins the marks to a gain of 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.lines
import pandas as pd
from matplotlib.figure import Figure

from report.pages import charts
from report.pages.control_characters import remove_invisible
from report.pages.estimate_drawing import group_heads

_STYLES = (
    (charts.AMBER, "s"),
    (charts.BLUE, "D"),
    (charts.VERMILION, "^"),
    (charts.GREEN, "v"),
    (charts.PURPLE, "P"),
)
# Height to add for each further line of a label, in inches.
_LINE = 0.16


def step_chart(
    rows: Sequence[Mapping[str, Any]], steps: Sequence[str], axis: str, base: str
) -> Callable[[float], Figure]:
    """Return a drawing with a row per case and a mark per step, on a logarithmic axis.

    Intervals far from all marks end at the frame with an arrow.
    rows: each has label, text (printed at the right), short (printed instead of text on a phone), group (heading above
    the group's first row) and marks. A mark has step, estimate, low and high (None if unknown) and one_round (True for
    a hollow mark).
    steps: step names in order, at most five.
    base: text to explain a gain of 1.
    """

    def draw(width: float) -> Figure:
        narrow, height = charts.is_narrow(width), charts.ROW
        labels = [charts.wrap_text(remove_invisible(str(row["label"])), 17 if narrow else 30) or " " for row in rows]
        heads = group_heads(rows)
        lines = sum(label.count("\n") for label in labels)
        total = height * (len(rows) + len(heads)) + _LINE * lines
        figure = Figure(figsize=(width, total + 0.85 + (0.22 * len(steps) if narrow else 0.4)))
        axes = figure.add_subplot()
        beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "color": charts.INK}
        styles = dict(zip(steps, _STYLES, strict=False))
        places, top = [], 0.0
        for at, (row, label) in enumerate(zip(rows, labels, strict=True)):
            if at in heads:
                head = charts.fit_line(remove_invisible(heads[at]), width)
                axes.text(-0.04, top + height / 2, head, weight="bold", ha="right", **beside)
                top += height
            size = height + _LINE * label.count("\n")
            place = top + size / 2
            places.append(place)
            top += size
            values = [float(mark["estimate"]) for mark in row["marks"]]
            axes.plot(
                [min(1.0, *values), max(1.0, *values)], [place, place], color=charts.GREY, linewidth=1.2, zorder=1
            )
            for mark in row["marks"]:
                colour, shape = styles[str(mark["step"])]
                if mark["low"] is not None and mark["high"] is not None:
                    axes.plot([mark["low"], mark["high"]], [place, place], color=colour, linewidth=3.4, alpha=0.4,
                              solid_capstyle="butt", zorder=2)  # fmt: skip
                fill = charts.PAPER if mark["one_round"] else colour
                axes.plot([mark["estimate"]], [place], marker=shape, color=colour, markersize=6.5, zorder=3,
                          markerfacecolor=fill, markeredgewidth=1.3, linestyle="none", clip_on=False)  # fmt: skip
            axes.text(1.02, place, remove_invisible(str(row["short" if narrow else "text"])), **beside)
        axes.set_ylim(top, 0)
        axes.set_yticks(places, labels)
        axes.tick_params(axis="y", length=0, pad=7)
        axes.grid(visible=False, axis="y")
        marks = pd.DataFrame([mark for row in rows for mark in row["marks"]])
        values = [1.0, *map(float, marks["estimate"].dropna())]
        bounds = [float(bound) for name in ("low", "high") for bound in marks[name].dropna()]
        charts.set_scale(axes, "x", charts._axis_span([*values, *bounds], values, True), True, width)
        charts.add_threshold(axes, [1.0], base, width)
        for place, row in zip(places, rows, strict=True):
            for mark in row["marks"]:
                colour = styles[str(mark["step"])][0]
                charts.mark_cut_intervals(axes, "x", [place], [(mark["low"], mark["high"])], colour)
        axes.set_xlabel(charts.axis_label(axis, True, width))
        axes.spines["left"].set_visible(False)
        handles = [
            matplotlib.lines.Line2D([], [], color=styles[step][0], marker=styles[step][1], linestyle="none", label=step)
            for step in steps
        ]
        charts.add_legend(figure, handles, width)
        return figure

    return draw
