"""How much stands behind what was measured: points, rounds and samples, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report.data.gathered import read_summary
from report.formatting import count


def counted(data: Path, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each node with results: its series, and the rounds and samples of each. Raises StudyError."""
    table = read_summary(data)
    ok = table[table["status"] == "ok"]
    labels = {str(node["id"]): str(node.get("label") or node["id"]) for node in nodes}
    return [
        f"{labels.get(str(node), str(node))}: {count(len(rows), 'series')[: -1 if len(rows) != 1 else None]}, "
        f"each from {_range(rows['n_rounds'], 'round')} and {_range(rows['n_samples'], 'sample')}, "
        f"in the middle {count(int(rows['n_rounds'].median()), 'round')} and "
        f"{count(int(rows['n_samples'].median()), 'sample')}."
        for node, rows in ok.groupby("node", sort=False)
    ]


def _range(column: Any, noun: str) -> str:
    low, high = int(column.min()), int(column.max())
    return count(high, noun) if low == high else f"{low:,} to {count(high, noun)}"
