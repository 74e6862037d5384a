"""What it takes to judge a part of a claim again, with another threshold or baseline, without its data.

A rule's transform does not ask for the threshold: the intervals of the cells that it compares, at the level by
which it decides, are all that a threshold is compared with. Another baseline has cells of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from report.data.dataset import Dataset, MissingSourceError
from report.judging import describe
from report.judging.claims import Claim, Part
from report.judging.evaluate import PartResult, QuantityCache, evaluate
from report.judging.filters import select
from report.judging.rules import RuleResult, level, may_be_negative, population
from report.model import Side
from report.quantities import quantities

# What a GPU may be held against.
BASELINES = ("core", "socket", "node", "fleet")
_FIELD = {"at_least": "at least", "at_most": "at most", "within": "within"}
# Where there are more estimates than this they bear no names: they are counted.
MOST_NAMED = 200


def client_evaluation(found: PartResult, claim: Claim, cache: QuantityCache) -> dict[str, Any]:
    """A part as it can be judged again: the record `rejudge` of a part in `verdicts.json`.

    how: how one estimate is compared. before,
    after: what stands around the threshold in its rule; negative: whether that may be below zero. cells, settled: see
    `_compared`. baselines: for each other baseline that was measured the same, and its `outcome` with the declared
    threshold.
    """
    before, after = describe.around_threshold(found.part, found.unit, _FIELD[found.part.compare])
    return {
        "how": found.part.compare,
        "before": before,
        "after": after,
        "negative": may_be_negative(found.part),
        **_compared(found, cache.data),
        "baselines": {
            name: {"outcome": other.outcome, **_compared(other, cache.data)}
            for name, other in _baselines(found, claim, cache)
        },
    }


def slug(name: str) -> str:
    """A part's name as it is typed: 'orders, in the plural' is orders-in-the-plural."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def with_label(part: Part, label: str, value: Any, data: Dataset) -> Part:
    """The part with another value of a label in its scope. A socket is the node where the node has one."""
    if (label, value) == ("baseline", "socket"):
        cpus = {node.id: node.record["hardware"].get("cpu") or {} for node in data.nodes.nodes}
        single = [name for name, cpu in cpus.items() if cpu.get("sockets") == 1]
        return replace(part, scope={**part.scope, "baseline": "node", "node": single})
    return replace(part, scope={**part.scope, label: value})


def _compared(found: PartResult, data: Dataset) -> dict[str, Any]:
    """The compared estimates of a part.

    cells: the low and the high end of the interval that decides each, and its labels in words. settled: how many
    others support, challenge and stay undecided whatever the threshold, for they have no interval. turns: where the
    rule asks for a share, the last threshold at which it supports, and the first at which it challenges; None for
    never.
    """
    result = found.result
    if result is None:
        return {"settled": [0, 0, 0], "cells": [], "turns": None}
    whole = population(found.part, result.estimates)
    low, high = result.estimates.ends(level(found.part.rule, len(result.estimates)))
    known = ~(np.isnan(low) | np.isnan(high))
    settled = [side for side, is_known in zip(result.sides, known, strict=True) if not is_known]
    rows = zip(low.tolist(), high.tolist(), _named(result, data), known, strict=True)
    return {
        "settled": [settled.count(side) for side in Side],
        "cells": [[_end(one), _end(other), name] for one, other, name, is_known in rows if is_known],
        "turns": [turn if turn is None else _end(turn) for turn in whole.turns(found.part.share)] if whole else None,
    }


def _end(value: float) -> float | str:
    """An end of an interval; in words where it is infinite, for which JSON has no number."""
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _named(result: RuleResult, data: Dataset) -> list[str]:
    """Each compared estimate in words, with its node where there are several; '' where nobody would read them."""
    n = len(result.estimates)
    if not 1 < n <= MOST_NAMED:
        return [""] * n
    labels = result.estimates.all_label_values()
    words = [
        describe.labels(one, str(detail))
        for one, (detail,) in zip(labels, result.estimates.rows("detail"), strict=True)
    ]
    nodes = [one.get("node") for one in labels]
    many = len(set(nodes)) > 1
    return [
        "; ".join(filter(None, (data.label(str(node)) if node and many else "", text)))
        for node, text in zip(nodes, words, strict=True)
    ]


def _baselines(found: PartResult, claim: Claim, cache: QuantityCache) -> Iterator[tuple[str, PartResult]]:
    """The part against each other baseline that it was measured against."""
    part, quantity = found.part, quantities().get(found.part.quantity)
    if quantity is None or part.awaits is not None or "baseline" not in quantity.labels:
        return
    try:
        estimates = cache.estimates(quantity)
    except MissingSourceError:
        return
    if not len(select(estimates, part.scope)):
        return
    for name in BASELINES:
        other = with_label(part, "baseline", name, cache.data)
        if other != part and len(select(estimates, other.scope)):
            yield name, evaluate(other, claim, cache)
