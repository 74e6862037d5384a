"""Draws territories: rows of bars along a size, coloured by who is ahead there, and where that changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from report.formatting import exactly, prefix
from report.render import strokes
from report.render.central.rungs import WIDTH
from report.render.dots import legend_lines
from report.render.figures import GREY, INK, MUTED, PLATE, PURPLE, Drawing, log_ticks, name_axis

# All in inches.
_FOOT, _ROW, _OF_SEVERAL, _HEAD, _LEGEND, _BAR = 0.46, 0.21, 0.175, 0.27, 0.22, 0.055
_CHARACTER, _SIZE, _SMALL = 0.061, 7.8, 7.0
# What a bar, or the axis, has beyond its ends, as a power of the axis's span.
_BEYOND, _MARGIN = 0.012, 0.035


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of territories; its text is `about` and what each row tells.

    `shows`: panels of {title, x, unit, rows}, each with an axis of its own; a row of {label, machine (where there are
    several), sizes, sides (1, -1 or 0 at each size), words (of each size), turn (estimate, low and high, or None),
    turn_words, told, ends (for who hears the figure)}; colours and names by side, as text; turn: the name of such a
    place.
    """
    told = []
    for panel in shows["panels"]:
        rows = "; ".join(f"{_named(row)}: {row['told']}, {row['ends']}" for row in panel["rows"])
        told.append(f"{panel['title']}: {rows}.")
    return Drawing(name, shows, draw, " ".join([about, *told]), caption)


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['label']}, {row['machine']}" if row["machine"] else str(row["label"])


def draw(shows: Mapping[str, Any]) -> Figure:
    """A panel for each kind of size, one under the other."""
    panels = shows["panels"]
    rows = [row for panel in panels for row in panel["rows"]]
    left = 0.14 + _CHARACTER * max(len(row["label"]) for row in rows)
    # Set smaller, and between the label and the axis.
    left += 0.9 * _CHARACTER * max(2 + len(row["machine"]) if row["machine"] else 0 for row in rows)
    right = 0.16 + _CHARACTER * max(len(row["told"]) for row in rows)
    deep = _OF_SEVERAL if any(row["machine"] for row in rows) else _ROW
    lines = legend_lines(_legend(shows), 0.34, WIDTH)
    heights = [_HEAD + deep * len(panel["rows"]) + _FOOT for panel in panels]
    total = _LEGEND * len(lines) + sum(heights)
    figure = Figure(figsize=(WIDTH, total))
    top = total - _LEGEND * len(lines)
    for panel, height in zip(panels, heights, strict=True):
        body = deep * len(panel["rows"])
        box = (left / WIDTH, (top - _HEAD - body) / total, (WIDTH - left - right) / WIDTH, body / total)
        _panel(figure.add_axes(box), panel, shows["colours"], deep, left, right)
        top -= height
    for number, line in enumerate(lines):
        for x, entry in line:
            _key(figure, entry, x / WIDTH, 1 - (number + 0.5) * _LEGEND / total, total)
    return figure


def _panel(
    axes: Axes, panel: Mapping[str, Any], colours: Mapping[str, str], deep: float, left: float, right: float
) -> None:
    rows, unit = panel["rows"], panel["unit"]
    ends = list(_ends(rows))
    low, high = min(ends), max(ends)
    if low == high:
        low, high = low / 3, high * 3
    span = high / low
    wide = WIDTH - left - right
    axes.set_xscale("log")
    axes.set_xlim(low / span**_MARGIN, high * span**_MARGIN)
    axes.set_ylim(deep * len(rows), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    log_ticks(axes, words=lambda value: _tick(value, unit))
    axes.xaxis.set_minor_locator(NullLocator())
    # The lines of the grid mark the ticks.
    axes.tick_params(bottom=False)
    # Each tick bears its unit.
    name_axis(axes, "x", panel["x"], log=True, labelpad=2)
    axes.text(-(left - 0.04) / wide, -0.09, panel["title"], transform=axes.get_yaxis_transform(), fontsize=9,
              fontweight="bold", va="bottom")  # fmt: skip
    for place, row in enumerate(rows):
        middle = deep * (place + 0.5)
        _bars(axes, row, middle, span**_BEYOND, colours)
        again = place > 0 and rows[place - 1]["label"] == row["label"]
        _words(axes, row, middle, left / wide, right / wide, "" if again else row["label"])


def _ends(rows: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for row in rows:
        yield from row["sizes"]


def _bars(axes: Axes, row: Mapping[str, Any], middle: float, beyond: float, colours: Mapping[str, str]) -> None:
    """Bars over neighbouring sizes with the same side, a notch at each size, and where it turns."""
    for side, run in groupby(zip(row["sides"], row["sizes"], strict=True), key=lambda pair: pair[0]):
        sizes = [size for _, size in run]
        strokes.track(axes, [sizes[0] / beyond, sizes[-1] * beyond], middle - _BAR, middle + _BAR,
                      color=colours.get(str(side), GREY), linewidth=0)  # fmt: skip
    strokes.points(axes, row["sizes"], [middle] * len(row["sizes"]), told=row["words"], marker="|", markersize=3.6,
                   color=PLATE, markeredgewidth=1.0)  # fmt: skip
    if row["turn"]:
        estimate, low, high = row["turn"]
        strokes.interval(axes, low, high, middle, color=INK, linewidth=1.3, solid_capstyle="butt")
        strokes.points(axes, [estimate], [middle], told=[row["turn_words"]], marker="D", markersize=4.2, color=INK,
                       markeredgewidth=0.8, markeredgecolor=PLATE)  # fmt: skip


def _words(axes: Axes, row: Mapping[str, Any], middle: float, left: float, right: float, label: str) -> None:
    across = axes.get_yaxis_transform()
    if label:
        axes.text(-left + 0.012, middle, label, transform=across, fontsize=_SIZE, va="center")
    if row["machine"]:
        axes.text(-0.012, middle, row["machine"], transform=across, fontsize=_SMALL, va="center", ha="right",
                  color=MUTED)  # fmt: skip
    axes.text(1 + right - 0.012, middle, row["told"], transform=across, fontsize=_SIZE, va="center", ha="right",
              color=MUTED)  # fmt: skip


def _tick(value: float, unit: str) -> str:
    """A tick's size in few characters: 100 kB, 10,000, 1 million."""
    scale, name = prefix(value * (1 + 1e-9), unit)
    return f"{exactly(float(f'{value / scale:.6g}'))} {name}".strip()


def _legend(shows: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What occurs of: who is ahead, nobody, and where it turns."""
    rows = [row for panel in shows["panels"] for row in panel["rows"]]
    seen = {str(side) for row in rows for side in row["sides"]}
    entries: list[dict[str, Any]] = [
        {"label": name, "colour": shows["colours"].get(side, GREY)}
        for side, name in shows["names"].items()
        if side in seen
    ]
    if any(row["turn"] for row in rows):
        entries.append({"label": shows["turn"], "marker": "D"})
    return entries


def _key(figure: Figure, entry: Mapping[str, Any], x: float, y: float, total: float) -> None:
    if "marker" in entry:
        strokes.key(figure, Line2D([x + 0.09 / WIDTH], [y], marker=entry["marker"], color=INK, linestyle="none",
                                   markersize=4.6))  # fmt: skip
    else:
        look: dict[str, Any] = {"facecolor": entry.get("colour", PLATE), "linewidth": 0}
        if entry.get("hatched"):
            look |= {"edgecolor": PURPLE, "hatch": "/////", "linestyle": "--", "linewidth": 0.8}
        strokes.key(figure, Rectangle((x, y - 0.05 / total), 0.18 / WIDTH, 0.1 / total, **look))
    figure.text(x + 0.24 / WIDTH, y, entry["label"], fontsize=_SIZE, va="center")
