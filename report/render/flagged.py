"""Points that something disturbed, node by node: how many, by what, and the worst of them named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from report import formatting
from report.data import flags

# The worst points of a node and flag that are named.
NAMED = 2
_COLUMNS = ["node", "experiment", "device", "backend", "dtype", "threads", "params", "metric", "status", "flags"]


def flagged_points(data: Path) -> list[dict[str, Any]]:
    """Nodes with flagged points, each with a row for every flag. `data`: the folder that `report gather` wrote."""
    table = pd.read_parquet(data / "summary.parquet", columns=_COLUMNS)
    return [
        {"node": str(node), "of": f"{len(part):,}", **found}
        for node, part in table[table["status"] == "ok"].groupby("node", sort=True)
        if (found := _of_node(part))["rows"]
    ]


def _of_node(points: pd.DataFrame) -> dict[str, Any]:
    seen = [
        (flag, point)
        for point in points.to_dict("records")
        for flag in flags.read(str(point["flags"] or ""))
        if flag.name != flags.EXACT
    ]
    order = [*flags.MEANING, *sorted({flag.name for flag, _ in seen} - set(flags.MEANING))]
    rows = []
    for name in order:
        found = sorted((one for one in seen if one[0].name == name), key=lambda one: -one[0].weight)
        if found:
            worst = [f"{_name(point)}: {_how(flag)}" for flag, point in found[:NAMED]]
            rows.append(
                {
                    "flag": name,
                    "means": flags.MEANING.get(name, ""),
                    "count": f"{len(found):,}",
                    "worst": "; ".join(worst),
                }
            )
    disturbed = {tuple(point[name] for name in _COLUMNS[:-2]) for _, point in seen}
    return {"count": f"{len(disturbed):,}", "rows": rows}


def _name(point: Mapping[Any, Any]) -> str:
    """A point in words: 'gemm, torch, float32, 2 threads, m 512'."""
    labels = {key: point[key] for key in ("device", "backend", "dtype", "threads") if point[key]}
    said = formatting.labels_text({**labels, **json.loads(point["params"])})
    metric = "" if point["metric"] in ("time", point["experiment"]) else f" {point['metric']}"
    return f"{point['experiment']}{metric}, {said}" if said else f"{point['experiment']}{metric}"


def _how(flag: flags.Seen) -> str:
    """What was seen, without the flag's name: that stands beside it."""
    return str(flag).removeprefix(flag.name).removeprefix(":").strip() or "seen"
