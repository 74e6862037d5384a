"""Checks on the shipped claim files and reference entries: complete, with reasons, and without copied text."""

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
# Truncated SHA-256 hashes of all six-word runs in the three articles. They detect a copied sentence without shipping
# the copyrighted text.
SHINGLES = frozenset((Path(__file__).parent / "article_shingles.txt").read_text().split())
RUN = 6
ARTICLES = {"N": "nuface", "G": "gpuserver", "W": "whygpu"}
NUMERIC_RULES = frozenset({"at_least", "at_most", "ratio", "trend", "crossover", "for_share_of"})


@cache
def read_claim(path: Path) -> dict[str, Any]:
    return dict(read_yaml(path, SCHEMA))


def decided_parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    decided = content["kind"] != "judgement" and "untestable" not in content
    return [*content.get("all_of", [content]), *content.get("when_written", [])] if decided else []


def collect_texts(node: Any) -> Iterator[str]:
    """Yield every string below `node` except section headings, which are quoted names."""
    if isinstance(node, str):
        yield node
    inside = [node[key] for key in node if key != "section"] if isinstance(node, dict) else node
    for value in inside if isinstance(inside, list) else ():
        yield from collect_texts(value)


def shingles(text: str) -> dict[str, str]:
    """Map hashes to runs of six words in `text`, in lower case and without punctuation."""
    words = re.findall(r"[a-z0-9]+", unicodedata.normalize("NFKC", text).lower())
    runs = (" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
    return {hashlib.sha256(run.encode()).hexdigest()[:12]: run for run in runs}


def copied_runs(node: Any) -> list[str]:
    return [run for text in collect_texts(node) for key, run in shingles(text).items() if key in SHINGLES]


@pytest.fixture(params=CLAIM_FILES, ids=lambda path: path.stem)
def claim(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_claim(request.param)


def test_claim_files_are_numbered_without_gaps() -> None:
    for series, least in {"N": 18, "G": 32, "W": 38}.items():
        numbers = sorted(int(path.stem[1:]) for path in CLAIM_FILES if path.stem.startswith(series))
        assert len(numbers) >= least and numbers == list(range(1, len(numbers) + 1))
    assert {path.stem[0]: read_claim(path)["article"] for path in CLAIM_FILES} == ARTICLES


def test_claims_use_known_quantities_and_verified_entries_and_have_links() -> None:
    reference = read_reference(REFERENCE)
    claims = read_claims(judge.CLAIMS, reference)
    names = [path.stem for path in CLAIM_FILES]
    assert [claim.id for claim in claims] == sorted(names, key=lambda name: ("NGW".index(name[0]), name))
    for claim in claims:
        assert {*claim.see_also, *claim.bears_on, claim.same_as} - {None, claim.id}, claim.id
        for part in claim.parts:
            assert part.awaits or part.quantity in quantities(), claim.id
            for name in part.entries:
                # A rule may compare only verified figures. A part with `awaits` may name only unverified figures.
                assert reference[name]["status"] == ("not verified" if part.awaits else "verified"), name


def test_claims_about_bfloat16_on_gpus_take_the_format_of_older_gpus_too(claim: dict[str, Any]) -> None:
    for part in claim.get("all_of", [claim]):
        scope = part.get("scope", {})
        formats = {"dtype": [], **scope}["dtype"]
        if scope.get("device") == "gpu" and "bfloat16" in formats:
            assert "float16" in (formats if isinstance(formats, list) else [])


def test_claims_have_notes_and_thresholds_have_reasons(claim: dict[str, Any]) -> None:
    assert claim["says"].endswith(".") and claim["note"].strip()
    for part in decided_parts(claim):
        assert len(part["threshold"]["why"].split()) >= 5, part.get("name")


def test_sensitivity_spans_the_threshold(claim: dict[str, Any]) -> None:
    for part in decided_parts({**claim, "when_written": []}):
        value, sensitivity = part["threshold"]["value"], part.get("sensitivity", [])
        if part["rule"] in NUMERIC_RULES:
            # The threshold may be the lowest value in `sensitivity`, because a lower threshold may make no sense
            # ("several" is at least two).
            assert value in sensitivity and min(sensitivity) <= value < max(sensitivity), part.get("name")
        elif part["rule"] == "within":
            low, high = value
            assert value in sensitivity
            assert any(a < low or b > high for a, b in sensitivity), "no wider reading is tried"
            assert low == high or any(a > low or b < high for a, b in sensitivity), "no narrower reading is tried"


def test_no_sentence_is_copied_from_the_articles(claim: dict[str, Any]) -> None:
    assert copied_runs(claim) == []


def test_copied_sentences_are_detected() -> None:
    """An article's title is on the hash list, so copies are detected, but `section` may quote the title."""
    title = "Why AI Models Require GPUs for Faster and Efficient Training"
    assert copied_runs({"says": f"It is called: {title}."}) != []
    assert copied_runs({"section": title}) == []


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.yaml")), ids=lambda path: path.stem)
def test_reference_entries_have_known_units_sources_and_notes(path: Path) -> None:
    for entry in read_entries(path):
        name, source = entry["id"], entry["source"]
        assert entry["unit"] == YES_NO or _conversion_factor(entry["unit"], entry["unit"]) == 1, name
        assert entry["note"].strip(), name
        if entry["status"] == "verified":
            assert entry["value"] is not None and all(source[key].strip() for key in source), name
            assert "not read" not in source["where"].lower(), name
            # The note must tell how the figure was obtained.
            assert re.search(r"\b(read|counted|prints)\b", entry["note"].lower()), name
