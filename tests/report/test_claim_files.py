"""The claim files and the reference entries that they lean on: complete, declared with reasons, in our own words."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contract.files import read_json, read_yaml

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = sorted((ROOT / "report" / "claims").glob("*.yaml"))
REFERENCES = sorted((ROOT / "data" / "reference").glob("*.yaml"))
# Truncated SHA-256 of every run of six words in the three articles: enough to notice a copied
# sentence without shipping what is not ours to ship.
SHINGLES = frozenset((Path(__file__).parent / "article_shingles.txt").read_text().split())
RUN = 6
ARTICLES = {"N": "nuface", "G": "gpuserver", "W": "whygpu"}
# Planned experiments that a claim may wait for.
EXPERIMENTS = {
    "convergence",
    "equivalence",
    "inference",
    "ladder",
    "libraries",
    "numerics",
    "offload",
    "orchestration",
    "parallelism",
    "roofline",
    "scaling",
    "sequential",
    "serving",
    "several-devices",
    "sustained",
    "tabular",
    "time-to-train",
    "without-cuda",
}
NUMERIC_RULES = frozenset({"at_least", "at_most", "ratio", "trend", "crossover", "for_share_of"})


@cache
def claim(path: Path) -> dict[str, Any]:
    return dict(read_yaml(path, read_json(ROOT / "report" / "schemas" / "claim.schema.json")))


def parts(of: dict[str, Any]) -> list[dict[str, Any]]:
    if of["kind"] == "judgement":
        return []
    return list(of.get("all_of", [of]))


@cache
def entries() -> dict[str, dict[str, Any]]:
    schema = read_json(ROOT / "report" / "schemas" / "reference.schema.json")
    listed = [entry for path in REFERENCES for entry in read_yaml(path, schema)]
    assert len({entry["id"] for entry in listed}) == len(listed), "an id is used twice"
    return {entry["id"]: entry for entry in listed}


def texts(node: Any) -> Iterator[str]:
    """Every string below `node`, but for section headings, which are names."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            if key != "section":
                yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)


def shingles(text: str) -> dict[str, str]:
    """Hash -> run of six words, lower case, without punctuation."""
    words = re.findall(r"[a-z0-9]+", unicodedata.normalize("NFKC", text).lower())
    runs = (" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
    return {hashlib.sha256(run.encode()).hexdigest()[:12]: run for run in runs}


def copied(node: Any) -> list[str]:
    return [run for text in texts(node) for key, run in shingles(text).items() if key in SHINGLES]


@pytest.fixture(params=CLAIMS, ids=lambda path: path.stem)
def one(request: pytest.FixtureRequest) -> dict[str, Any]:
    return claim(request.param)


def test_every_claim_of_the_articles_has_one_file() -> None:
    """More may be found in an article: their numbers go on from those."""
    for series, least in {"N": 18, "G": 32, "W": 38}.items():
        numbers = sorted(int(path.stem[1:]) for path in CLAIMS if path.stem.startswith(series))
        assert len(numbers) >= least and numbers == list(range(1, len(numbers) + 1))
    assert {path.stem[0] for path in CLAIMS} == set(ARTICLES)


def test_file_is_named_after_its_claim_and_article(one: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert one["id"] in request.node.name
    assert one["article"] == ARTICLES[one["id"][0]]


def test_paraphrase_and_note_say_something(one: dict[str, Any]) -> None:
    assert len(one["says"].split()) >= 6
    assert len(one["note"].split()) >= 8
    assert one["says"].endswith(".")


def test_threshold_has_a_reason(one: dict[str, Any]) -> None:
    for part in parts(one):
        assert len(part["threshold"]["why"].split()) >= 5, part.get("name")


def test_sensitivity_spans_the_threshold(one: dict[str, Any]) -> None:
    for part in parts(one):
        value, tried = part["threshold"]["value"], part.get("sensitivity", [])
        if part["rule"] in NUMERIC_RULES:
            assert value in tried and min(tried) < value < max(tried), part.get("name")
        elif part["rule"] == "within":
            low, high = value
            assert low <= high and value in tried
            assert all(a <= b for a, b in tried)
            assert any(a < low or b > high for a, b in tried), "no wider reading is tried"
            assert low == high or any(a > low or b < high for a, b in tried), "no narrower reading is tried"


def test_options_fit_the_rule(one: dict[str, Any]) -> None:
    needs = {"ratio": {"over", "of", "to"}, "trend": {"along"}, "for_share_of": {"share"}}
    needs["crossover"] = needs["ratio"] | {"along"}
    for part in parts(one):
        assert needs.get(part["rule"], set()) <= set(part.get("options", {})), part.get("name")


def test_a_quantity_that_is_lacking_says_what_is_lacking(one: dict[str, Any]) -> None:
    for part in parts(one):
        if "awaits" in part:
            awaited = part["awaits"]
            assert ("experiment" in awaited) != ("source" in awaited)
            assert awaited.get("experiment", "ladder") in EXPERIMENTS
            assert len(awaited["why"].split()) >= 6


def test_links_lead_to_other_claims(one: dict[str, Any]) -> None:
    known = {path.stem for path in CLAIMS} - {one["id"]}
    linked = [*one.get("see_also", []), *one.get("bears_on", [])]
    assert set(linked) <= known
    assert one.get("same_as", "N01" if one["id"] != "N01" else "G01") in known
    assert linked, "name another claim under see_also or bears_on"


def test_a_change_of_a_rule_is_declared(one: dict[str, Any]) -> None:
    assert [change["version"] for change in one.get("changes", [])] == list(range(2, one["version"] + 1))


def test_no_sentence_is_copied_from_the_articles(one: dict[str, Any]) -> None:
    assert copied(one) == []


def test_a_copied_sentence_would_be_noticed() -> None:
    """The hashes are those of the articles: the title of one, which we may cite, is found."""
    title = "Why AI Models Require GPUs for Faster and Efficient Training"
    assert copied({"says": f"It is called: {title}."}) != []
    assert copied({"section": title}) == []


def test_reference_entries_validate_and_are_unique() -> None:
    assert len(entries()) > 30


def test_evidence_is_verified(one: dict[str, Any]) -> None:
    known = entries()
    # A source that could not be read is listed as such; what a rule compares must have been.
    for name in one.get("sources", []):
        assert name in known
    for part in parts(one):
        if part["quantity"] == "reference.value":
            for name in part["scope"]["entry"]:
                # An awaited source whose figure is verified should be used, not awaited.
                assert known[name]["status"] == ("not verified" if "awaits" in part else "verified"), name


@pytest.mark.parametrize("name", sorted(name for name, entry in entries().items() if entry["status"] == "verified"))
def test_verified_entry_has_a_complete_source(name: str) -> None:
    entry = entries()[name]
    source = entry["source"]
    assert entry["value"] is not None
    assert str(entry["date"]).strip()
    assert all(source[key].strip() for key in ("title", "publisher", "url", "where"))
    assert "not read" not in source["where"].lower()
    # How the figure was seen is part of the evidence.
    assert re.search(r"\b(read|counted|prints)\b", entry.get("note", "").lower()), (
        f"{name}: a note says how it was read"
    )


def test_unverified_entry_says_why() -> None:
    for entry in entries().values():
        if entry["status"] == "not verified":
            assert len(entry["note"].split()) >= 4, entry["id"]
