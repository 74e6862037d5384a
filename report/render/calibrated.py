"""How often the rules err where the truth is known, as the method section says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from contract.schema import check
from report import PACKAGE, ROOT, formatting, statistics

TABLE = ROOT / "data" / "calibration.json"
SCHEMA = PACKAGE / "schemas" / "calibration.schema.json"
_AGAIN = "make it again: python -m studies.calibration --out data/calibration.json"


# What each of the two ways of being wrong is meant to stay below.
RARE = 0.01


def calibrated(path: Path | None = None) -> dict[str, Any]:
    """The table of calibration in words. path: the table; that of the study unless given. Raises StudyError."""
    table = read_calibration(path or TABLE)
    rows = table["rows"]
    return {
        "level": _percent(table["level"], 0),
        "drawn": _percent(table["drawn"], 0),
        "rare": _percent(RARE, 0),
        "trials": f"{sum(row['trials'] for row in rows):,}",
        "samples": str(table["samples_per_round"]),
        "kept": _kept(rows),
        "exceeded": [_exceeded(row) for row in rows if _worst(row) > RARE],
        "widths": formatting.several([str(one["widths"]) for one in _widths(rows)]),
        "rows": [_row(row) for row in rows],
    }


def _worst(row: Mapping[str, Any]) -> float:
    return float(max(row["supported"]["share"], row["challenged"]["share"]))


def _kept(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many settings both ways of being wrong are rare: '33 of 35', 'all 35'."""
    kept = sum(_worst(row) <= RARE for row in rows)
    return f"all {len(rows)}" if kept == len(rows) else f"{kept} of the {len(rows)}"


def _exceeded(row: Mapping[str, Any]) -> str:
    rounds, points = formatting.count(row["rounds"], "round"), formatting.count(row["points"], "point")
    return f"{row['question']}, {row['noise']}, {rounds}, {points}: {_percent(_worst(row), 1)}"


def _widths(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return max((row["right"] for row in rows), key=len)


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    open_ = _percent(row["undecided"]["share"], 1)
    if row["depends"]["share"]:
        open_ += f", and {_percent(row['depends']['share'], 1)} depends"
    return {
        "question": row["question"],
        "noise": row["noise"],
        "rounds": str(row["rounds"]),
        "points": str(row["points"]),
        "trials": f"{row['trials']:,}",
        "supported": _share(row["supported"]),
        "challenged": _share(row["challenged"]),
        "undecided": open_,
        "right": " / ".join(_percent(one["share"], 0) for one in row["right"]) or "–",
    }


def _share(one: Mapping[str, float]) -> str:
    """'0.60% [0.49, 0.72]'."""
    return f"{_percent(one['share'], 2)} [{100 * one['low']:.2f}, {100 * one['high']:.2f}]"


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f}%"


def read_calibration(path: Path = TABLE) -> dict[str, Any]:
    """The table.

    Raises StudyError if it is missing, not of the schema, not marked synthetic, of another level than the engine's,
    or not consistent in itself.
    """
    table = read_json(path)
    check(table, read_json(SCHEMA), path)
    if table["level"] != statistics.DECIDING:
        raise StudyError(
            f"{path}: level: was made for rules that decide by {table['level']:.0%} intervals, these decide by "
            f"{statistics.DECIDING:.0%} ones: {_AGAIN}"
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
