"""Points without a result, counted: what was not started, failed or was refused, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.files import read_json
from contract.node import job_of, status_of
from report.data.gathered import read_summary


def left_out_points(data: Path, nodes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """By node (all, if none are named), experiment, device, status and reason.

    Raises StudyError if the folder cannot be read.
    """
    keys = ["node", "experiment", "device", "status", "reason"]
    table = read_summary(data, keys, nodes)
    lost = table[table["status"] != "ok"]
    found = [
        {**{name: str(value) for name, value in zip(keys, key, strict=True)}, "count": len(group)}
        for key, group in lost.groupby(keys, sort=True, observed=True)
    ]
    # What a plan leaves out as a whole has no rows: nothing was started for it.
    for node in read_json(data / "nodes.json"):
        if nodes and node["id"] not in nodes:
            continue
        for name, job in node.get("jobs", {}).items():
            experiment, device = job_of(name)
            at = {"node": node["id"], "experiment": experiment, "device": device}
            for left_out, number in job["left_out"].items() if not job["predicted_s"] else ():
                status, reason = status_of(left_out)
                found.append({**at, "status": status, "reason": reason, "count": number})
    return sorted(found, key=lambda row: [row[key] for key in keys])
