"""The ladder of baselines: a ratio against every base that was measured, so that none can be picked to please."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import count, label_value, with_unit


def bases(verdict: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each part against each other base: part, base, how far the deciding intervals reach, and the outcome.

    Nothing of a claim whose quantity is not told by a base.
    """
    rows = []
    several = len(verdict.get("parts") or []) > 1
    for part in verdict.get("parts") or []:
        others = (part.get("rejudge") or {}).get("baselines") or {}
        if not others:
            continue
        declared = (part.get("scope") or {}).get("baseline") or []
        own = [declared] if isinstance(declared, str) else list(map(str, declared))
        told = [(" and ".join(map(_base, own)) or "as declared", part["rejudge"], str(part["outcome"]))]
        told += [(_base(name), other, str(other["outcome"])) for name, other in others.items() if name not in own]
        rows += [
            {
                "part": str(part.get("name") or "") if several else "",
                "base": base,
                "range": _range(one["cells"], str(part.get("unit") or "1")),
                "cells": count(len(one["cells"]) + sum(one["settled"]), "cell"),
                "outcome": outcome,
            }
            for base, one, outcome in told
        ]
    return rows


def _base(name: str) -> str:
    return label_value("baseline", name)


def _range(cells: Sequence[Sequence[Any]], unit: str) -> str:
    """From the lowest to the highest end of all intervals; '' where none is known."""
    lows, highs = ([float(cell[end]) for cell in cells] for end in (0, 1))
    known = [end for end in (*lows, *highs) if math.isfinite(end)]
    if not known:
        return ""
    return " to ".join(dict.fromkeys(with_unit(end, unit) for end in (min(known), max(known))))
