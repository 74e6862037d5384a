"""Weighs one part of a claim: from its quantity's cells to an outcome, or to what is lacking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contract.errors import StudyError
from report import reasons, robustness
from report.cells import Cells
from report.claims import Claim, Part
from report.evidence import Data, MissingSourceError
from report.quantities import Quantity, quantities
from report.rules import Ruling, decide, describe
from report.scope import in_scope, lacking

DECIDED = ("supported", "challenged", "depends", "undecided")


@dataclass
class Weighed:
    """A part with its outcome: one of DECIDED, or awaiting something, which `reason` then begins with."""

    part: Part
    outcome: str
    reason: str
    unit: str = ""
    quantity: Quantity | None = None
    cells: Cells = field(default_factory=Cells.empty)
    ruling: Ruling | None = None

    @property
    def decided(self) -> bool:
        return self.outcome in DECIDED


class Evidence:
    """Quantities over one set of data, each computed once."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self._cells: dict[str, Cells] = {}

    def cells(self, quantity: Quantity) -> Cells:
        """A quantity's cells. Raises MissingSourceError."""
        if quantity.name not in self._cells:
            self._cells[quantity.name] = quantity.cells(self.data)
        return self._cells[quantity.name]


def weigh(part: Part, claim: Claim, evidence: Evidence) -> Weighed:
    """Decide one part, or say what is lacking.

    Raises StudyError naming the claim's file if its options do not fit the cells,
    or if it awaits what is already there.
    """
    quantity = quantities().get(part.quantity)
    if part.awaits is not None:
        if quantity is not None and _there(part, quantity, evidence):
            raise StudyError(
                f"{claim.path}: awaits: remove it, for {part.quantity} is implemented and has data in this scope"
            )
        return _awaits(part, quantity)
    if quantity is None:
        raise StudyError(f"{claim.path}: quantity: there is no {part.quantity!r}")
    try:
        cells = evidence.cells(quantity)
        if quantity.tier == "documented":
            _verified(part, evidence.data)
    except MissingSourceError as missing:
        return Weighed(part, "awaiting source", f"awaiting source: {missing.what}", quantity.unit, quantity)
    unit = _unit(part, quantity, evidence.data)
    scoped = in_scope(cells, part.scope)
    if not len(scoped):
        return Weighed(part, *lacking(part, quantity, cells, evidence.data), unit, quantity)
    labels = {node.id: evidence.data.label(node.id) for node in evidence.data.nodes.nodes}
    try:
        ruling = decide(part.rule, scoped * part.scale, part.threshold, unit, part.options, labels)
    except StudyError as fault:
        raise StudyError(f"{claim.path}: {fault}") from None
    if not len(ruling.cells):
        return Weighed(part, *lacking(part, quantity, cells, evidence.data), unit, quantity)
    reason = reasons.reason(ruling, part, quantity, evidence.data)
    return Weighed(part, ruling.outcome, reason, ruling.unit, quantity, cells, ruling)


def _there(part: Part, quantity: Quantity, evidence: Evidence) -> bool:
    try:
        return len(in_scope(evidence.cells(quantity), part.scope)) > 0
    except MissingSourceError:
        return False


def _awaits(part: Part, quantity: Quantity | None) -> Weighed:
    awaits = part.awaits or {}
    unit = quantity.unit if quantity else ""
    if "experiment" in awaits:
        return Weighed(
            part, "awaiting experiment", f"awaiting experiment {awaits['experiment']}: {awaits['why']}", unit, quantity
        )
    return Weighed(part, "awaiting source", f"awaiting source: {awaits['source']} ({awaits['why']})", unit, quantity)


def _entries(part: Part) -> list[str]:
    named = part.scope.get("entry", [])
    return [str(name) for name in (named if isinstance(named, list) else [named])]


def _verified(part: Part, data: Data) -> None:
    for name in _entries(part):
        data.entry(name)


def _unit(part: Part, quantity: Quantity, data: Data) -> str:
    """The unit of what is compared: the quantity's; none for a ratio; for published figures that of the entries."""
    if part.rule == "ratio":
        return "1"
    if quantity.tier != "documented":
        return quantity.unit
    units = {str(data.reference[name]["unit"]) for name in _entries(part) if name in data.reference}
    return units.pop() if len(units) == 1 else ""


def part_record(weighed: Weighed, evidence: Evidence, whole: Callable[[str], str]) -> dict[str, Any]:
    """A part as `verdicts.json` has it. whole: the claim's verdict if this part came out as given."""
    part, ruling = weighed.part, weighed.ruling
    estimate = low = high = None
    flips: list[str] = []
    if ruling is not None and ruling.decisive is not None:
        estimate, low, high = reasons.value_of(ruling.cells, ruling.decisive)
        flips = robustness.flips(part, weighed.cells, ruling, weighed.unit, evidence.data, whole)
    return {
        "name": part.name,
        "quantity": part.quantity,
        "unit": weighed.unit,
        "rule": part.rule,
        "rule_text": describe(part.rule, part.threshold, weighed.unit, part.options) + _scaled(part),
        "threshold": part.threshold,
        "threshold_why": part.why,
        "sensitivity": part.sensitivity,
        "scope": part.scope,
        "scale": part.scale,
        "outcome": weighed.outcome,
        "reason": weighed.reason,
        "boundary": ruling.boundary if ruling else None,
        "estimate": estimate,
        "low": low,
        "high": high,
        "flips": flips,
    }


def _scaled(part: Part) -> str:
    return f", after {reasons.scaling(part.scale)} ({part.scale_why})" if part.scale != 1 else ""


def cell_records(weighed: Weighed) -> list[dict[str, Any]]:
    """The compared cells of a part as `verdicts.json` has them."""
    ruling = weighed.ruling
    if ruling is None:
        return []
    records = []
    for row, outcome in enumerate(ruling.outcomes):
        estimate, low, high = reasons.value_of(ruling.cells, row)
        labels = ruling.cells.label_values(row)
        records.append(
            {
                "part": weighed.part.name,
                "node": labels.pop("node", None),
                "device": labels.pop("device", None),
                "label": reasons.cell_labels(ruling.cells, row),
                **labels,
                "estimate": estimate,
                "low": low,
                "high": high,
                "n_rounds": int(ruling.cells.frame.iloc[row]["n_rounds"]),
                "n_samples": int(ruling.cells.frame.iloc[row]["n_samples"]),
                "outcome": outcome,
            }
        )
    return records
