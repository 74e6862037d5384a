"""Evaluates one part of a claim: from its quantity's estimates to an outcome, or to what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from contract.errors import StudyError
from report.data.dataset import Dataset, MissingSourceError, Used
from report.data.machines import of_kind
from report.estimates import Estimates, merged
from report.judging.claims import Claim, Part
from report.judging.filters import missing, select
from report.judging.rules import RuleResult, decide
from report.model import Missing, Verdict
from report.quantities import Quantity, quantities

if TYPE_CHECKING:
    from report.judging.others import Others


@dataclass
class PartResult:
    """A part with its outcome.

    missing: what it waits for, where no rule could be applied. estimates: all of its quantity,
    before scope and scale. result: what its rule says. unchecked: that it says so by a model which was not checked, so
    that the part is undecided whatever comes out. others: what published measurements say of it. waits: what it would
    wait for, had they not decided it.
    """

    part: Part
    outcome: Verdict
    missing: Missing | None = None
    unit: str = ""
    quantity: Quantity | None = None
    estimates: Estimates = field(default_factory=Estimates.empty)
    result: RuleResult | None = None
    unchecked: bool = False
    others: tuple[Others, ...] = ()
    waits: Missing | None = None


class QuantityCache:
    """Quantities over one set of data, each computed once, with what each asked of it."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self._estimates: dict[str, Estimates] = {}
        self._used: dict[str, Used] = {}
        self._read: dict[str, dict[str, tuple[int, ...]]] = {}

    def estimates(self, quantity: Quantity) -> Estimates:
        """A quantity's estimates. Raises MissingSourceError."""
        if quantity.name not in self._estimates:
            with self.data.following() as used:
                self._used[quantity.name] = used
                self._estimates[quantity.name] = quantity.estimates(self.data)
        return self._estimates[quantity.name]

    def entries(self, quantity: Quantity) -> list[str]:
        """Entries of the reference that a quantity asked for."""
        return sorted(self._used.get(quantity.name, Used()).entries)

    def source_rows(self, quantity: Quantity, followed: tuple[int, ...], nodes: Sequence[str]) -> tuple[int, ...]:
        """Numbers of the summary's rows that an estimate is from.

        Those followed through the arithmetic, else all that the quantity read of the estimate's nodes; none of an
        estimate without one, which published figures make.
        """
        if followed or not quantity.experiments or not nodes:
            return followed
        if quantity.name not in self._read:
            self._read[quantity.name] = self.data.rows_read(self._used[quantity.name])
        return merged(self._read[quantity.name].get(node, ()) for node in nodes)


def evaluate(part: Part, claim: Claim, cache: QuantityCache) -> PartResult:
    """Decide one part, or say what is missing.

    Raises StudyError naming the claim's file if its options do not fit the estimates,
    or if it awaits what is already there.
    """
    quantity = quantities().get(part.quantity)
    if part.machine:
        part = replace(part, scope={**part.scope, "node": of_kind(cache.data, part.machine)})
    if part.awaits is not None:
        return _awaiting(part, claim, quantity, cache)
    if quantity is None:
        raise StudyError(f"{claim.path}: quantity: there is no {part.quantity!r}")
    data = cache.data
    try:
        estimates = cache.estimates(quantity)
        if quantity.tier == "documented":
            for name in part.entries:
                data.entry(name)
    except MissingSourceError as lacking:
        need = Missing(Verdict.AWAITING_SOURCE, source=lacking.what)
        return PartResult(part, need.verdict, need, quantity.unit, quantity)
    unit = _unit(part, quantity, data)
    try:
        result = decide(part, select(estimates, part.scope) * part.scale, unit, data.name)
    except StudyError as fault:
        raise StudyError(f"{claim.path}: {fault}") from None
    if not len(result.estimates):
        need = missing(part, quantity, estimates, data)
        return PartResult(part, need.verdict, need, unit, quantity)
    unchecked = not quantity.decides and result.outcome.decided
    outcome = Verdict.UNDECIDED if unchecked else result.outcome
    return PartResult(part, outcome, None, result.unit, quantity, estimates, result, unchecked)


def _awaiting(part: Part, claim: Claim, quantity: Quantity | None, cache: QuantityCache) -> PartResult:
    """A part that says itself what is not there yet."""
    if quantity is not None and _is_there(part, quantity, cache):
        raise StudyError(
            f"{claim.path}: awaits: remove it, for {part.quantity} is implemented and has data in this scope"
        )
    awaits = part.awaits or {}
    if "experiment" in awaits:
        need = Missing(Verdict.AWAITING_EXPERIMENT, (awaits["experiment"],), why=awaits["why"])
    else:
        need = Missing(Verdict.AWAITING_SOURCE, source=awaits["source"], why=awaits["why"])
    return PartResult(part, need.verdict, need, _unit(part, quantity, cache.data) if quantity else "", quantity)


def _is_there(part: Part, quantity: Quantity, cache: QuantityCache) -> bool:
    try:
        return len(select(cache.estimates(quantity), part.scope)) > 0
    except MissingSourceError:
        return False


def _unit(part: Part, quantity: Quantity, data: Dataset) -> str:
    """The unit of what is compared: the quantity's, or for published figures that of the entries.

    None for a ratio, for the power of a trend, and for where sides change places: that is a value of a label.
    """
    if part.rule in ("ratio", "trend", "crossover"):
        return "1"
    if quantity.tier != "documented" or quantity.unit:
        return quantity.unit
    units = {str(data.reference[name]["unit"]) for name in part.entries if name in data.reference}
    return units.pop() if len(units) == 1 else ""
