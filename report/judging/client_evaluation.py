"""What it takes to judge a part of a claim again, with another threshold or baseline, without its data.

A rule's transform does not ask for the threshold: the intervals of the cells that it compares, at the level by
which it decides, are all that a threshold is compared with. Another baseline has cells of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from report.data.dataset import Dataset, MissingSourceError
from report.judging.claims import Claim
from report.judging.evaluate import PartResult, QuantityCache, evaluate
from report.judging.filters import select
from report.judging.overrides import BASELINES, swapped
from report.judging.reasons import in_words
from report.judging.rules import RuleResult, direction, level
from report.judging.threshold_sensitivity import SIDES
from report.quantities import quantities

# Cells of which there are more than this bear no names: they are counted.
MOST_NAMED = 200


def again(weighed: PartResult, claim: Claim, evidence: QuantityCache) -> dict[str, Any]:
    """A part as it can be judged again: the record `rejudge` of a part in `verdicts.json`.

    how: how one cell is compared. share: of the cells that must support it, where the rule asks for one. cells,
    settled: see `_compared`. baselines: for each other baseline that was measured the same, and its `outcome` with
    the declared threshold.
    """
    part = weighed.part
    return {
        "how": direction(part.rule, part.options),
        "share": float(part.options.get("share", 1.0)),
        **_compared(weighed, evidence.data),
        "baselines": {
            name: {"outcome": other.outcome, **_compared(other, evidence.data)}
            for name, other in _baselines(weighed, claim, evidence)
        },
    }


def single_socket(data: Dataset) -> list[str]:
    """Ids of the nodes of one socket, on which that is the whole node."""
    return [node.id for node in data.nodes.nodes if (node.record["hardware"].get("cpu") or {}).get("sockets") == 1]


def _compared(weighed: PartResult, data: Dataset) -> dict[str, Any]:
    """The compared cells of a part.

    cells: the low and the high end of the interval that decides each, and the cell in words. settled: how many
    others support, challenge and stay undecided whatever the threshold, for they have no interval.
    """
    ruling = weighed.ruling
    if ruling is None:
        return {"settled": [0, 0, 0], "cells": []}
    low, high = ruling.cells.ends(level(weighed.part.rule, len(ruling.cells)))
    known = ~(np.isnan(low) | np.isnan(high))
    settled = [one for one, is_known in zip(ruling.outcomes, known, strict=True) if not is_known]
    rows = zip(low.tolist(), high.tolist(), _named(ruling, data), known, strict=True)
    return {
        "settled": [settled.count(side) for side in SIDES],
        "cells": [[_end(one), _end(other), name] for one, other, name, is_known in rows if is_known],
    }


def _end(value: float) -> float | str:
    """An end of an interval; in words where it is infinite, for which JSON has no number."""
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _named(ruling: RuleResult, data: Dataset) -> list[str]:
    """Each compared cell in words, with its node where there are several; '' where nobody would read them."""
    n = len(ruling.cells)
    if not 1 < n <= MOST_NAMED:
        return [""] * n
    told = [
        (labels.get("node"), in_words(labels, str(detail)))
        for labels, detail in zip(ruling.cells.all_label_values(), ruling.cells.frame["detail"], strict=True)
    ]
    many = len({node for node, _ in told}) > 1
    return ["; ".join(filter(None, (data.label(str(node)) if node and many else "", text))) for node, text in told]


def _baselines(weighed: PartResult, claim: Claim, evidence: QuantityCache) -> Iterator[tuple[str, PartResult]]:
    """The part against each other baseline that it was measured against, as `whatif` swaps it."""
    part, single = weighed.part, single_socket(evidence.data)
    others = {name: swapped(part, "baseline", name, single) for name in BASELINES}
    if not any(others.values()):
        return
    try:
        cells = evidence.cells(quantities()[part.quantity])
    except MissingSourceError:
        return
    if not len(select(cells, part.scope)):
        return
    for name, other in others.items():
        if other is not None and other != part and len(select(cells, other.scope)):
            yield name, evaluate(other, claim, evidence)
