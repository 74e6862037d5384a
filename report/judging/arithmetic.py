"""The arithmetic of a derived claim as `verdicts.json` has it: formula, inputs, result, what each input would turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from report.data.ranges import format_ranges
from report.derivations import Formula, Input
from report.derived_estimates import DerivedEstimates, Work
from report.estimates import Estimates
from report.judging import describe
from report.judging.claims import Part
from report.judging.filters import select
from report.judging.instances import worked_labels
from report.judging.rules import RuleResult, decide
from report.model import Verdict
from report.quantities import Quantity

# Of more compared cells the one that stands for all speaks alone.
_MOST = 50


def arithmetic(
    part: Part,
    quantity: Quantity | None,
    estimates: Estimates,
    result: RuleResult | None,
    whole: Callable[[Verdict], Verdict],
) -> dict[str, Any] | None:
    """The arithmetic of the estimate that stands for all; without it the formulas alone; None if there are none.

    estimates: those of the quantity, before scope and scale. whole: the claim's verdict if this part came out as
    given. The record:

    formulas: each with text, unit and symbols (meaning and unit).
    cell, formula, inputs, result: of the cell that stands for all.
    sensitivity: each input that has a range at either end of it, all others as they are: the cell's result, the
    part's outcome and the verdict. What cells share moves in all of them.
    also: the same of one more cell for every other formula that compared cells were worked out by.
    beside: other results of the same inputs, by what they are and by cell.
    """
    if quantity is None or not quantity.formulas:
        return None
    record: dict[str, Any] = {"formulas": [_formula(one) for one in quantity.formulas]}
    if not isinstance(estimates, DerivedEstimates) or result is None or result.representative is None:
        return record
    row = estimates.find(worked_labels(result.estimates, result.representative))
    # What is without end was not worked out.
    if row is None or not math.isfinite(estimates.value("estimate", row)):
        return record
    found = [_worked(part, quantity, estimates, one, whole) for one in (row, *_others(estimates, result, row))]
    beside = [
        {"name": name, "unit": unit, "formula": work.formula.text, **values}
        for name, unit, other in estimates.beside
        for work, values in zip(other.works, _rows(other), strict=True)
    ]
    return {**record, **found[0], "also": found[1:], "beside": beside}


def _others(estimates: DerivedEstimates, result: RuleResult, row: int) -> list[int]:
    """The first compared estimate of each formula by which the one that stands for all was not worked out."""
    if len(result.estimates) > _MOST:
        return []
    formulas: dict[str, int] = {}
    for compared in range(len(result.estimates)):
        at = estimates.find(worked_labels(result.estimates, compared))
        if at is not None and math.isfinite(estimates.value("estimate", at)):
            formulas.setdefault(estimates.works[at].formula.text, at)
    return [at for text, at in formulas.items() if text != estimates.works[row].formula.text]


def _worked(
    part: Part, quantity: Quantity, estimates: DerivedEstimates, row: int, whole: Callable[[Verdict], Verdict]
) -> dict[str, Any]:
    work = estimates.works[row]
    return {
        "cell": describe.row_labels(estimates, row),
        "formula": work.formula.text,
        "inputs": [_input(symbol, one, work) for symbol, one in work.inputs.items()],
        "result": {"symbol": work.formula.result, "unit": work.formula.unit, **_values(estimates, row)},
        "sensitivity": list(_sensitivity(part, quantity, estimates, row, whole)),
    }


def _formula(formula: Formula) -> dict[str, Any]:
    symbols = [{"symbol": name, "means": means, "unit": unit} for name, (means, unit) in formula.symbols.items()]
    return {"text": formula.text, "unit": formula.unit, "rounded_up": formula.rounded_up, "symbols": symbols}


def _input(symbol: str, one: Input, work: Work) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "means": work.formula.symbols[symbol][0],
        "what": one.what,
        "value": one.value,
        "low": one.low if one.ranges else None,
        "high": one.high if one.ranges else None,
        "unit": one.unit,
        "kind": one.kind,
        "entries": list(one.entries),
        "rows": format_ranges(one.source_rows),
        "source": one.source,
        "in_interval": one.spans or one.kind == "measured",
    }


def _values(estimates: Estimates, row: int) -> dict[str, float | None]:
    return dict(zip(("value", "low", "high"), describe.ends(estimates, row), strict=True))


def _rows(estimates: DerivedEstimates) -> Iterator[dict[str, Any]]:
    """Each estimate in words, its labels and its values."""
    for row, (labels, detail) in enumerate(zip(estimates.all_label_values(), estimates["detail"], strict=True)):
        yield {"cell": describe.labels(labels, str(detail)), "labels": labels, **_values(estimates, row)}


def _sensitivity(
    part: Part, quantity: Quantity, estimates: DerivedEstimates, row: int, whole: Callable[[Verdict], Verdict]
) -> Iterator[Mapping[str, Any]]:
    """Each input that has a range, at either end of it."""
    for symbol, one in estimates.works[row].inputs.items():
        for end in ("low", "high"):
            at = getattr(one, end)
            if not math.isfinite(at) or at == one.value:
                continue
            moved = estimates.moved(row, symbol, end)
            outcome = decide(part, select(moved, part.scope) * part.scale, quantity.unit).outcome
            yield {
                "symbol": symbol, "end": end, "input": at, "unit": one.unit, **_values(moved, row),
                "outcome": outcome, "verdict": whole(outcome),
            }  # fmt: skip
