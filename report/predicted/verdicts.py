"""Claims about GPUs, judged by predictions: beside the measured verdicts, never among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from report.estimates import Estimates
from report.formatting import count, interval, labels_text, threshold_text, with_unit
from report.judging.claims import Claim, Part
from report.judging.filters import kinds_needed, select
from report.judging.reasons import combined, plain, value_of
from report.judging.rules import Outcome, combine, direction, side, transform
from report.predicted import TIER
from report.predicted.evidence import BARRED, BOUND, FORETOLD, SCALED, Predicted
from report.quantities import quantities

NOT_FORETOLD = "not foretold"
# Labels that say nothing of a prediction.
_COMMON = ("node", "device", "backend", "shape", "footprint", "threads", "parameters")
# Rules that compare cells as they are: there a bound stays a bound.
_PLAIN = ("at_least", "at_most", "within", "exists", "for_share_of")


def about_gpus(claim: Claim) -> bool:
    """Whether a claim cannot be decided without a GPU."""
    known = quantities()
    return any("gpu" in kinds_needed(part, known[part.quantity]) for part in claim.parts if part.quantity in known)


def predicted_verdict(claim: Claim, by: Predicted) -> dict[str, Any]:
    """A claim's verdict by what a chip is foretold to do, marked as such; `not foretold` if a part cannot be.

    An upper bound of a rate decides only where it lies below what is asked for. Raises StudyError if the claim's
    options do not fit the cells.
    """
    parts = [_part(part, by) for part in claim.parts]
    lacking = [part for part in parts if part["outcome"] == NOT_FORETOLD]
    verdict = NOT_FORETOLD if lacking else combined([part["outcome"] for part in parts])
    told = [f"{part['name']}: {part['reason']}" if len(parts) > 1 else part["reason"] for part in lacking or parts]
    return {
        "tier": TIER,
        "gpu": by.chip.name,
        "verdict": verdict,
        "reason": "; ".join(dict.fromkeys(told)),
        "parts": parts,
    }


def _part(part: Part, by: Predicted) -> dict[str, Any]:
    """One part: outcome, reason, how it is foretold, and the cells that were compared."""
    quantity = quantities().get(part.quantity)
    if quantity is None or part.awaits is not None or quantity.name not in FORETOLD:
        return _without(part, f"no datasheet foretells {part.quantity}")
    cells = by.cells(quantity)
    scoped = select(cells, part.scope) * part.scale if len(cells) else cells
    hows = by.made(scoped)
    if part.rule not in _PLAIN and part.rule != "ratio":
        bound = np.array([how == BOUND for how in hows], bool)
        gone = {name: scoped.frame[name].mask(bound) for name in ("low", "high", "se")}
        scoped = Estimates(scoped.frame.assign(**gone), scoped.log)
    compared = transform(part.rule, scoped, quantity.unit, part.options)
    kept = [place for place, how in enumerate(by.made(compared.cells)) if how]
    if not kept:
        return _without(part, _lacks(by))
    found, preset = compared.cells.at(kept), [compared.preset[place] for place in kept]
    ends = [_ends(found, row, how, part) for row, how in enumerate(by.made(found))]
    compare = direction(part.rule, part.options)
    outcomes: list[Outcome] = [
        settled or side(low, high, part.threshold, compare) for settled, (low, high) in zip(preset, ends, strict=True)
    ]
    return {
        "name": part.name,
        "outcome": combine(part.rule, outcomes, float(part.options.get("share", 1.0))),
        "reason": _reason(found, outcomes, by, part, compared.unit),
        "threshold": part.threshold,
        "cells": [_cell(found, row, outcome, by, part) for row, outcome in enumerate(outcomes)],
    }


def _without(part: Part, why: str) -> dict[str, Any]:
    return {
        "name": part.name, "outcome": NOT_FORETOLD, "reason": why, "threshold": part.threshold, "cells": [],
    }  # fmt: skip


def _lacks(by: Predicted) -> str:
    if by.chip.lacking:
        return f"not verified: {', '.join(by.chip.lacking)}"
    return "no CPU has measured what it would be compared with"


def _sign(part: Part) -> int:
    """Whether what is compared rises (1) or falls (-1) as the GPU is quicker."""
    sign = FORETOLD[part.quantity]
    return -sign if part.rule == "ratio" and part.options.get("to") == "gpu" else sign


def _ends(cells: Estimates, row: int, how: str, part: Part) -> tuple[float, float]:
    """Where a cell can lie: of a bound only one end is known, and no interval of what has no error bar."""
    low, high = (float(cells.frame[name].iloc[row]) for name in ("low", "high"))
    if how == SCALED or (how == BOUND and part.rule not in _PLAIN and part.rule != "ratio"):
        return (low, high) if part.rule == "crossover" and not math.isnan(low) else (math.nan, math.nan)
    if how == BOUND:
        return (0.0, high) if _sign(part) > 0 else (low, math.inf)
    return low, high


def _cell(cells: Estimates, row: int, outcome: Outcome, by: Predicted, part: Part) -> dict[str, Any]:
    """A compared cell. estimate, low and high only as far as they are foretold; at_most or at_least: a bound."""
    how = by.made(cells)[row]
    estimate, low, high = value_of(cells, row)
    node = cells.label_values(row).get("node")
    record: dict[str, Any] = {
        "tier": TIER, "how": how, "node": node, "label": _label(cells, row), "outcome": outcome,
        "estimate": estimate, "low": low, "high": high,
    }  # fmt: skip
    if how == BOUND:
        rises = _sign(part) > 0
        record |= {"estimate": None, "low": None, "high": None, "at_most" if rises else "at_least": plain(estimate)}
    return record


def _label(cells: Estimates, row: int) -> str:
    """A cell's labels in words, without what all predictions have in common."""
    labels = cells.label_values(row)
    detail = str(cells.frame["detail"].iloc[row]) if labels.get("precision") == "best" else ""
    return ", ".join(text for text in (labels_text(labels, _COMMON), detail) if text)


def told(cell: Mapping[str, Any], unit: str) -> str:
    """A predicted value in words: 'at most 412', '30 (no interval)', '30 [21, 43]'."""
    for word in ("at_most", "at_least"):
        if word in cell:
            return f"{word.replace('_', ' ')} {with_unit(cell[word], unit)}"
    return interval(cell["estimate"], cell["low"], cell["high"], unit)


def _reason(cells: Estimates, outcomes: Sequence[Outcome], by: Predicted, part: Part, unit: str) -> str:
    """How many predicted cells there are, what they say, and the ends of their range."""
    records = [_cell(cells, row, outcome, by, part) for row, outcome in enumerate(outcomes)]
    weakest = next(how for how in (BOUND, SCALED, BARRED) if any(one["how"] == how for one in records))
    pro, contra = outcomes.count("supports"), outcomes.count("challenges")
    known = [one for one in records if not math.isnan(value(one))]
    head = f"predicted ({weakest}): of {count(len(records), 'cell')}, {pro} support it and {contra} challenge it"
    if not known:
        return head
    ends = sorted(known, key=value)
    span = " to ".join(dict.fromkeys(f"{told(one, unit)} ({one['label']})" for one in (ends[0], ends[-1])))
    return f"{head}; from {span}, against {threshold_text(part.threshold, unit)}"


def value(cell: Mapping[str, Any]) -> float:
    """A predicted cell's estimate, or its bound where there is no more; nan where there is neither."""
    found = (cell.get(name) for name in ("estimate", "at_most", "at_least"))
    return next((float(one) for one in found if one is not None), math.nan)
