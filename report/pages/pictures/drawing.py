"""Draw scatter charts with names at the marks, and time axes in the units that people use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from report.pages.charts import (
    BLUE,
    GRID,
    INK,
    MUTED,
    PAPER,
    VERMILION,
    add_legend,
    axis_label,
    format_tick,
    is_narrow,
    marker_style,
)

# Ticks for times, in hours, with their labels.
TIMES = (
    (1 / 3600, "1 s"), (1 / 60, "1 min"), (1.0, "1 hour"), (24.0, "1 day"), (8766.0, "1 year"),
    (876_600.0, "100\nyears"), (87_660_000.0, "10,000\nyears"), (8_766_000_000.0, "1 million\nyears"),
)  # fmt: skip
# Ticks for hours, over two or three decades.
HOURS = (
    (1 / 60, "1 min"), (1 / 6, "10 min"), (0.5, "30 min"), (1.0, "1 hour"), (3.0, "3 hours"), (10.0, "10 hours"),
    (24.0, "1 day"), (72.0, "3 days"), (240.0, "10 days"),
)  # fmt: skip
# Text sizes on a chart in inches: a letter's mean width and a line's height.
_LETTER, _LINE = 0.064, 0.17


@dataclass(frozen=True)
class Point:
    """A mark on a scatter chart.

    low, high: ends of the interval along y, equal to y if unknown. tier: evidence tier, which gives the marker.
    is_gpu: gives the colour. rank: points with lower ranks are named first.
    """

    x: float
    y: float
    low: float
    high: float
    label: str = ""
    tier: str = "published"
    is_gpu: bool = True
    rank: int = 0


def scatter_chart(
    points: Sequence[Point],
    axes_labels: tuple[str, str],
    ticks: Sequence[tuple[float, str]] = (),
    line: tuple[float, str] | None = None,
) -> Callable[[float], Figure]:
    """Return a drawing of points on two logarithmic axes, with a name at each mark that has room for one.

    ticks: ticks for the x axis with their labels; without them, ticks from `round_ticks`.
    line: slope for a line y = slope * x, and its name.
    """

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 3.6 if is_narrow(width) else 3.9))
        axes = figure.add_subplot()
        axes.set_xscale("log")
        axes.set_yscale("log")
        limits = [_padded_limits([point.x for point in points], 0.12), _padded_limits(_heights(points), 0.08)]
        axes.set_xlim(*limits[0])
        axes.set_ylim(*limits[1])
        if line:
            ends = np.array(limits[0])
            axes.plot(ends, ends * line[0], color=MUTED, linewidth=1.2, linestyle="--", zorder=1)
        for point in points:
            colour = VERMILION if point.is_gpu else BLUE
            if point.high > point.low:
                axes.plot([point.x, point.x], [point.low, point.high], color=colour, linewidth=2.6, alpha=0.5)
            axes.plot([point.x], [point.y], **marker_style(point.tier), markersize=7, color=colour, linestyle="none",
                      markerfacecoloralt=PAPER, markeredgecolor=colour, markeredgewidth=1.4, zorder=3)  # fmt: skip
        for point, place, align in _label_places(points, limits, width):
            axes.text(*place, point.label, transform=axes.transAxes, ha=align, va="center", color=INK, fontsize=9)
        _set_ticks(axes.xaxis, limits[0], ticks or round_ticks(limits[0]), 4 if is_narrow(width) else 9)
        _set_ticks(axes.yaxis, limits[1], round_ticks(limits[1]), 9)
        axes.set_xlabel(axis_label(axes_labels[0], not ticks, width))
        axes.set_ylabel(axis_label(axes_labels[1], True, width))
        _add_devices_legend(figure, points, line, width)
        return figure

    return draw


def _heights(points: Sequence[Point]) -> list[float]:
    return [value for point in points for value in (point.low, point.y, point.high)]


def _padded_limits(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return limits on a logarithmic axis, with room beyond the values: `share`, relative to the axis, at each end."""
    low, high = np.log10(min(values)), np.log10(max(values))
    pad = max((high - low) * share, 0.1)
    return float(10 ** (low - pad)), float(10 ** (high + pad))


def _label_places(
    points: Sequence[Point], limits: Sequence[tuple[float, float]], width: float
) -> Iterator[tuple[Point, tuple[float, float], str]]:
    """Yield points with a place for their label in axes coordinates and its alignment; skip points without room.

    Each label tries the right of its mark, the left, then above and below, centred or to one side. It takes the first
    place that covers no mark and no label.
    """
    room = (width - 0.95, 2.4 if is_narrow(width) else 2.9)

    def position(point: Point) -> tuple[float, float]:
        x, y = (
            (np.log(value) - np.log(low)) / (np.log(high) - np.log(low))
            for value, (low, high) in zip((point.x, point.y), limits, strict=True)
        )
        return float(x), float(y)

    half = _LINE / 2 / room[1]
    taken = [(x - 0.012, y - half * 0.6, x + 0.012, y + half * 0.6) for x, y in map(position, points)]
    for point in sorted(points, key=lambda point: point.rank):
        x, y = position(point)
        length = len(point.label) * _LETTER / room[0]
        for at_x, at_y, align, left in (
            (x + 0.02, y, "left", x + 0.02),
            (x - 0.02, y, "right", x - 0.02 - length),
            *(
                (x, y + side * 2.2 * half, align, x - share * length)
                for side in (1, -1)
                for align, share in (("center", 0.5), ("left", 0.0), ("right", 1.0))
            ),
        ):
            box = (left, at_y - half, left + length, at_y + half)
            inside = box[0] >= 0 and box[2] <= 1.01 and box[1] >= 0 and box[3] <= 1
            if point.label and inside and not any(_boxes_overlap(box, other) for other in taken):
                taken.append(box)
                yield point, (at_x, at_y), align
                break


def _boxes_overlap(box: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def round_ticks(limits: tuple[float, float]) -> list[tuple[float, str]]:
    """Return ticks at 1, 2, 5, 10, 20 and so on; at 1, 10, 100 and so on over more than two decades."""
    low, high = limits
    steps = (1, 2, 5) if high / low < 300 else (1,)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [(step * 10.0**power, format_tick(step * 10.0**power)) for power in powers for step in steps]


def _set_ticks(axis: Axis, limits: tuple[float, float], ticks: Sequence[tuple[float, str]], most: int) -> None:
    """Show at most `most` ticks within the limits, evenly chosen."""
    shown = [tick for tick in ticks if limits[0] <= tick[0] <= limits[1]]
    shown = shown[:: -(-len(shown) // most)]
    axis.set_major_locator(FixedLocator([place for place, _ in shown]))
    axis.set_major_formatter(FixedFormatter([text for _, text in shown]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def set_time_ticks(axes: Axes, limits: tuple[float, float], width: float) -> None:
    """Set ticks from TIMES on a logarithmic x axis in hours; fewer on a phone."""
    _set_ticks(axes.xaxis, limits, TIMES, 4 if is_narrow(width) else 8)


def _add_devices_legend(figure: Figure, points: Sequence[Point], line: tuple[float, str] | None, width: float) -> None:
    """Add a legend for colours and the line, if the chart has both colours or a line."""
    kinds = [(True, VERMILION, "GPU"), (False, BLUE, "CPU")]
    handles = [
        Line2D([], [], color=colour, marker="o", linestyle="none", label=name)
        for is_gpu, colour, name in kinds
        if any(point.is_gpu is is_gpu for point in points)
    ]
    if line:
        handles.append(Line2D([], [], color=MUTED, linestyle="--", linewidth=1.2, label=line[1]))
    if len(handles) > 1:
        add_legend(figure, handles, width)


def connect_marks(axes: Axes, values: Sequence[float], place: float) -> None:
    """Draw a thin line between the smallest and the largest value in a row."""
    axes.plot([min(values), max(values)], [place, place], color=GRID, linewidth=2.2, zorder=1)
