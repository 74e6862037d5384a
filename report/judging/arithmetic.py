"""The arithmetic of a derived claim as `verdicts.json` has it: formula, inputs, result, what each input would turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from report.derivations import Formula, Input
from report.derived_estimates import DerivedEstimates, Work
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import select
from report.judging.reasons import cell_labels, in_words, known, value_of
from report.judging.rules import RuleResult, decide
from report.quantities import Quantity

Spelt = Callable[[tuple[int, ...]], str]
# Of more compared cells the one that stands for all speaks alone.
_MOST = 50


def arithmetic(
    part: Part,
    quantity: Quantity | None,
    cells: Estimates,
    ruling: RuleResult | None,
    whole: Callable[[str], str],
    spelt: Spelt,
) -> dict[str, Any] | None:
    """The arithmetic of the cell that stands for all; without cells the formulas alone; None if there are none.

    cells: those of the quantity, before scope and scale. whole: the claim's verdict if this part came out as given.
    spelt: numbers of rows as text. The record:

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
    if not isinstance(cells, DerivedEstimates) or ruling is None or ruling.representative is None:
        return record
    row = cells.find(ruling.cells.label_values(ruling.representative))
    # What is without end was not worked out.
    if row is None or not math.isfinite(cells.value("estimate", row)):
        return record
    found = [_worked(part, quantity, cells, one, whole, spelt) for one in (row, *_others(cells, ruling, row))]
    beside = [
        {"name": name, "unit": unit, "formula": work.formula.text, **told}
        for name, unit, other in cells.beside
        for work, told in zip(other.works, _told(other), strict=True)
    ]
    return {**record, **found[0], "also": found[1:], "beside": beside}


def _others(cells: DerivedEstimates, ruling: RuleResult, row: int) -> list[int]:
    """The first compared cell of each formula that the cell which stands for all was not worked out by."""
    if len(ruling.cells) > _MOST:
        return []
    formulas: dict[str, int] = {}
    for at in range(len(ruling.cells)):
        place = cells.find(ruling.cells.label_values(at))
        if place is not None and math.isfinite(cells.value("estimate", place)):
            formulas.setdefault(cells.works[place].formula.text, place)
    return [place for text, place in formulas.items() if text != cells.works[row].formula.text]


def _worked(
    part: Part, quantity: Quantity, cells: DerivedEstimates, row: int, whole: Callable[[str], str], spelt: Spelt
) -> dict[str, Any]:
    work = cells.works[row]
    return {
        "cell": cell_labels(cells, row),
        "formula": work.formula.text,
        "inputs": [_input(symbol, one, work, spelt) for symbol, one in work.inputs.items()],
        "result": {"symbol": work.formula.result, "unit": work.formula.unit, **_values(cells, row)},
        "sensitivity": list(_sensitivity(part, quantity, cells, row, whole)),
    }


def _formula(formula: Formula) -> dict[str, Any]:
    symbols = [{"symbol": name, "means": means, "unit": unit} for name, (means, unit) in formula.symbols.items()]
    return {"text": formula.text, "unit": formula.unit, "rounded_up": formula.rounded_up, "symbols": symbols}


def _input(symbol: str, one: Input, work: Work, spelt: Spelt) -> dict[str, Any]:
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
        "rows": spelt(one.source_rows),
        "source": one.source,
        "in_interval": one.spans or one.kind == "measured",
    }


def _values(cells: Estimates, row: int) -> dict[str, float | None]:
    return dict(zip(("value", "low", "high"), value_of(cells, row), strict=True))


def _told(cells: DerivedEstimates) -> Iterator[dict[str, Any]]:
    """Each cell in words, its labels and its values."""
    columns = (cells.frame[name].tolist() for name in ("detail", "estimate", "low", "high"))
    for labels, detail, *values in zip(cells.all_label_values(), *columns, strict=True):
        ends = zip(("value", "low", "high"), map(known, values), strict=True)
        yield {"cell": in_words(labels, str(detail)), "labels": labels, **dict(ends)}


def _sensitivity(
    part: Part, quantity: Quantity, cells: DerivedEstimates, row: int, whole: Callable[[str], str]
) -> Iterator[Mapping[str, Any]]:
    for symbol, one in cells.works[row].inputs.items():
        for end in ("low", "high"):
            at = getattr(one, end)
            if not math.isfinite(at) or at == one.value:
                continue
            moved = cells.moved(row, symbol, end)
            ruling = decide(
                part.rule, select(moved, part.scope) * part.scale, part.threshold, quantity.unit, part.options
            )
            yield {
                "symbol": symbol, "end": end, "input": at, "unit": one.unit, **_values(moved, row),
                "outcome": ruling.outcome, "verdict": whole(ruling.outcome),
            }  # fmt: skip
