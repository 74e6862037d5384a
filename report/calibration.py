"""How often the rules err where the truth is known: reads and checks the published table of the simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from contract.schema import check
from report import PACKAGE, ROOT, statistics

TABLE = ROOT / "data" / "calibration.json"
SCHEMA = PACKAGE / "schemas" / "calibration.schema.json"
_AGAIN = "make it again: python -m tests.calibration --out data/calibration.json"


def deciding() -> float:
    """The level of the interval by which the rules decide."""
    return statistics.DECIDING


def read_calibration(path: Path = TABLE) -> dict[str, Any]:
    """The table.

    Raises StudyError if it is missing, not of the schema, not marked synthetic, of another level than the engine's,
    or not consistent in itself.
    """
    table = read_json(path)
    check(table, read_json(SCHEMA), path)
    if table["level"] != deciding():
        raise StudyError(
            f"{path}: level: was made for rules that decide by {table['level']:.0%} intervals, these decide by "
            f"{deciding():.0%} ones: {_AGAIN}"
        )
    for number, row in enumerate(table["rows"]):
        _consistent(row, f"{path}: rows.{number} ({row['question']}, {row['noise']})")
    return dict(table)


def _consistent(row: dict[str, Any], where: str) -> None:
    total = sum(row[answer]["share"] for answer in ("supported", "challenged", "depends", "undecided"))
    if abs(total - 1) > 1e-6:
        raise StudyError(f"{where}: the answers' shares add up to {total:g}, not 1: {_AGAIN}")
    for name, one in [*((answer, row[answer]) for answer in ("supported", "challenged", "depends", "undecided")),
                      *((f"right at {one['widths']} widths", one) for one in row["right"])]:  # fmt: skip
        if not one["low"] <= one["share"] <= one["high"]:
            raise StudyError(f"{where}: {name}: the share {one['share']:g} lies outside of its interval: {_AGAIN}")
