"""docs/bench.svg and .png: coverage against width, and truth, in the style of the report's figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.pages.charts import (
    BLUE,
    GRID,
    INK,
    MARKERS,
    MUTED,
    SERIES,
    VERMILION,
    WIDE,
    scale,
    theme,
)
from report.pages.svg import finished
from studies.bench import aa, truth
from studies.bench.intervals import against_band
from studies.bench.page import SHARE_BAND

OUTCOMES = {"met": (BLUE, "o"), "missed": (VERMILION, "X"), "undecided": (MUTED, "D")}


def write(out: Path, data: dict[str, Any]) -> None:
    """Write bench.svg and bench.png into the folder `out`. Raises OSError."""
    with theme():
        figure = draw(shows(data))
        figure.savefig(out / "bench.svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        figure.savefig(out / "bench.png", dpi=110, facecolor="white", metadata={"Software": None})
    (out / "bench.svg").write_text(finished((out / "bench.svg").read_text(encoding="utf-8")), encoding="utf-8")


def shows(data: dict[str, Any]) -> dict[str, Any]:
    """What the figure shows, in plain numbers."""
    raw = data["aa"]
    return {
        "methods": [
            {
                "name": aa.NAMES[row.method],
                "half": row.coverage.half,
                "share": row.coverage.share,
                "low": row.coverage.low,
                "high": row.coverage.high,
            }
            for row in aa.rows(raw, raw["cheap"])
            if row.coverage.pairs and row.coverage.half > 0
        ],
        "points": [
            {
                "label": seen.label,
                "ratio": seen.ratio,
                "low": seen.low,
                "high": seen.high,
                "outcome": against_band(seen.low, seen.high, truth.BAND).partition(":")[0],
            }
            for seen in truth.verdicts(data["truth"])
        ],
    }


def draw(told: dict[str, Any]) -> Figure:
    """Two panels: methods by width and coverage; points by the core's rate over the bare loop's."""
    height = max(3.4, 0.9 + 0.19 * len(told["points"]))
    figure = Figure(figsize=(9.2, height), layout="constrained")
    left, right = figure.subplots(1, 2)
    _methods(left, told["methods"])
    _points(right, told["points"])
    # Outside the axes, where they hide nothing.
    for axes, side in ((left, "left"), (right, "right")):
        handles, labels = axes.get_legend_handles_labels()
        look: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": 8, "labelcolor": INK}
        figure.legend(handles=handles, labels=labels, **{**look, "loc": f"outside lower {side}"})
    return figure


def _methods(axes: Axes, methods: list[dict[str, Any]]) -> None:
    axes.axhspan(*(100 * edge for edge in SHARE_BAND), color=GRID, alpha=0.8, lw=0)
    for index, method in enumerate(methods):
        colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
        share = 100 * method["share"]
        spread = [[share - 100 * method["low"]], [100 * method["high"] - share]]
        axes.errorbar(
            100 * method["half"], share, yerr=spread, color=colour, marker=marker, ms=6, ls="", label=method["name"]
        )
    axes.set_title("A/A: intervals that contain 1")
    axes.set_ylabel("share of intervals, %; band: target")
    axes.set_xlabel("median half-width of the interval, %")
    axes.set_ylim(0, 102)
    widths = [100 * method["half"] for method in methods]
    if widths:
        scale(axes, "x", [min(widths) / 2, max(widths) * 2], True, WIDE)


def _points(axes: Axes, points: list[dict[str, Any]]) -> None:
    axes.axvspan(*truth.BAND, color=GRID, alpha=0.8, lw=0)
    axes.axvline(1, color=MUTED, lw=0.8)
    for row, point in enumerate(points):
        colour, marker = OUTCOMES[point["outcome"]]
        axes.plot([point["low"], point["high"]], [row, row], color=colour, lw=1.4, clip_on=True)
        axes.plot([point["ratio"]], [row], color=colour, marker=marker, ls="", clip_on=True)
    axes.set_yticks(range(len(points)), [point["label"] for point in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    # One wide interval must not squeeze the others, but every estimate is shown.
    ends = [point["ratio"] for point in points] + [0.95, 1.05]
    reach = max(abs(math.log(end)) for end in ends) * 1.15
    axes.set_xlim(math.exp(-reach), math.exp(reach))
    axes.set_title("Truth: the core / a bare loop")
    axes.set_xlabel("ratio of rates, 95% interval; band: target")
    for outcome, (colour, marker) in OUTCOMES.items():
        axes.plot([], [], color=colour, marker=marker, ls="", label=outcome)
