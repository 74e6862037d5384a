"""Weighs one part of a claim: from its quantity's cells to an outcome, or to what is lacking."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contract.errors import StudyError
from report.data.dataset import Dataset, MissingSourceError, Used
from report.data.ranges import spans
from report.estimates import Estimates
from report.judging import counterfactuals, reasons, robustness
from report.judging.arithmetic import arithmetic
from report.judging.claims import Claim, Part
from report.judging.filters import lacking, select
from report.judging.rules import RuleResult, decide, describe
from report.quantities import Quantity, quantities
from report.verdicts import JUDGED

# What takes longest to come stands for a claim that lacks several things.
AWAITING = ("awaiting experiment", "awaiting hardware", "awaiting source")


@dataclass
class PartResult:
    """A part with its outcome: one of JUDGED, or awaiting something, which `reason` then begins with."""

    part: Part
    outcome: str
    reason: str
    unit: str = ""
    quantity: Quantity | None = None
    cells: Estimates = field(default_factory=Estimates.empty)
    ruling: RuleResult | None = None

    @property
    def judged(self) -> bool:
        return self.outcome in JUDGED


class QuantityCache:
    """Quantities over one set of data, each computed once."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self._cells: dict[str, Estimates] = {}
        self._used: dict[str, Used] = {}
        self._read: dict[str, dict[str, tuple[int, ...]]] = {}

    def cells(self, quantity: Quantity) -> Estimates:
        """A quantity's cells. Raises MissingSourceError."""
        if quantity.name not in self._cells:
            self.data.used = self._used[quantity.name] = Used()
            self._cells[quantity.name] = quantity.cells(self.data)
        return self._cells[quantity.name]

    def entries(self, quantity: Quantity) -> list[str]:
        """Entries of the reference that a quantity asked for."""
        return sorted(self._used.get(quantity.name, Used()).entries)

    def rows(self, quantity: Quantity, followed: tuple[int, ...], node: str | None) -> tuple[int, ...]:
        """Numbers of the summary's rows behind a cell: those followed through the arithmetic, else all that
        the quantity read of the cell's node; none of a cell without one, which published figures make."""
        if followed or not quantity.experiments or node is None:
            return followed
        if quantity.name not in self._read:
            self._read[quantity.name] = self.data.rows_read(self._used[quantity.name])
        return self._read[quantity.name].get(node, ())


def evaluate(part: Part, claim: Claim, evidence: QuantityCache) -> PartResult:
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
        return _awaits(part, quantity, evidence.data)
    if quantity is None:
        raise StudyError(f"{claim.path}: quantity: there is no {part.quantity!r}")
    try:
        cells = evidence.cells(quantity)
        if quantity.tier == "documented":
            # What is looked up here is no part of what a quantity asked for.
            evidence.data.used = Used()
            _verified(part, evidence.data)
    except MissingSourceError as missing:
        return PartResult(part, "awaiting source", f"awaiting source: {missing.what}", quantity.unit, quantity)
    unit = _unit(part, quantity, evidence.data)
    scoped = select(cells, part.scope)
    if not len(scoped):
        return PartResult(part, *lacking(part, quantity, cells, evidence.data), unit, quantity)
    labels = {node.id: evidence.data.label(node.id) for node in evidence.data.nodes.nodes}
    try:
        ruling = decide(part.rule, scoped * part.scale, part.threshold, unit, part.options, labels)
    except StudyError as fault:
        raise StudyError(f"{claim.path}: {fault}") from None
    if not len(ruling.cells):
        return PartResult(part, *lacking(part, quantity, cells, evidence.data), unit, quantity)
    reason = reasons.reason(ruling, part, quantity, evidence.data)
    return PartResult(part, ruling.outcome, reason, ruling.unit, quantity, cells, ruling)


def _there(part: Part, quantity: Quantity, evidence: QuantityCache) -> bool:
    try:
        return len(select(evidence.cells(quantity), part.scope)) > 0
    except MissingSourceError:
        return False


def _awaits(part: Part, quantity: Quantity | None, data: Dataset) -> PartResult:
    awaits = part.awaits or {}
    unit = _unit(part, quantity, data) if quantity else ""
    if "experiment" in awaits:
        return PartResult(
            part, "awaiting experiment", f"awaiting experiment {awaits['experiment']}: {awaits['why']}", unit, quantity
        )
    return PartResult(part, "awaiting source", f"awaiting source: {awaits['source']} ({awaits['why']})", unit, quantity)


def _entries(part: Part) -> list[str]:
    named = part.scope.get("entry", [])
    return [str(name) for name in (named if isinstance(named, list) else [named])]


def _verified(part: Part, data: Dataset) -> None:
    for name in _entries(part):
        data.entry(name)


def _unit(part: Part, quantity: Quantity, data: Dataset) -> str:
    """The unit of what is compared: the quantity's, or for published figures that of the entries.

    None for a ratio, for the power of a trend, and for where sides change places: that is a value of a label.
    """
    if part.rule in ("ratio", "trend", "crossover"):
        return "1"
    if quantity.tier != "documented":
        return quantity.unit
    units = {str(data.reference[name]["unit"]) for name in _entries(part) if name in data.reference}
    return units.pop() if len(units) == 1 else ""


def part_record(weighed: PartResult, evidence: QuantityCache, whole: Callable[[str], str]) -> dict[str, Any]:
    """A part as `verdicts.json` has it. whole: the claim's verdict if this part came out as given."""
    part, ruling = weighed.part, weighed.ruling
    estimate = low = high = None
    tried: dict[str, Any] | None = None
    told: list[str] = []
    if ruling is not None and ruling.representative is not None:
        estimate, low, high = reasons.value_of(ruling.cells, ruling.representative)
        tried = robustness.robustness(part, weighed.cells, ruling, weighed.unit, evidence.data, whole)
        told = counterfactuals.flips(part, ruling, tried)
        tried = {**tried, **counterfactuals.nearest(part, ruling, tried)}
    return {
        "name": part.name,
        "quantity": part.quantity,
        "unit": weighed.unit,
        "rule": part.rule,
        "options": part.options,
        "rule_text": describe(part.rule, part.threshold, weighed.unit, part.options) + _scaled(part),
        "threshold": part.threshold,
        "threshold_why": part.why,
        "sensitivity": part.sensitivity,
        "scope": part.scope,
        "scale": part.scale,
        "how": inspect.getdoc(weighed.quantity.compute) if weighed.quantity else None,
        "entries": _part_entries(weighed, evidence),
        "followed": ruling is None or _followed(ruling.cells),
        "outcome": weighed.outcome,
        "reason": weighed.reason,
        "boundary": ruling.boundary if ruling else None,
        "estimate": estimate,
        "low": low,
        "high": high,
        "robustness": tried,
        "flips": told,
        "arithmetic": arithmetic(part, weighed.quantity, weighed.cells, ruling, whole, spans),
    }


def _scaled(part: Part) -> str:
    return f", after {reasons.scaling(part.scale)} ({part.scale_why})" if part.scale != 1 else ""


def _followed(cells: Estimates) -> bool:
    """Whether the rows behind every cell are known that has a node: published figures have none."""
    nodes = cells.frame["node"] if "node" in cells.labels else [None] * len(cells)
    return all(
        behind or not isinstance(node, str) for behind, node in zip(cells.frame["source_rows"], nodes, strict=True)
    )


def _part_entries(weighed: PartResult, evidence: QuantityCache) -> list[str]:
    """Entries of the reference that a part rests on."""
    if weighed.quantity is None:
        return []
    named = _entries(weighed.part) if weighed.quantity.tier == "documented" else []
    return sorted({*named, *evidence.entries(weighed.quantity)})


def cell_records(weighed: PartResult, evidence: QuantityCache) -> list[dict[str, Any]]:
    """The compared cells of a part as `verdicts.json` has them."""
    ruling = weighed.ruling
    if ruling is None or weighed.quantity is None:
        return []
    frame = ruling.cells.frame
    # Whole columns at once: there may be a hundred thousand cells.
    names = ("estimate", "low", "high", "n_rounds", "n_samples", "detail", "source_rows")
    columns = (frame[name].tolist() for name in names)
    records = []
    for labels, outcome, *values in zip(ruling.cells.all_label_values(), ruling.outcomes, *columns, strict=True):
        estimate, low, high, n_rounds, n_samples, detail, behind = values
        words = reasons.in_words(labels, str(detail))
        node = labels.pop("node", None)
        records.append(
            {
                "part": weighed.part.name,
                "node": node,
                "device": labels.pop("device", None),
                "label": words,
                **labels,
                "estimate": reasons.known(float(estimate)),
                "low": reasons.known(float(low)),
                "high": reasons.known(float(high)),
                "n_rounds": int(n_rounds),
                "n_samples": int(n_samples),
                "outcome": outcome,
                "behind": spans(evidence.rows(weighed.quantity, behind, node)),
            }
        )
    return records
