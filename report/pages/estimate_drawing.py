"""A drawing that keeps its rows, so that estimates from several machines can be merged into one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True)
class EstimateDrawing:
    """A drawing function from `charts.estimate_chart`, and the arguments that it was made from."""

    draw: Callable[[float], Figure]
    rows: Sequence[Mapping[str, Any]]
    axis: str
    lines: Sequence[float]
    line: str
    log: bool | None
    ends: Sequence[str] = ()
    ticks: Mapping[float, str] | None = None

    def __call__(self, width: float) -> Figure:
        return self.draw(width)


def group_heads(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Map the index of each group's first row to the group's name."""
    groups = [str(row.get("group") or "") for row in rows]
    return {at: name for at, name in enumerate(groups) if name and (not at or name != groups[at - 1])}
