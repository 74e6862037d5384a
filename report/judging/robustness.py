"""How robust a verdict is: margins, other thresholds, other scopes, one cell or node less. Linear in the cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import select
from report.judging.reasons import cell_labels, combined, place
from report.judging.rules import RuleResult, of_counts, outcome_of
from report.judging.threshold_sensitivity import SIDES, ThresholdSensitivity, declared, margin, turns
from report.quantities.ladder import LOOPS

# A verdict is robust if what decides it lies an interval's width from the threshold, and no threshold so near turns it.
CLEAR_WIDTHS, NEAR_FACTOR = 1.0, 2.0
# Scope labels that may be swapped for another value without leaving the question.
_SWAPPED = ("dtype", "threads", "backend", "baseline", "precision", "op")
# Cells or nodes that are named; of more it is said how many they are.
MOST_NAMED = 3


def robustness(
    part: Part, cells: Estimates, ruling: RuleResult, unit: str, data: Dataset, whole: Callable[[str], str]
) -> dict[str, Any]:
    """What was tried to turn the outcome of a part, of which some cells were compared, and what came of it.

    cells: all cells of the quantity, before scope and scale. whole: the claim's verdict if
    this part came out as given. The record, as `verdicts.json` has it:

    outcome, verdict: as they are. margin_widths: see `trial.margin`; None where it is unknown, or where figures
    are exact (`exact`). thresholds: of the declared range, each with the outcome of the part and the verdict on
    the claim. turns_at: see `trial.turns`, those in range and the nearest first. swaps: scopes with another value
    of one label; `plain_loop` where that is code without a library. without: see `_without`. decides: whether another
    outcome of this part alone would turn the verdict on the claim; if not, what turns its own outcome is told.
    fragile: whether anything near does (see `_fragile`).
    """
    trial = ThresholdSensitivity(part, ruling, whole)
    distance = margin(ruling, part.threshold)
    record: dict[str, Any] = {
        **trial.told(trial.now),
        "margin_widths": distance if math.isfinite(distance) else None,
        "exact": math.isinf(distance),
        "thresholds": [trial.at(value) for value in declared(part)],
        "turns_at": sorted(turns(trial), key=lambda turn: (not turn["in_range"], turn["factor"] or math.inf)),
        "swaps": list(_swaps(part, cells, unit, trial)),
        "without": list(_without(trial, data)),
        "decides": trial.decides,
    }
    return {**record, "fragile": _fragile(record, trial)}


def _swaps(part: Part, cells: Estimates, unit: str, trial: ThresholdSensitivity) -> Iterator[dict[str, Any]]:
    """Other values of the scope's labels, where such cells exist: what they would make of it."""
    for name in _SWAPPED:
        now = part.scope.get(name)
        if now is None or isinstance(now, list) or name not in cells.labels:
            continue
        for value in _others(cells, name, now, part):
            scope = {**part.scope, name: value}
            if name == "backend" and "shape" in cells.labels:
                scope["shape"] = "best"
            scoped = select(cells, scope) * part.scale
            outcome = outcome_of(part.rule, scoped, part.threshold, unit, part.options)
            if outcome is not None:
                given = value.item() if isinstance(value, np.generic) else value
                told = {"label": name, "value": given, "now": now, "plain_loop": given in LOOPS}
                yield {**told, **trial.told(outcome)}


def _others(cells: Estimates, name: str, now: Any, part: Part) -> list[Any]:
    """Values of a label that stand beside the scope's own, everything else in scope."""
    scope = {key: value for key, value in part.scope.items() if key != name}
    if name == "backend" and "shape" in cells.labels:
        scope["shape"] = "best"
    if name == "backend":
        values = [value for value in cells.frame[name].dropna().unique() if value != "best"]
        scope[name] = values
    beside = select(cells, scope)
    values = sorted(beside.frame[name].dropna().unique(), key=str) if name in beside.labels else []
    own = select(cells, part.scope)
    used = set(own.frame[name].dropna().unique()) if name in own.labels else set()
    return [value for value in values if value != now and value not in used]


def _without(trial: ThresholdSensitivity, data: Dataset) -> Iterator[dict[str, Any]]:
    """The cells and the nodes without any one of which the outcome would be another.

    kind: cell or node. what: each by itself in words, a node also by its `id`; or `number` of them, where there are
    more than MOST_NAMED. one_cell: of a node that has no other, so that the cell says the same. What is left
    without one follows from how many cells support and challenge.
    """
    rule, cells, (n, pro, contra) = trial.part.rule, trial.ruling.cells, trial.counts()
    for side in SIDES if n > 1 else ():
        at = np.flatnonzero(trial.outcome == side)
        outcome = of_counts(rule, n - 1, pro - (side == "supports"), contra - (side == "challenges"), trial.share)
        if len(at) and outcome != trial.now:
            found = [{"what": _cell(cells, int(i), data)} for i in at[:MOST_NAMED]]
            yield from _named("cell", found, len(at), trial.told(outcome))
    if "node" not in cells.labels:
        return
    codes, nodes = pd.factorize(cells.frame["node"])
    here = [codes >= 0, *((codes >= 0) & (trial.outcome == side) for side in SIDES[:2])]
    each = np.array([np.bincount(codes[of], minlength=len(nodes)) for of in here])
    hang: dict[tuple[str, bool], list[str]] = {}
    for node, (some, for_it, against) in zip(nodes, each.T.tolist(), strict=True):
        outcome = of_counts(rule, n - some, pro - for_it, contra - against, trial.share)
        if n > some and outcome != trial.now:
            hang.setdefault((outcome, some == 1), []).append(str(node))
    for (turned, alone), ids in hang.items():
        named = [{"what": data.label(node), "id": node} for node in ids[:MOST_NAMED]]
        yield from _named("node", named, len(ids), {**trial.told(turned), "one_cell": alone})


def _cell(cells: Estimates, row: int, data: Dataset) -> str:
    return "; ".join(filter(None, (place(cells, row, data), cell_labels(cells, row))))


def _named(
    kind: str, found: Sequence[Mapping[str, str]], number: int, told: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    if number > MOST_NAMED:
        yield {"kind": kind, "what": "", "number": number, **told}
        return
    for one in found:
        yield {"kind": kind, **one, "number": 1, **told}


def _fragile(record: Mapping[str, Any], trial: ThresholdSensitivity) -> bool:
    """Whether something near turns the verdict (of a part that cannot turn it, its own outcome).

    Near is: less than CLEAR_WIDTHS between what decides and the threshold, or no interval; a threshold of
    the declared range within NEAR_FACTOR; any swap but for plain loops, which show what a language costs
    and not what a machine can do; any single cell or node.
    """
    clear = record["exact"] or (record["margin_widths"] is not None and record["margin_widths"] >= CLEAR_WIDTHS)
    if not clear and not trial.settled:
        return True
    near = [turn for turn in record["turns_at"] if turn["in_range"] and (turn["factor"] or 0) <= NEAR_FACTOR]
    swaps = [swap for swap in record["swaps"] if not swap["plain_loop"]]
    return bool(near) or any(trial.turned(one["outcome"]) for one in (*swaps, *record["without"]))


def together(parts: Sequence[Mapping[str, Any]], verdict: str) -> list[dict[str, Any]]:
    """Changes of several parts at once that turn the verdict on a claim: the same swap, or the same node left out.

    parts: as `verdicts.json` has them, all decided. Each with `swap` or `node`, the entry of the first part that
    has it, and the verdict that it makes.
    """
    found = []
    for kind, key in (("swap", ("label", "now", "value")), ("node", ("id",))):
        made: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
        for place_, part in enumerate(parts):
            tried = part["robustness"] or {}
            for one in tried.get("swaps" if kind == "swap" else "without", []):
                if not one.get("plain_loop") and (kind == "swap" or one.get("id")):
                    made.setdefault(tuple(one[name] for name in key), {})[place_] = one
        for changed in made.values():
            outcomes = [changed.get(at, part)["outcome"] for at, part in enumerate(parts)]
            turned = combined(outcomes)
            if len(changed) > 1 and turned != verdict:
                found.append({kind: next(iter(changed.values())), "verdict": turned})
    return found
