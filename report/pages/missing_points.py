"""Count points without a result: not started, failed or rejected, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.files import read_json
from contract.node import parse_job_name, parse_left_out
from report.data.gathered_files import read_summary
from report.data.summary import POINT


def left_out_points(data: Path, nodes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Count points without a result by node, experiment, device, status and reason.

    A point counts once, however many of its metrics are missing. nodes: node ids to count points for; default: all.
    Raises StudyError if the folder cannot be read.
    """
    keys = ["node", "experiment", "device", "status", "reason"]
    columns = [*POINT, "status", "reason"]
    table = read_summary(data, columns, nodes)
    missing = table.loc[table["status"] != "ok", columns].drop_duplicates()
    rows = [
        {**{name: str(value) for name, value in zip(keys, key, strict=True)}, "count": len(group)}
        for key, group in missing.groupby(keys, sort=True, observed=True)
    ]
    # Points in experiments that the plan skipped have no summary rows, so they are counted from nodes.json.
    for node in read_json(data / "nodes.json"):
        if nodes and node["id"] not in nodes:
            continue
        for name, job in node.get("jobs", {}).items():
            experiment, device = parse_job_name(name)
            labels = {"node": node["id"], "experiment": experiment, "device": device}
            for left_out, number in job["left_out"].items() if not job["predicted_s"] else ():
                status, reason = parse_left_out(left_out)
                rows.append({**labels, "status": status, "reason": reason, "count": number})
    return sorted(rows, key=lambda row: [row[key] for key in keys])
