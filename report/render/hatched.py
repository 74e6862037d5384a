"""Draws predictions: hatched bars with dashed edges, as nothing measured is drawn; open at the end that is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from report.render import strokes
from report.render.figures import INK, MUTED, PLATE, PURPLE, Drawing, log_ticks, name_axis

# All in inches.
_WIDTH, _FOOT, _ROW, _HEAD, _CHARACTER = 4.5, 0.44, 0.25, 0.24, 0.061
_SIZE = 7.8
# The word that stands in every such figure.
WORD = "predicted, not measured"


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of ranges, one a row; its text is `about` and what each row tells.

    shows: rows of {label, low, high, open, told}: a bar from low to high, whose right end is a limit and no value
    where it is open. x names the axis, one what 1 on it is.
    """
    rows: Sequence[Mapping[str, Any]] = shows["rows"]
    told = "; ".join(f"{row['label']}: {row['told']}" for row in rows)
    return Drawing(name, shows, draw, f"{about} {told}.", caption)


def draw(shows: Mapping[str, Any]) -> Figure:
    """One logarithmic axis under all rows."""
    rows = shows["rows"]
    left = min(1.9, 0.12 + _CHARACTER * max(len(row["label"]) for row in rows))
    right = 0.14 + _CHARACTER * max(len(row["told"]) for row in rows)
    body = _ROW * len(rows)
    total = _HEAD + body + _FOOT + 0.05
    figure = Figure(figsize=(_WIDTH, total))
    axes = figure.add_axes((left / _WIDTH, _FOOT / total, (_WIDTH - left - right) / _WIDTH, body / total))
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    ends = [row[end] for row in rows for end in ("low", "high")] + [1.0]
    margin = (max(ends) / min(ends)) ** 0.05 * 1.1
    axes.set_xlim(min(ends) / margin, max(ends) * margin)
    log_ticks(axes, words=_short)
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=6))
    strokes.upright(axes, 1.0, color=INK, linewidth=1.0, linestyle=(0, (5, 2)))
    for place, row in enumerate(rows):
        middle = place + 0.5
        strokes.predicted(axes, row["low"], row["high"], middle, 0.5, facecolor=PLATE, edgecolor=PURPLE,
                          hatch="/////", linestyle="--", linewidth=0.9)  # fmt: skip
        if row["open"]:
            # What is known is only that the value lies nowhere to the right.
            strokes.points(
                axes, [row["high"]], [middle], marker="<", markersize=4.6, color=PURPLE, markerfacecolor=PLATE
            )
        across = axes.get_yaxis_transform()
        box = axes.get_position()
        axes.text(-box.x0 / box.width + 0.01, middle, row["label"], transform=across, fontsize=_SIZE, va="center")
        end = (1 - box.x0) / box.width - 0.01
        axes.text(end, middle, row["told"], transform=across, fontsize=_SIZE, va="center", ha="right", color=MUTED)
    name_axis(axes, "x", shows["x"], log=True, labelpad=2)
    figure.text(0.02, 1 - 0.55 * _HEAD / total, WORD, fontsize=_SIZE, fontstyle="italic", color=PURPLE, va="center")
    figure.text(0.98, 1 - 0.55 * _HEAD / total, shows["one"], fontsize=7.2, color=INK, va="center", ha="right")
    return figure


def _short(value: float) -> str:
    """A tick in few characters: 10, 1k, 100k, 1M."""
    for size, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{word}"
    return f"{value:g}"
