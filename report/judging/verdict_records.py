"""Build the records for parts, cases and arithmetic in `verdicts.json`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from report import verdicts
from report.compared_estimates import derivation_labels, instance_ranges, pool_machines, row_name, row_nodes
from report.data.row_ranges import format_ranges
from report.derivations import Formula, Input
from report.derived_estimates import Derivation, DerivedEstimates
from report.estimates import Estimates
from report.formatting import case_name
from report.judging.claim_files import Part
from report.judging.more_rounds import more_rounds
from report.judging.part_evaluation import PartResult, PublishedResult, QuantityCache, select
from report.judging.robustness import Retrial, part_robustness, threshold_trials
from report.judging.rules import CLEAR, Boundary, RuleResult, apply_rule
from report.judging.shares import Share
from report.outcomes import ARITHMETIC, Side, Tier, Verdict
from report.quantities import Quantity, quantities
from report.quantities.whole_runs import CHECK, coverage

_ENDS = ("estimate", "low", "high")


def finite_or_none(value: float) -> float | None:
    """Return None for nan and infinity, which JSON cannot encode."""
    return value if math.isfinite(value) else None


def row_interval(estimates: Estimates, row: int) -> dict[str, float | None]:
    """Return a row's estimate, low and high; None in place of nan and infinity."""
    return {name: finite_or_none(float(estimates.value(name, row))) for name in _ENDS}


def part_record(
    part_result: PartResult, cache: QuantityCache, verdict_for: Callable[[Verdict], Verdict]
) -> verdicts.Part:
    """Build a part's record.

    verdict_for: returns the claim's verdict for another outcome of this part.
    """
    part, result = part_result.part, part_result.result
    number: Mapping[str, float | None] = dict.fromkeys(_ENDS)
    robustness_record: verdicts.Robustness | None = None
    if result is not None and result.representative is not None:
        number = row_interval(result.estimates, result.representative)
    if result is not None and result.representative is not None and part_result.waits is None:
        robustness_record = part_robustness(
            part, part_result.estimates, result, part_result.unit, cache.data, verdict_for
        )
        robustness_record.fact = robustness_record.exact and _is_fact(part_result)
    return verdicts.Part(
        name=part.name,
        quantity=part.quantity,
        unit=part_result.unit,
        rule=part.rule,
        options=part.options,
        threshold=part.threshold.json,
        threshold_why=part.why,
        sensitivity=[threshold.json for threshold in part.sensitivity],
        scope=part.scope,
        scale=part.scale,
        scale_why=part.scale_why,
        how=inspect.getdoc(part_result.quantity.compute) if part_result.quantity else None,
        ends=_ends_kind(part_result),  # type: ignore[arg-type]
        margin=(part.margin or CLEAR) if _is_published(part_result) else None,
        margin_why=part.margin_why,
        entries=_part_entries(part_result, cache),
        from_samples=part_result.quantity is not None and cache.from_samples(part_result.quantity),
        followed=result is None or _has_source_rows(result.estimates),
        outcome=part_result.outcome,
        tier=Tier(part_result.quantity.tier) if part_result.quantity and result is not None else Tier.NONE,
        waits=part_result.waits,
        others=[published_record(other, part_result, verdict_for) for other in part_result.others],
        more_rounds=more_rounds(part_result, cache),
        unchecked=part_result.unchecked,
        checked=part_result.quantity.checked
        if part_result.quantity and part_result.quantity.tier == "derived"
        else None,
        check=check_record(part_result, cache),
        cases_why=part.cases_why,
        n_cases=len(result.sides) if result else 0,
        share=share_record(result.share, part.share) if result and result.share else None,
        missing=part_result.missing,
        boundary=boundary_record(result),
        **number,
        robustness=robustness_record,
        arithmetic=None
        if part_result.waits
        else arithmetic_record(part, part_result.quantity, part_result.estimates, result, verdict_for),
    )


def _is_published(part_result: PartResult) -> bool:
    return part_result.result is not None and part_result.result.estimates.are_published


def _ends_kind(part_result: PartResult) -> str:
    """Return what the ends in a part's numbers are, as `verdicts.Part.ends`."""
    quantity, result = part_result.quantity, part_result.result
    if quantity is None or result is None or result.estimates["low"].isna().all():
        return "none"
    if quantity.bound:
        return "bound"
    by_rounds = bool((result.estimates["n_rounds"].astype(int) > 0).any())
    if quantity.tier == Tier.DERIVED:
        return "interval and assumptions" if by_rounds else "assumptions"
    return "interval" if by_rounds else "source"


def published_record(
    published: PublishedResult, part_result: PartResult, verdict_for: Callable[[Verdict], Verdict]
) -> verdicts.Others:
    """Record a published result for a part.

    decides: True if this result decides the part.
    records: the keys of the published records; empty if the result decides, because the part's cases then name them.
    beside: our representative estimate divided by the published one; None if either is unknown or the units differ.
    """
    decides = part_result.waits is not None and published.part is part_result.part
    values_found: list[float] = (
        published.result.estimates.numbers("estimate").dropna().tolist() if published.result else []
    )
    our_ratio: float | None = None
    if part_result.waits is None and published.result is not None and part_result.result is not None:
        sides = [(result.estimates, result.representative) for result in (part_result.result, published.result)]
        values = [None if row is None else row_interval(estimates, row)["estimate"] for estimates, row in sides]
        our_ratio = values[0] / values[1] if values[0] and values[1] and part_result.unit == published.unit else None
    return verdicts.Others(
        quantity=published.part.quantity,
        scope=published.part.scope,
        strength=published.strength,
        why=published.why,
        unit=published.unit,
        decides=decides,
        outcome=published.outcome,
        least=min(values_found, default=None),
        most=max(values_found, default=None),
        trials=list(threshold_trials(Retrial(published.part, published.result, verdict_for)))
        if published.result and decides
        else [],
        beside=our_ratio,
        records=[] if decides else published.records,
    )


def boundary_record(result: RuleResult | None) -> dict[str, Any] | None:
    """Return the boundary's fields or, for a crossover, the field `ahead`; None if the result has neither."""
    if result is None or (result.boundary is None and not result.crossover):
        return None
    return _boundary_fields(result.boundary) if result.boundary else {"ahead": result.crossover}


def _boundary_fields(boundary: Boundary) -> dict[str, Any]:
    record: dict[str, Any] = {
        "label": boundary.label,
        "ranges": [{"side": side, **asdict(item)} for side, item in boundary.ranges],
        "values": [{"side": side, "values": list(values)} for side, values in boundary.values],
        "inner": [
            {"value": value, **({"side": item} if isinstance(item, Side) else _boundary_fields(item))}
            for value, item in boundary.inner
        ],
        "counts": dict(boundary.counts),
        "undecided": boundary.undecided,
    }
    return {name: value for name, value in record.items() if value}


def check_record(part_result: PartResult, cache: QuantityCache) -> dict[str, float] | None:
    """Return how well the model of a derived quantity agrees with measurements; None if nothing was checked.

    For a whole-run model, the fields are those in `whole_runs.Coverage`. For another model, they are:
    cases: how many cases were checked.
    least, most: the smallest and the largest error relative to the measured value.
    """
    by = part_result.quantity.checked if part_result.quantity else ""
    if by in ("", ARITHMETIC):
        return None
    if by == CHECK:
        known = coverage(cache.data)
        return asdict(known) if known else None
    errors = pool_machines(cache.estimates(quantities()[by])).numbers("estimate").dropna()
    return {"cases": len(errors), "least": float(errors.min()), "most": float(errors.max())} if len(errors) else None


def _is_fact(part_result: PartResult) -> bool:
    """Return True if a part rests on published figures and plain arithmetic alone."""
    quantity = part_result.quantity
    return quantity is not None and (quantity.tier == "documented" or quantity.checked == ARITHMETIC)


def share_record(share: Share, wanted: float) -> dict[str, Any] | None:
    """Return a share's fields and its `turning_units`; None if the share has no units. wanted: the required share."""
    return {**asdict(share), "turning_units": share.turning_units(wanted)} if share.units else None


def _has_source_rows(estimates: Estimates) -> bool:
    """Return True if every estimate with a node has source rows."""
    nodes = estimates["node"] if "node" in estimates.labels else [None] * len(estimates)
    return all(rows or not isinstance(node, str) for rows, node in zip(estimates["source_rows"], nodes, strict=True))


def _part_entries(part_result: PartResult, cache: QuantityCache) -> list[str]:
    """List the reference entries that a part rests on."""
    if part_result.quantity is None:
        return []
    named = part_result.part.entries if part_result.quantity.tier == "documented" else []
    return sorted({*named, *cache.entries(part_result.quantity)})


def case_records(part_result: PartResult, cache: QuantityCache) -> list[verdicts.Case]:
    """Build a record for each estimate compared in a part.

    A pooled case's record also has `instances` (node ids), `machines` (in words), `instance_low` and `instance_high`
    (the smallest and the largest estimate from an instance). `disturbed` is present if some of the case's summary rows
    are in `disturbed_rows`, and gives their fraction. `session_spread` is present if all are in `session_rows`.
    """
    result, quantity, disturbed = part_result.result, part_result.quantity, cache.data.disturbed_rows
    with_sessions = cache.data.session_rows
    if result is None or quantity is None:
        return []
    estimates = result.estimates
    # Columns are converted as a whole, because there may be a hundred thousand rows.
    values = estimates.rows(*_ENDS, "n_rounds", "n_samples", "detail", "source_rows")
    records = []
    nodes, ranges = row_nodes(estimates), instance_ranges(estimates)
    for at, (labels, side, (*ends, n_rounds, n_samples, detail, rows)) in enumerate(
        zip(estimates.all_label_values(), result.sides, values, strict=True)
    ):
        number: Any = dict(zip(_ENDS, (finite_or_none(float(end)) for end in ends), strict=True))
        more: dict[str, Any] = {}
        if many := sum(row in disturbed for row in rows):
            more["disturbed"] = many / len(rows)
        if rows and all(row in with_sessions for row in rows):
            more["session_spread"] = True
        if at in ranges:
            more |= {
                "instances": nodes[at],
                "machines": cache.data.group_label(nodes[at]),
                **dict(zip(("instance_low", "instance_high"), map(finite_or_none, ranges[at]), strict=True)),
            }
        records.append(
            verdicts.Case(
                part=part_result.part.name,
                node=labels.pop("node", None),
                device=labels.pop("device", None),
                labels=labels,
                **number,
                n_rounds=int(n_rounds),
                n_samples=int(n_samples),
                outcome=side,
                detail=str(detail),
                behind=format_ranges(cache.source_rows(quantity, rows, nodes[at])),
                **more,
            )
        )
    return records


# If a part has more cases than this, only the representative case's arithmetic is recorded; otherwise, the arithmetic
# is recorded for one case with each formula.
_MOST = 50


def arithmetic_record(
    part: Part,
    quantity: Quantity | None,
    estimates: Estimates,
    result: RuleResult | None,
    verdict_for: Callable[[Verdict], Verdict],
) -> dict[str, Any] | None:
    """Record the arithmetic behind a representative estimate; None if the quantity has no formulas.

    estimates: all estimates for the quantity, before scope and scale.
    verdict_for: returns the claim's verdict for another outcome of this part.

    The record has these fields; without a representative estimate, it has `formulas` alone:
    formulas: for each formula, its text, its unit, and each symbol's meaning and unit.
    case, formula, inputs, result: the representative case's arithmetic.
    sensitivity: for each input at either end of its range, with all other inputs fixed: the case's result, the part's
    outcome and the claim's verdict. An input that several cases have in common moves in all of them.
    also: for each other formula in the compared cases, one case with the same fields and its sensitivity.
    beside: other results from the same inputs, with name and case.
    """
    if quantity is None or not quantity.formulas:
        return None
    record: dict[str, Any] = {"formulas": [_formula_record(formula) for formula in quantity.formulas]}
    if not isinstance(estimates, DerivedEstimates) or result is None or result.representative is None:
        return record
    row = estimates.find_row(derivation_labels(result.estimates, result.representative))
    # An infinite estimate has no derivation to record.
    if row is None or not math.isfinite(estimates.value("estimate", row)):
        return record
    records = [
        _derivation_record(part, quantity, estimates, derivation_row, verdict_for)
        for derivation_row in (row, *_rows_by_other_formulas(estimates, result, row))
    ]
    beside = [
        {"name": name, "unit": unit, "formula": derivation.formula.text, **values}
        for name, unit, other in estimates.other_results
        for derivation, values in zip(other.derivations, _case_rows(other), strict=True)
    ]
    return {**record, **records[0], "also": records[1:], "beside": beside}


def _rows_by_other_formulas(estimates: DerivedEstimates, result: RuleResult, row: int) -> list[int]:
    """Find one row for each formula in the compared estimates, except the representative estimate's formula.

    Returns no rows if there are more than _MOST estimates.
    """
    if len(result.estimates) > _MOST:
        return []
    formulas: dict[str, int] = {}
    for compared in range(len(result.estimates)):
        at = estimates.find_row(derivation_labels(result.estimates, compared))
        if at is not None and math.isfinite(estimates.value("estimate", at)):
            formulas.setdefault(estimates.derivations[at].formula.text, at)
    return [at for text, at in formulas.items() if text != estimates.derivations[row].formula.text]


def _derivation_record(
    part: Part, quantity: Quantity, estimates: DerivedEstimates, row: int, verdict_for: Callable[[Verdict], Verdict]
) -> dict[str, Any]:
    derivation = estimates.derivations[row]
    return {
        "case": row_name(estimates, row),
        "formula": derivation.formula.text,
        "inputs": [_input_record(symbol, term, derivation) for symbol, term in derivation.inputs.items()],
        "result": {
            "symbol": derivation.formula.result,
            "unit": derivation.formula.unit,
            **_value_fields(estimates, row),
        },
        "sensitivity": list(_input_sensitivity(part, quantity, estimates, row, verdict_for)),
    }


def _formula_record(formula: Formula) -> dict[str, Any]:
    symbols = [{"symbol": name, "means": means, "unit": unit} for name, (means, unit) in formula.symbols.items()]
    return {"text": formula.text, "unit": formula.unit, "rounded_up": formula.rounded_up, "symbols": symbols}


def _input_record(symbol: str, term: Input, derivation: Derivation) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "means": derivation.formula.symbols[symbol][0],
        "what": term.what,
        "value": term.value,
        "low": term.low if term.has_range else None,
        "high": term.high if term.has_range else None,
        "unit": term.unit,
        "kind": term.kind,
        "entries": list(term.entries),
        "rows": format_ranges(term.source_rows),
        "source": term.source,
        "in_interval": term.in_interval or term.kind == "measured",
    }


def _value_fields(estimates: Estimates, row: int) -> dict[str, float | None]:
    ends = row_interval(estimates, row)
    return {"value": ends["estimate"], "low": ends["low"], "high": ends["high"]}


def _case_rows(estimates: DerivedEstimates) -> Iterator[dict[str, Any]]:
    """Yield each estimate's name, labels and values."""
    for row, (labels, detail) in enumerate(zip(estimates.all_label_values(), estimates["detail"], strict=True)):
        yield {"case": case_name(labels, str(detail)), "labels": labels, **_value_fields(estimates, row)}


def _input_sensitivity(
    part: Part, quantity: Quantity, estimates: DerivedEstimates, row: int, verdict_for: Callable[[Verdict], Verdict]
) -> Iterator[Mapping[str, Any]]:
    """Move one input at a time to either end of its range; yield the input with the case's result and the verdict."""
    for symbol, term in estimates.derivations[row].inputs.items():
        for end in ("low", "high"):
            at = getattr(term, end)
            if not math.isfinite(at) or at == term.value:
                continue
            moved = estimates.move_input(row, symbol, end)
            outcome = apply_rule(part, select(moved, part.scope) * part.scale, quantity.unit).outcome
            yield {
                "symbol": symbol, "end": end, "input": at, "unit": term.unit, **_value_fields(moved, row),
                "outcome": outcome, "verdict": verdict_for(outcome),
            }  # fmt: skip
