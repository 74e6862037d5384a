"""How well a run repeats, as the method section says it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.stats import binom

from contract.files import read_table
from report import PACKAGE, ROOT, formatting

TABLE = ROOT / "data" / "repeat.json"
SCHEMA = PACKAGE / "schemas" / "repeat.schema.json"
# What is customary for such a test; verdicts are decided, and drawn, by stricter intervals.
LEVEL = 0.95
# An experiment of which fewer points agree is to be explained.
ENOUGH = 0.9


def repeated(path: Path | None = None) -> dict[str, Any] | None:
    """The table of two runs of one machine in words; None if it was never made. Raises StudyError."""
    table = read_table(path or TABLE, SCHEMA)
    if table is None:
        return None
    rows, few = by_agreement(table)
    return {
        "node": str(table["node"]),
        "level": f"{table['level']:.0%}",
        "enough": f"{ENOUGH:.0%}",
        "days": formatting.several([str(run["started_utc"])[:16].replace("T", " at ") for run in table["runs"]]),
        "all": f"{table['all']['agree']:,} of {table['all']['points']:,} ({_share(table['all'])})",
        "few": formatting.several([_few(one, table["level"]) for one in rows if one["experiment"] in few]),
        "clock": "" if table["clock"] is None else f"×{table['clock']:.3f}",
        "rows": [_row(one) for one in rows],
    }


def _few(one: Mapping[str, Any], level: float) -> str:
    """An experiment of which few points agree, and how often chance alone makes them so few."""
    chance = formatting.number(100 * by_chance(one, level))
    return f"{one['experiment']} ({_share(one)}; chance alone makes it so few in {chance}% of such tables)"


def _share(one: Mapping[str, Any]) -> str:
    return f"{100 * one['agree'] / one['points']:.0f}%"


def _row(one: Mapping[str, Any]) -> dict[str, str]:
    return {
        "experiment": str(one["experiment"]),
        "points": f"{one['points']:,}",
        "share": _share(one),
        "apart": f"{100 * one['median_apart']:.1f}%",
        "shift": f"×{one['shift']:.3f}",
        "beside": f"{100 * one['agree_beside'] / one['points']:.0f}%",
        "worst": f"×{one['worst']['ratio']:.2f}",
    }


def by_agreement(table: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The experiments, the least repeatable first, and the names of those of which too few points agree."""
    rows = sorted(table["experiments"], key=lambda one: (one["agree"] / one["points"], one["experiment"]))
    return rows, [one["experiment"] for one in rows if one["agree"] < ENOUGH * one["points"]]


def by_chance(one: Mapping[str, Any], level: float = LEVEL) -> float:
    """How often as few points of an experiment, or fewer, agree where nothing drifts and each interval is right."""
    return float(binom.cdf(one["agree"], one["points"], level))
