"""Contradictions between or within the articles: read, checked, and decided by the verdicts on the claims.

This module imports no data libraries, so that the command `explain` starts fast.
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
from contract.files import read_yaml, yaml_place
from contract.schema import did_you_mean
from report import PACKAGE
from report.formatting import join_words, threshold_text
from report.outcomes import Verdict

if TYPE_CHECKING:
    from report.judging.claim_files import Claim

SCHEMA = json.loads((PACKAGE / "schemas" / "contradictions.schema.json").read_text(encoding="utf-8"))
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Contradiction:
    """Contradiction that the study declares.

    declared: the contradiction's entry in the file.
    sides: for each side, the claims that assert it, as pairs of claim id and part name ('' for the whole claim).
    figures: published figures for something that one side recommends, such as a GPU's memory size; the other side
    requires at least `least_value`.
    """

    declared: Record
    sides: tuple[tuple[tuple[str, str], ...], ...]
    figures: tuple[Record, ...] = ()

    @property
    def id(self) -> str:
        return str(self.declared["id"])

    @property
    def least_value(self) -> float:
        """Value that a published figure must reach to meet the other side's requirement."""
        return float(self.declared["figures"]["at_least"])


def read_contradictions(path: Path, claims: Iterable[Claim], reference: Mapping[str, Record]) -> list[Contradiction]:
    """Read the contradictions in `path`, in file order; return an empty list if the file is absent.

    claims: the claims that a contradiction may name. reference: published figures by id. Raises StudyError with file
    and line for a mistake, such as an unknown claim, a claim on two sides or a duplicate id.
    """
    if not path.exists():
        return []
    known, contradictions = {claim.id: claim for claim in claims}, list[Contradiction]()
    for at, raw in enumerate(read_yaml(path, SCHEMA) or []):
        sides = tuple(tuple(map(_parse_carrier, side["claims"])) for side in raw["sides"])
        entries = raw.get("figures", {}).get("entries", [])
        for steps, what in _find_faults(raw, sides, known, reference):
            raise StudyError(f"{yaml_place(path, at, *steps)}: {raw['id']}: {what}")
        if any(raw["id"] == other.id for other in contradictions):
            raise StudyError(f"{yaml_place(path, at, 'id')}: {raw['id']}: this id is used twice")
        contradictions.append(Contradiction(raw, sides, tuple(dict(reference[name]) for name in entries)))
    return contradictions


def _parse_carrier(raw: str | Mapping[str, str]) -> tuple[str, str]:
    """Parse a claim id and its part name; '' means the whole claim."""
    return (raw, "") if isinstance(raw, str) else (raw["claim"], raw["part"])


def _find_faults(
    raw: Record, sides: Sequence[Sequence[tuple[str, str]]], known: Mapping[str, Claim], reference: Mapping[str, Record]
) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """Yield each mistake in a declared contradiction: its location in the file, and a message."""
    claimed: set[str] = set()
    for side, carriers in enumerate(sides):
        for number, (claim, part) in enumerate(carriers):
            where = ("sides", side, "claims", number)
            if claim not in known:
                yield where, f"there is no claim {claim!r}.{did_you_mean(claim, list(known))}"
            parts = [part.name for part in known[claim].parts]
            if part and part not in parts:
                yield (*where, "part"), f"claim {claim} has no part {part!r}.{did_you_mean(part, parts)}"
            if claim in claimed:
                yield where, f"claim {claim} appears twice: give it to one side"
            claimed.add(claim)
    if raw["stands"] == "opposites" and len(sides) != 2:
        yield ("stands",), "`opposites` is for two sides: use `each`, or leave sides out"
    if raw["conflict"] == "wording":
        apart = rule_conflicts(
            [[rule for carrier in side for rule in _rule_records(*carrier, known)] for side in sides]
        )
        if apart:
            yield ("conflict",), f"more than wording: {apart[0]} Call it real or in part"
    entries = raw.get("figures", {}).get("entries", [])
    for number, entry in enumerate(entries):
        if entry not in reference:
            hint = did_you_mean(entry, list(reference))
            yield ("figures", "entries", number), f"there is no reference entry {entry!r}.{hint}"
    units = sorted({str(reference[entry]["unit"]) for entry in entries})
    if len(units) > 1:
        yield ("figures", "entries"), f"the figures have different units: {', '.join(units)}"


def _rule_records(claim: str, part: str, known: Mapping[str, Claim]) -> list[tuple[str, Record]]:
    """List a claim's parts, or only the part named `part`, as pairs of claim id and record.

    The records have only the fields that `rule_conflicts` needs.
    """
    keys = ("quantity", "scope", "rule", "scale")
    judged = [rule_part for rule_part in known[claim].parts if part in ("", rule_part.name)]
    records = [
        {key: getattr(rule_part, key) for key in keys} | {"threshold": rule_part.threshold.json, "unit": ""}
        for rule_part in judged
    ]
    return [(claim, rule_part) for rule_part in records]


def decide_contradictions(
    verdicts: Mapping[str, Record], contradictions: Sequence[Contradiction]
) -> list[dict[str, Any]]:
    """Record each contradiction for `verdicts.json`, with its sides' standings and its outcome.

    verdicts: the claims' records in `verdicts.json`, by claim id.
    """
    return [_contradiction_record(contradiction, verdicts) for contradiction in contradictions]


def _contradiction_record(contradiction: Contradiction, verdicts: Mapping[str, Record]) -> dict[str, Any]:
    declared = contradiction.declared
    carriers = [[_carrier_record(verdicts[claim], part) for claim, part in side] for side in contradiction.sides]
    own_standings = [side_standing([claim["verdict"] for claim in side]) for side in carriers]
    standings = settle_opposites(own_standings) if declared["stands"] == "opposites" else own_standings
    names = ascii_uppercase[: len(contradiction.sides)]
    return {
        **{key: declared[key] for key in ("id", "title", "question")},
        "conflict": _conflict_by_figures(contradiction) if contradiction.figures else declared["conflict"],
        "sides": [
            {"name": name, "says": side["says"], "standing": where, "claims": claims}
            for name, side, where, claims in zip(names, declared["sides"], standings, carriers, strict=True)
        ],
        "outcome": contradiction_outcome(standings),
    }


def _carrier_record(verdict: Record, part: str) -> dict[str, str]:
    """Record a claim or part that asserts a side, with its verdict or outcome.

    verdict: the claim's record in `verdicts.json`. part: the part's name; '' for the whole claim.
    """
    outcomes = [str(item["outcome"]) for item in verdict["parts"] if item["name"] == part]
    return {"id": str(verdict["id"]), "part": part, "verdict": outcomes[0] if part else str(verdict["verdict"])}


def side_standing(verdicts: Iterable[str]) -> str:
    """Derive a side's standing from the verdicts on its claims.

    Untestable claims are ignored, unless all claims are untestable: then the standing is 'opinion'. The standing is 'in
    part' if a verdict is DEPENDS, or if one claim is supported and another challenged, even if others await evidence.
    Otherwise it is 'open' if a claim awaits evidence, 'undecided' if a claim is undecided, 'holds' if all claims are
    supported, and 'fails' if not.
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


def settle_opposites(standings: Sequence[str]) -> list[str]:
    """Complete the standings for two sides that deny each other.

    If one side holds, the other fails, and vice versa. Only a standing that is open, undecided or an opinion is
    replaced.
    """
    by = {"holds": "fails", "fails": "holds"}
    left, right = standings
    free = ("open", "opinion", "undecided")
    return [by.get(right, left) if left in free else left, by.get(left, right) if right in free else right]


def contradiction_outcome(standings: Sequence[str]) -> str:
    """Derive a contradiction's outcome from its sides' standings.

    If a side is open, undecided or right in part, the outcome is that standing; if several occur, it is the first in
    this order. Otherwise the outcome tells how many sides hold. Opinions are ignored, unless all sides are opinions.
    """
    decided = [standing for standing in standings if standing != "opinion"]
    if not decided:
        return "opinion"
    for kind in ("open", "undecided", "in part"):
        if kind in decided:
            return kind
    n = decided.count("holds")
    if n == len(decided):
        return "all stand" if n > 1 else "one stands"
    return {0: "none stands", 1: "one stands"}.get(n, "some stand")


def _figure_suffices(contradiction: Contradiction, entry: Record) -> bool | None:
    """Return True if a published figure reaches `least_value`, False if not, and None if the figure is not verified."""
    return float(entry["value"]) >= contradiction.least_value if entry["status"] == "verified" else None


def _conflict_by_figures(contradiction: Contradiction) -> str:
    """Classify a conflict by its published figures.

    real: every figure is verified and falls short of the other side's requirement.
    in part: some figures fall short, and the others suffice or are not verified.
    wording: every figure is verified and suffices.
    awaiting source: no figure falls short, but some are not verified.
    """
    sufficient = [_figure_suffices(contradiction, entry) for entry in contradiction.figures]
    if False in sufficient:
        # An unverified figure (None) might still suffice, so the conflict is not `real` while there is such a figure.
        return "real" if set(sufficient) == {False} else "in part"
    return "awaiting source" if None in sufficient else "wording"


def rule_conflicts(sides: Sequence[Sequence[tuple[str, Record]]]) -> list[str]:
    """Describe each pair of rules, from different sides, that no measurement can satisfy together.

    sides: for each side, its rules as listed by `_rule_records`. Two rules are compared if they have the same quantity
    and their scopes overlap.
    """
    by_rules: dict[tuple[str, str], dict[str, None]] = {}
    for left, right in combinations(sides, 2):
        for (first, a), (second, b) in product(left, right):
            where = _shared_scope(a, b)
            if where is not None and _are_disjoint(accepted_range(a), accepted_range(b)):
                requirements = f"{first} asks for {_requirement_text(a)} and {second} for {_requirement_text(b)}"
                by_rules.setdefault((a["quantity"], requirements), {})[where] = None
    listed = {key: "; ".join(filter(None, wheres)) for key, wheres in by_rules.items()}
    return [
        f"Of {quantity}{f' ({where})' if where else ''}, {requirements}: no measurement satisfies both."
        for (quantity, requirements), where in listed.items()
    ]


def accepted_range(part: Record) -> tuple[float, float] | None:
    """Return the range in which a rule accepts estimates; None if the rule is not at_least, at_most or within.

    The range is divided by the part's scale, so it applies to estimates before scaling.
    """
    bound, scale = part["threshold"], float(part.get("scale") or 1)
    if part["rule"] == "at_least":
        return bound / scale, math.inf
    if part["rule"] == "at_most":
        return -math.inf, bound / scale
    return (bound[0] / scale, bound[1] / scale) if part["rule"] == "within" else None


def _are_disjoint(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
    return a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])


def _shared_scope(a: Record, b: Record) -> str | None:
    """Format the values that two scopes have in common, for each label in both.

    Returns None if the quantities differ or the scopes do not overlap.
    """
    if a["quantity"] != b["quantity"]:
        return None
    shared = []
    for label in (label for label in a["scope"] if label in b["scope"]):
        left, right = (
            {*value} if isinstance(value, list) else {value} for value in (a["scope"][label], b["scope"][label])
        )
        if not left & right:
            return None
        shared.append(f"{label} {join_words(sorted(map(str, left & right)), 'or')}")
    return ", ".join(shared)


def _requirement_text(part: Record) -> str:
    how = {"at_least": "at least ", "at_most": "at most ", "within": ""}[part["rule"]]
    scale = float(part.get("scale") or 1)
    scaled = f" after scaling by {scale:g}" if scale != 1 else ""
    return f"{how}{threshold_text(part['threshold'], part['unit'])}{scaled}"
