"""Whether two rules can both be satisfied: what each accepts of a quantity, and where nothing is left for both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from report.formatting import several, threshold_text


def rule_conflicts(sides: Sequence[Sequence[tuple[str, Mapping[str, Any]]]]) -> list[str]:
    """Sentences on rules of different sides that no measurement can satisfy together.

    sides: for each side its claims' ids with a part as `verdicts.json` has it.
    Rules are compared that judge the same quantity in scopes that meet.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for one, other in combinations(sides, 2):
        for (first, a), (second, b) in product(one, other):
            if _same_cells(a, b) and _apart(accepted(a), accepted(b)):
                asked = f"{first} asks for {_asks(a)} and {second} for {_asks(b)}"
                found.setdefault((a["quantity"], asked), []).append(_where(a, b))
    return [
        f"Of {quantity}{_listed(wheres)}, {asked}: no measurement satisfies both."
        for (quantity, asked), wheres in found.items()
    ]


def _listed(wheres: Sequence[str]) -> str:
    told = [where for where in dict.fromkeys(wheres) if where]
    return f" ({'; '.join(told)})" if told else ""


def accepted(part: Mapping[str, Any]) -> tuple[float, float] | None:
    """Ends of what a rule accepts in one cell, before scaling; None for a rule that is not about single cells."""
    bound, scale = part["threshold"], float(part.get("scale") or 1)
    if part["rule"] == "at_least":
        return bound / scale, math.inf
    if part["rule"] == "at_most":
        return -math.inf, bound / scale
    if part["rule"] == "within":
        return bound[0] / scale, bound[1] / scale
    return None


def _apart(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
    return a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])


def _same_cells(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether some cell may lie in the scope of both."""
    if a["quantity"] != b["quantity"]:
        return False
    shared = set(a["scope"]) & set(b["scope"])
    return all(_values(a["scope"][label]) & _values(b["scope"][label]) for label in shared)


def _values(given: Any) -> set[Any]:
    return set(given) if isinstance(given, list) else {given}


def _where(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The labels that both scopes narrow, in words."""
    shared = [label for label in a["scope"] if label in b["scope"]]
    told = [
        f"{label} {several(sorted(map(str, _values(a['scope'][label]) & _values(b['scope'][label]))), 'or')}"
        for label in shared
    ]
    return ", ".join(told)


def _asks(part: Mapping[str, Any]) -> str:
    how = {"at_least": "at least ", "at_most": "at most ", "within": ""}[part["rule"]]
    scale = float(part.get("scale") or 1)
    return (
        f"{how}{threshold_text(part['threshold'], part['unit'])}{f' after scaling by {scale:g}' if scale != 1 else ''}"
    )
