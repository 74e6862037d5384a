"""Which cells of a verdict its card lists, and where they were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from report.model import Threshold

# A claim's table of cells is read to its end by nobody beyond this; the tables beside the page hold every cell.
MOST_CELLS = 16


def shown(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cells that are listed, in their order: of too many those of each part that lie nearest to its threshold."""
    cells = list(verdict.get("cells") or [])
    if len(cells) <= MOST_CELLS:
        return cells
    parts = {str(part.get("name") or ""): part for part in verdict.get("parts") or []}
    places: dict[str, list[int]] = {name: [] for name in parts or [""]}
    for place, cell in enumerate(cells):
        places.setdefault(str(cell.get("part") or ""), []).append(place)
    kept: list[int] = []
    # What a part of few cells leaves free is for the others.
    for left, (name, of) in zip(
        range(len(places), 0, -1), sorted(places.items(), key=lambda one: len(one[1])), strict=True
    ):
        threshold = parts.get(name, verdict).get("threshold")
        nearest = sorted(of, key=lambda place: nearness(cells[place].get("estimate"), threshold))
        kept += nearest[: (MOST_CELLS - len(kept)) // left]
    return [cells[place] for place in sorted(kept)]


def nearness(estimate: float | None, threshold: Any) -> float:
    """How far an estimate is from a threshold, or the nearer end of a range; 0 where there is none to be near."""
    if estimate is None:
        return math.inf
    return 0.0 if threshold is None else Threshold.of(threshold).distance(float(estimate))


def place(cell: Mapping[str, Any]) -> str:
    """Node and device of a cell, '–' for a published figure."""
    return ", ".join(str(cell[key]) for key in ("node", "device") if cell.get(key)) or "–"


def only_place(cells: list[Mapping[str, Any]]) -> str:
    """The place that all cells have in common; '' if they differ or have none."""
    places = {place(cell) for cell in cells}
    return places.pop() if len(places) == 1 and "–" not in places else ""
