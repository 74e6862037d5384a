"""Draw four types of charts in one style: estimates with intervals, lines, bars and heat maps.

The module `step_chart` draws a fifth type. Every chart is drawn twice from the same rows, for a page and for a phone.
Markers are filled for evidence measured here, half filled for derived evidence, and hollow for published evidence.
Colours follow the palette by Okabe and Ito.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from report.formatting import format_exact, format_number
from report.pages.control_characters import remove_invisible
from report.pages.estimate_drawing import EstimateDrawing, group_heads

INK, MUTED, GREY, GRID, PAPER = "#1f2328", "#59636e", "#a8b0b9", "#d5dae0", "#ffffff"
BLUE, VERMILION, AMBER, GREEN, PURPLE, SKY = "#0072b2", "#c2530a", "#8a6500", "#00795a", "#a3558c", "#2273a3"
SERIES = [BLUE, VERMILION, GREEN, PURPLE, AMBER, GREY, INK]
MARKERS = ["o", "s", "^", "D", "v", "P"]
SIDES = {"supports": BLUE, "challenges": VERMILION, "undecided": MUTED, "": BLUE}
# Colours that replace the colours above on a dark page.
DARK = {INK: "#e6e9ed", MUTED: "#a4adb8", GREY: "#7d8792", GRID: "#3a424c", PAPER: "#161b22", BLUE: "#58a9e0",
        VERMILION: "#f08a4b", AMBER: "#e0b341", GREEN: "#3fbf97", PURPLE: "#d68fc0", SKY: "#7cc4ee"}  # fmt: skip
# Cell colours of heat maps from the smallest to the largest number, each with its colour on a dark page. On both pages
# text in INK has a contrast of at least 4.5 on all of them.
HEAT = {"#eef5fa": "#1b2a38", "#d3e6f2": "#17384f", "#b3d4e9": "#134664", "#93c2de": "#105376", "#73b0d4": "#0d5f88"}
DARK |= HEAT
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
# WIDE, NARROW: figure width for a page and for a phone, in inches. Text of 10 points is then at least 13 pixels high on
# a page, and 12 pixels high on a phone whose screen is 360 pixels wide.
# ROW: height of a row in a figure, in inches. SHORTEST: least height, which the texts around a single row need.
WIDE, NARROW = 6.8, 3.6
ROW, SHORTEST = 0.3, 1.7
# A logarithmic axis over fewer decades has ticks that are equally far apart in value.
SHORT_DECADES = 0.6
# Text after an estimate from a single round, which has no interval.
ONE_ROUND = "one round"
HOLLOW = f"◇ {ONE_ROUND}, without an interval"
_THEME: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    # A fixed title position saves time, because matplotlib otherwise searches for overlaps at each layout.
    "axes.titley": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    # "none" stores text as text, so that files are small, text is searchable, and readers see their own font. Below,
    # `text.parse_math` is off because names may contain "$".
    "svg.fonttype": "none",
    "svg.hashsalt": "does-ai-need-a-gpu",
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Chart:
    """A figure to draw.

    name: file name without suffix.
    title: the figure's message.
    draw: function to draw the figure at a width in inches.
    note: text to explain the marks and to name the machine or source.
    alt: description in words, for screen readers.
    """

    name: str
    title: str
    draw: Callable[[float], Figure]
    note: str = ""
    alt: str = ""


def theme() -> Any:
    """Return a context manager that applies the figure style."""
    style: dict[Any, Any] = {**sns.axes_style("whitegrid"), **_THEME}
    return matplotlib.rc_context(style)


def marker_style(tier: str) -> dict[str, Any]:
    """Return the marker style for an evidence tier, for predictions or for ONE_ROUND."""
    return {
        ONE_ROUND: {"marker": "D", "fillstyle": "none"},
        "measured": {"marker": "o", "fillstyle": "full"},
        "derived": {"marker": "o", "fillstyle": "left"},
        "published": {"marker": "o", "fillstyle": "none"},
        "predicted": {"marker": "D", "fillstyle": "none"},
    }.get(tier, {"marker": "s", "fillstyle": "none"})


def estimate_chart(
    rows: Sequence[Mapping[str, Any]],
    axis: str,
    lines: Sequence[float] = (),
    line: str = "",
    log: bool | None = None,
    ends: Sequence[str] = (),
    ticks: Mapping[float, str] | None = None,
) -> EstimateDrawing:
    """Return a drawing with a row per case: label, mark, interval and number.

    rows: each has label, estimate, low and high (None if unknown), text (printed at the end of the row), side (a key in
    SIDES, which gives the colour) and tier (evidence tier, which gives the marker). A row may also have `other`
    (position of a second mark), `one_round` (True for a hollow mark) and `group` (heading above the group's first row).
    axis: axis label.
    lines: the threshold, or both ends of a threshold range.
    line: name for the threshold or range, to print above it.
    log: True for a logarithmic axis; None adapts the scale to the span of the data.
    ends: names for the axis's two directions, to print below it.
    ticks: text for each place that may have a tick, if the axis is logarithmic; by default, ticks are round numbers.

    An interval that leaves the axis ends in an arrow at its edge.
    """

    def draw(width: float) -> Figure:
        room = 17 if is_narrow(width) else 30
        table = pd.DataFrame([{name: row.get(name) for name in ("estimate", "low", "high")} for row in rows])
        labels = [wrap_text(remove_invisible(str(row["label"])), room) or " " for row in rows]
        heads = group_heads(rows)
        sizes = [ROW + 0.16 * label.count("\n") + ROW * (at in heads) for at, label in enumerate(labels)]
        height = sum(sizes)
        figure = Figure(figsize=(width, max(height + 0.85, SHORTEST)))
        axes = figure.add_subplot()
        values = _axis_values(table, lines)
        logarithmic = _needs_log_axis(values) if log is None else log
        others = [float(row["other"]) for row in rows if row.get("other") is not None]
        span = _axis_span(values, [*table["estimate"].dropna(), *others, *lines], logarithmic)
        set_scale(axes, "x", span, logarithmic, width, ticks)
        left, right = axes.get_xlim()
        places = np.cumsum(sizes) - [(size - ROW * (at in heads)) / 2 for at, size in enumerate(sizes)]
        # On a phone, long headings end at the right edge of the axes, and reach above the labels.
        over_labels = is_narrow(width) and max(map(len, heads.values()), default=0) > room
        for at, head in heads.items():
            above = float(np.cumsum(sizes)[at] - sizes[at] + ROW / 2)
            axes.text(float(over_labels), above, fit_line(remove_invisible(head), width, 40), va="center",
                      ha="right" if over_labels else "left", weight="bold", color=INK, in_layout=not over_labels,
                      transform=axes.get_yaxis_transform())  # fmt: skip
        for place, row in zip(places, rows, strict=True):
            colour = SIDES.get(str(row.get("side", "")), BLUE)
            low, high = row.get("low"), row.get("high")
            if low is not None and high is not None and high > low:
                axes.plot([max(low, left), min(high, right)], [place, place], color=colour, linewidth=2.6,
                          solid_capstyle="butt", alpha=0.55)  # fmt: skip
                for edge, shape, leaves in ((left, "<", low < left), (right, ">", high > right)):
                    if leaves:
                        axes.plot([edge], [place], marker=shape, color=colour, markersize=6, clip_on=False)
            marks = [row[name] for name in ("estimate", "other") if row.get(name) is not None]
            tier = ONE_ROUND if row.get("one_round") else str(row.get("tier", "measured"))
            axes.plot(
                marks, [place] * len(marks), **marker_style(tier), markersize=7.5, color=colour,
                markerfacecoloralt=PAPER, markeredgecolor=colour, markeredgewidth=1.4, linestyle="none", zorder=3,
                clip_on=False,
            )  # fmt: skip
            # On a phone, leave room for an arrow at the edge.
            axes.text(
                1.06 if is_narrow(width) else 1.02,
                place,
                remove_invisible(str(row["text"])),
                transform=axes.get_yaxis_transform(),
                va="center",
                color=INK,
            )
        axes.set_ylim(height, 0)
        axes.set_yticks(places, labels)
        axes.tick_params(axis="y", length=0, pad=7)
        axes.grid(visible=False, axis="y")
        add_threshold(axes, lines, line, width)
        directions = f"\n← {ends[0]} | {ends[1]} →" if ends else ""
        axes.set_xlabel(axis_label(axis, logarithmic, width) + directions)
        axes.spines["left"].set_visible(False)
        return figure

    return EstimateDrawing(draw, rows, axis, lines, line, log, ends, ticks)


def fit_line(text: str, width: float, narrow: int = 30) -> str:
    """Shorten text to fit on one line. narrow: the most characters on a phone."""
    return textwrap.shorten(text, narrow if is_narrow(width) else 56, placeholder=" …")


def is_narrow(width: float) -> bool:
    """True if a figure of this width is for a phone."""
    return width <= NARROW + 1


def wrap_text(text: str, room: int) -> str:
    """Wrap text at `room` characters."""
    return "\n".join(textwrap.wrap(text, room))


def add_legend(figure: Figure, handles: Sequence[Any], width: float, below: bool = False) -> None:
    """Add a legend above or below the axes, with as many columns as fit; a single column on a phone."""
    # Each column needs 0.7 inches for its marker and a gap, and 0.08 inches per character in the longest label.
    room = width / (0.7 + 0.08 * max(len(str(handle.get_label())) for handle in handles))
    ncols = 1 if is_narrow(width) else max(1, min(3, len(handles), int(room)))
    figure.legend(handles=handles, loc="outside lower left" if below else "outside upper left", ncols=ncols)


def _axis_values(table: pd.DataFrame, lines: Sequence[float]) -> list[float]:
    """Collect all numbers that the axis must span."""
    values = [float(value) for name in table for value in table[name].dropna()]
    return [*values, *map(float, lines)]


def _needs_log_axis(values: Sequence[float]) -> bool:
    """True if all values are positive and span more than a factor of 8, so that a logarithmic axis suits them."""
    return min(values) > 0 and max(values) / min(values) > 8


# An axis reaches beyond its marks by at most this factor, or by this many times their span if it is not logarithmic.
_ROOM_FACTOR, _ROOM_SPANS = 5.0, 4.0


def _axis_span(values: Sequence[float], marks: Sequence[float], logarithmic: bool) -> tuple[float, float]:
    """Return the least and the greatest number on an axis, which need not reach the ends of long intervals.

    values: all numbers. marks: the numbers that must lie on the axis.
    """
    low, high = min(marks), max(marks)
    if logarithmic:
        inside = [value for value in values if low / _ROOM_FACTOR <= value <= high * _ROOM_FACTOR]
        return min(inside), max(inside)
    room = _ROOM_SPANS * ((high - low) or abs(high) or 1.0)
    return max(min(values), low - room), min(max(values), high + room)


def axis_label(axis: str, logarithmic: bool, width: float) -> str:
    """Wrap an axis label, and add "(logarithmic)" if the axis is logarithmic."""
    named = f"{axis} (logarithmic)" if logarithmic else axis
    return wrap_text(named, 34 if is_narrow(width) else 62)


def add_threshold(axes: Axes, lines: Sequence[float], called: str, width: float) -> None:
    """Draw a threshold as a line, or a range as a band, and print its name `called` above it.

    The limits of the axis must be set before.
    """
    if not len(lines):
        return
    if len(lines) == 2:
        axes.axvspan(*lines, color=GRID, alpha=0.55, linewidth=0, zorder=0)
    for line in lines:
        axes.axvline(line, color=INK, linewidth=1.3, zorder=1)
    places = axes.transAxes.inverted().transform(axes.transData.transform([(line, 0.0) for line in lines]))[:, 0]
    middle = float(np.clip(places, 0.0, 1.0).mean())
    # On a phone, labels to the left of the axes leave more room than there is to the right.
    leftmost, rightmost = (0.2, 0.5) if is_narrow(width) else (0.3, 0.7)
    side = "left" if middle < leftmost else "right" if middle > rightmost else "center"
    text = wrap_text(called, 32 if is_narrow(width) else 60)
    # The layout reserves height for an empty title, because it would shrink the axes to fit a wide name.
    axes.set_title("\n" * text.count("\n") + " ", fontsize=9.5)
    axes.set_title(text, loc="center", x=middle, ha=side, fontsize=9.5, color=MUTED, weight="normal").set_in_layout(
        False
    )


def set_scale(
    axes: Axes,
    which: str,
    ends: Sequence[float],
    logarithmic: bool,
    width: float,
    ticks: Mapping[float, str] | None = None,
) -> None:
    """Set the limits and ticks of an axis; tick labels are plain numbers without exponents.

    which: "x" or "y".
    ends: numbers that the axis must span.
    ticks: for a logarithmic axis, text for each place that may have a tick, in ascending order; a subset is printed.
    """
    low, high = min(ends), max(ends)
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    line = axes.xaxis if which == "x" else axes.yaxis
    if logarithmic:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        margin = max((high / low) ** 0.06, 1.15)
        limits(low / margin, high * margin)
        decades = np.log10(high / low)
        # An axis that spans at most this many decades gets extra ticks, at 2 and 5 times each power of ten. The limit
        # is lower along x on a phone, where labels have little space.
        room = 1.2 if which == "x" and is_narrow(width) else 2
        # On an axis over many decades the labels are long, so fewer fit.
        max_ticks = 5 if decades < (7 if room == 2 else 3) else 3 if is_narrow(width) else 4
        if room < 2 and high >= _LONG_TICK:
            max_ticks = 2
        line.set_major_locator(
            MaxNLocator(3 if is_narrow(width) else 4, steps=_STEPS)
            if decades < SHORT_DECADES
            else LogLocator(subs=(1.0,) if decades > room else (1.0, 2.0, 5.0), numticks=max_ticks)
        )
        line.set_minor_locator(NullLocator())
        line.set_minor_formatter(NullFormatter())
    else:
        pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
        limits(0.0 if low >= 0 and low < 0.6 * high else low - pad, high + pad)
        line.set_major_locator(MaxNLocator(3 if is_narrow(width) else 6, steps=_STEPS))
    line.set_major_formatter(FuncFormatter(lambda value, _at: format_tick(value)))
    if ticks and logarithmic:
        inside = _spread_ticks([place for place in ticks if low <= place <= high], high / low, is_narrow(width))
        line.set_major_locator(FixedLocator(inside))
        line.set_major_formatter(FixedFormatter([ticks[place] for place in inside]))


# From this number on, tick labels are so long that a phone has room for two.
_LONG_TICK = 1e4


def _spread_ticks(places: Sequence[float], span: float, narrow: bool) -> list[float]:
    """Return the ticks on a logarithmic axis that leave room for their texts. span: the largest over the smallest."""
    gap = span ** (0.6 if narrow else 0.25)
    spread: list[float] = []
    for place in places:
        if not spread or place >= gap * spread[-1]:
            spread.append(place)
    return spread


# Multiples of a power of ten at which an axis may have its ticks.
_STEPS = [1, 2, 5, 10]


def format_tick(value: float) -> str:
    """Format an axis number: 0.01, 5, 20,000, 2 million."""
    return format_exact(float(f"{value:.6g}"))


def line_chart(
    table: pd.DataFrame,
    x: str,
    y: str,
    hue: str | None = None,
    panel: str | None = None,
    axis: tuple[str, str] = ("", ""),
    levels: Mapping[str, float | Mapping[Any, float]] | None = None,
    log: tuple[bool, bool] = (True, True),
    joined: bool = True,
    regions: Sequence[tuple[str, float]] = (),
) -> Callable[[float], Figure]:
    """Return a drawing with a line per value in the column `hue`, and a panel per value in the column `panel`.

    table: a row per point. If it has the columns low and high, bars are drawn between them; if it has the column
    one_round, points with True in this column are hollow.
    axis: labels of the x axis and the y axis.
    levels: heights of horizontal lines, by the name to print at the line; one for all panels, or one by panel.
    log: True makes an axis logarithmic; first the x axis, then the y axis.
    joined: False draws points without lines, for data where values between two points mean nothing.
    regions: names and upper ends of ranges along x to shade, from the lowest range to the highest.
    """

    def draw(width: float) -> Figure:
        panels = list(dict.fromkeys(table[panel])) if panel else [""]
        across = 1 if is_narrow(width) else min(len(panels), 2)
        down = -(-len(panels) // across)
        figure = Figure(figsize=(width, (2.6 if across == 1 else 2.3) * down + 0.7))
        grid = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
        hues = list(dict.fromkeys(table[hue])) if hue else [""]
        colours = dict(zip(hues, itertools.cycle(SERIES), strict=False))
        marks = dict(zip(hues, itertools.cycle(MARKERS), strict=False))
        for axes, name in zip(grid, panels, strict=False):
            shown = table[table[panel] == name] if panel else table
            grouped = (
                {
                    "hue": hue,
                    "style": hue,
                    "palette": colours,
                    "hue_order": hues,
                    "style_order": hues,
                    "markers": marks,
                    "dashes": False,
                    "legend": False,
                }
                if hue
                else {"color": BLUE, "marker": "o"}
            )
            sns.lineplot(shown, x=x, y=y, estimator=None, ax=axes, markeredgecolor=PAPER,
                         linestyle="-" if joined else "none", **grouped)  # fmt: skip
            if {"low", "high"} <= set(shown):
                for key, part in shown.groupby(hue, sort=False, observed=True) if hue else [("", shown)]:
                    axes.vlines(part[x], part["low"], part["high"], color=colours[key], alpha=0.5, linewidth=2)
            if "one_round" in shown:
                alone = shown[shown["one_round"].eq(True)]
                for key, part in alone.groupby(hue, sort=False, observed=True) if hue else [("", alone)]:
                    axes.plot(part[x], part[y], marker=marks[key], markerfacecolor=PAPER, markeredgecolor=colours[key],
                              linestyle="none", zorder=3)  # fmt: skip
            for called, height in (levels or {}).items():
                value = height.get(name) if isinstance(height, Mapping) else height
                if value is None:
                    continue
                axes.axhline(value, color=MUTED, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
                axes.annotate(called, (0.01, value), xycoords=axes.get_yaxis_transform(), color=MUTED,
                              textcoords="offset points", xytext=(0, 2), va="bottom")  # fmt: skip
            if name:
                axes.set_title(str(name))
            axes.tick_params(labelbottom=True)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        first = figure.axes[0]
        set_scale(first, "x", list(table[x].dropna()), log[0], width)
        heights = [
            value
            for height in (levels or {}).values()
            for value in (height.values() if isinstance(height, Mapping) else [height])
        ]
        values = [*table[y].dropna(), *heights]
        logarithmic = log[1] and min(values) > 0
        intervals = table[[name for name in ("low", "high") if name in table]].astype(float)
        bounds = [bound for bound in intervals.to_numpy().ravel() if np.isfinite(bound)]
        set_scale(first, "y", _axis_span([*values, *bounds], values, logarithmic), logarithmic, width)
        flags = (log[0], logarithmic)
        names = [f"{name} (logarithmic)" if flag else name for name, flag in zip(axis, flags, strict=True)]
        room = 34 if across == 2 or is_narrow(width) else 70
        for at, axes in enumerate(grid[: len(panels)]):
            axes.set_xlabel(wrap_text(names[0], room) if at + across >= len(panels) else "")
            axes.set_ylabel("" if at % across else wrap_text(names[1], 26))
            _shade_regions(axes, regions)
            shown = table[table[panel] == panels[at]] if panel else table
            if {"low", "high"} <= set(shown):
                for key, part in shown.groupby(hue, sort=False, observed=True) if hue else [("", shown)]:
                    ends = zip(part["low"], part["high"], strict=True)
                    mark_cut_intervals(axes, "y", part[x], ends, colours[key])
        handles = [
            matplotlib.lines.Line2D(
                [], [], color=colours[level], marker=marks[level], label=str(level), linestyle="-" if joined else "none"
            )
            for level in (hues if hue and len(hues) > 1 else ())
        ]
        if "one_round" in table and table["one_round"].eq(True).any():
            handles.append(
                matplotlib.lines.Line2D(
                    [], [], color=MUTED, marker="o", markerfacecolor=PAPER, label=ONE_ROUND, linestyle="none"
                )
            )
        if handles:
            add_legend(figure, handles, width)
        return figure

    return draw


def mark_cut_intervals(
    axes: Axes, which: str, places: Iterable[float], intervals: Iterable[tuple[Any, Any]], colour: str
) -> None:
    """Draw an arrow at the frame for each interval that goes on beyond it.

    which: "x" if intervals lie along the x axis, else "y".
    places: each interval's position along the other axis.
    intervals: lower and upper bounds; None or NaN if unknown.
    """
    limits, signs = (axes.get_xlim(), "<>") if which == "x" else (axes.get_ylim(), "v^")
    for place, bounds in zip(places, intervals, strict=True):
        for bound, limit, sign, beyond in zip(bounds, limits, signs, (np.less, np.greater), strict=True):
            if not pd.isna(bound) and beyond(bound, limit):
                at = (limit, place) if which == "x" else (place, limit)
                axes.plot(*([value] for value in at), marker=sign, color=colour, markersize=5, linestyle="none",
                          clip_on=False, zorder=4)  # fmt: skip


def _shade_regions(axes: Axes, regions: Sequence[tuple[str, float]]) -> None:
    """Shade ranges along x within the axis limits, every second range darker, and print their names at the top."""
    low, most = axes.get_xlim()
    for at, (name, end) in enumerate(regions):
        high = min(end, most)
        if low < high:
            axes.axvspan(low, high, color=GRID, alpha=0.2 if at % 2 else 0.5, linewidth=0, zorder=0)
            middle = (low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2
            axes.text(middle, 0.99, name, transform=axes.get_xaxis_transform(), ha="center", va="top", color=MUTED)
            low = high


def bar_chart(
    table: pd.DataFrame, x: str, y: str, axis: str, hue: str | None = None, stacked: bool = False
) -> Callable[[float], Figure]:
    """Return a drawing with horizontal bars from zero: a row per value in `y`, a bar per value in `hue`.

    stacked: True stacks the bars in a row; False draws them one below the other.
    """

    def draw(width: float) -> Figure:
        room = 17 if is_narrow(width) else 30
        names = list(dict.fromkeys(map(str, table[y])))
        labels = {name: wrap_text(name, room) or " " for name in names}
        hues = list(dict.fromkeys(table[hue])) if hue else []
        row_height = ROW * (1 if stacked or not hue else max(1.0, 0.62 * len(hues)))
        height = sum(max(row_height, 0.19 * (1 + label.count("\n"))) + 0.06 for label in labels.values())
        legend = 0.22 * len(hues) if is_narrow(width) else 0.3
        figure = Figure(figsize=(width, height + 0.7 + (legend if hue else 0)))
        axes = figure.add_subplot()
        shown = table.assign(**{y: [labels[str(name)] for name in table[y]]})
        palette = dict(zip(hues, itertools.cycle(SERIES), strict=False))
        if stacked and hue:
            left = np.zeros(len(names))
            for level in hues:
                part = (
                    shown[shown[hue] == level]
                    .groupby(y, sort=False, observed=True)[x]
                    .sum()
                    .reindex(list(labels.values()))
                    .fillna(0)
                )
                axes.barh(list(labels.values()), part, left=left, color=palette[level], label=str(level), height=0.7)
                left += part.to_numpy()
            axes.invert_yaxis()
        else:
            sns.barplot(shown, x=x, y=y, hue=hue, palette=palette or None, color=None if hue else BLUE, ax=axes,
                        saturation=1, errorbar=None, legend=False, order=list(labels.values()))  # fmt: skip
        axes.set_ylabel("")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        total = shown.groupby(y, observed=True)[x].sum() if stacked else shown[x]
        axes.set_xlim(0, float(total.max()) * 1.05 or 1)
        axes.xaxis.set_major_locator(MaxNLocator(3 if is_narrow(width) else 6, steps=_STEPS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _at: format_tick(value)))
        axes.set_xlabel(axis_label(axis, False, width))
        axes.spines["left"].set_visible(False)
        if hue:
            handles = [matplotlib.patches.Patch(color=palette[hue], label=str(hue)) for hue in hues]
            add_legend(figure, handles, width)
        return figure

    return draw


def heat_map(
    table: pd.DataFrame, x: str, y: str, value: str, axis: tuple[str, str], called: str, text: str | None = None
) -> Callable[[float], Figure]:
    """Return a drawing of a heat map with a number in each cell.

    Larger numbers have stronger colours. Names of columns are wrapped.
    """

    def draw(width: float) -> Figure:
        grid = table.pivot(index=y, columns=x, values=value)
        words = table.pivot(index=y, columns=x, values=text) if text else grid.map(lambda cell: format_number(cell, 2))
        names = [wrap_text(str(name), 10 if is_narrow(width) else 20) for name in grid.columns]
        labels = [wrap_text(str(name), 14 if is_narrow(width) else 30) for name in grid.index]
        lines = max(name.count("\n") + 1 for name in names)
        height = sum(0.34 + 0.1 * label.count("\n") for label in labels)
        figure = Figure(figsize=(width, height + 0.95 + 0.16 * lines))
        axes = figure.add_subplot()
        sns.heatmap(grid, annot=words, fmt="", cmap=ListedColormap(list(HEAT)), cbar=False, ax=axes, linewidths=1.2,
                    linecolor=PAPER, xticklabels=names, yticklabels=labels,
                    annot_kws={"fontsize": 9.5, "color": INK})  # fmt: skip
        axes.set_xlabel(wrap_text(axis[0], 24 if is_narrow(width) else 62))
        axes.set_ylabel(axis[1])
        axes.set_title(called, fontsize=9.5)
        axes.tick_params(length=0, rotation=0)
        return figure

    return draw
