"""A drawing that keeps its rows, so that estimates from several machines can be merged into one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True)
class EstimateDrawing:
    """Drawing from `charts.estimate_chart`, with its arguments."""

    draw: Callable[[float], Figure]
    rows: Sequence[Mapping[str, Any]]
    axis: str
    lines: Sequence[float]
    line: str
    log: bool | None

    def __call__(self, width: float) -> Figure:
        return self.draw(width)


def group_heads(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Map the first row index in each group to the group name."""
    groups = [str(row.get("group") or "") for row in rows]
    return {at: name for at, name in enumerate(groups) if name and (not at or name != groups[at - 1])}
