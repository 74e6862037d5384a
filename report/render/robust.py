"""The table of how robust the verdicts are: what turns each, the most fragile first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import count, label_value, number, several, threshold_text
from report.judging.counterfactuals import ROBUST, SENSITIVE, given
from report.judging.sensitivity import CLEAR_WIDTHS, NEAR_FACTOR
from report.render import words
from report.render.markdown import identifier

NOTHING = "–"


def robust(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each decided claim, sensitive ones and small margins first; none of files that say nothing of it."""
    told = [(_fragility(verdict), _row(verdict)) for verdict in verdicts if verdict.get("robust")]
    return [row for _, row in sorted(told, key=lambda one: one[0])]


def meaning() -> dict[str, str]:
    """The numbers by which a verdict counts as robust, in words."""
    return {"widths": number(CLEAR_WIDTHS, 1), "factor": number(NEAR_FACTOR, 1)}


def _tried(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Parts of which something was tried: those that can turn the verdict, if any can."""
    tried = [part for part in verdict["parts"] if part.get("robustness")]
    return [part for part in tried if part["robustness"]["decides"]] or tried


def _widths(part: Mapping[str, Any]) -> float:
    """Margin of a part; an exact figure is beyond every margin, an unknown one within."""
    record = part["robustness"]
    return math.inf if record["exact"] else float(record["margin_widths"] or 0.0)


def _fragility(verdict: Mapping[str, Any]) -> tuple[int, float, float, str]:
    """What rows are sorted by, fragile first: sensitive ones, then what turns it nearest, then the margin."""
    parts = _tried(verdict)
    ranks = [part["robustness"]["rank"] for part in parts if part["robustness"]["rank"]]
    nearest = min((rank[0] + min(rank[1], 9) / 10 for rank in ranks), default=9.0)
    word = [SENSITIVE, ROBUST].index(verdict["robust"]) if verdict["robust"] in (SENSITIVE, ROBUST) else 2
    return word, nearest, min(map(_widths, parts)), str(verdict["id"])


def _row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    parts = _tried(verdict)
    closest = min(parts, key=_widths)
    first = min(parts, key=lambda part: part["robustness"]["rank"] or [9, 0])
    return {
        "id": identifier(str(verdict["id"])),
        "verdict": str(verdict["verdict"]),
        "class": words.verdict_class(str(verdict["verdict"])),
        "robust": str(verdict["robust"]),
        "margin": _margin(closest["robustness"]),
        "holds": _holds(first),
        "by": _turned_by([part["robustness"] for part in parts]),
        "sentence": str(verdict["flip"]),
    }


def _margin(record: Mapping[str, Any]) -> str:
    if record["exact"]:
        return "exact"
    return NOTHING if record["margin_widths"] is None else number(record["margin_widths"], 2)


def _holds(part: Mapping[str, Any]) -> str:
    """The thresholds for which the outcome stays: 'from 3,558 MAC/cycle on', 'any that is declared'."""
    if not isinstance(part["threshold"], (int, float)):
        turned = any(turn["in_range"] for turn in part["robustness"]["turns_at"])
        return threshold_text(part["threshold"], part["unit"]) if turned else "every declared range"
    ends = {turn["higher"]: given(turn["threshold"], part["unit"]) for turn in part["robustness"]["turns_at"]}
    if len(ends) == 2:
        return f"{ends[False]} to {ends[True]}"
    if ends:
        return f"up to {ends[True]}" if True in ends else f"from {ends[False]} on"
    return "any"


def _turned_by(records: Sequence[Mapping[str, Any]]) -> str:
    """Other scopes that turn it, and how many single cells or nodes it hangs on."""
    swaps = [
        f"{label_value(one['label'], one['value'])}{' (plain code)' if one['plain_loop'] else ''}"
        for record in records
        for one in record["swaps"]
        if _turns(one, record)
    ]
    told = [several(list(dict.fromkeys(swaps)), "or")] if swaps else []
    for kind in ("cell", "node"):
        n = sum(
            one["number"]
            for record in records
            for one in record["without"]
            if one["kind"] == kind and not one.get("one_cell") and _turns(one, record)
        )
        told += [f"{'any of ' if n > 1 else ''}{count(n, kind)} less"] if n else []
    return "; ".join(told) or NOTHING


def _turns(tried: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    what = "verdict" if record["decides"] else "outcome"
    return bool(tried[what] != record[what])
