"""How well a run repeats, as the method section says it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report import formatting, repeat


def repeated(path: Path | None = None) -> dict[str, Any] | None:
    """The table of two runs of one machine in words; None if it was never made. Raises StudyError."""
    table = repeat.read_repeat(path or repeat.TABLE)
    if table is None:
        return None
    rows, few = repeat.by_agreement(table)
    return {
        "node": str(table["node"]),
        "level": f"{table['level']:.0%}",
        "enough": f"{repeat.ENOUGH:.0%}",
        "days": formatting.several([str(run["started_utc"])[:16].replace("T", " at ") for run in table["runs"]]),
        "all": f"{table['all']['agree']:,} of {table['all']['points']:,} ({_share(table['all'])})",
        "few": formatting.several([_few(one, table["level"]) for one in rows if one["experiment"] in few]),
        "clock": "" if table["clock"] is None else f"×{table['clock']:.3f}",
        "rows": [_row(one) for one in rows],
    }


def _few(one: Mapping[str, Any], level: float) -> str:
    """An experiment of which few points agree, and how often chance alone makes them so few."""
    chance = formatting.number(100 * repeat.by_chance(one, level))
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
