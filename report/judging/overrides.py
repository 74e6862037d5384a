"""What a sceptic sets: thresholds of claims, prices, another base case or number format. Checked before anything is
judged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from contract.errors import StudyError
from contract.schema import did_you_mean
from report.data.reference import read_entries
from report.formatting import exactly, several
from report.judging.claims import Claim, Part
from report.judging.rules import may_be_negative
from report.model import Threshold
from report.quantities import quantities

BASELINES = ("core", "socket", "node", "fleet")
KEYS = ("threshold",)
# What a swap is given on the command line as, and which values it may take; None: those that were measured.
SWAPS: Mapping[str, Sequence[str] | None] = {"baseline": BASELINES, "dtype": None}
_GIVEN = {"title": "Given for this question", "publisher": "the person who asks", "url": "", "where": ""}


@dataclass(frozen=True)
class Overrides:
    """All that is set, checked: claims with their thresholds, reference entries with their values, labels to swap.

    claims: every claim, those that are set changed. set_in: ids of the changed ones. entries: ids of the
    entries whose figure differs. swaps: label to value. described: each change in words, in the order given.
    """

    claims: Sequence[Claim]
    reference: Mapping[str, Mapping[str, Any]]
    set_in: frozenset[str] = frozenset()
    entries: Sequence[str] = ()
    swaps: Mapping[str, str] = field(default_factory=dict)
    described: Sequence[str] = ()


def overrides(
    claims: Sequence[Claim],
    reference: Mapping[str, Mapping[str, Any]],
    thresholds: Sequence[str] = (),
    prices: Sequence[str] = (),
    file: Path | None = None,
    swaps: Mapping[str, str] | None = None,
) -> Overrides:
    """Everything that was set, checked against the claims and the reference.

    thresholds: 'W15.threshold=2000', 'G09.threshold=[5,50]', 'N12.PART.threshold=30'. prices: 'ENTRY=VALUE'.
    file: entries as in data/reference. Raises StudyError for what is not known or not of its kind.
    """
    changed = {claim.id: claim for claim in claims}
    said = []
    for text in thresholds:
        claim, place, value = _setting(text, changed)
        part = claim.parts[place]
        parts = (*claim.parts[:place], replace(part, threshold=value), *claim.parts[place + 1 :])
        for other in _alike(claim, changed):
            changed[other.id] = replace(other, parts=parts)
        said.append(f"{_named(claim, part)}.threshold: {part.threshold.text('1')} -> {value.text('1')}")
    figures = _from_file(file, reference) if file else {}
    figures |= dict(_price(text, reference) for text in prices)
    entries = {name: figure for name, figure in figures.items() if _differs(figure, reference[name])}
    said += [_price_said(name, reference[name].get("value"), entries.get(name)) for name in figures]
    before = {claim.id: claim for claim in claims}
    return Overrides(
        list(changed.values()),
        {**reference, **entries},
        frozenset(name for name, claim in changed.items() if claim is not before[name]),
        tuple(entries),
        dict(swaps or {}),
        [*said, *(f"{label} -> {value}" for label, value in (swaps or {}).items())],
    )


def _alike(claim: Claim, claims: Mapping[str, Claim]) -> list[Claim]:
    """The claim, and those that took over its rule."""
    return [claim, *(one for one in claims.values() if one.same_as == claim.id and one.parts == claim.parts)]


def _named(claim: Claim, part: Part) -> str:
    return f"{claim.id}.{slug(part.name)}" if len(claim.parts) > 1 else claim.id


def slug(name: str) -> str:
    """A part's name as it is typed: 'orders, in the plural' is orders-in-the-plural."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _setting(text: str, claims: Mapping[str, Claim]) -> tuple[Claim, int, Threshold]:
    """The claim, the place of its part, and the threshold that one setting names. Raises StudyError."""
    left, equals, right = text.partition("=")
    names = left.strip().split(".")
    if not equals or len(names) < 2:
        raise StudyError(f"--set {text!r}: write CLAIM.threshold=VALUE, or CLAIM.PART.threshold=VALUE for one part")
    name, key, part = names[0].upper(), names[-1].strip(), ".".join(names[1:-1])
    if name not in claims:
        raise StudyError(f"--set {text!r}: there is no claim {names[0]!r}.{did_you_mean(name, list(claims))}")
    if key not in KEYS:
        raise StudyError(
            f"--set {text!r}: {key!r} cannot be set. Keys: {', '.join(KEYS)}.{did_you_mean(key, list(KEYS))}"
        )
    claim = claims[name]
    place = _place(text, claim, part)
    return claim, place, _threshold(text, right, claim.parts[place])


def _place(text: str, claim: Claim, part: str) -> int:
    """Which part of a claim is meant. Raises StudyError."""
    if not claim.parts:
        raise StudyError(f"--set {text!r}: {claim.id} is a judgement: no rule decides it")
    known = [slug(one.name) for one in claim.parts]
    if not part and len(claim.parts) == 1:
        return 0
    if slug(part) in known and part:
        return known.index(slug(part))
    if len(claim.parts) == 1:
        raise StudyError(f"--set {text!r}: {claim.id} has one rule and no parts: write {claim.id}.threshold=VALUE")
    asked = f"there is no part {part!r}.{did_you_mean(slug(part), known)}" if part else "say which of its parts."
    raise StudyError(f"--set {text!r}: {claim.id}: {asked} Parts: {', '.join(known)}")


def _threshold(text: str, given: str, part: Part) -> Threshold:
    """A threshold of the kind that the part's rule compares with. Raises StudyError."""
    try:
        value = json.loads(given)
    except json.JSONDecodeError:
        value = None
    ranged = part.compare == "within"
    kind = f"the rule {part.rule}{' within' if ranged and part.rule != 'within' else ''} compares with"
    if not ranged:
        if not _number(value):
            raise StudyError(f"--set {text!r}: {kind} a number, such as {part.threshold.text('1')}, not {given!r}")
        _not_below_zero(text, value, part)
        return Threshold(float(value))
    if not isinstance(value, list) or len(value) != 2 or not all(map(_number, value)):
        example = json.dumps(part.threshold.json)
        raise StudyError(f"--set {text!r}: {kind} a range of two numbers, such as {example}, not {given!r}")
    _not_below_zero(text, value[0], part)
    if value[0] > value[1]:
        raise StudyError(f"--set {text!r}: the range {given} ends before it begins: write [{value[1]}, {value[0]}]")
    return Threshold(*map(float, value))


def _not_below_zero(text: str, value: float, part: Part) -> None:
    if value < 0 and not may_be_negative(part):
        raise StudyError(f"--set {text!r}: {exactly(value)} is below zero: what is counted here never is")


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _price(text: str, reference: Mapping[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """The id and the entry that one price gives. Raises StudyError."""
    name, equals, given = text.partition("=")
    name = name.strip()
    if not equals:
        raise StudyError(f"--price {text!r}: write ENTRY=VALUE")
    _known(f"--price {text!r}", name, reference)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0 or isinstance(reference[name].get("value"), bool):
        unit = str(reference[name]["unit"])
        raise StudyError(f"--price {text!r}: {given!r} is not a number above 0 (in {unit}) that this entry can have")
    own = {key: kept for key, kept in reference[name].items() if key not in ("low", "high")}
    return name, {**own, "value": value, "status": "verified", "source": _GIVEN}


def _from_file(path: Path, reference: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The entries of a file of prices. Raises StudyError for a fault in it, or an id that is not known."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in read_entries(path):
        _known(str(path), str(entry["id"]), reference)
        found[str(entry["id"])] = entry
    return found


def _known(where: str, name: str, reference: Iterable[str]) -> None:
    names = list(reference)
    if name not in names:
        raise StudyError(f"{where}: there is no reference entry {name!r}.{did_you_mean(name, names)}")


def _differs(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return any(entry.get(key) != other.get(key) for key in ("value", "low", "high", "unit", "status"))


def _price_said(name: str, before: Any, entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return f"{name}: as it is"
    values = [exactly(float(one)) if _number(one) else "not known" for one in (before, entry.get("value"))]
    return f"{name}: {' -> '.join(values)} {entry['unit']}"


def swapped(part: Part, label: str, value: str, single: Sequence[str]) -> Part | None:
    """The part with another value of a label in its scope; None if its quantity is not told by that label.

    single: ids of the nodes of one socket, on which that is the whole node.
    """
    quantity = quantities().get(part.quantity)
    if quantity is None or part.awaits is not None or label not in quantity.labels:
        return None
    if (label, value) == ("baseline", "socket"):
        return replace(part, scope={**part.scope, "baseline": "node", "node": list(single)})
    return replace(part, scope={**part.scope, label: value})


def check_swaps(given: Mapping[str, str | None], measured: Sequence[str] = ()) -> dict[str, str]:
    """The swaps that were asked for. measured: number formats, where these are known. Raises StudyError for a value
    that a label cannot have."""
    found = {label: value for label, value in given.items() if value is not None}
    for label, value in found.items():
        allowed = SWAPS[label] or measured
        if allowed and value not in allowed:
            what = "nothing was measured in it. Measured" if SWAPS[label] is None else "is not known. Known"
            hint = did_you_mean(value, list(allowed))
            raise StudyError(f"--{label} {value!r}: {what}: {several(list(allowed))}.{hint}")
    return found
