"""Contradictions: the declared ones against the claims, mistakes in the file, and which side stands when."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report.judging.rule_conflicts import rule_conflicts
from report.judging.side_outcome import OUTCOMES, STANDINGS, opposed, outcome, standing
from ruamel.yaml import YAML

from contract.errors import StudyError
from contract.files import read_yaml
from report.data.reference import read_reference
from report.judging.claims import Claim, read_claims
from report.judging.contradictions import SCHEMA, Contradiction, contradicting, decide, read_contradictions

from .test_claim_files import copied

ROOT = Path(__file__).resolve().parents[2]
DECLARED = ROOT / "report" / "contradictions.yaml"

# ------------------------------------------------------------------ the declared ones


@pytest.fixture(scope="module")
def reference() -> dict[str, dict[str, Any]]:
    return read_reference(ROOT / "data" / "reference")


@pytest.fixture(scope="module")
def claims(reference: dict[str, dict[str, Any]]) -> list[Claim]:
    return read_claims(ROOT / "report" / "claims", reference)


@pytest.fixture(scope="module")
def declared(claims: list[Claim], reference: dict[str, dict[str, Any]]) -> list[Contradiction]:
    return read_contradictions(DECLARED, claims, reference)


def opposing(declared: list[Contradiction]) -> set[frozenset[str]]:
    """Every pair of claims that stand on different sides."""
    return {
        frozenset((one, other))
        for contradiction in declared
        for side in contradiction.sides
        for against in contradiction.sides
        if side is not against
        for one, _ in side.claims
        for other, _ in against.claims
    }


@pytest.mark.parametrize(
    ("one", "others"),
    [
        ("G11", ["W06"]),
        ("G25", ["W29", "W30", "W31", "W33"]),
        ("G31", ["W29", "W30", "W31", "W33"]),
        ("G03", ["W08"]),
        ("G17", ["G20"]),
        ("N15", ["N18"]),
        ("N11", ["N13", "N18", "N12", "G09", "W02"]),
        ("N03", ["W15", "W17"]),
    ],
)
def test_the_known_contradictions_are_declared(declared: list[Contradiction], one: str, others: list[str]) -> None:
    assert {frozenset((one, other)) for other in others} <= opposing(declared)


def test_what_a_claims_note_calls_a_contradiction_is_declared(
    declared: list[Contradiction], claims: list[Claim]
) -> None:
    pairs, seen = opposing(declared), 0
    for claim in claims:
        for named in re.findall(r"Contradicts ([^.]*?[GNW]\d\d)\b[^.]*\.", claim.note or ""):
            for other in re.findall(r"[GNW]\d\d", named):
                seen += 1
                assert frozenset((claim.id, other)) in pairs, (claim.id, other)
    assert seen >= 4


def test_rules_of_one_quantity_that_exclude_each_other_are_declared_or_known(
    declared: list[Contradiction], claims: list[Claim]
) -> None:
    """No two claims whose rules cannot both hold are left out of the section."""
    keys = ("quantity", "scope", "rule", "threshold", "scale")
    rules = [
        [(claim.id, {key: getattr(part, key) for key in keys} | {"unit": ""}) for part in claim.parts]
        for claim in claims
    ]
    pairs, seen = opposing(declared), 0
    for place, one in enumerate(rules):
        for other in rules[place + 1 :]:
            if rule_conflicts([one, other]):
                seen += 1
                assert frozenset((one[0][0], other[0][0])) in pairs
    assert seen >= 2


def test_no_sentence_is_copied_from_the_articles() -> None:
    assert copied(read_yaml(DECLARED, SCHEMA)) == []


def test_texts_are_sentences(declared: list[Contradiction]) -> None:
    for one in declared:
        assert one.question.endswith("?")
        for text in (one.why, one.boundary, *(side.says for side in one.sides)):
            assert text.endswith("."), text


# ------------------------------------------------------------------ mistakes


ONE = {
    "id": "speed",
    "title": "Speed",
    "question": "How fast?",
    "conflict": "real",
    "why": "Both cannot be.",
    "sides": [{"says": "Fast.", "claims": ["N12"]}, {"says": "Slow.", "claims": ["N11"]}],
    "stands": "each",
    "boundary": "The base.",
}


def faulty(tmp_path: Path, claims: list[Claim], reference: dict[str, Any], *given: dict[str, Any]) -> str:
    path = tmp_path / "contradictions.yaml"
    with path.open("w") as file:
        YAML().dump(list(given), file)
    with pytest.raises(StudyError) as fault:
        read_contradictions(path, claims, reference)
    text = str(fault.value)
    assert text.startswith(f"{path}, line ")
    line = int(re.search(r"line (\d+)", text)[1])
    return f"{path.read_text().splitlines()[line - 1].strip()} | {text}"


def sides(*ids: list[Any]) -> list[dict[str, Any]]:
    return [{"says": "So.", "claims": claims} for claims in ids]


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        ({"sides": sides(["N12"], ["N99"])}, "- N99", "there is no claim 'N99'."),
        ({"sides": sides(["N12"], ["W66"])}, "- W66", "there is no claim 'W66'. Did you mean 'W"),
        ({"sides": sides(["N12", "N11"], ["N11"])}, "- N11", "claim N11 stands twice"),
        (
            {"sides": sides(["N11"], [{"claim": "G03", "part": "numbers of cores"}])},
            "part: numbers of cores",
            "claim G03 has no part 'numbers of cores'. Did you mean 'number of cores'?",
        ),
        ({"sides": sides(["N11"], ["N12"], ["G09"]), "stands": "opposites"}, "stands: opposites", "for two sides"),
        ({"stands": "eech"}, "stands: eech", "Did you mean 'each'?"),
        ({"conflict": "by figures"}, "- id: speed", "missing: figures"),
        ({"conflict": "wording"}, "conflict: wording", "N12 asks for at least 100 and N11 for 10 to 60"),
        ({"turns_on": "?"}, "turns_on:", "unknown key"),
        ({"sides": sides(["N12"])}, "sides:", "too short"),
        (
            {"conflict": "by figures", "figures": {"entries": ["h200.memory_byte"], "at_least": 1, "why": "?"}},
            "- h200.memory_byte",
            "there is no reference entry 'h200.memory_byte'. Did you mean 'h200.memory_byte",
        ),
        (
            {
                "conflict": "by figures",
                "figures": {"entries": ["h100-sxm.sms", "b200.memory_bytes"], "at_least": 1, "why": "?"},
            },
            "entries:",
            "different units: 1, B",
        ),
    ],
)
def test_a_mistake_is_reported_where_it_stands(
    tmp_path: Path,
    claims: list[Claim],
    reference: dict[str, Any],
    change: dict[str, Any],
    line: str,
    says: str,
) -> None:
    fault = faulty(tmp_path, claims, reference, {**ONE, "id": "other"}, {**ONE, **change})
    assert fault.startswith(line)
    assert says in fault


def test_an_id_that_is_used_twice_is_refused_at_its_second_place(
    tmp_path: Path, claims: list[Claim], reference: dict[str, Any]
) -> None:
    fault = faulty(tmp_path, claims, reference, ONE, {**ONE, "id": "other"}, {**ONE})
    second = [
        n for n, text in enumerate((tmp_path / "contradictions.yaml").read_text().splitlines(), 1) if "speed" in text
    ]
    assert f", line {second[1]}: speed: this id is used twice" in fault


def test_a_folder_of_claims_without_contradictions_has_none(tmp_path: Path) -> None:
    assert read_contradictions(tmp_path / "contradictions.yaml", [], {}) == []


# ------------------------------------------------------------------ standing


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["supported"], "holds"),
        (["supported", "supported", "not testable"], "holds"),
        (["challenged"], "fails"),
        (["challenged", "challenged"], "fails"),
        (["supported", "challenged"], "in part"),
        (["depends"], "in part"),
        # What is awaited cannot make a side whole again.
        (["depends", "awaiting hardware"], "in part"),
        (["supported", "challenged", "awaiting source"], "in part"),
        (["supported", "awaiting hardware"], "open"),
        (["challenged", "awaiting experiment"], "open"),
        (["supported", "undecided"], "undecided"),
        (["undecided", "awaiting source"], "open"),
        (["not testable"], "opinion"),
    ],
)
def test_where_a_side_stands(verdicts: list[str], expected: str) -> None:
    assert standing(verdicts) == standing(verdicts[::-1]) == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (["opinion", "fails"], ["holds", "fails"]),
        (["holds", "open"], ["holds", "fails"]),
        (["undecided", "fails"], ["holds", "fails"]),
        (["fails", "fails"], ["fails", "fails"]),
        (["holds", "holds"], ["holds", "holds"]),
        (["opinion", "in part"], ["opinion", "in part"]),
        (["open", "opinion"], ["open", "opinion"]),
    ],
)
def test_opposites_decide_for_each_other(own: list[str], expected: list[str]) -> None:
    assert opposed(own) == expected
    assert opposed(own[::-1]) == expected[::-1]


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        (["holds", "fails"], "one stands"),
        (["holds", "opinion"], "one stands"),
        (["holds", "fails", "holds"], "some stand"),
        (["holds", "holds"], "all stand"),
        (["fails", "fails"], "none stands"),
        (["in part", "fails"], "in part"),
        (["undecided", "holds"], "undecided"),
        (["open", "undecided", "fails"], "open"),
        (["opinion", "opinion"], "opinion"),
    ],
)
def test_what_becomes_of_a_contradiction(standings: list[str], expected: str) -> None:
    assert outcome(standings) == expected
    assert expected in OUTCOMES and set(standings) <= set(STANDINGS)


# ------------------------------------------------------------------ decided


def record(claim: str, verdict: str, **more: Any) -> dict[str, Any]:
    """A verdict as the engine writes it, as far as contradictions look at it."""
    part = {
        "name": "",
        "quantity": "training.speedup",
        "unit": "1",
        "rule": "at_least",
        "threshold": 10,
        "scale": 1.0,
        "scope": {},
        "outcome": verdict,
        "reason": f"The cells of {claim} say so.",
        "boundary": "from batch 64 on" if verdict == "depends" else None,
    }
    parts = [{**part, **one} for one in more.pop("parts", [{}])]
    waits = verdict.startswith("awaiting")
    return {
        "id": claim,
        "article_title": {"N": "First", "G": "Second", "W": "Third"}[claim[0]],
        "verdict": verdict,
        "reason": f"{verdict}: no node with a GPU. Judged already. More" if waits else parts[0]["reason"],
        "boundary": parts[0]["boundary"],
        "evidence_tier": "none" if waits else "measured",
        "parts": parts,
        **more,
    }


@pytest.fixture
def decided(tmp_path: Path, claims: list[Claim], reference: dict[str, Any]) -> Any:
    """Decides one contradiction, declared with changes, on the given records."""

    def of(*records: dict[str, Any], **change: Any) -> dict[str, Any]:
        path = tmp_path / "contradictions.yaml"
        with path.open("w") as file:
            YAML().dump([{**ONE, **change}], file)
        (one,) = decide({one["id"]: one for one in records}, read_contradictions(path, claims, reference))
        json.dumps(one, allow_nan=False)
        return one

    return of


def test_the_side_whose_claim_is_supported_stands(decided: Any) -> None:
    one = decided(record("N12", "challenged"), record("N11", "supported"))
    assert [side["standing"] for side in one["sides"]] == ["fails", "holds"]
    assert one["outcome"] == "one stands"
    assert one["sentence"] == (
        "Side B stands and side A does not stand. A: N12 is challenged (measured). B: N11 is supported (measured)."
    )
    assert one["answer"] == "Side B stands and side A does not stand"
    assert one["sides"][1]["claims"][0]["evidence"] == "The cells of N11 say so."
    # Another verdict, another answer.
    turned = decided(record("N12", "supported"), record("N11", "challenged"))
    assert turned["sentence"].startswith("Side A stands and side B does not stand.")


def test_what_is_still_missing_is_said(decided: Any) -> None:
    one = decided(record("N12", "awaiting hardware"), record("N11", "depends"))
    assert one["outcome"] == "open"
    assert one["sentence"] == (
        "Side B stands in part and side A is still open. A: N12 awaits hardware. B: N11 holds in part (measured)."
    )
    assert [side["claims"][0]["evidence"] for side in one["sides"]] == ["no node with a GPU", "from batch 64 on"]


def test_only_the_part_that_is_named_carries_a_side(decided: Any) -> None:
    parts = [{"name": "number of cores", "outcome": "challenged"}, {"name": "training", "outcome": "supported"}]
    whole = record("G03", "depends", parts=parts)
    named = sides([{"claim": "G03", "part": "number of cores"}], ["W08"])
    one = decided(whole, record("W08", "supported"), sides=named)
    assert [side["standing"] for side in one["sides"]] == ["fails", "holds"]
    assert "A: G03 (number of cores) is challenged (measured)." in one["sentence"]
    assert decided(whole, record("W08", "supported"), sides=sides(["G03"], ["W08"]))["outcome"] == "in part"


def test_what_refutes_one_of_two_opposites_carries_the_other(decided: Any) -> None:
    opinion = {"reason": "An opinion. What bears on it: N10", "parts": [], "evidence_tier": "none"}
    records = [record("N15", "not testable") | opinion, record("N18", "challenged")]
    given = {"sides": sides(["N15"], ["N18"])}
    one = decided(*records, **given, stands="opposites")
    assert [side["standing"] for side in one["sides"]] == ["holds", "fails"]
    assert "A: N15 is an opinion. What refutes the other side carries this one." in one["sentence"]
    assert one["sides"][0]["claims"][0]["evidence"] == "An opinion."
    alone = decided(*records, **given)
    assert [side["standing"] for side in alone["sides"]] == ["opinion", "fails"]
    assert alone["outcome"] == "none stands"


def test_articles_are_told_apart_from_one_article_with_itself(decided: Any) -> None:
    inner = decided(record("N12", "supported"), record("N11", "supported"))
    assert (inner["articles"], inner["inside"]) == (["First"], ["First"])
    both = decided(record("N12", "supported"), record("W02", "supported"), sides=sides(["N12"], ["W02"]))
    assert (both["articles"], both["inside"]) == (["First", "Third"], [])


def test_a_real_conflict_in_which_all_stand_is_owned_up_to(decided: Any) -> None:
    given = record("N12", "supported"), record("N11", "supported")
    assert "they do not collide" in decided(*given)["sentence"]
    assert "they do not collide" not in decided(*given, conflict="in part")["sentence"]


def card(name: str, value: float | None, status: str = "verified") -> dict[str, Any]:
    source = {"title": "Datasheet", "publisher": "Maker", "url": "https://example.org", "where": "page 1"}
    about = {"id": name, "subject": name, "what": "Memory", "unit": "B", "date": "2020", "status": status}
    return {**about, "value": value, "source": source}


@pytest.mark.parametrize(
    ("cards", "conflict", "counted"),
    [
        ([card("a", 12e9), card("b", 8e9)], "real", "Of 2 published figures held against 16 GB, 2 fall short."),
        ([card("a", 12e9), card("b", 16e9)], "in part", "1 fall short and 1 are enough."),
        ([card("a", 12e9), card("b", 24e9, "not verified")], "in part", "1 fall short and 1 could not be verified."),
        ([card("a", 16e9)], "wording", "1 are enough."),
        ([card("a", None, "not verified")], "awaiting source", "1 could not be verified."),
    ],
)
def test_published_figures_decide_whether_the_conflict_is_real(
    tmp_path: Path, claims: list[Claim], cards: list[dict[str, Any]], conflict: str, counted: str
) -> None:
    path = tmp_path / "contradictions.yaml"
    figures = {"entries": [one["id"] for one in cards], "at_least": 16e9, "why": "Asked for."}
    with path.open("w") as file:
        YAML().dump([{**ONE, "conflict": "by figures", "figures": figures}], file)
    declared = read_contradictions(path, claims, {one["id"]: one for one in cards})
    (one,) = decide({name: record(name, "supported") for name in ("N12", "N11")}, declared)
    assert one["conflict"] == conflict
    assert counted in one["sentence"]
    assert [entry["source"]["url"] for entry in one["figures"]["entries"]] == ["https://example.org"] * len(cards)


def test_a_claims_contradictions_are_listed_for_it(decided: Any) -> None:
    document = {"contradictions": [decided(record("N12", "challenged"), record("N11", "supported"))]}
    (line,) = contradicting(document, "N12")
    assert line.startswith("N11 (Speed; this claim is on side A): Side B stands and side A does not stand.")
    assert contradicting(document, "W02") == []
    assert contradicting({}, "N12") == []


# ------------------------------------------------------------------ rules that exclude each other


def rule(how: str, threshold: Any, quantity: str = "q.rate", scale: float = 1.0, **scope: Any) -> dict[str, Any]:
    return {"quantity": quantity, "unit": "1", "rule": how, "threshold": threshold, "scale": scale, "scope": scope}


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (rule("at_most", 0.3), rule("at_least", 0.5), True),
        (rule("at_most", 0.5), rule("at_least", 0.5), False),
        (rule("at_most", 64), rule("at_most", 128), False),
        (rule("within", [10, 60]), rule("at_least", 100), True),
        (rule("within", [10, 100]), rule("within", [20, 100]), False),
        (rule("at_most", 0.3, quantity="q.share"), rule("at_least", 0.5), False),
        (rule("at_most", 0.3, phase="training"), rule("at_least", 0.5, phase="decode"), False),
        (rule("at_most", 0.3, phase=["training", "decode"]), rule("at_least", 0.5, phase="decode"), True),
        (rule("at_most", 0.3, phase="training"), rule("at_least", 0.5, device="gpu"), True),
        # 1,000 for 128 cores is less than 8 for each.
        (rule("at_most", 1000, scale=128), rule("at_least", 8), True),
        (rule("at_most", 1000), rule("at_least", 8), False),
        (rule("crossover", 0), rule("at_least", 8), False),
    ],
)
def test_rules_that_no_measurement_satisfies_together(a: dict[str, Any], b: dict[str, Any], apart: bool) -> None:
    assert bool(rule_conflicts([[("N01", a)], [("N02", b)]])) is apart
    assert bool(rule_conflicts([[("N02", b)], [("N01", a)]])) is apart


def test_what_excludes_what_is_said_with_scopes_and_thresholds() -> None:
    ours = [("N01", rule("at_most", 0.3, phase=phase)) for phase in ("training", "decode")]
    theirs = [("N02", rule("at_least", 0.5, phase=phase)) for phase in ("training", "prefill", "decode")]
    assert rule_conflicts([ours, theirs]) == [
        "Of q.rate (phase training; phase decode), N01 asks for at most 0.3 and N02 for at least 0.5: "
        "no measurement satisfies both."
    ]
