"""The results furthest from what the articles say, picked by one rule for all claims.

A result is the number that a claim is told with everywhere, and counts if it goes against the article. It counts only
if it is far: the nearer end of its interval lies FAR times beyond the threshold, or more. What is measured comes
before what is derived, and that before what is documented; among equals the furthest comes first, by the ratio of that
end to the threshold. No two are of one article, of claims that ask the same, or of one quantity. Where the number or
the threshold is not positive there is no such ratio, and the result is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from report.render.sourced import stands_for

MOST = 3
FAR = 2.0
TIERS = ("measured", "derived", "documented")
_NUMBER = ("estimate", "low", "high")


@dataclass(frozen=True)
class Result:
    """A result against an article. beyond: how many times beyond the threshold, at the least."""

    verdict: Mapping[str, Any]
    part: Mapping[str, Any]
    cell: Mapping[str, Any]
    beyond: float


def surprises(verdicts: Iterable[Mapping[str, Any]]) -> list[Result]:
    """At most MOST results, by the rule above; verdicts: as `verdicts.json` has them."""
    chosen: list[Result] = []
    taken: set[tuple[str, str]] = set()
    for result in sorted((one for verdict in verdicts for one in _results(verdict)), key=_rank):
        marks = _marks(result)
        if len(chosen) < MOST and not taken & marks:
            chosen.append(result)
            taken |= marks
    return chosen


def _rank(result: Result) -> tuple[int, float, str]:
    return TIERS.index(result.verdict["evidence_tier"]), -result.beyond, str(result.verdict["id"])


def _marks(result: Result) -> set[tuple[str, str]]:
    """What no other result may have in common with this one."""
    verdict, quantity = result.verdict, str(result.part.get("quantity") or "")
    marks = {("article", str(verdict["article"])), ("claim", str(verdict.get("same_as") or verdict["id"]))}
    # Published figures are of many kinds under one name.
    return marks if quantity == "reference.value" else marks | {("quantity", quantity)}


def _results(verdict: Mapping[str, Any]) -> Iterator[Result]:
    if verdict["verdict"] not in ("challenged", "depends") or verdict.get("evidence_tier") not in TIERS:
        return
    cell, part = stands_for(verdict) or ({}, {})
    # A part that is refuted beside one that holds says that the article is half right, which is no surprise.
    if part.get("outcome") != verdict["verdict"]:
        return
    if cell.get("outcome") == "challenges" and all(cell.get(name) is not None for name in _NUMBER):
        beyond = _beyond(cell, part["threshold"])
        if beyond >= FAR:
            yield Result(verdict, part, cell, beyond)


def _beyond(cell: Mapping[str, Any], threshold: Any) -> float:
    """How many times beyond the threshold, or the nearer end of a range, the interval begins; 1 if it does not."""
    ends = [threshold, threshold] if isinstance(threshold, (int, float)) else threshold
    low, high = float(cell["low"]), float(cell["high"])
    if ends is None or not all(math.isfinite(one) and one > 0 for one in (low, high, *ends)):
        return 1.0
    return max(1.0, low / ends[1], ends[0] / high)
