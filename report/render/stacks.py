"""Draws stacked bars: rows that are each split into their parts, every bar as long as the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from report.formatting import number, several
from report.render import strokes
from report.render.dots import legend_lines
from report.render.figures import MUTED, PLATE, Drawing, name_axis

# All in inches.
_WIDTH, _FOOT, _GAP, _ROW, _HEAD, _LEGEND = 4.5, 0.44, 0.06, 0.21, 0.22, 0.2
_CHARACTER, _SIZE = 0.061, 7.8
_WITHOUT = " No interval is drawn at the parts of a bar: they are shares of one whole and vary together."
# A part that is narrower has no room for its number.
_WRITTEN = 0.09


def drawing(name: str, shows: Mapping[str, Any], caption: str, about: str) -> Drawing:
    """A figure of groups of rows; its text is `about` and each row with its parts.

    `shows`: groups of {title, rows}; a row of {label, told, shares}, told at the right, its
    shares of the whole in the order of `parts`: {label, colour} each. x names the axis.
    """
    names = [part["label"] for part in shows["parts"]]
    told = []
    for group in shows["groups"]:
        rows = [
            f"{row['label']}, {row['told']}: "
            + several([f"{name} {_percent(share)}" for name, share in zip(names, row["shares"], strict=True)])
            for row in group["rows"]
        ]
        told.append(f"{group['title']}: {'; '.join(rows)}.")
    return Drawing(name, shows, draw, " ".join([about, *told]), f"{caption}{_WITHOUT}")


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)}%" if share >= 0.005 else "under 1%"


def draw(shows: Mapping[str, Any]) -> Figure:
    """One axis under all groups."""
    groups, parts = shows["groups"], shows["parts"]
    rows = [row for group in groups for row in group["rows"]]
    left = 0.12 + _CHARACTER * max(len(row["label"]) for row in rows)
    right = 0.14 + _CHARACTER * max(len(row["told"]) for row in rows)
    lines = legend_lines(parts, 0.32)
    body = sum(_HEAD + _ROW * len(group["rows"]) for group in groups) + _GAP * (len(groups) - 1)
    total = _LEGEND * len(lines) + body + _FOOT + 0.05
    figure = Figure(figsize=(_WIDTH, total))
    axes = figure.add_axes((left / _WIDTH, _FOOT / total, (_WIDTH - left - right) / _WIDTH, body / total))
    axes.set_xlim(0, 1)
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _place: f"{100 * share:.0f}"))
    name_axis(axes, "x", shows["x"], "%", labelpad=2)
    wide = _WIDTH - left - right
    top = 0.0
    for group in groups:
        axes.text(-(left - 0.04) / wide, top + _HEAD - 0.07, group["title"], fontsize=9, fontweight="bold")
        for place, row in enumerate(group["rows"]):
            _row(axes, row, parts, top + _HEAD + (place + 0.5) * _ROW, left / wide, right / wide)
        top += _HEAD + _ROW * len(group["rows"]) + _GAP
    for number_, line in enumerate(lines):
        y = 1 - (number_ + 0.45) * _LEGEND / total
        for x, part in line:
            box = (x / _WIDTH, y - 0.045 / total), 0.09 / _WIDTH, 0.09 / total
            strokes.key(figure, Rectangle(*box, color=part["colour"], linewidth=0))
            figure.text((x + 0.14) / _WIDTH, y, part["label"], fontsize=_SIZE, va="center")
    return figure


def _row(axes: Axes, row: Mapping[str, Any], parts: Any, middle: float, left: float, right: float) -> None:
    start = 0.0
    for share, part in zip(row["shares"], parts, strict=True):
        strokes.bar(axes, middle, start, share, _ROW * 0.72, color=part["colour"], linewidth=0)
        if share >= _WRITTEN:
            axes.text(
                start + share / 2, middle, f"{100 * share:.0f}", color=PLATE, fontsize=7, ha="center", va="center"
            )
        start += share
    axes.text(-left + 0.02, middle, row["label"], fontsize=_SIZE, va="center", ha="left")
    axes.text(1 + right - 0.02, middle, row["told"], fontsize=_SIZE, va="center", ha="right", color=MUTED)
