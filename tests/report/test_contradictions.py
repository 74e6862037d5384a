"""Contradictions between claims: the declared file, errors in it, the standing of each side, and the outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import read_yaml
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.claim_files import Claim, read_claims
from report.judging.contradictions import (
    contradiction_outcome,
    decide_contradictions,
    read_contradictions,
    rule_conflicts,
    settle_opposites,
    side_standing,
)
from report.judging.judge import CLAIMS

from .claim_mistakes import reported_line, write_yaml
from .test_claim_files import copied_runs
from .test_claims import make_entry

DECLARED = CLAIMS.parent / "contradictions.yaml"


@pytest.fixture(scope="module")
def reference() -> dict[str, dict[str, Any]]:
    return read_reference(REFERENCE)


@pytest.fixture(scope="module")
def claims(reference: dict[str, dict[str, Any]]) -> list[Claim]:
    return read_claims(CLAIMS, reference)


def test_noted_and_implied_contradictions_are_declared(claims: list[Claim], reference: dict[str, Any]) -> None:
    """The declared file has every contradiction that a claim's note mentions, or that two rules imply."""
    contradictions = read_contradictions(DECLARED, claims, reference)
    side_pairs = [pair for contradiction in contradictions for pair in combinations(contradiction.sides, 2)]
    declared_pairs = {frozenset((a, b)) for pair in side_pairs for (a, _), (b, _) in product(*pair)}
    notes = [
        (claim.id, mention)
        for claim in claims
        for mention in re.findall(r"Contradicts ([^.]*?[GNW]\d\d)\b[^.]*\.", claim.note or "")
    ]
    noted_pairs = {frozenset((name, claim)) for name, mention in notes for claim in re.findall(r"[GNW]\d\d", mention)}
    keys = ("quantity", "scope", "rule", "scale")
    rules = {
        claim.id: [
            (claim.id, {**{key: getattr(part, key) for key in keys}, "threshold": part.threshold.json, "unit": ""})
            for part in claim.parts
        ]
        for claim in claims
    }
    conflicting = {frozenset(pair) for pair in combinations(rules, 2) if rule_conflicts([rules[name] for name in pair])}
    assert noted_pairs and conflicting and noted_pairs | conflicting <= declared_pairs
    assert copied_runs(read_yaml(DECLARED)) == [], "no sentence is copied from the articles"


ONE: dict[str, Any] = {
    "id": "speed", "title": "Speed", "question": "How fast?", "conflict": "real", "why": "Both cannot be.",
    "sides": [{"says": "Fast.", "claims": ["N12"]}, {"says": "Slow.", "claims": ["N11"]}], "stands": "each",
    "boundary": "The base.",
}  # fmt: skip


def read_declared(folder: Path, claims: list[Claim], reference: dict[str, Any], *contradictions: dict[str, Any]) -> Any:
    return read_contradictions(write_yaml(folder / "contradictions.yaml", list(contradictions)), claims, reference)


def sides(*ids: list[Any]) -> list[dict[str, Any]]:
    return [{"says": "So.", "claims": claims} for claims in ids]


def figures(*entries: str, at_least: float = 1) -> dict[str, Any]:
    return {"conflict": "by figures", "figures": {"entries": list(entries), "at_least": at_least, "why": "?"}}


PART = {"claim": "G03", "part": "numbers of cores"}


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        ({"sides": sides(["N12"], ["W66"])}, "- W66", "there is no claim 'W66'. Did you mean 'W"),
        ({"sides": sides(["N12", "N11"], ["N11"])}, "- N11", "claim N11 appears twice"),
        ({"sides": sides(["N11"], [PART])}, "part: numbers of", "G03 has no part 'numbers of cores'. Did you mean"),
        ({"sides": sides(["N11"], ["N12"], ["G09"]), "stands": "opposites"}, "stands: opposites", "for two sides"),
        ({"stands": "eech"}, "stands: eech", "Did you mean 'each'?"),
        ({"id": "other"}, "id: other", "other: this id is used twice"),
        ({"conflict": "by figures"}, "- id: speed", "missing: figures"),
        (
            {"conflict": "wording", "sides": sides(["G11"], ["W06"])},
            "conflict: wording",
            "G11 asks for at most 0.3 and W06 for",
        ),
        (figures("h200.memory_byte"), "- h200.memory_byte", "there is no reference entry 'h200.memory_byte'. Did"),
        (figures("h100-sxm.sms", "b200.memory_bytes"), "entries:", "different units: 1, B"),
    ],
)
def test_contradiction_file_errors_report_their_line(
    tmp_path: Path, claims: list[Claim], reference: dict[str, Any], change: dict[str, Any], line: str, message: str
) -> None:
    with pytest.raises(StudyError) as caught:
        read_declared(tmp_path, claims, reference, {**ONE, "id": "other"}, {**ONE, **change})
    assert line in reported_line(caught.value, tmp_path / "contradictions.yaml") and message in str(caught.value)


@pytest.mark.parametrize(
    ("expected", "sides"),
    [
        ("holds", ["supported", "supported, supported, not testable"]),
        ("fails", ["challenged", "challenged, challenged"]),
        # A side that is already right only in part keeps this standing, whatever the awaited evidence will show.
        ("in part", ["supported, challenged", "depends", "depends, awaiting hardware",
                     "supported, challenged, awaiting source"]),
        ("open", ["supported, awaiting hardware", "challenged, awaiting experiment", "undecided, awaiting source"]),
        ("undecided", ["supported, undecided"]),
        ("opinion", ["not testable"]),
    ],
)  # fmt: skip
def test_side_standing_from_verdicts(expected: str, sides: list[str]) -> None:
    for verdicts in sides:
        outcomes = verdicts.split(", ")
        assert side_standing(outcomes) == side_standing(outcomes[::-1]) == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [("opinion, fails", "holds, fails"), ("holds, open", "holds, fails"), ("undecided, fails", "holds, fails"),
     *((same, same) for same in ("fails, fails", "holds, holds", "opinion, in part", "open, opinion"))],
)  # fmt: skip
def test_opposite_sides_settle_each_other(own: str, expected: str) -> None:
    for turn in (1, -1):
        assert settle_opposites(own.split(", ")[::turn]) == expected.split(", ")[::turn]


@pytest.mark.parametrize(
    ("standings", "expected"),
    [("holds, fails", "one stands"), ("holds, opinion", "one stands"), ("holds, fails, holds", "some stand"),
     ("holds, holds", "all stand"), ("fails, fails", "none stands"), ("in part, fails", "in part"),
     ("undecided, holds", "undecided"), ("open, undecided, fails", "open"), ("opinion, opinion", "opinion")],
)  # fmt: skip
def test_contradiction_outcome_from_standings(standings: str, expected: str) -> None:
    assert contradiction_outcome(standings.split(", ")) == expected


def record(claim: str, verdict: str, parts: Sequence[dict[str, str]] = ()) -> dict[str, Any]:
    """Build a verdict with the keys that are read to decide contradictions."""
    return {"id": claim, "verdict": verdict, "parts": parts or [{"name": "", "outcome": verdict}]}


@pytest.fixture
def decide(tmp_path: Path, claims: list[Claim], reference: dict[str, Any]) -> Any:
    """Function that decides the contradiction ONE for given verdicts. Keyword arguments replace keys in ONE."""

    def decide_one(*records: dict[str, Any], **change: Any) -> dict[str, Any]:
        contradictions = read_declared(tmp_path, claims, reference, {**ONE, **change})
        (result,) = decide_contradictions({verdict["id"]: verdict for verdict in records}, contradictions)
        json.dumps(result, allow_nan=False)
        return result

    return decide_one


def test_side_with_a_supported_claim_stands(decide: Any) -> None:
    result = decide(record("N12", "challenged"), record("N11", "supported"))
    assert [side["standing"] for side in result["sides"]] == ["fails", "holds"] and result["outcome"] == "one stands"
    assert result["sides"][1]["claims"] == [{"id": "N11", "part": "", "verdict": "supported"}]


def test_side_rests_only_on_its_named_part(decide: Any) -> None:
    parts = [{"name": "number of cores", "outcome": "challenged"}, {"name": "training", "outcome": "supported"}]
    claim_record = record("G03", "depends", parts=parts)
    named_sides = sides([{"claim": "G03", "part": "number of cores"}], ["W08"])
    result = decide(claim_record, record("W08", "supported"), sides=named_sides)
    assert [side["standing"] for side in result["sides"]] == ["fails", "holds"]
    assert result["sides"][0]["claims"] == [{"id": "G03", "part": "number of cores", "verdict": "challenged"}]
    assert decide(claim_record, record("W08", "supported"), sides=sides(["G03"], ["W08"]))["outcome"] == "in part"


@pytest.mark.parametrize(
    ("cards", "conflict"),
    [
        ({"a": 12e9, "b": 8e9}, "real"),
        ({"a": 12e9, "b": 16e9}, "in part"),
        ({"a": 12e9, "b": None}, "in part"),
        ({"a": 16e9}, "wording"),
        ({"a": None}, "awaiting source"),
    ],
)
def test_published_figures_decide_if_the_conflict_is_real(
    tmp_path: Path, claims: list[Claim], cards: dict[str, float | None], conflict: str
) -> None:
    entries = {name: make_entry(name, value, "B") for name, value in cards.items()}
    contradictions = read_declared(tmp_path, claims, entries, {**ONE, **figures(*cards, at_least=16e9)})
    (result,) = decide_contradictions({name: record(name, "supported") for name in ("N12", "N11")}, contradictions)
    assert result["conflict"] == conflict


# The tests below are on rules that exclude each other.


def rule(how: str, threshold: Any, quantity: str = "q.rate", scale: float = 1.0, **scope: Any) -> dict[str, Any]:
    return {"quantity": quantity, "unit": "1", "rule": how, "threshold": threshold, "scale": scale, "scope": scope}


LEAST = rule("at_least", 0.5)


@pytest.mark.parametrize(
    ("a", "b", "conflict"),
    [
        (rule("at_most", 0.3), LEAST, True),
        (rule("at_most", 0.5), LEAST, False),
        (rule("at_most", 64), rule("at_most", 128), False),
        (rule("within", [10, 60]), rule("at_least", 100), True),
        (rule("within", [10, 100]), rule("within", [20, 100]), False),
        (rule("at_most", 0.3, quantity="q.share"), LEAST, False),
        (rule("at_most", 0.3, phase="training"), rule("at_least", 0.5, phase="decode"), False),
        (rule("at_most", 0.3, phase=["training", "decode"]), rule("at_least", 0.5, phase="decode"), True),
        (rule("at_most", 0.3, phase="training"), rule("at_least", 0.5, device="gpu"), True),
        # At most 1,000 on 128 cores means less than 8 per core, so the rule "at least 8 per core" cannot hold too.
        (rule("at_most", 1000, scale=128), rule("at_least", 8), True),
        (rule("at_most", 1000), rule("at_least", 8), False),
        (rule("crossover", 0), rule("at_least", 8), False),
    ],
)
def test_rule_conflicts_finds_rules_that_exclude_each_other(
    a: dict[str, Any], b: dict[str, Any], conflict: bool
) -> None:
    assert bool(rule_conflicts([[("N01", a)], [("N02", b)]])) is conflict
    assert bool(rule_conflicts([[("N02", b)], [("N01", a)]])) is conflict
