"""What if: claims judged again with other thresholds, scopes or prices, and which verdicts move."""

from __future__ import annotations

import json
import math
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from contract.errors import StudyError
from contract.schema import did_you_mean
from report import verdict_sentences
from report.data.dataset import Dataset
from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.formatting import format_count, format_exact
from report.judging.claim_files import Claim, Part, read_claims
from report.judging.judge import CLAIMS, judge_claim, refuse_synthetic
from report.judging.part_evaluation import QuantityCache
from report.judging.rules import may_be_negative
from report.outcomes import Threshold, Verdict
from report.quantities import quantities

Reference = Mapping[str, Mapping[str, Any]]
_GIVEN = {"title": "Given for this question", "publisher": "the person who asks", "url": "", "where": ""}


def slug(name: str) -> str:
    """A part's name as it is typed: 'orders, in the plural' is orders-in-the-plural."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def with_label(part: Part, label: str, value: Any, data: Dataset) -> Part:
    """The part with another value of a label in its scope. A socket is the node where the node has one."""
    if (label, value) == ("baseline", "socket"):
        cpus = {node.id: node.record["hardware"].get("cpu") or {} for node in data.nodes.nodes}
        single = [name for name, cpu in cpus.items() if cpu.get("sockets") == 1]
        return replace(part, scope={**part.scope, "baseline": "node", "node": single})
    return replace(part, scope={**part.scope, label: value})


def command(given: Namespace) -> None:
    """Answer one question of the command line. Raises StudyError for what is not known, or asks for nothing."""
    if not (given.set or given.price):
        raise StudyError("what-if: nothing is asked: give --set or --price")
    reference = read_reference(given.reference or REFERENCE)
    claims = read_claims(given.claims or CLAIMS, reference)
    figures = prices(given.price, reference)
    if not (given.data / "nodes.json").is_file():
        raise StudyError(
            f"{given.data}: no gathered data. Run the study, or: python -m report gather --out {given.data}"
        )
    data = read_dataset(given.data, reference, read_published(PUBLISHED))
    changed = settings(given.set, claims, data)
    print("\n".join(lines(what_if(data, claims, changed, figures))))


@dataclass(frozen=True)
class Answer:
    """A claim that a change touches: verdict and outcomes of parts before and after, and what it is told with after."""

    claim: Claim
    before: Verdict
    after: Verdict
    why: str
    parts: Mapping[str, tuple[Verdict, Verdict]]


def what_if(
    data: Dataset, claims: Sequence[Claim], changed: Sequence[Claim], figures: Reference, allow_synthetic: bool = False
) -> list[Answer]:
    """Every claim that is changed, or whose quantities ask for a changed figure, judged as it is and as it would be.

    claims, changed: as they stand, and with what was set, in the same order. figures: entries with other values.
    Raises StudyError for synthetic data unless `allow_synthetic`, which tests alone set.
    """
    refuse_synthetic(data, allow_synthetic)
    old = new = QuantityCache(data)
    if figures:
        new = QuantityCache(Dataset(data.nodes, {**data.reference, **figures}, data.table, data.published))
    found = []
    for claim, other in zip(claims, changed, strict=True):
        before = judge_claim(claim, old)
        if claim.parts != other.parts or any(set(part["entries"]) & set(figures) for part in before["parts"]):
            after = judge_claim(other, new)
            pairs = zip(before["parts"], after["parts"], strict=True)
            parts = {one["name"]: (one["outcome"], then["outcome"]) for one, then in pairs}
            waits = [verdict_sentences.missing_text(part["missing"]) for part in after["parts"] if part["missing"]]
            why = "; ".join(dict.fromkeys(waits)) or after["finding"]
            found.append(Answer(claim, before["verdict"], after["verdict"], why, parts))
    return found


def lines(answers: Sequence[Answer]) -> Iterator[str]:
    """A table of the verdicts that move, the parts that move without them, and how many do neither."""
    moved = [answer for answer in answers if answer.before != answer.after]
    if moved:
        yield f"{'claim':<6}{'was':<20}{'is':<20}why"
    for one in moved:
        yield f"{one.claim.id:<6}{one.before:<20}{one.after:<20}{one.why}"
    for one in answers:
        turned = [f"{name or 'the rule'}: {was} -> {now}" for name, (was, now) in one.parts.items() if was != now]
        if turned and one not in moved:
            yield f"{one.claim.id}: {'; '.join(turned)}; the verdict stays {one.after}"
        elif one not in moved:
            yield f"{one.claim.id} stays {one.after}: {one.why}"
    yield f"{format_count(len(moved), 'verdict')} would move; no other claim than {len(answers)} is touched"


def settings(texts: Sequence[str], claims: Sequence[Claim], data: Dataset) -> list[Claim]:
    """All claims, with what was set: 'W15.threshold=2000', 'G09.threshold=[5,50]', 'N12.PART.baseline=core'.

    A claim that took over another's rule goes with it. Raises StudyError for what is not known or not of its kind.
    """
    changed = {claim.id: claim for claim in claims}
    for text in texts:
        left, equals, right = text.partition("=")
        names = left.strip().split(".")
        if not equals or len(names) < 2:
            raise StudyError(f"--set {text!r}: write CLAIM.threshold=VALUE, or CLAIM.PART.threshold=VALUE for one part")
        name, key = names[0].upper(), names[-1].strip()
        if name not in changed:
            raise StudyError(f"--set {text!r}: there is no claim {names[0]!r}.{did_you_mean(name, list(changed))}")
        claim = changed[name]
        place = _place(text, claim, ".".join(names[1:-1]))
        part = _set(text, claim.parts[place], key, right.strip(), data)
        parts = (*claim.parts[:place], part, *claim.parts[place + 1 :])
        for other in changed.values():
            if other is claim or (other.same_as == name and other.parts == claim.parts):
                changed[other.id] = replace(other, parts=parts)
    return list(changed.values())


def _place(text: str, claim: Claim, name: str) -> int:
    """Which part of a claim is meant. Raises StudyError."""
    if not claim.parts:
        raise StudyError(f"--set {text!r}: {claim.id} is a judgement: no rule decides it")
    known = [slug(part.name) for part in claim.parts]
    if not name and len(known) == 1:
        return 0
    if not name or slug(name) not in known:
        raise StudyError(
            f"--set {text!r}: {claim.id} has no part {name!r}. Parts: {', '.join(filter(None, known)) or 'none'}."
            f"{did_you_mean(slug(name), known)}"
        )
    return known.index(slug(name))


def _set(text: str, part: Part, key: str, given: str, data: Dataset) -> Part:
    """A part with another threshold, or another value of a label of its scope. Raises StudyError."""
    if key == "threshold":
        return replace(part, threshold=_threshold(text, given, part))
    labels = ["threshold", *quantities()[part.quantity].labels] if part.quantity in quantities() else ["threshold"]
    if key not in labels:
        raise StudyError(
            f"--set {text!r}: {key!r} cannot be set. Known: {', '.join(labels)}.{did_you_mean(key, labels)}"
        )
    try:
        value = json.loads(given)
    except json.JSONDecodeError:
        value = given
    return with_label(part, key, value, data)


def _threshold(text: str, given: str, part: Part) -> Threshold:
    """A threshold of the kind that the part's rule compares with. Raises StudyError."""
    try:
        value = json.loads(given)
    except json.JSONDecodeError:
        value = None
    ends = value if isinstance(value, list) else [value]
    kind, n = ("a range of two numbers", 2) if part.compare == "within" else ("a number", 1)
    if len(ends) != n or not all(map(_number, ends)) or isinstance(value, list) != (n == 2):
        example = json.dumps(part.threshold.json)
        raise StudyError(f"--set {text!r}: this rule compares with {kind}, such as {example}, not {given!r}")
    if sorted(ends) != ends:
        raise StudyError(f"--set {text!r}: the range {given} ends before it begins")
    if ends[0] < 0 and not may_be_negative(part):
        raise StudyError(f"--set {text!r}: {format_exact(ends[0])} is below zero: what is counted here never is")
    return Threshold(*map(float, ends))


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def prices(texts: Sequence[str], reference: Reference) -> dict[str, dict[str, Any]]:
    """Entries of the reference with other values, 'ENTRY=VALUE' each. Raises StudyError."""
    found = {}
    for text in texts:
        name, _, given = text.partition("=")
        name = name.strip()
        if name not in reference:
            hint = did_you_mean(name, list(reference))
            raise StudyError(f"--price {text!r}: write ENTRY=VALUE; there is no reference entry {name!r}.{hint}")
        entry = dict(reference[name])
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0 or isinstance(entry.get("value"), bool):
            raise StudyError(f"--price {text!r}: {given!r} is not a number above 0 (in {entry['unit']})")
        own = {key: kept for key, kept in entry.items() if key not in ("low", "high")}
        found[name] = {**own, "value": value, "status": "verified", "source": _GIVEN}
    return found
