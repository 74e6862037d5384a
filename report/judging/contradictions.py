"""Contradictions between and inside the articles: declared, checked, and decided by the verdicts on the claims.

Quick to start: no data libraries, so that one claim can be explained at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from contract.errors import StudyError
from contract.files import read_yaml
from contract.schema import did_you_mean
from report import PACKAGE
from report.data.reference import source
from report.formatting import count, several, threshold_text
from report.judging.rule_conflicts import rule_conflicts
from report.judging.side_outcome import Carried, opposed, outcome, said, standing

if TYPE_CHECKING:
    from report.judging.claims import Claim

SCHEMA = json.loads((PACKAGE / "schemas" / "contradictions.schema.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Side:
    """What one side says, and the claims that carry it: id and, where only one part of a claim does, its name."""

    says: str
    claims: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figures:
    """Published figures of one side, and the least that the other side asks of each."""

    entries: tuple[dict[str, Any], ...]
    at_least: float
    why: str


@dataclass(frozen=True)
class Contradiction:
    """What is said differently, by whom, and how it is decided."""

    id: str
    title: str
    question: str
    conflict: str
    why: str
    sides: tuple[Side, ...]
    stands: str
    boundary: str
    figures: Figures | None = None


def read_contradictions(
    path: Path, claims: Iterable[Claim], reference: Mapping[str, Mapping[str, Any]]
) -> list[Contradiction]:
    """All contradictions of `path`, in its order; none if there is no such file.

    claims: the claims that they may name; reference: the published figures. Raises
    StudyError with file and line for an unknown claim, part or figure, an id that
    is used twice, a claim on two sides, and `opposites` of more than two.
    """
    if not path.exists():
        return []
    known = {claim.id: claim for claim in claims}
    raw = read_yaml(path, SCHEMA) or []
    for place, one in enumerate(raw):
        if any(one["id"] == other["id"] for other in raw[:place]):
            raise _fault(path, one["id"], "id", "this id is used twice")
        _check(path, one, known, reference)
    return [_contradiction(one, reference) for one in raw]


def _check(
    path: Path, one: Mapping[str, Any], known: Mapping[str, Claim], reference: Mapping[str, Mapping[str, Any]]
) -> None:
    name, seen = one["id"], set()
    for side in one["sides"]:
        for claim, part in map(_carrier, side["claims"]):
            if claim not in known:
                hint = did_you_mean(claim, list(known))
                raise _fault(path, name, claim, f"there is no claim {claim!r}.{hint}")
            parts = [part.name for part in known[claim].parts]
            if part and part not in parts:
                hint = did_you_mean(part, parts)
                raise _fault(path, name, part, f"claim {claim} has no part {part!r}.{hint}")
            if claim in seen:
                raise _fault(path, name, claim, f"claim {claim} stands twice: give it to one side")
            seen.add(claim)
    if one["stands"] == "opposites" and len(one["sides"]) != 2:
        raise _fault(path, name, "opposites", "`opposites` is for two sides: use `each`, or leave sides out")
    if one["conflict"] == "wording":
        apart = rule_conflicts(
            [[rule for given in side["claims"] for rule in _rules(*_carrier(given), known)] for side in one["sides"]]
        )
        if apart:
            raise _fault(path, name, "conflict", f"more than wording: {apart[0]} Call it real or in part")
    units = set()
    for entry in one.get("figures", {}).get("entries", []):
        if entry not in reference:
            hint = did_you_mean(entry, list(reference))
            raise _fault(path, name, entry, f"there is no reference entry {entry!r}.{hint}")
        units.add(reference[entry]["unit"])
    if len(units) > 1:
        raise _fault(path, name, "entries", f"the figures have different units: {', '.join(sorted(units))}")


def _rules(claim: str, part: str, known: Mapping[str, Claim]) -> list[tuple[str, dict[str, Any]]]:
    """The rules of a claim, or of one part of it, in the shape that the verdicts have."""
    keys = ("quantity", "scope", "rule", "scale")
    judged = [one for one in known[claim].parts if part in ("", one.name)]
    given = [{key: getattr(one, key) for key in keys} | {"threshold": one.threshold.json, "unit": ""} for one in judged]
    return [(claim, one) for one in given]


def _fault(path: Path, name: str, word: str, what: str) -> StudyError:
    """The mistake with the line on which `word` stands, from the contradiction's id on."""
    inside, line = False, 0
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        inside = inside or re.search(rf"\bid:\s*[\"']?{re.escape(name)}\b", text) is not None
        if inside and re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text):
            line = number
            # Of an id that is used twice it is the second that is one too many.
            if word != "id":
                break
            inside = False
    return StudyError(f"{path}{f', line {line}' if line else ''}: {name}: {what}")


def _carrier(given: str | Mapping[str, str]) -> tuple[str, str]:
    """A claim's id and the name of its part; an empty name means the whole claim."""
    return (given, "") if isinstance(given, str) else (given["claim"], given["part"])


def _contradiction(raw: Mapping[str, Any], reference: Mapping[str, Mapping[str, Any]]) -> Contradiction:
    sides = tuple(Side(side["says"], tuple(map(_carrier, side["claims"]))) for side in raw["sides"])
    given = raw.get("figures")
    figures = None
    if given:
        entries = tuple(dict(reference[name]) for name in given["entries"])
        figures = Figures(entries, float(given["at_least"]), given["why"])
    words = {key: raw[key] for key in ("id", "title", "question", "conflict", "why", "stands", "boundary")}
    return Contradiction(**words, sides=sides, figures=figures)


def decide(verdicts: Mapping[str, Mapping[str, Any]], contradictions: Sequence[Contradiction]) -> list[dict[str, Any]]:
    """Which side of each contradiction stands, as `verdicts.json` has it.

    verdicts: id of a claim -> its record in `verdicts.json`.
    """
    return [_decided(one, verdicts) for one in contradictions]


def _decided(one: Contradiction, verdicts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    carried = [[Carried.of(verdicts[claim], part) for claim, part in side.claims] for side in one.sides]
    standings = [standing([claim.verdict for claim in side]) for side in carried]
    by_denial = opposed(standings) if one.stands == "opposites" else standings
    names = ascii_uppercase[: len(one.sides)]
    articles = [
        list(dict.fromkeys(str(verdicts[claim]["article_title"]) for claim, _ in side.claims)) for side in one.sides
    ]
    every = [title for titles in articles for title in titles]
    rules = [[(claim.id, part) for claim in side for part in claim.parts] for side in carried]
    answer, sentence = said(names, carried, standings, by_denial, one.conflict)
    return {
        "id": one.id,
        "title": one.title,
        "question": one.question,
        "articles": list(dict.fromkeys(every)),
        "inside": sorted({title for title in every if every.count(title) > 1}, key=every.index),
        "conflict": _by_figures(one.figures) if one.figures else one.conflict,
        "conflict_why": one.why,
        "excludes": rule_conflicts(rules),
        "sides": [
            {
                "name": name,
                "articles": titles,
                "says": side.says,
                "standing": stood,
                "claims": [claim.record() for claim in claims],
            }
            for name, titles, side, stood, claims in zip(names, articles, one.sides, by_denial, carried, strict=True)
        ],
        "stands": one.stands,
        "outcome": outcome(by_denial),
        "answer": answer,
        "sentence": sentence + (_counted(one.figures) if one.figures else ""),
        "boundary": one.boundary,
        "figures": _figures(one.figures) if one.figures else None,
    }


def _met(entry: Mapping[str, Any], at_least: float) -> bool | None:
    """Whether a published figure reaches what is asked; None if it was not read in its primary source."""
    return float(entry["value"]) >= at_least if entry["status"] == "verified" else None


def _by_figures(figures: Figures) -> str:
    """The kind of a conflict that published figures decide: none may fall short of what the other side asks."""
    met = [_met(entry, figures.at_least) for entry in figures.entries]
    if False in met:
        # What could not be verified might be enough.
        return "real" if set(met) == {False} else "in part"
    return "awaiting source" if None in met else "wording"


def _counted(figures: Figures) -> str:
    """How many figures reach what is asked; the figures themselves stand beside it."""
    met = [_met(entry, figures.at_least) for entry in figures.entries]
    asked = threshold_text(figures.at_least, figures.entries[0]["unit"])
    told = {False: "fall short", True: "are enough", None: "could not be verified"}
    counts = [f"{met.count(kind)} {text}" for kind, text in told.items() if kind in met]
    return f" Of {count(len(met), 'published figure')} held against {asked}, {several(counts)}."


def _figures(figures: Figures) -> dict[str, Any]:
    entries = [
        {
            **{key: entry.get(key) for key in ("id", "subject", "what", "value", "unit")},
            "met": _met(entry, figures.at_least),
            "source": source(entry),
        }
        for entry in figures.entries
    ]
    return {"at_least": figures.at_least, "why": figures.why, "entries": entries}


def contradicting(document: Mapping[str, Any], claim: str) -> list[str]:
    """What contradicts a claim, a line for each contradiction: 'W06 (Memory as the bottleneck): Side B stands, …'."""
    lines = []
    for one in document.get("contradictions") or []:
        sides = [[carrier["id"] for carrier in side["claims"]] for side in one["sides"]]
        if any(claim in ids for ids in sides):
            others = ", ".join(other for ids in sides if claim not in ids for other in ids)
            own = next(side["name"] for side, ids in zip(one["sides"], sides, strict=True) if claim in ids)
            lines.append(f"{others} ({one['title']}; this claim is on side {own}): {one['sentence']}")
    return lines
