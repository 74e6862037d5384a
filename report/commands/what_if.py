"""Command `what-if`: judge claims again with other thresholds, scopes or prices, and list changed verdicts."""

from __future__ import annotations

import json
import math
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from contract.errors import StudyError
from contract.schema import did_you_mean
from report import verdict_sentences
from report.commands.explain import WIDTH
from report.data.dataset import Dataset
from report.data.gathered_files import read_dataset
from report.data.node_reader import NODES, read_nodes
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.formatting import format_count, format_exact, threshold_text, thresholds_text
from report.judging.claim_files import Claim, Part, read_claims
from report.judging.judge import CLAIMS, evaluate_parts, judge_claim, refuse_synthetic
from report.judging.part_evaluation import QuantityCache
from report.judging.rules import may_be_negative
from report.outcomes import Threshold, Verdict, verdict_name
from report.quantities import quantities
from report.verdicts import STUDY_DATA, print_fallback

Reference = Mapping[str, Mapping[str, Any]]
_PRICE_SOURCE = {"title": "Given for this question", "publisher": "the person who asks", "url": "", "where": ""}


def part_slug(name: str) -> str:
    """Convert a part's name for the command line: 'orders, in the plural' to 'orders-in-the-plural'."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def set_label(part: Part, label: str, value: Any, data: Dataset) -> Part:
    """Set a label in a part's scope.

    For `baseline=socket`, select the baseline `node` on nodes with a single socket, where node and socket are the same.
    """
    if (label, value) == ("baseline", "socket"):
        cpus = {node.id: node.record["hardware"].get("cpu") or {} for node in data.nodes.nodes}
        single = [name for name, cpu in cpus.items() if cpu.get("sockets") == 1]
        return replace(part, scope={**part.scope, "baseline": "node", "node": single})
    return replace(part, scope={**part.scope, label: value})


def answer_command(arguments: Namespace) -> None:
    """Run the command. Raises StudyError for an unknown name, or if neither --set nor --price is given."""
    if not (arguments.set or arguments.price):
        raise StudyError("what-if: give --set or --price")
    reference = read_reference(arguments.reference or REFERENCE)
    claims = read_claims(arguments.claims or CLAIMS, reference)
    figures = parse_prices(arguments.price, reference)
    data = read_data(arguments.data, reference)
    changed = apply_settings(arguments.set, claims, data)
    print("\n".join(format_answers(what_if(data, claims, changed, figures))))


def read_data(folder: Path | None, reference: Reference) -> Dataset:
    """Read the study's gathered data, or before any study the published machines, with a note on stderr.

    folder: output folder of `gather`; None for the study's. Raises StudyError if there are no data in it.
    """
    published, gathered = read_published(PUBLISHED), folder or STUDY_DATA
    if (gathered / "nodes.json").is_file():
        return read_dataset(gathered, reference, published)
    if folder is not None:
        raise StudyError(f"{folder}: no gathered data. Run the study, or: python -m report gather --out {folder}")
    print_fallback(gathered, "the published machines are judged, which takes longer")
    return Dataset(read_nodes([NODES]), reference, published=published)


@dataclass(frozen=True)
class Answer:
    """Claim that a change affects, with the verdict and the parts' outcomes before and after the change.

    why: the reason for the verdict after the change. unfair: a sentence on each threshold that is no fair reading.
    """

    claim: Claim
    before: Verdict
    after: Verdict
    why: str
    parts: Mapping[str, tuple[Verdict, Verdict]]
    unfair: tuple[str, ...] = ()


def what_if(
    data: Dataset, claims: Sequence[Claim], changed: Sequence[Claim], figures: Reference, allow_synthetic: bool = False
) -> list[Answer]:
    """Judge every claim that the changes affect, before and after the changes.

    claims, changed: the claims before and after the changes, in the same order.
    figures: reference entries with changed values, by id.
    Raises StudyError for synthetic data unless `allow_synthetic` (for tests only).
    """
    refuse_synthetic(data, allow_synthetic)
    old = new = QuantityCache(data)
    if figures:
        new = QuantityCache(Dataset(data.nodes, {**data.reference, **figures}, data.table, data.published))
    answers = []
    for claim, other in zip(claims, changed, strict=True):
        if claim.parts == other.parts and not figures:
            continue
        before = judge_claim(claim, evaluate_parts(claim, old), old)
        if claim.parts != other.parts or any(set(part["entries"]) & set(figures) for part in before["parts"]):
            after = judge_claim(other, evaluate_parts(other, new), new)
            pairs = zip(before["parts"], after["parts"], strict=True)
            parts = {old_part["name"]: (old_part["outcome"], new_part["outcome"]) for old_part, new_part in pairs}
            waits = [verdict_sentences.missing_text(part["missing"]) for part in after["parts"] if part["missing"]]
            why = "; ".join(dict.fromkeys(waits)) or after["finding"]
            unfair = tuple(filter(None, map(_unfair_text, claim.parts, other.parts)))
            answers.append(Answer(claim, before["verdict"], after["verdict"], why, parts, unfair))
    return answers


def _unfair_text(part: Part, other: Part) -> str:
    """Return a sentence if the other part's threshold lies beyond all that the claim declares as fair, else ''."""
    fair = sorted(threshold.low for threshold in (part.threshold, *part.sensitivity) if not threshold.is_range)
    value = other.threshold.low
    if part.threshold == other.threshold or part.threshold.is_range or len(fair) < 2 or fair[0] <= value <= fair[-1]:
        return ""
    unit = "1" if part.rule in ("ratio", "trend", "crossover") else quantities()[part.quantity].unit
    limits = thresholds_text([fair[0], fair[-1]], unit, "to")
    return f"{threshold_text(value, unit)} is no fair reading of the article: fair are {limits}."


def format_answers(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the changed verdicts with their reasons, the claims whose verdict stays, and a line with the totals.

    A claim whose verdict stays is listed with the parts whose outcome changed.
    """
    moved = [answer for answer in answers if answer.before != answer.after]
    for answer in sorted(answers, key=lambda answer: answer.before == answer.after):
        stays = answer.before == answer.after
        after = _name(answer.after)
        yield f"{answer.claim.id}: {f'stays {after}' if stays else f'{_name(answer.before)} -> {after}'}"
        changes = [
            f"{name or 'the rule'}: {_name(was)} -> {_name(now)}"
            for name, (was, now) in answer.parts.items()
            if was != now
        ]
        for text in (*(changes if stays else ()), answer.why, *answer.unfair):
            yield from textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    others = len(answers) - len(moved)
    kept = f"{format_count(others, 'affected claim')} {'keeps its' if others == 1 else 'keep their'} verdict"
    stay = kept if others else "no other claim is affected"
    yield f"{format_count(len(moved), 'verdict')} {'changes' if len(moved) == 1 else 'change'}; {stay}."


def _name(verdict: str) -> str:
    return verdict_name(verdict, reason=True).lower()


def apply_settings(texts: Sequence[str], claims: Sequence[Claim], data: Dataset) -> list[Claim]:
    """Apply settings like 'W15.threshold=2000', 'G09.threshold=[5,50]' or 'N12.PART.baseline=core' to the claims.

    Claims that take over a changed claim's rule (`same_as`) change too. Raises StudyError for unknown names or invalid
    values.
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
        place = _part_index(text, claim, ".".join(names[1:-1]))
        part = _apply_setting(text, claim.parts[place], key, right.strip(), data)
        parts = (*claim.parts[:place], part, *claim.parts[place + 1 :])
        for other in changed.values():
            if other is claim or (other.same_as == name and other.parts == claim.parts):
                changed[other.id] = replace(other, parts=parts)
    return list(changed.values())


def _part_index(text: str, claim: Claim, name: str) -> int:
    """Find a part's index by name. Raises StudyError if it is unknown or ambiguous."""
    if not claim.parts:
        raise StudyError(f"--set {text!r}: {claim.id} is a judgement: no rule decides it")
    known = [part_slug(part.name) for part in claim.parts]
    if not name and len(known) == 1:
        return 0
    if not name or part_slug(name) not in known:
        raise StudyError(
            f"--set {text!r}: {claim.id} has no part {name!r}. Parts: {', '.join(filter(None, known)) or 'none'}."
            f"{did_you_mean(part_slug(name), known)}"
        )
    return known.index(part_slug(name))


def _apply_setting(text: str, part: Part, key: str, value_text: str, data: Dataset) -> Part:
    """Change a part's threshold, or a label in its scope. Raises StudyError if the key is unknown."""
    if key == "threshold":
        return part.with_threshold(_parse_threshold(text, value_text, part))
    labels = ["threshold", *quantities()[part.quantity].labels] if part.quantity in quantities() else ["threshold"]
    if key not in labels:
        raise StudyError(
            f"--set {text!r}: {key!r} cannot be set. Known: {', '.join(labels)}.{did_you_mean(key, labels)}"
        )
    try:
        value = json.loads(value_text)
    except json.JSONDecodeError:
        value = value_text
    return set_label(part, key, value, data)


def _parse_threshold(text: str, value_text: str, part: Part) -> Threshold:
    """Parse a threshold for a part's rule. Raises StudyError if it does not fit."""
    try:
        value = json.loads(value_text)
    except json.JSONDecodeError:
        value = None
    ends = value if isinstance(value, list) else [value]
    kind, n = ("a range of two numbers", 2) if part.compare == "within" else ("a number", 1)
    if len(ends) != n or not all(map(_is_finite, ends)) or isinstance(value, list) != (n == 2):
        example = json.dumps(part.threshold.json)
        raise StudyError(f"--set {text!r}: this rule compares with {kind}, such as {example}, not {value_text!r}")
    if sorted(ends) != ends:
        raise StudyError(f"--set {text!r}: the range {value_text} ends before it begins")
    if ends[0] < 0 and not may_be_negative(part):
        raise StudyError(f"--set {text!r}: {format_exact(ends[0])} is below zero: this count never is")
    return Threshold(*map(float, ends))


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def parse_prices(texts: Sequence[str], reference: Reference) -> dict[str, dict[str, Any]]:
    """Parse prices, each 'ENTRY=VALUE'; return the reference entries with them. Raises StudyError for a bad price."""
    priced = {}
    for text in texts:
        name, _, value_text = text.partition("=")
        name = name.strip()
        if name not in reference:
            hint = did_you_mean(name, list(reference))
            raise StudyError(f"--price {text!r}: write ENTRY=VALUE; there is no reference entry {name!r}.{hint}")
        entry = dict(reference[name])
        try:
            value = float(value_text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0 or isinstance(entry.get("value"), bool):
            raise StudyError(f"--price {text!r}: {value_text!r} is not a number above 0 (in {entry['unit']})")
        own = {key: item for key, item in entry.items() if key not in ("low", "high")}
        priced[name] = {**own, "value": value, "status": "verified", "source": _PRICE_SOURCE}
    return priced
