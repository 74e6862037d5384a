"""Surprising results that were measured a second time by other means, beside the first, as the method section has them.

`python -m studies.replication` measures and writes them; what they are held against here is what the page itself says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.files import read_table
from report import formatting
from report.pages import words
from report.pages.exhibit import stated
from report.pages.markdown import identifier

Record = Mapping[str, Any]
TABLE = Path(__file__).parents[2] / "data" / "second.json"
SCHEMA = Path(__file__).parent.parent / "schemas" / "second.schema.json"
# Of the interval that `studies.replication` writes.
LEVEL = 0.95


def measured_again(document: Record, path: Path = TABLE) -> dict[str, Any] | None:
    """The second measurements in words; None if there are none of this document's nodes and claims.

    document: what verdicts.json holds. The same cell is looked up in it by its label, so that both values stand for
    the same thing; one that the document has no longer is left out. Raises StudyError if the table is not of the
    schema.
    """
    table = read_table(path, SCHEMA)
    names = {str(node["id"]): str(node.get("label") or node["id"]) for node in document["nodes"]}
    if table is None or table["node"] not in names:
        return None
    verdicts = {str(one["id"]): one for one in document["verdicts"]}
    pairs = [(row, _first(row, verdicts.get(row["claim"]), table["node"])) for row in table["rows"]]
    rows = [_row(row, *first) for row, first in pairs if first]
    if not rows:
        return None
    sunk = [str(row["claim"]) for row in rows if not row["agrees"]]
    return {
        "node": names[table["node"]],
        "count": len(rows),
        "level": words.LEVEL,
        "again_level": f"{LEVEL:.0%}",
        "agree": sum(row["agrees"] for row in rows),
        "sunk": formatting.several(sunk),
        "rows": rows,
    }


def _first(row: Record, verdict: Record | None, node: str) -> tuple[Record, Record] | None:
    """The part and the cell that a row measures again; None if the document has them no longer."""
    if verdict is None:
        return None
    part = next((part for part in verdict["parts"] if part["name"] == row["part"]), None)
    cell = next(
        (
            cell
            for cell in verdict["cells"]
            if (cell["part"], cell["node"], cell["label"]) == (row["part"], node, row["labels"])
        ),
        None,
    )
    if part is None or cell is None or cell["estimate"] is None or not isinstance(part["threshold"], (int, float)):
        return None
    return part, cell


def _row(row: Record, part: Record, cell: Record) -> dict[str, Any]:
    unit, threshold, second = str(part["unit"]), float(part["threshold"]), row["second"]
    return {
        "claim": identifier(str(row["claim"])),
        "what": formatting.capital("; ".join(filter(None, (str(row["part"]), str(row["labels"]))))),
        "first": stated(cell, unit),
        "second": stated({**second, "estimate": second["median"]}, unit),
        "threshold": formatting.threshold_text(part["threshold"], unit),
        "means": formatting.capital(str(row["means"])),
        "agrees": (cell["estimate"] >= threshold) == (second["median"] >= threshold),
    }
