"""What if: claims judged again with other thresholds, prices or bases, and which verdicts move.

Only what can change is judged: a threshold or a swap touches its own claims; a price those whose quantities
ask for that entry.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contract.errors import StudyError
from contract.files import write_json
from report.data.dataset import Dataset, MissingSourceError
from report.data.gathered import read_dataset
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.formatting import count, several
from report.judging import describe
from report.judging.claims import Claim, Part, read_claims
from report.judging.client_evaluation import single_socket
from report.judging.evaluate import PartResult, QuantityCache, evaluate
from report.judging.filters import select
from report.judging.judge import CLAIMS, refuse_synthetic, whole_verdict
from report.judging.overrides import Overrides, check_swaps, overrides, swapped
from report.model import OPINION
from report.quantities import quantities


def command(given: Namespace) -> None:
    """Answer one question of the command line; prints the answer, writes it to `given.json` if that is asked for.

    Raises StudyError for what is not known, is not of its kind, or asks for nothing.
    """
    swaps = check_swaps({"baseline": given.baseline, "dtype": given.dtype})
    if not (given.set or given.price or given.prices or swaps):
        raise StudyError("what-if: nothing is asked: give --set, --price, --prices, --baseline or --dtype")
    reference = read_reference(given.reference or REFERENCE)
    claims = read_claims(given.claims or CLAIMS, reference)
    asked = overrides(claims, reference, given.set, given.price, given.prices, swaps)
    if not (given.data / "nodes.json").is_file():
        raise StudyError(
            f"{given.data}: no gathered data. Run the study, or: python -m report gather --out {given.data}"
        )
    document = what_if(read_dataset(given.data, reference), claims, asked, every=bool(given.json))
    if given.json:
        write_json(given.json, document)
    print("\n".join(lines(document)).strip())


@dataclass
class Outcome:
    """A claim's verdict, its reason, and the outcomes of its parts by name."""

    verdict: str | None
    reason: str
    parts: dict[str, str] = field(default_factory=dict)


def what_if(
    data: Dataset, claims: Sequence[Claim], asked: Overrides, every: bool = True, allow_synthetic: bool = False
) -> dict[str, Any]:
    """The verdicts as they were and as they would be, claim by claim, and what is to be said about the changes.

    claims: as they stand. every: judge those too that nothing touches; else their verdicts are None. Raises
    StudyError for a swap to what is not there, and for synthetic data unless `allow_synthetic`, which tests alone set.
    """
    refuse_synthetic(data, allow_synthetic)
    if "dtype" in asked.swaps:
        check_swaps(
            {"dtype": asked.swaps["dtype"]}, sorted({str(name) for name in data.table["dtype"].unique() if name})
        )
    evaluator, after = Evaluator(data, asked), {claim.id: claim for claim in asked.claims}
    rest_on = {claim.id: evaluator.uses(claim) & set(asked.entries) for claim in claims} if asked.entries else {}
    held = set().union(*rest_on.values())
    notes = [f"{name}: moves nothing, for no claim rests on it" for name in asked.entries if name not in held]
    if asked.described and not asked.entries and not asked.set_in and not asked.swaps:
        notes.append("what was given is what stands already")
    notes += evaluator.left_out()
    records = []
    for claim in claims:
        now = after[claim.id]
        swapped_claim, not_measured = evaluator.swapped(now)
        notes += not_measured
        touched = bool(claim.id in asked.set_in or rest_on.get(claim.id) or swapped_claim.parts != now.parts)
        untouched = Outcome(None, "no change touches it: not judged")
        was = evaluator.outcome(claim, changed=False) if touched or every else untouched
        is_ = evaluator.outcome(swapped_claim, changed=True) if touched else was
        if claim.id in asked.set_in:
            waiting = evaluator.waiting(now, claim)
            notes += [f"{claim.id}: its threshold decides nothing yet: {reason}" for reason in waiting]
        records.append(
            {
                "id": claim.id,
                "says": claim.says,
                "was": vars(was),
                "is": vars(is_),
                "moved": was.verdict != is_.verdict,
                "parts_moved": [name for name, outcome in was.parts.items() if is_.parts.get(name) != outcome],
            }
        )
    if asked.swaps and all(one["was"] == one["is"] for one in records) and not notes:
        notes.append("nothing that was measured is told by " + several(list(asked.swaps)))
    return {
        "kind": "what-if",
        "changes": list(asked.described),
        "moved": sum(one["moved"] for one in records),
        "stayed": sum(not one["moved"] for one in records),
        "notes": list(dict.fromkeys(notes)),
        "claims": records,
    }


class Evaluator:
    """Evaluates claims before and after the changes; quantities that no change touches are computed once."""

    def __init__(self, data: Dataset, asked: Overrides) -> None:
        self.entries, self.swaps = set(asked.entries), asked.swaps
        self.old = QuantityCache(data)
        other = Dataset(data.nodes, asked.reference, data.table) if self.entries else data
        self.new = QuantityCache(other) if self.entries else self.old
        self.single = single_socket(data)

    def outcome(self, claim: Claim, changed: bool) -> Outcome:
        """The verdict on a claim, on the data as they are or with what was set."""
        found = [self._evaluate(part, claim) if changed else evaluate(part, claim, self.old) for part in claim.parts]
        verdict = whole_verdict(found)
        reason = describe.whole_reason(found, verdict, self.new.data)[1] if found else OPINION
        return Outcome(verdict, reason, {one.part.name: one.outcome for one in found})

    def waiting(self, now: Claim, claim: Claim) -> list[str]:
        """Why the parts whose threshold was set are not judged."""
        pairs = zip(now.parts, claim.parts, strict=True)
        found = [self._evaluate(part, now) for part, before in pairs if part.threshold != before.threshold]
        return list(dict.fromkeys(describe.missing(one.missing) for one in found if one.missing))

    def _evaluate(self, part: Part, claim: Claim) -> PartResult:
        touched = bool(self.entries) and bool(self._uses(part) & self.entries)
        return evaluate(part, claim, self.new if touched else self.old)

    def uses(self, claim: Claim) -> set[str]:
        """Entries of the reference that a claim's parts ask for."""
        return {name for part in claim.parts for name in self._uses(part)}

    def _uses(self, part: Part) -> set[str]:
        quantity = quantities().get(part.quantity)
        if quantity is None:
            return set()
        self._estimates(part)
        return {*(part.entries if quantity.tier == "documented" else []), *self.old.entries(quantity)}

    def _estimates(self, part: Part) -> Estimates:
        """All estimates of a part's quantity; none where a published figure is missing."""
        try:
            return self.old.estimates(quantities()[part.quantity])
        except MissingSourceError:
            return Estimates.empty()

    def swapped(self, claim: Claim) -> tuple[Claim, list[str]]:
        """The claim with a label swapped wherever its quantity was measured so, and notes on where it was not."""
        notes = []
        for label, value in self.swaps.items():
            parts = []
            for part in claim.parts:
                other = swapped(part, label, value, self.single)
                estimates = self._estimates(part) if other is not None else Estimates.empty()
                if other is None or not len(select(estimates, part.scope)):
                    parts.append(part)
                elif len(select(estimates, other.scope)):
                    parts.append(other)
                else:
                    parts.append(part)
                    notes.append(f"{claim.id}: not measured with {label} {value}: judged as it stands")
            claim = replace(claim, parts=tuple(parts))
        return claim, notes

    def left_out(self) -> list[str]:
        """Nodes that a swap to one socket leaves out."""
        data = self.old.data
        more = [data.label(node.id) for node in data.nodes.nodes if node.id not in self.single]
        if self.swaps.get("baseline") != "socket" or not more:
            return []
        return [
            f"baseline socket: {several(more)} has more than one socket, or does not say how many, and no point "
            "was measured on one of them: left out"
        ]


def lines(document: Mapping[str, Any]) -> Iterable[str]:
    """The answer in plain text: what was set, a table of the verdicts that move, and how many do not."""
    yield "What if:"
    yield from (f"  {change}" for change in document["changes"])
    moved = [one for one in document["claims"] if one["moved"]]
    if moved:
        yield ""
        yield f"{'claim':<6}{'was':<20}{'is':<20}why"
        for one in moved:
            yield f"{one['id']:<6}{one['was']['verdict']:<20}{one['is']['verdict']:<20}{one_line(one['is']['reason'])}"
    for one in document["claims"]:
        if one["parts_moved"] and not one["moved"]:
            turned = [
                f"{name or 'the rule'}: {one['was']['parts'][name]} -> {one['is']['parts'][name]}"
                for name in one["parts_moved"]
            ]
            yield f"{one['id']}: {'; '.join(turned)}; the verdict stays {one['is']['verdict']}"
    yield ""
    yield f"{count(document['moved'], 'verdict')} would move, {document['stayed']} would not"
    yield from (f"note: {note}" for note in document["notes"])


def one_line(text: str, width: int = 150) -> str:
    """A reason in one line, cut at a word."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[:width].rsplit(" ", 1)[0].rstrip(",;:") + " …"
