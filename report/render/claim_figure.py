"""One claim's figure: every interval against the threshold that decides it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.formatting import YES_NO, exactly, prefix, threshold_text
from report.render import strokes
from report.render.cells import nearness
from report.render.figures import (
    GRID,
    INK,
    MUTED,
    OUTCOME,
    PLATE,
    Drawing,
    linear_ticks,
    log_ticks,
    name_axis,
    without_interval,
)
from report.render.markdown import clean
from report.render.words import LEVEL, quantity_name, with_interval

# Rows beyond this many would make a figure that nobody reads; the table holds them all.
MOST_ROWS = 8
# All in inches. Each row is text over a track; marks stay within the track, so that none crosses the text.
_WIDTH, _HEAD, _NAME, _FOOT, _GAP = 4.1, 0.3, 0.2, 0.44, 0.12
_LINE, _TRACK, _AFTER = 0.145, 0.13, 0.1
_BOLD = 0.072  # width of a bold character of the threshold's label
_CHARACTERS = 58  # of a row's text, at its size, in the figure's width


def claim_drawing(verdict: Mapping[str, Any], machines: Mapping[str, str] | None = None) -> Drawing | None:
    """The figure of a verdict's cells, or None if nothing has been found yet, or nothing but a yes or a no.

    machines: the nodes' names by id, which cells of several nodes bear.
    """
    panels = [_panel(part, machines or {}) for part in _parts(verdict) if part.get("unit") != YES_NO]
    panels = [panel for panel in panels if panel["rows"]]
    if not panels:
        return None
    shows = {"panels": panels, "tier": verdict.get("evidence_tier", "none")}
    return Drawing(str(verdict["id"]), shows, draw, _alt(verdict, panels), _caption(panels, shows["tier"]))


def _parts(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each part with the cells that belong to it."""
    cells = verdict.get("cells") or []
    parts = verdict.get("parts") or []
    if len(parts) <= 1:
        return [{**verdict, **(parts[0] if parts else {}), "name": "", "cells": cells}]
    return [{**part, "cells": [cell for cell in cells if cell.get("part") == part.get("name")]} for part in parts]


def _panel(part: Mapping[str, Any], machines: Mapping[str, str]) -> dict[str, Any]:
    """What one panel shows, in the units of its axis."""
    unit = str(part.get("unit") or "1")
    cells = [cell for cell in part["cells"] if cell.get("estimate") is not None]
    declared = _numbers(part.get("threshold"))
    # Those nearest to the threshold are the ones that could change the verdict.
    cells.sort(key=lambda cell: nearness(cell["estimate"], part.get("threshold")))
    shown = sorted(cells[:MOST_ROWS], key=lambda cell: cell["estimate"])
    scale, name = prefix(max((abs(cell["estimate"]) for cell in shown), default=0.0), unit)
    several = len({cell["node"] for cell in cells if cell.get("node")}) > 1
    rows = [_cell(cell, unit, scale, machines if several else {}) for cell in shown]
    lines = [line / scale for line in declared]
    span, logarithmic = _range(rows, lines) if rows else ([0.0, 1.0], False)
    also = sorted({line / scale for line in _numbers(part.get("sensitivity"))} - set(lines))
    return {
        "title": str(part.get("name") or ""),
        "axis": _axis(part),
        "unit": name,
        "lines": lines,
        "words": threshold_text(part["threshold"], unit) if lines else "",
        "also": [line for line in also if span[0] <= line <= span[1]],
        "rows": rows,
        "unchecked": part.get("checked") == "",
        "others": part.get("tier") == "published",
        "of": len(cells),
        "span": span,
        "log": logarithmic,
    }


def _axis(part: Mapping[str, Any]) -> str:
    """What the compared values are: the quantity, as the rule and the scale of the claim transform it."""
    axis = quantity_name(str(part.get("quantity") or "")) or "published figure"
    axis = {"ratio": "ratio of {}", "trend": "growth exponent of {}", "crossover": "crossover of {}"}.get(
        str(part.get("rule")), "{}"
    ).format(axis)
    scale = part.get("scale")
    return f"{axis} × {exactly(float(scale))}" if isinstance(scale, int | float) and scale != 1 else axis


def _cell(cell: Mapping[str, Any], unit: str, scale: float, machines: Mapping[str, str]) -> dict[str, Any]:
    """One row: its label, its numbers in words, and the numbers in the units of the axis."""
    machine, label = machines.get(str(cell.get("node"))), cell.get("label")
    name = clean(": ".join(filter(None, [machine, label])) or str(cell.get("node") or ""))
    told = with_interval(cell, unit)
    return {
        "name": name,
        "label": _wrapped(name, told),
        "told": told,
        "outcome": cell.get("outcome") if cell.get("outcome") in OUTCOME else "undecided",
        **{key: cell[key] / scale if cell.get(key) is not None else None for key in ("estimate", "low", "high")},
    }


def _numbers(value: Any) -> list[float]:
    """Every number in a threshold, a pair of them, or a list of either."""
    if isinstance(value, list):
        return [one for part in value for one in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def draw(shows: Mapping[str, Any]) -> Figure:
    """Panels of rows: label, point, interval; the threshold as a line, its alternatives dotted."""
    panels = shows["panels"]
    heads = [_HEAD + (_NAME if panel["title"] else 0) for panel in panels]
    heights = [head + _row(panel) * len(panel["rows"]) + _FOOT for head, panel in zip(heads, panels, strict=True)]
    total = sum(heights) + _GAP * (len(panels) - 1)
    figure = Figure(figsize=(_WIDTH, total))
    top = total
    for panel, height, head in zip(panels, heights, heads, strict=True):
        bottom = top - height + _FOOT
        body = height - head - _FOOT
        axes = figure.add_axes((0.03, bottom / total, 0.94, body / total))
        _draw_panel(axes, panel, filled=shows["tier"] == "measured")
        _head(axes, panel, body)
        top -= height + _GAP
    return figure


def _draw_panel(axes: Axes, panel: Mapping[str, Any], filled: bool) -> None:
    rows = panel["rows"]
    height = _row(panel)
    axes.set_ylim(len(rows) * height, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.set_xlim(*panel["span"])
    (log_ticks if panel["log"] else linear_ticks)(axes)
    for place, row in enumerate(rows):
        bottom = (place + 1) * height - _AFTER
        _draw_track(axes, bottom - _TRACK, bottom, panel)
        _draw_row(axes, bottom, row, filled, panel["unchecked"], panel["others"])
    name_axis(axes, "x", panel["axis"], panel["unit"], panel["log"], labelpad=2)


def _draw_track(axes: Axes, top: float, bottom: float, panel: Mapping[str, Any]) -> None:
    """The row's stretch of the axis, with the threshold and its alternatives on it."""
    left, right = axes.get_xlim()
    strokes.track(axes, [left, right], top, bottom, color=GRID, alpha=0.4, linewidth=0, zorder=0)
    lines = panel["lines"]
    if len(lines) == 2:
        strokes.track(axes, lines, top, bottom, color=MUTED, alpha=0.3, linewidth=0, zorder=0)
    strokes.uprights(axes, panel["also"], top, bottom, color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.4)))
    strokes.uprights(axes, lines, top - 0.02, bottom + 0.02, color=INK, linewidth=1.4)


def _draw_row(axes: Axes, bottom: float, row: Mapping[str, Any], filled: bool, unchecked: bool, others: bool) -> None:
    """One interval. filled: it was measured here. unchecked: it is derived by a model that no measurement checked.

    others: it was measured by others: a diamond, and its spread dotted.
    """
    colour, marker = (MUTED, "x") if unchecked else OUTCOME[row["outcome"]]
    marker, filled = ("D", False) if others else (marker, filled)
    low, high, middle = row["low"], row["high"], bottom - _TRACK / 2
    if low is not None and high is not None and high > low:
        strokes.interval(axes, low, high, middle, color=colour, linewidth=2.4, solid_capstyle="butt",
                         linestyle=(0, (1.2, 1)) if unchecked or others else "-")  # fmt: skip
        strokes.interval(axes, low, high, middle, color=colour, linestyle="none", marker="|", markersize=7)
    strokes.points(
        axes, [row["estimate"]], [middle], bare=low is None, marker=marker, markersize=6.5, color=colour,
        markerfacecolor=colour if filled else PLATE, markeredgecolor=colour, markeredgewidth=1.2,
    )  # fmt: skip
    across = axes.get_yaxis_transform()
    over = bottom - _TRACK - 0.035
    for line, text in enumerate(reversed(row["label"])):
        axes.text(0.0, over - line * _LINE, text, transform=across, fontsize=7.8, va="baseline")
    axes.text(1.0, over, row["told"], transform=across, fontsize=7.8, va="baseline", ha="right", color=MUTED)


def _row(panel: Mapping[str, Any]) -> float:
    """Height of a row: as many lines as its longest label needs."""
    return _LINE * max(len(row["label"]) for row in panel["rows"]) + _TRACK + _AFTER


def _wrapped(label: str, beside: str) -> list[str]:
    """A label on one or two lines, the last of which shares its line with the numbers."""
    room = _CHARACTERS - len(beside) - 2
    if len(label) <= room:
        return [label]
    if len(label) <= _CHARACTERS:
        return [label, ""]
    first = textwrap.wrap(label, _CHARACTERS)[0]
    return [first, textwrap.shorten(label[len(first) :], max(room, 12), placeholder="…")]


def _range(rows: Sequence[Mapping[str, Any]], lines: Sequence[float]) -> tuple[list[float], bool]:
    """A range that holds every interval and the threshold, and whether it is logarithmic: if it spans a lot."""
    values = [row[key] for row in rows for key in ("estimate", "low", "high") if row[key] is not None]
    low, high = min([*values, *lines]), max([*values, *lines])
    if low > 0 and high / low > 8:
        margin = (high / low) ** 0.06
        return [low / margin, high * margin], True
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return [0.0 if low >= 0 and low < 0.6 * high else low - pad, high + pad], False


def _head(axes: Axes, panel: Mapping[str, Any], body: float) -> None:
    """Over the rows: the threshold's label at its place, and the part's name. `body`: height of the axes in inches."""
    if panel["lines"]:
        place = axes.transAxes.inverted().transform(axes.transData.transform((panel["lines"][-1], 0)))[0]
        told = f"threshold {panel['words']}"
        # To the side with the room for it; a label that neither side holds begins at the edge.
        wide = len(told) * _BOLD / (_WIDTH * 0.94)
        right = place + 0.012 + wide <= 1 or place < 0.5
        beside, aligned = (0.012, "left") if right else (-0.012, "right")
        place_of_label = min(place + beside, 1 - wide) if right else max(place + beside, wide)
        strokes.reference(axes, [place, place], [1 + 0.02 / body, 1 + 0.2 / body], transform=axes.transAxes, color=INK,
                          linewidth=1.4, clip_on=False)  # fmt: skip
        axes.text(place_of_label, 1 + 0.06 / body, told, transform=axes.transAxes, fontsize=8, ha=aligned,
                  va="bottom", fontweight="bold")  # fmt: skip
    if panel["title"]:
        title = panel["title"] if len(panel["title"]) < 62 else panel["title"][:60] + "…"
        axes.text(0, 1 + _HEAD / body, title, transform=axes.transAxes, fontsize=9, va="bottom", fontweight="bold")


def _alt(verdict: Mapping[str, Any], panels: Sequence[Mapping[str, Any]]) -> str:
    """The figure in a sentence per panel, from the same numbers."""
    told = []
    for panel in panels:
        rows = "; ".join(f"{row['name']}: {row['told']}, {row['outcome']}" for row in panel["rows"][:6])
        more = f" and {len(panel['rows']) - 6} more" if len(panel["rows"]) > 6 else ""
        name = f"{panel['title']}: " if panel["title"] else ""
        against = f" against a threshold of {panel['words']}" if panel["words"] else ""
        told.append(f"{name}{panel['axis']}{against}. {rows}{more}.")
    return f"Intervals for claim {verdict['id']}. " + " ".join(told)


def _caption(panels: Sequence[Mapping[str, Any]], tier: str) -> str:
    """What the marks mean, and what was left out."""
    left_out = [f"{MOST_ROWS} of {panel['of']} nearest to the threshold" for panel in panels if panel["of"] > MOST_ROWS]
    parts = [f"Estimate and {LEVEL} interval" if tier == "measured" else "Not measured here, hence hollow marks"]
    if any(panel["others"] for panel in panels):
        parts = ["Diamonds: measured by others, with the spread that their sources tell"]
    if any(panel["lines"] for panel in panels):
        parts.append("the line is the threshold")
    if any(panel["also"] for panel in panels):
        parts.append("dotted: thresholds of the sensitivity range")
    if left_out:
        parts.append(f"shown are the {left_out[0]}")
    rows = [row for panel in panels for row in panel["rows"]]
    return "; ".join(parts) + "." + without_interval(sum(row["low"] is None for row in rows), len(rows))
