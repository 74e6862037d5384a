"""What ran on each device: which makers' hardware the same experiments went through, and with what outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from report import formatting

_POINT = ["experiment", "backend", "dtype", "threads", "params"]


def ran(data: Path, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row for each device of each node: its experiments with the share of points that gave a result.

    `data`: the folder that `report gather` wrote. An experiment of whose points none gave
    a result, or that the device was not asked, is named apart.
    """
    columns = ["node", "device", *_POINT, "status"]
    table = pd.read_parquet(data / "summary.parquet", columns=columns)
    every = sorted(table["experiment"].unique())
    rows = []
    for node in nodes:
        for device in node.get("devices") or []:
            part = table[(table["node"] == node["id"]) & (table["device"] == device["id"])]
            found = {str(name): _counts(points) for name, points in part.groupby("experiment")}
            through = [f"{name} {ok:,}/{of:,}" for name, (ok, of) in found.items() if ok]
            without = [name for name in every if not found.get(name, (0, 0))[0]]
            rows.append(
                {
                    "node": str(node.get("label") or node["id"]),
                    "device": f"{device['id']} ({device.get('name') or 'unnamed'})",
                    "maker": str(device.get("maker") or "–"),
                    "through": formatting.several(through) or "none",
                    "without": formatting.several(without) or "–",
                }
            )
    return rows


def _counts(points: pd.DataFrame) -> tuple[int, int]:
    """Points with a result, and points in all; a point may have several metrics."""
    outcomes = points.assign(ok=points["status"] == "ok").groupby(_POINT, dropna=False)["ok"].any()
    return int(outcomes.sum()), len(outcomes)
