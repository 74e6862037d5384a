"""Contradictions between and inside the articles: declared, checked, and decided by the verdicts on the claims.

Quick to start: no data libraries, so that one claim can be explained at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from contract.errors import StudyError
from contract.files import place, read_yaml
from contract.schema import did_you_mean
from report import PACKAGE
from report.data.reference import source
from report.formatting import capital, count, several, threshold_text
from report.model import OPINION, Verdict

if TYPE_CHECKING:
    from report.judging.claims import Claim

SCHEMA = json.loads((PACKAGE / "schemas" / "contradictions.schema.json").read_text(encoding="utf-8"))
# Where a side stands, with its verb for one and for several; in the order in which a sentence lists them.
_VERBS = {
    "holds": ("stands", "stand"),
    "in part": ("stands in part", "stand in part"),
    "fails": ("does not stand", "do not stand"),
    "undecided": ("is too close to call", "are too close to call"),
    "open": ("is still open", "are still open"),
    "opinion": ("cannot be tested", "cannot be tested"),
}
STANDINGS = tuple(_VERBS)
OUTCOMES = ("one stands", "some stand", "all stand", "in part", "none stands", "undecided", "open", "opinion")
_OF_CLAIMS = {
    Verdict.SUPPORTED: ("is supported", "are supported"),
    Verdict.CHALLENGED: ("is challenged", "are challenged"),
    Verdict.DEPENDS: ("holds in part", "hold in part"),
    Verdict.OUTDATED: ("no longer holds", "no longer hold"),
    Verdict.UNDECIDED: ("is undecided", "are undecided"),
    Verdict.NOT_TESTABLE: ("cannot be tested", "cannot be tested"),
    Verdict.AWAITING_HARDWARE: ("awaits hardware", "await hardware"),
    Verdict.AWAITING_EXPERIMENT: ("awaits an experiment", "await an experiment"),
    Verdict.AWAITING_SOURCE: ("awaits a source", "await a source"),
}
_BY_DENIAL = {
    "holds": "What refutes the other side carries this one.",
    "fails": "What carries the other side refutes this one.",
}

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Contradiction:
    """What is said differently, by whom, and how it is decided.

    declared: the entry as it stands in the file. sides: for each the claims that carry it: id and, where only one
    part of a claim does, its name. figures: the published ones of one side, that the other asks something of.
    """

    declared: Record
    sides: tuple[tuple[tuple[str, str], ...], ...]
    figures: tuple[Record, ...] = ()

    @property
    def id(self) -> str:
        return str(self.declared["id"])

    @property
    def least(self) -> float:
        """The least that is asked of each figure."""
        return float(self.declared["figures"]["at_least"])


def read_contradictions(path: Path, claims: Iterable[Claim], reference: Mapping[str, Record]) -> list[Contradiction]:
    """All contradictions of `path`, in its order; none if there is no such file.

    claims: the claims that they may name; reference: the published figures. Raises
    StudyError with file and line for an unknown claim, part or figure, an id that
    is used twice, a claim on two sides, and `opposites` of more than two.
    """
    if not path.exists():
        return []
    known, found = {claim.id: claim for claim in claims}, list[Contradiction]()
    for at, one in enumerate(read_yaml(path, SCHEMA) or []):
        sides = tuple(tuple(map(_carrier, side["claims"])) for side in one["sides"])
        entries = one.get("figures", {}).get("entries", [])
        for steps, what in _faults(one, sides, known, reference):
            raise StudyError(f"{place(path, at, *steps)}: {one['id']}: {what}")
        if any(one["id"] == other.id for other in found):
            raise StudyError(f"{place(path, at, 'id')}: {one['id']}: this id is used twice")
        found.append(Contradiction(one, sides, tuple(dict(reference[name]) for name in entries)))
    return found


def _carrier(given: str | Mapping[str, str]) -> tuple[str, str]:
    """A claim's id and the name of its part; an empty name means the whole claim."""
    return (given, "") if isinstance(given, str) else (given["claim"], given["part"])


def _faults(
    one: Record, sides: Sequence[Sequence[tuple[str, str]]], known: Mapping[str, Claim], reference: Mapping[str, Record]
) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """Mistakes, each with where it stands."""
    seen: set[str] = set()
    for side, carriers in enumerate(sides):
        for number, (claim, part) in enumerate(carriers):
            where = ("sides", side, "claims", number)
            if claim not in known:
                yield where, f"there is no claim {claim!r}.{did_you_mean(claim, list(known))}"
            parts = [part.name for part in known[claim].parts]
            if part and part not in parts:
                yield (*where, "part"), f"claim {claim} has no part {part!r}.{did_you_mean(part, parts)}"
            if claim in seen:
                yield where, f"claim {claim} stands twice: give it to one side"
            seen.add(claim)
    if one["stands"] == "opposites" and len(sides) != 2:
        yield ("stands",), "`opposites` is for two sides: use `each`, or leave sides out"
    if one["conflict"] == "wording":
        apart = conflicts([[rule for carrier in side for rule in _rules(*carrier, known)] for side in sides])
        if apart:
            yield ("conflict",), f"more than wording: {apart[0]} Call it real or in part"
    entries = one.get("figures", {}).get("entries", [])
    for number, entry in enumerate(entries):
        if entry not in reference:
            hint = did_you_mean(entry, list(reference))
            yield ("figures", "entries", number), f"there is no reference entry {entry!r}.{hint}"
    units = sorted({str(reference[entry]["unit"]) for entry in entries})
    if len(units) > 1:
        yield ("figures", "entries"), f"the figures have different units: {', '.join(units)}"


def _rules(claim: str, part: str, known: Mapping[str, Claim]) -> list[tuple[str, Record]]:
    """The rules of a claim, or of one part of it, in the shape that the verdicts have."""
    keys = ("quantity", "scope", "rule", "scale")
    judged = [one for one in known[claim].parts if part in ("", one.name)]
    given = [{key: getattr(one, key) for key in keys} | {"threshold": one.threshold.json, "unit": ""} for one in judged]
    return [(claim, one) for one in given]


def decide(verdicts: Mapping[str, Record], contradictions: Sequence[Contradiction]) -> list[dict[str, Any]]:
    """Which side of each contradiction stands, as `verdicts.json` has it.

    verdicts: id of a claim -> its record in `verdicts.json`.
    """
    return [_decided(one, verdicts) for one in contradictions]


def _decided(one: Contradiction, verdicts: Mapping[str, Record]) -> dict[str, Any]:
    given = one.declared
    carried = [[_carried(verdicts[claim], part) for claim, part in side] for side in one.sides]
    own = [standing([claim["verdict"] for claim, _ in side]) for side in carried]
    stood = opposed(own) if given["stands"] == "opposites" else own
    names = ascii_uppercase[: len(one.sides)]
    articles = [list(dict.fromkeys(str(verdicts[claim]["article_title"]) for claim, _ in side)) for side in one.sides]
    every = [title for titles in articles for title in titles]
    answer = capital(_answer(names, stood))
    return {
        **{key: given[key] for key in ("id", "title", "question", "stands", "boundary")},
        "articles": list(dict.fromkeys(every)),
        "inside": sorted({title for title in every if every.count(title) > 1}, key=every.index),
        "conflict": _conflict_by_figures(one) if one.figures else given["conflict"],
        "conflict_why": given["why"],
        "excludes": conflicts([[(claim["id"], part) for claim, parts in side for part in parts] for side in carried]),
        "sides": [
            {
                "name": name,
                "articles": titles,
                "says": side["says"],
                "standing": where,
                "claims": [claim for claim, _ in claims],
            }
            for name, titles, side, where, claims in zip(names, articles, given["sides"], stood, carried, strict=True)
        ],
        "outcome": outcome(stood),
        "answer": answer,
        "sentence": " ".join([f"{answer}.", *_reasons(names, carried, own, stood, one)]),
        "figures": _figures(one) if one.figures else None,
    }


def _carried(verdict: Record, part: str) -> tuple[dict[str, Any], list[Record]]:
    """A claim, or one part of it, as it carries a side; and the parts that were judged for it.

    verdict: a record of `verdicts.json`; part: the name of one of its parts, or '' for all of it.
    """
    judged = [one for one in verdict["parts"] if part in ("", one["name"])]
    whole = judged[0] if part else verdict
    came_to = Verdict(whole["outcome"] if part else whole["verdict"])
    return {
        "id": str(verdict["id"]),
        "part": part,
        "verdict": came_to,
        # The tier is the claim's: its weakest. A part that waits has none yet.
        "tier": "none" if came_to.awaits else str(verdict["evidence_tier"]),
        "evidence": _evidence(came_to, whole, judged),
    }, judged


def _evidence(verdict: Verdict, whole: Record, judged: Sequence[Record]) -> str:
    """What decided a claim, or what it lacks."""
    if verdict.awaits:
        waiting = sorted(
            (part for part in judged if part["missing"]), key=lambda part: bool(part["outcome"] != verdict)
        )
        _, *others = dict.fromkeys(part["reason"] for part in waiting)
        return "; ".join([str(waiting[0]["missing"]["says"]), *others])
    if verdict is Verdict.NOT_TESTABLE:
        return OPINION if whole.get("kind") == "judgement" else str(whole["reason"] or OPINION)
    if verdict is Verdict.DEPENDS and whole["boundary"]:
        return str(whole["boundary"])
    # Where all parts agree, the first speaks for them: the claim's own reason would repeat every one.
    return str((judged[0] if len(judged) > 1 else whole)["reason"])


def standing(verdicts: Iterable[str]) -> str:
    """Where a side stands, from the verdicts on its claims; opinions count only where there is nothing else.

    A side with one claim that holds and one that fails is right in part, whatever
    the others still wait for.
    """
    testable = set(map(Verdict, verdicts)) - {Verdict.NOT_TESTABLE}
    if not testable:
        return "opinion"
    if Verdict.DEPENDS in testable or {Verdict.SUPPORTED, Verdict.CHALLENGED} <= testable:
        return "in part"
    if any(verdict.awaits for verdict in testable):
        return "open"
    if Verdict.UNDECIDED in testable:
        return "undecided"
    return "holds" if testable == {Verdict.SUPPORTED} else "fails"


def opposed(standings: Sequence[str]) -> list[str]:
    """Two sides of which each denies the other: what decides one decides the other, where nothing else does."""
    by = {"holds": "fails", "fails": "holds"}
    one, other = standings
    free = ("open", "opinion", "undecided")
    return [by.get(other, one) if one in free else one, by.get(one, other) if other in free else other]


def outcome(standings: Sequence[str]) -> str:
    """What became of the contradiction: open while a side that could change it is, else by who stands."""
    decided = [one for one in standings if one != "opinion"]
    if not decided:
        return "opinion"
    for kind in ("open", "undecided", "in part"):
        if kind in decided:
            return kind
    n = decided.count("holds")
    if n == len(decided):
        return "all stand" if n > 1 else "one stands"
    return {0: "none stands", 1: "one stands"}.get(n, "some stand")


def _answer(names: Sequence[str], standings: Sequence[str]) -> str:
    """'side A stands and side B does not stand'."""
    groups = {kind: [name for name, stood in zip(names, standings, strict=True) if stood == kind] for kind in STANDINGS}
    return several(
        [
            f"side{'s' if len(group) > 1 else ''} {several(group)} {_VERBS[kind][len(group) > 1]}"
            for kind, group in groups.items()
            if group
        ]
    )


def _reasons(
    names: Sequence[str],
    carried: Sequence[Sequence[tuple[Record, Any]]],
    own: Sequence[str],
    stood: Sequence[str],
    one: Contradiction,
) -> Iterable[str]:
    """What each side rests on. own: where it stands by its own claims; stood: with what the other's fall adds."""
    for name, claims, before, after in zip(names, carried, own, stood, strict=True):
        by_denial = f" {_BY_DENIAL[after]}" if before != after else ""
        yield f"{name}: {_verdicts([claim for claim, _ in claims])}.{by_denial}"
    if one.declared["conflict"] == "real" and outcome(stood) == "all stand":
        yield "As they are read here they do not collide: the thresholds leave room for all of them."
    if one.figures:
        met = [_met(one, entry) for entry in one.figures]
        words = {False: "fall short", True: "are enough", None: "could not be verified"}
        counts = [f"{met.count(kind)} {text}" for kind, text in words.items() if kind in met]
        asked = threshold_text(one.least, one.figures[0]["unit"])
        yield f"Of {count(len(met), 'published figure')} held against {asked}, {several(counts)}."


def _verdicts(claims: Sequence[Record]) -> str:
    """'W29 and W31 are supported (measured); W30 awaits hardware'."""
    groups: dict[tuple[Verdict, str], list[str]] = {}
    for claim in claims:
        name = f"{claim['id']} ({claim['part']})" if claim["part"] else claim["id"]
        groups.setdefault((claim["verdict"], claim["tier"]), []).append(name)
    return "; ".join(
        f"{several(ids)} {_OF_CLAIMS[verdict][len(ids) > 1]}{'' if tier == 'none' else f' ({tier})'}"
        for (verdict, tier), ids in groups.items()
    )


def _met(one: Contradiction, entry: Record) -> bool | None:
    """Whether a published figure reaches what is asked; None if it was not read in its primary source."""
    return float(entry["value"]) >= one.least if entry["status"] == "verified" else None


def _conflict_by_figures(one: Contradiction) -> str:
    """The kind of a conflict that published figures decide: none may fall short of what the other side asks."""
    met = [_met(one, entry) for entry in one.figures]
    if False in met:
        # What could not be verified might be enough.
        return "real" if set(met) == {False} else "in part"
    return "awaiting source" if None in met else "wording"


def _figures(one: Contradiction) -> dict[str, Any]:
    keys = ("id", "subject", "what", "value", "unit")
    entries = [
        {**{key: entry.get(key) for key in keys}, "met": _met(one, entry), "source": source(dict(entry))}
        for entry in one.figures
    ]
    return {"at_least": one.least, "why": one.declared["figures"]["why"], "entries": entries}


def conflicts(sides: Sequence[Sequence[tuple[str, Record]]]) -> list[str]:
    """Sentences on rules of different sides that no measurement can satisfy together.

    sides: for each side its claims' ids with a part as `verdicts.json` has it.
    Rules are compared that judge the same quantity in scopes that meet.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one, other in combinations(sides, 2):
        for (first, a), (second, b) in product(one, other):
            where = _shared_scope(a, b)
            if where is not None and _apart(accepted(a), accepted(b)):
                asked = f"{first} asks for {_asks(a)} and {second} for {_asks(b)}"
                found.setdefault((a["quantity"], asked), {})[where] = None
    listed = {key: "; ".join(filter(None, wheres)) for key, wheres in found.items()}
    return [
        f"Of {quantity}{f' ({where})' if where else ''}, {asked}: no measurement satisfies both."
        for (quantity, asked), where in listed.items()
    ]


def accepted(part: Record) -> tuple[float, float] | None:
    """Ends of what a rule accepts of one estimate, before scaling; None for a rule that is not about single ones."""
    bound, scale = part["threshold"], float(part.get("scale") or 1)
    if part["rule"] == "at_least":
        return bound / scale, math.inf
    if part["rule"] == "at_most":
        return -math.inf, bound / scale
    return (bound[0] / scale, bound[1] / scale) if part["rule"] == "within" else None


def _apart(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
    return a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])


def _shared_scope(a: Record, b: Record) -> str | None:
    """The labels that both scopes narrow, in words; None if no estimate lies in both."""
    if a["quantity"] != b["quantity"]:
        return None
    shared = []
    for label in (label for label in a["scope"] if label in b["scope"]):
        one, other = (
            {*value} if isinstance(value, list) else {value} for value in (a["scope"][label], b["scope"][label])
        )
        if not one & other:
            return None
        shared.append(f"{label} {several(sorted(map(str, one & other)), 'or')}")
    return ", ".join(shared)


def _asks(part: Record) -> str:
    how = {"at_least": "at least ", "at_most": "at most ", "within": ""}[part["rule"]]
    scale = float(part.get("scale") or 1)
    scaled = f" after scaling by {scale:g}" if scale != 1 else ""
    return f"{how}{threshold_text(part['threshold'], part['unit'])}{scaled}"


def contradicting(document: Record, claim: str) -> list[str]:
    """What contradicts a claim, a line for each contradiction: 'W06 (Memory as the bottleneck): Side B stands, …'."""
    lines = []
    for one in document.get("contradictions") or []:
        sides = [[carrier["id"] for carrier in side["claims"]] for side in one["sides"]]
        if any(claim in ids for ids in sides):
            others = ", ".join(other for ids in sides if claim not in ids for other in ids)
            own = next(side["name"] for side, ids in zip(one["sides"], sides, strict=True) if claim in ids)
            lines.append(f"{others} ({one['title']}; this claim is on side {own}): {one['sentence']}")
    return lines
