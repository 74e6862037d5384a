"""List the undecided cases that more rounds could decide, with a node's points behind them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.files import write_json
from contract.looks import KEY
from report.data.gathered_files import read_summary
from report.data.row_ranges import parse_ranges
from report.verdicts import read_verdicts


def write_undecided(verdicts: Path, data: Path, node: str, out: Path) -> int:
    """Write the undecided cases with points of a node to `out` (`contract.looks.read_open_cases`); return their number.

    data: the folder from `gather` behind the verdicts. Raises StudyError if a file cannot be read, and OSError if `out`
    cannot be written.
    """
    near = [case for part in _parts(read_verdicts(verdicts)) for case in (part["more_rounds"] or {}).get("near", ())]
    rows = {tuple(parse_ranges(case["behind"])): case["rounds"] for case in near}
    numbers = sorted({row for behind in rows for row in behind})
    table = read_summary(data, ["row", "node", *KEY], rows=numbers) if numbers else None
    points: dict[int, dict[str, Any]] = {}
    if table is not None:
        for row in table[table["node"] == node].to_dict("records"):
            points[row["row"]] = {name: row[name] for name in KEY}
    cases = []
    for behind, rounds in sorted(rows.items(), key=lambda case: (case[1] is None, case[1] or 0, case[0])):
        of_node = [points[row] for row in behind if row in points]
        distinct = list({tuple(point.values()): point for point in of_node}.values())
        if distinct:
            cases.append({"rounds": rounds, "points": distinct})
    write_json(out, {"cases": cases})
    return len(cases)


def _parts(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [part for claim in document["verdicts"] for part in claim["parts"]]
