"""The central figures: each piece of the evidence in one figure over all nodes and devices.

A new one is one module with a FIGURE, listed in FIGURES in the order of the report. What a node shows in detail stands
in its families (`report.render.measurements`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.render.central import atlas, batches, disputed, hierarchy, ladder, mac, roofline, waterfall
from report.render.central.base import Central, Shown, told_claims
from report.render.measurements.base import View

FIGURES: tuple[Central, ...] = (
    ladder.FIGURE,
    mac.FIGURE,
    roofline.FIGURE,
    atlas.FIGURE,
    hierarchy.FIGURE,
    batches.FIGURE,
    waterfall.FIGURE,
    disputed.FIGURE,
)
# Of as many figures as there may be, in words.
_COUNT = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def central(views: Sequence[View], document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that have something to show, as the page prints them: figures, and their count in words."""
    shown = [(one, one.show(views, document)) for one in FIGURES] if views else []
    figures = [_told(one, made, document) for one, made in shown if made]
    return {"figures": figures, "count": _COUNT[len(figures)], "noun": "figure" if len(figures) == 1 else "figures"}


def _told(figure: Central, made: Shown, document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": figure.key,
        "title": made.title,
        "reading": list(made.reading),
        "drawing": made.drawing,
        "table": made.table.filled() if made.table and made.table.rows else None,
        "claims": told_claims(document, made.claims),
    }


__all__ = ["FIGURES", "Central", "Shown", "central"]
