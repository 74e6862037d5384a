"""What if: every claim judged again with other thresholds, prices or bases, and which verdicts move.

Only what can change is computed: a threshold or a swap touches its own claims; a price those whose quantities
ask for that entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.data.dataset import Dataset, MissingSourceError
from report.formatting import count, several
from report.judging import describe
from report.judging.claims import Claim, Part
from report.judging.client_evaluation import single_socket
from report.judging.evaluate import PartResult, QuantityCache, evaluate
from report.judging.filters import select
from report.judging.judge import refuse_synthetic, whole_verdict
from report.judging.overrides import SWAPS, Changes, check_dtype, swapped
from report.model import OPINION
from report.quantities import quantities


@dataclass
class Outcome:
    """A claim's verdict, its reason, and the outcomes of its parts by name."""

    verdict: str | None
    reason: str
    parts: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "reason": self.reason, "parts": self.parts}


_NOT_JUDGED = Outcome(None, "no change touches it: not judged")


def what_if(
    data: Dataset,
    claims: Sequence[Claim],
    changes: Changes,
    published: Mapping[str, Any] | None = None,
    every: bool = True,
    allow_synthetic: bool = False,
) -> dict[str, Any]:
    """The verdicts as they were and as they would be, claim by claim, and what is to be said about the changes.

    claims: as they stand. published: verdicts that were made from just these data and claims, which saves judging
    what cannot move. every: judge that too where they are not given; else its verdicts are None. Raises StudyError
    for a swap to what is not there, and for synthetic data unless `allow_synthetic`, which tests alone may set.
    """
    refuse_synthetic(data, allow_synthetic)
    if "dtype" in changes.swaps:
        check_dtype(changes.swaps["dtype"], map(str, data.table["dtype"].unique()))
    evaluator = Evaluator(data, changes)
    told = _published(published) if published else {}
    uses = _recorded_uses(published) if published else evaluator.uses
    rest_on = {claim.id: uses(claim) & set(changes.entries) for claim in claims} if changes.entries else {}
    after = {claim.id: claim for claim in changes.claims}
    notes = [f"{name}: moves nothing, for no claim rests on it" for name in changes.entries if not _held(name, rest_on)]
    if changes.said and not changes.entries and not changes.set_in and not changes.swaps:
        notes.append("what was given is what stands already")
    records = []
    for claim in claims:
        now = after[claim.id]
        swaps = _swapped(now, changes.swaps, evaluator)
        notes += swaps.notes
        touched = bool(claim.id in changes.set_in or rest_on.get(claim.id) or swaps.parts != now.parts)
        was = told.get(claim.id) or (evaluator.before(claim) if touched or every else _NOT_JUDGED)
        is_ = evaluator.after(replace(now, parts=swaps.parts)) if touched else was
        if claim.id in changes.set_in:
            notes += [
                f"{claim.id}: its threshold decides nothing yet: {reason}"
                for reason in dict.fromkeys(_waiting(now, claim, evaluator))
            ]
        records.append(
            {
                "id": claim.id,
                "says": claim.says,
                "was": was.record(),
                "is": is_.record(),
                "moved": was.verdict != is_.verdict,
                "parts_moved": [name for name, outcome in was.parts.items() if is_.parts.get(name) != outcome],
            }
        )
    if changes.swaps and all(one["was"] == one["is"] for one in records) and not notes:
        notes.append("nothing that was measured is told by " + several(list(changes.swaps)))
    return {
        "kind": "what-if",
        "changes": list(changes.said),
        "moved": sum(one["moved"] for one in records),
        "stayed": sum(not one["moved"] for one in records),
        "notes": list(dict.fromkeys(notes)),
        "claims": records,
    }


def _held(name: str, rest_on: Mapping[str, set[str]]) -> bool:
    return any(name in held for held in rest_on.values())


def _waiting(now: Claim, claim: Claim, evaluator: Evaluator) -> list[str]:
    """Why the parts whose threshold was set are not judged."""
    pairs = zip(now.parts, claim.parts, strict=True)
    found = [evaluator.evaluate(part, now) for part, before in pairs if part.threshold != before.threshold]
    return [describe.missing(one.missing) for one in found if one.missing]


class Evaluator:
    """Weighs claims before and after the changes; quantities that no change touches are computed once."""

    def __init__(self, data: Dataset, changes: Changes) -> None:
        self.entries = set(changes.entries)
        self.old = QuantityCache(data)
        other = Dataset(data.nodes, changes.reference, data.table) if self.entries else data
        self.new = QuantityCache(other) if self.entries else self.old
        self.single = single_socket(data)
        self.labels = {node.id: data.label(node.id) for node in data.nodes.nodes}

    def before(self, claim: Claim) -> Outcome:
        return _outcome(claim, [evaluate(part, claim, self.old) for part in claim.parts], self.old.data)

    def after(self, claim: Claim) -> Outcome:
        return _outcome(claim, [self.evaluate(part, claim) for part in claim.parts], self.new.data)

    def evaluate(self, part: Part, claim: Claim) -> PartResult:
        """A part with what was set."""
        touched = bool(self._uses(part) & self.entries) if self.entries else False
        return evaluate(part, claim, self.new if touched else self.old)

    def uses(self, claim: Claim) -> set[str]:
        """Entries of the reference that a claim's parts ask for."""
        return {name for part in claim.parts for name in self._uses(part)}

    def _uses(self, part: Part) -> set[str]:
        quantity = quantities().get(part.quantity)
        named = part.scope.get("entry", []) if quantity and quantity.tier == "documented" else []
        found = set(named if isinstance(named, list) else [named])
        if quantity is not None:
            self.cells(part)
            found |= set(self.old.entries(quantity))
        return found

    def cells(self, part: Part) -> Any:
        """All cells of a part's quantity; None where a published figure is missing."""
        try:
            return self.old.estimates(quantities()[part.quantity])
        except MissingSourceError:
            return None


def _outcome(claim: Claim, found: Sequence[PartResult], data: Dataset) -> Outcome:
    verdict = whole_verdict(claim, found)
    reason = describe.whole_reason(found, verdict, data)[1] if found else OPINION
    return Outcome(verdict, reason, {one.part.name: one.outcome for one in found})


def _published(document: Mapping[str, Any]) -> dict[str, Outcome]:
    return {
        str(one["id"]): Outcome(one["verdict"], one["reason"], {part["name"]: part["outcome"] for part in one["parts"]})
        for one in document["verdicts"]
    }


def _recorded_uses(document: Mapping[str, Any]) -> Callable[[Claim], set[str]]:
    found = {one["id"]: {name for part in one["parts"] for name in part["entries"]} for one in document["verdicts"]}
    return lambda claim: set(found[claim.id])


@dataclass
class _Swapped:
    """A claim's parts after swaps, and what is to be said of those that could not be swapped."""

    parts: tuple[Part, ...]
    notes: list[str] = field(default_factory=list)


def _swapped(claim: Claim, swaps: Mapping[str, str], evaluator: Evaluator) -> _Swapped:
    """The parts of a claim in which a label is swapped wherever its quantity was measured so."""
    found = _Swapped(claim.parts)
    for label, value in swaps.items():
        parts = []
        for part in found.parts:
            other = swapped(part, label, value, evaluator.single)
            cells = evaluator.cells(part) if other is not None else None
            if other is None or cells is None or not len(select(cells, part.scope)):
                parts.append(part)
            elif len(select(cells, other.scope)):
                parts.append(other)
            else:
                parts.append(part)
                found.notes.append(f"{claim.id}: not measured with {label} {value}: judged as it stands")
        found.parts = tuple(parts)
    if swaps.get("baseline") == "socket":
        more = [name for node, name in evaluator.labels.items() if node not in evaluator.single]
        if more:
            found.notes.append(
                f"baseline socket: {several(more)} has more than one socket, or does not say how many, and no point "
                "was measured on one of them: left out"
            )
    return found


def check_swaps(given: Mapping[str, str | None]) -> dict[str, str]:
    """The swaps that were asked for. Raises StudyError for a value that a label cannot have."""
    found = {label: value for label, value in given.items() if value is not None}
    for label, value in found.items():
        allowed = SWAPS[label]
        if allowed is not None and value not in allowed:
            raise StudyError(
                f"--{label} {value!r} is not known. Known: {', '.join(allowed)}.{did_you_mean(value, list(allowed))}"
            )
    return found


def lines(document: Mapping[str, Any]) -> Iterable[str]:
    """The answer in plain text: what was set, a table of the verdicts that move, and how many do not."""
    if not document["changes"]:
        return
    yield "What if:"
    yield from (f"  {said}" for said in document["changes"])
    moved = [one for one in document["claims"] if one["moved"]]
    if moved:
        yield ""
        yield f"{'claim':<6}{'was':<20}{'is':<20}why"
        for one in moved:
            yield f"{one['id']:<6}{one['was']['verdict']:<20}{one['is']['verdict']:<20}{one_line(one['is']['reason'])}"
    for one in document["claims"]:
        if one["parts_moved"] and not one["moved"]:
            turned = [f"{name or 'the rule'}: {one['was']['parts'][name]} -> {one['is']['parts'][name]}" for name in
                      one["parts_moved"]]  # fmt: skip
            yield f"{one['id']}: {'; '.join(turned)}; the verdict stays {one['is']['verdict']}"
    yield ""
    yield f"{count(document['moved'], 'verdict')} would move, {document['stayed']} would not"
    yield from (f"note: {note}" for note in document["notes"])


def one_line(text: str, width: int = 150) -> str:
    """A reason in one line, cut at a word."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[:width].rsplit(" ", 1)[0].rstrip(",;:") + " …"
