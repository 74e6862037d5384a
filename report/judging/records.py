"""A part of a claim as `verdicts.json` has it: fields of what was found, and the sentences of `describe`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from report.data.ranges import format_ranges
from report.estimates import Estimates
from report.judging import describe
from report.judging.arithmetic import arithmetic
from report.judging.counterfactuals import nearest, sentences
from report.judging.evaluate import PartResult, QuantityCache
from report.judging.instances import nodes_of, pooled, ranges_of
from report.judging.others import Others
from report.judging.rules import outcome_alone
from report.judging.sensitivity import robustness
from report.judging.shares import Share
from report.model import ARITHMETIC, Threshold, Tier, Verdict
from report.quantities import quantities
from report.quantities.whole_runs import CHECK, coverage

_ENDS = ("estimate", "low", "high")


def known(value: float) -> float | None:
    """The value; None for what JSON has no number for: nan, and what is without end."""
    return value if math.isfinite(value) else None


def ends_of(estimates: Estimates, row: int) -> dict[str, float | None]:
    """Estimate, low and high of one row; None where unknown."""
    return {name: known(float(estimates.value(name, row))) for name in _ENDS}


def part_record(found: PartResult, cache: QuantityCache, whole: Callable[[Verdict], Verdict]) -> dict[str, Any]:
    """A part. whole: the claim's verdict if this part came out as given."""
    part, result = found.part, found.result
    number: Mapping[str, float | None] = dict.fromkeys(_ENDS)
    tried: dict[str, Any] | None = None
    turning: list[str] = []
    if result is not None and result.representative is not None:
        number = ends_of(result.estimates, result.representative)
    if result is not None and result.representative is not None and found.waits is None:
        tried = robustness(part, found.estimates, result, found.unit, cache.data, whole)
        tried["fact"] = tried["exact"] and _is_fact(found)
        turning = [] if tried["fact"] else sentences(part, result, tried)
        tried |= nearest(part, result, tried)
    return {
        "name": part.name,
        "quantity": part.quantity,
        "unit": found.unit,
        "rule": part.rule,
        "options": part.options,
        "rule_text": describe.rule(part, found.unit),
        "threshold": part.threshold.json,
        "threshold_why": part.why,
        "sensitivity": [one.json for one in part.sensitivity],
        "scope": part.scope,
        "scale": part.scale,
        "how": inspect.getdoc(found.quantity.compute) if found.quantity else None,
        "entries": _entries(found, cache),
        "followed": result is None or _followed(result.estimates),
        "outcome": found.outcome,
        "tier": found.quantity.tier if found.quantity and result is not None else Tier.NONE,
        "waits": describe.lacks(found.waits) if found.waits else None,
        "others": [others_record(one, found) for one in found.others],
        "unchecked": found.unchecked,
        "checked": found.quantity.checked if found.quantity and found.quantity.tier == "derived" else None,
        "check": check_record(found, cache),
        "cases": part.cases,
        "share": share_record(result.share) if result and result.share else None,
        "missing": {**found.missing.json, "says": describe.lacks(found.missing)} if found.missing else None,
        "reason": describe.part_reason(found, cache.data),
        "boundary": describe.boundary(result),
        **number,
        "robustness": tried,
        "flips": turning,
        "arithmetic": [] if found.waits else arithmetic(part, found.quantity, found.estimates, result, whole),
    }


def others_record(one: Others, found: PartResult) -> dict[str, Any]:
    """What others measured of a part: how strong, what came out, from least to most, and at which thresholds.

    decides: whether the part is decided on it; its cells are then the part's. records: keys of the published records
    that were compared. beside: how many times what others found is found here, each by its nearest to the threshold;
    None where only one is known.
    """
    decides = found.waits is not None and one.part is found.part
    known: list[float] = one.result.estimates.numbers("estimate").dropna().tolist() if one.result else []
    ours: float | None = None
    if found.waits is None and one.result is not None and found.result is not None:
        sides = [(result.estimates, result.representative) for result in (found.result, one.result)]
        values = [None if row is None else ends_of(of, row)["estimate"] for of, row in sides]
        ours = values[0] / values[1] if values[0] and values[1] and found.unit == one.unit else None
    return {
        "quantity": one.part.quantity,
        "scope": one.part.scope,
        "strength": one.strength,
        "why": one.why,
        "unit": one.unit,
        "decides": decides,
        "outcome": one.outcome,
        "least": min(known, default=None),
        "most": max(known, default=None),
        "at": [[limit.json, _at(one, limit)] for limit in one.part.thresholds] if one.result else [],
        "beside": ours,
        "records": one.records,
    }


def _at(one: Others, threshold: Threshold) -> Verdict | None:
    """The outcome with another threshold."""
    return outcome_alone(replace(one.part, threshold=threshold), one.chosen, one.unit)


def check_record(found: PartResult, cache: QuantityCache) -> dict[str, float] | None:
    """How well the model of a derived quantity held against measurements; None where nothing was checked.

    Against whole runs, jobs: that were run; predicted: how many of them, each from the others; shortest, longest: how
    many times as long they took as was derived; width: factor by which the interval of a prediction spans, either way.
    Against anything else, cases: their number; least, most: by what share of the measured value it was off.
    """
    by = found.quantity.checked if found.quantity else ""
    if by in ("", ARITHMETIC):
        return None
    if by == CHECK:
        known = coverage(cache.data)
        return asdict(known) if known else None
    errors = pooled(cache.estimates(quantities()[by])).numbers("estimate").dropna()
    return {"cases": len(errors), "least": float(errors.min()), "most": float(errors.max())} if len(errors) else None


def _is_fact(found: PartResult) -> bool:
    """Whether a part rests on published figures and arithmetic on them alone."""
    quantity = found.quantity
    return quantity is not None and (quantity.tier == "documented" or quantity.checked == ARITHMETIC)


def share_record(share: Share) -> dict[str, Any] | None:
    """A share of a population: estimate, low, high, units, of; None of an empty one."""
    return asdict(share) if share.units else None


def _followed(estimates: Estimates) -> bool:
    """Whether the source rows of every estimate are known that has a node: published figures have none."""
    nodes = estimates["node"] if "node" in estimates.labels else [None] * len(estimates)
    return all(rows or not isinstance(node, str) for rows, node in zip(estimates["source_rows"], nodes, strict=True))


def _entries(found: PartResult, cache: QuantityCache) -> list[str]:
    """Entries of the reference that a part rests on."""
    if found.quantity is None:
        return []
    named = found.part.entries if found.quantity.tier == "documented" else []
    return sorted({*named, *cache.entries(found.quantity)})


def cell_records(found: PartResult, cache: QuantityCache) -> list[dict[str, Any]]:
    """The compared estimates of a part, each with its labels and its side.

    A case of several machines of a kind has besides `instances` (ids), `machines` (in words), `instance_low` and
    `instance_high`: the range over them. A case made from disturbed rows of the summary has their share (`disturbed`).
    """
    result, quantity, disturbed = found.result, found.quantity, cache.data.disturbed
    if result is None or quantity is None:
        return []
    estimates = result.estimates
    # Whole columns at once: there may be a hundred thousand rows.
    values = estimates.rows(*_ENDS, "n_rounds", "n_samples", "detail", "source_rows")
    records = []
    nodes, ranges = nodes_of(estimates), ranges_of(estimates)
    for at, (labels, side, (*ends, n_rounds, n_samples, detail, rows)) in enumerate(
        zip(estimates.all_label_values(), result.sides, values, strict=True)
    ):
        words = describe.labels(labels, str(detail))
        more: dict[str, Any] = {}
        if many := sum(row in disturbed for row in rows):
            more["disturbed"] = many / len(rows)
        if at in ranges:
            more |= {
                "instances": nodes[at],
                "machines": cache.data.name(nodes[at]),
                **dict(zip(("instance_low", "instance_high"), map(known, ranges[at]), strict=True)),
            }
        records.append(
            {
                "part": found.part.name,
                "node": labels.pop("node", None),
                "device": labels.pop("device", None),
                "label": words,
                **labels,
                **dict(zip(_ENDS, (known(float(end)) for end in ends), strict=True)),
                "n_rounds": int(n_rounds),
                "n_samples": int(n_samples),
                "outcome": side,
                "behind": format_ranges(cache.source_rows(quantity, rows, nodes[at])),
                **more,
            }
        )
    return records
