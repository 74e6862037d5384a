"""Judges a claim on what others measured, where nothing of ours can: its own rule and threshold, on published records.

Direct evidence is of the same work on both sides with the formats told, and decides by the margin of
`rules.OthersEnds`. Indirect evidence is shown beside it and decides nothing. A measurement of ours always takes
precedence: then both stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contract.errors import StudyError
from report.estimates import Estimates
from report.judging.claims import Claim, Part
from report.judging.evaluate import PartResult, QuantityCache
from report.judging.filters import select
from report.judging.rules import RuleResult, decide
from report.model import Missing, Verdict
from report.quantities import quantities

DIRECT = "direct"


@dataclass(frozen=True)
class Others:
    """What published measurements say of one part.

    part: with the quantity and scope of the published records, the rule and threshold its own. estimates: all of the
    quantity, before scope; chosen: those in scope and scale. result: what the rule says of those in scope; none if
    there are none. strength: direct or indirect. why: what is alike on both sides and what is not.
    """

    part: Part
    strength: str
    why: str
    unit: str
    estimates: Estimates
    chosen: Estimates
    result: RuleResult | None

    @property
    def outcome(self) -> Verdict | None:
        """The outcome, where there is anything to compare."""
        return self.result.outcome if self.result else None

    @property
    def records(self) -> list[str]:
        """Keys of the published records that were compared, each once."""
        if self.result is None or "records" not in self.result.estimates.labels:
            return []
        return list(dict.fromkeys(" ".join(map(str, self.result.estimates["records"])).split()))


def of_others(part: Part, claim: Claim, cache: QuantityCache) -> list[Others]:
    """The evidence that a claim names for one of its parts, each judged for itself.

    Raises StudyError naming the claim's file if a rule does not fit the records.
    """
    found = []
    for declared in claim.published:
        if declared.part != part.name:
            continue
        quantity = quantities()[declared.quantity]
        estimates = cache.estimates(quantity)
        own = replace(
            part,
            quantity=declared.quantity,
            rule=_rule(part, quantity.labels),
            scope=dict(declared.scope),
            scale=declared.scale,
            scale_why=declared.scale_why,
            options={**part.options, **({"of": declared.of} if declared.of else {})},
            machine="",
            awaits=None,
        )
        chosen = select(estimates, own.scope) * own.scale
        if declared.strength == DIRECT:
            chosen = _told(chosen)
        try:
            result = decide(own, chosen, quantity.unit) if len(chosen) else None
        except StudyError as fault:
            raise StudyError(f"{claim.path}: published: {fault}") from None
        if result is not None and not len(result.estimates):
            result = None
        unit = result.unit if result else quantity.unit
        found.append(Others(own, declared.strength, declared.why, unit, estimates, chosen, result))
    return found


def _rule(part: Part, labels: Sequence[str]) -> str:
    """A part's rule; where it forms ratios, slopes or crossings and the records are such already, its comparison."""
    needs = {"ratio": "over", "crossover": "over", "trend": "along"}.get(part.rule)
    return part.compare if needs and part.options[needs] not in labels else part.rule


def _told(estimates: Estimates) -> Estimates:
    """Without those of which a number format is not told, or that are declared as indirect."""
    for label, unfit in (("precision", ""), ("strength", "indirect")):
        if label in estimates.labels:
            estimates = estimates.at((estimates[label] != unfit).to_numpy(bool))
    return estimates


def stand_in(found: PartResult, claim: Claim, cache: QuantityCache) -> PartResult:
    """A part with what others measured; decided on that where it waits for something and direct evidence decides."""
    waits = found.missing or _missing_rounds(found)
    others = of_others(found.part, claim, cache)
    deciding = next((one for one in others if one.strength == DIRECT and one.outcome and one.outcome.decided), None)
    if waits is None or deciding is None or deciding.result is None:
        return replace(found, others=tuple(others))
    return PartResult(
        part=deciding.part,
        outcome=deciding.result.outcome,
        unit=deciding.unit,
        quantity=quantities()[deciding.part.quantity],
        estimates=deciding.estimates,
        result=deciding.result,
        others=tuple(others),
        waits=waits,
    )


def _missing_rounds(found: PartResult) -> Missing | None:
    """Further rounds, where a part is undecided and most of its estimates are of one round, without an interval."""
    if found.result is None or found.quantity is None or found.outcome is not Verdict.UNDECIDED:
        return None
    single, every = int(found.result.single_round.sum()), len(found.result.estimates)
    if 2 * single <= every:
        return None
    wanted = tuple(found.quantity.experiments)
    return Missing(Verdict.AWAITING_EXPERIMENT, wanted, single_rounds=single, estimates=every)
