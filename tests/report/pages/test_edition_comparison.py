"""Comparison between two editions: changed and unchanged verdicts, with causes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import read_json, write_json
from report.cli import main
from report.outcomes import Verdict
from report.pages import site_sources
from report.pages.edition_changes import changes_since_last
from report.pages.editions.difference_causes import CAUSES
from report.pages.editions.edition_comparison import compare_editions, format_comparison, headline, machine_sentences
from report.pages.editions.edition_record import extract_edition
from report.pages.site_content import editions_page
from tests.report.pages.edition_files import Study

EARLIER = Path(__file__).parents[3] / "data" / "editions" / "1" / "verdicts.json"
Edit = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def make_edition(**more: Any) -> dict[str, Any]:
    """Return an edition with one claim, one part and one machine."""
    part = {
        "name": "", "quantity": "gemm.rate", "unit": "FLOP/s", "threshold": 1e9, "outcome": "supported",
        "estimate": 2e9, "low": 1.9e9, "high": 2.1e9, "rule": "supported if at least 1 GFLOP/s in every case",
        "cases": {"supports": 4}, "nodes": ["box"], "figures": ["card.rate"],
    }  # fmt: skip
    claim = {
        "id": "W15", "says": "Something is fast.", "verdict": "supported", "version": 1, "changes": [],
        "sources": [{"title": "A paper", "where": "page 3", "url": "https://example.org", "status": "not verified"}],
        "parts": [part],
    }  # fmt: skip
    return {
        "generated_utc": "2026-01-01T00:00:00Z", "commit": "a" * 40, "study_version": "1",
        "nodes": [{"id": "box", "label": "A box", "started_utc": "2025-12-31", "ended_utc": "2025-12-31"}],
        "figures": {"card.rate": {"what": "A card, rate", "stated": "3 TFLOP/s", "status": "verified"}},
        "claims": [claim], **more,
    }  # fmt: skip


def make_later_edition(*edits: Edit, verdict: str = "challenged", **more: Any) -> dict[str, Any]:
    """Return an edition that is later than the edition from `make_edition` and has this verdict on its claim.

    edits: functions that change the edition; each receives the claim, the claim's part and the whole edition.
    """
    new = make_edition(**{"generated_utc": "2026-02-01T00:00:00Z", **more})
    claim = new["claims"][0]
    claim["verdict"] = verdict
    for edit in edits:
        edit(claim, claim["parts"][0], new)
    return new


def causes_after(edit: Edit, verdict: str = "challenged") -> list[dict[str, Any]]:
    """Return the causes reported after an edit."""
    comparison = compare_editions(make_edition(), make_later_edition(edit, verdict=verdict))
    entries = [*comparison["changed"], *comparison["revised"]]
    return list(entries[0]["why"]) if entries else []


def remeasure(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"][0]["ended_utc"] = "2026-01-31"
    part.update(outcome="challenged", estimate=5e8, low=4e8, high=6e8)


def add_machine(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"].append({"id": "den", "label": "A den", "started_utc": None, "ended_utc": None})
    part.update(outcome="depends", nodes=["box", "den"], cases={"supports": 4, "challenges": 2})


def drop_part(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    claim.update(parts=[])


EDIT_CASES: list[tuple[Edit, list[str], str]] = [
    (lambda claim, part, new: claim.update(version=2, changes=[{"version": 2, "reason": "It was misread."}]),
     ["rule"], "version 2 of the rule, before 1: It was misread"),
    (lambda claim, part, new: part.update(threshold=[1e9, 5e9]),
     ["rule"], "the threshold is 1 to 5 GFLOP/s, before 1 GFLOP/s"),
    (lambda claim, part, new: part.update(rule="supported if some case is at least 1 GFLOP/s"),
     ["rule"], "the rule reads “supported if some case is"),
    (lambda claim, part, new: part.update(quantity="training.rate", unit="1"),
     ["rule"], "decided by “Rate”, before by “Rate of a matrix product” in FLOP/s"),
    (lambda claim, part, new: [source.update(status="verified") for source in claim["sources"]],
     ["source"], "sources changed: A paper: verified, before not verified"),
    (lambda claim, part, new: new["figures"]["card.rate"].update(stated="4 TFLOP/s"),
     ["source"], "published figures changed: A card, rate: 4 TFLOP/s, verified, before 3 TFLOP/s, verified"),
    (remeasure, ["data", "data"], "now 500 [400, 600] MFLOP/s, before 2.00 [1.90, 2.10] GFLOP/s"),
    (add_machine, ["data"], "machines added: A den"),
    (lambda claim, part, new: part.update(outcome="awaiting hardware", estimate=None, low=None, high=None, nodes=[],
                                          cases={}),
     ["data", "data"], "now awaiting hardware, before 2.00 [1.90, 2.10] GFLOP/s"),
    (lambda claim, part, new: claim["parts"].append({**copy.deepcopy(part), "name": "the other half"}),
     ["rule"], "this part is new"),
    (drop_part, ["rule"], "this part was dropped"),
    (lambda claim, part, new: new.update(commit="b" * 40),
     ["unknown"], "the same in these files: judged by commit bbbbbbb, before by aaaaaaa"),
    (lambda claim, part, new: None, ["unknown"], "rule and evidence are the same in these files"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "causes", "text"), EDIT_CASES)
def test_each_cause_is_reported(edit: Edit, causes: list[str], text: str) -> None:
    why = causes_after(edit)
    assert [cause["cause"] for cause in why] == causes
    assert any(text in cause["text"] for cause in why), why


def test_unchanged_verdict_is_reported_only_if_estimate_or_rule_changed() -> None:
    drift = causes_after(lambda claim, part, new: part.update(estimate=2.05e9, low=1.95e9, high=2.15e9), "supported")
    assert drift == [], "measurements drift within their intervals"
    far = causes_after(lambda claim, part, new: part.update(estimate=4e9, low=3.9e9, high=4.1e9), "supported")
    assert [cause["cause"] for cause in far] == ["data"]
    rule = causes_after(lambda claim, part, new: claim.update(version=2), "supported")
    assert [cause["cause"] for cause in rule] == ["rule"]


@st.composite
def editions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an edition with random edits, verdict and time. It has W15 or N01 as its first claim, and perhaps W16."""
    edits = draw(st.lists(st.sampled_from([edit for edit, *_ in EDIT_CASES if edit is not drop_part]), max_size=5))
    moment = draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]))
    new = make_later_edition(
        *edits, verdict=draw(st.sampled_from([str(word) for word in Verdict])), generated_utc=moment
    )
    new["claims"] += [{**copy.deepcopy(new["claims"][0]), "id": name} for name in draw(st.sets(st.just("W16")))]
    new["claims"][0]["id"] = draw(st.sampled_from(["W15", "N01"]))
    return new


def entry_ids(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["id"] for entry in entries}


@settings(max_examples=60, deadline=None)
@given(old=editions(), new=editions())
def test_comparison_lists_each_claim_once_and_is_symmetric(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes, back = compare_editions(old, new), compare_editions(new, old)
    listed = [*entry_ids(changes["changed"]), *changes["stayed"], *entry_ids(changes["added"])]
    assert sorted(listed) == sorted(claim["id"] for claim in new["claims"])
    assert entry_ids(changes["revised"]) <= set(changes["stayed"])
    for entry in [*changes["changed"], *changes["revised"]]:
        places = [CAUSES.index(cause["cause"]) for cause in entry["why"] if cause["text"]]
        assert places and places == sorted(places)
    text = "\n".join(format_comparison(changes))
    assert all(name in text for name in listed) and headline(changes).endswith(".")
    assert entry_ids(changes["changed"]) == entry_ids(back["changed"]) and entry_ids(changes["added"]) == entry_ids(
        back["withdrawn"]
    )
    assert sorted(changes["nodes"]["added"]) == sorted(back["nodes"]["gone"])
    same = compare_editions(old, copy.deepcopy(old))
    assert same["stayed"] == [claim["id"] for claim in old["claims"]] and machine_sentences(same) == []
    assert not any(same[key] for key in ("changed", "revised", "added", "withdrawn"))


def test_compare_command_prints_and_writes_the_comparison(
    edition_1: Study, edition_2: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "changes.json"
    assert main(["compare", str(edition_1.verdicts), str(edition_2.verdicts), "--json", str(out)]) == 0
    printed, written = capsys.readouterr().out, read_json(out)
    assert printed.startswith("The edition of 2026-02-01") and "N03  challenged -> supported" in printed
    assert written == compare_editions(extract_edition(edition_1.document, ""), extract_edition(edition_2.document, ""))
    before, after = (
        {verdict["id"]: verdict["verdict"] for verdict in study.document["verdicts"]}
        for study in (edition_1, edition_2)
    )
    assert {entry["id"] for entry in written["changed"]} == {name for name in before if before[name] != after[name]}
    assert written["nodes"]["added"] == [edition_2.document["nodes"][1]["label"]]
    broken = copy.deepcopy(edition_1.document)
    del broken["verdicts"][0]["parts"]
    write_json(tmp_path / "old.json", broken)
    with pytest.raises(StudyError, match="missing: parts"):
        main(["compare", str(tmp_path / "old.json"), str(edition_1.verdicts)])


def test_every_changed_verdict_is_listed_with_its_reason(published_study: Path) -> None:
    now = read_json(published_study / "verdicts.json")
    before = {verdict["id"]: verdict["verdict"] for verdict in read_json(EARLIER)["verdicts"]}
    moved = [verdict["id"] for verdict in now["verdicts"] if before[verdict["id"]] != verdict["verdict"]]
    changes = changes_since_last(now, published_study / "verdicts.json", EARLIER)
    assert changes is not None
    rows = {row["id"]: row for row in changes["rows"]}
    assert moved and set(moved) <= set(rows)
    assert all(len(rows[name]["why"]) > 10 for name in moved)
    text = site_sources.page_source(editions_page(now, changes), site_sources.template_environment(), {})
    assert all(f"(claims/{name}.qmd)" in text for name in moved)
