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

from contract.files import read_yaml
from report.data.reference_figures import REFERENCE, read_entries, read_reference
from report.derivations import _conversion_factor
from report.formatting import YES_NO
from report.judging import judge
from report.judging.claim_files import SCHEMA, read_claims
from report.quantities import quantities

CLAIM_FILES = sorted(judge.CLAIMS.glob("*.yaml"))
# Truncated SHA-256 of every run of six words in the three articles: enough to notice a copied
# sentence without shipping what is not ours to ship.
SHINGLES = frozenset((Path(__file__).parent / "article_shingles.txt").read_text().split())
RUN = 6
ARTICLES = {"N": "nuface", "G": "gpuserver", "W": "whygpu"}
NUMERIC_RULES = frozenset({"at_least", "at_most", "ratio", "trend", "crossover", "for_share_of"})


@cache
def read_claim(path: Path) -> dict[str, Any]:
    return dict(read_yaml(path, SCHEMA))


def decided_parts(of: dict[str, Any]) -> list[dict[str, Any]]:
    decided = of["kind"] != "judgement" and "untestable" not in of
    return [*of.get("all_of", [of]), *of.get("when_written", [])] if decided else []


def collect_texts(node: Any) -> Iterator[str]:
    """Every string below `node`, but for section headings, which are names."""
    if isinstance(node, str):
        yield node
    inside = [node[key] for key in node if key != "section"] if isinstance(node, dict) else node
    for value in inside if isinstance(inside, list) else ():
        yield from collect_texts(value)


def shingles(text: str) -> dict[str, str]:
    """Hash -> run of six words, lower case, without punctuation."""
    words = re.findall(r"[a-z0-9]+", unicodedata.normalize("NFKC", text).lower())
    runs = (" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
    return {hashlib.sha256(run.encode()).hexdigest()[:12]: run for run in runs}


def copied_runs(node: Any) -> list[str]:
    return [run for text in collect_texts(node) for key, run in shingles(text).items() if key in SHINGLES]


@pytest.fixture(params=CLAIM_FILES, ids=lambda path: path.stem)
def one(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_claim(request.param)


def test_every_claim_of_the_articles_has_one_file() -> None:
    """More may be found in an article: their numbers go on from those."""
    for series, least in {"N": 18, "G": 32, "W": 38}.items():
        numbers = sorted(int(path.stem[1:]) for path in CLAIM_FILES if path.stem.startswith(series))
        assert len(numbers) >= least and numbers == list(range(1, len(numbers) + 1))
    assert {path.stem[0]: read_claim(path)["article"] for path in CLAIM_FILES} == ARTICLES


def test_every_claim_reads_rests_on_what_is_known_and_is_linked_to_another() -> None:
    reference = read_reference(REFERENCE)
    claims = read_claims(judge.CLAIMS, reference)
    names = [path.stem for path in CLAIM_FILES]
    assert [one.id for one in claims] == sorted(names, key=lambda name: ("NGW".index(name[0]), name))
    for one in claims:
        assert {*one.see_also, *one.bears_on, one.same_as} - {None, one.id}, one.id
        for part in one.parts:
            assert part.awaits or part.quantity in quantities(), one.id
            for name in part.entries:
                # What a rule compares was read; an awaited source whose figure is verified should be used.
                assert reference[name]["status"] == ("not verified" if part.awaits else "verified"), name


def test_what_is_said_has_a_note_and_every_threshold_a_reason(one: dict[str, Any]) -> None:
    assert one["says"].endswith(".") and one["note"].strip()
    for part in decided_parts(one):
        assert len(part["threshold"]["why"].split()) >= 5, part.get("name")


def test_sensitivity_spans_the_threshold(one: dict[str, Any]) -> None:
    for part in decided_parts({**one, "when_written": []}):
        value, tried = part["threshold"]["value"], part.get("sensitivity", [])
        if part["rule"] in NUMERIC_RULES:
            # Where less would mean nothing ("several" is two at the least) only more is tried.
            assert value in tried and min(tried) <= value < max(tried), part.get("name")
        elif part["rule"] == "within":
            low, high = value
            assert value in tried
            assert any(a < low or b > high for a, b in tried), "no wider reading is tried"
            assert low == high or any(a > low or b < high for a, b in tried), "no narrower reading is tried"


def test_no_sentence_is_copied_from_the_articles(one: dict[str, Any]) -> None:
    assert copied_runs(one) == []


def test_a_copied_sentence_would_be_noticed() -> None:
    """The hashes are those of the articles: the title of one, which we may cite, is found."""
    title = "Why AI Models Require GPUs for Faster and Efficient Training"
    assert copied_runs({"says": f"It is called: {title}."}) != []
    assert copied_runs({"section": title}) == []


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_entry_has_a_unit_that_pint_knows_a_source_and_a_word_on_how_it_was_read(path: Path) -> None:
    for entry in read_entries(path):
        name, source = entry["id"], entry["source"]
        assert entry["unit"] == YES_NO or _conversion_factor(entry["unit"], entry["unit"]) == 1, name
        assert entry["note"].strip(), name
        if entry["status"] == "verified":
            assert entry["value"] is not None and all(source[key].strip() for key in source), name
            assert "not read" not in source["where"].lower(), name
            # How the figure was seen is part of the evidence.
            assert re.search(r"\b(read|counted|prints)\b", entry["note"].lower()), name
