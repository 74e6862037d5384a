"""Two editions side by side: what changed, why, and what stayed."""

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
from tests.report.pages.edition_files import Judged

EARLIER = Path(__file__).parents[3] / "data" / "editions" / "1" / "verdicts.json"
Edit = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def record(**more: Any) -> dict[str, Any]:
    """An edition of one claim with one part, on one machine."""
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


def edited(*edits: Edit, verdict: str = "challenged", **more: Any) -> dict[str, Any]:
    """A later edition in which the claim's verdict is another: each edit gets the claim, its part and the edition."""
    new = record(**{"generated_utc": "2026-02-01T00:00:00Z", **more})
    claim = new["claims"][0]
    claim["verdict"] = verdict
    for edit in edits:
        edit(claim, claim["parts"][0], new)
    return new


def change(edit: Edit, verdict: str = "challenged") -> list[dict[str, Any]]:
    """The causes that are told after an edit."""
    found = compare_editions(record(), edited(edit, verdict=verdict))
    told = [*found["changed"], *found["revised"]]
    return list(told[0]["why"]) if told else []


def again(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"][0]["ended_utc"] = "2026-01-31"
    part.update(outcome="challenged", estimate=5e8, low=4e8, high=6e8)


def another(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"].append({"id": "den", "label": "A den", "started_utc": None, "ended_utc": None})
    part.update(outcome="depends", nodes=["box", "den"], cases={"supports": 4, "challenges": 2})


def dropped(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    claim.update(parts=[])


TOLD: list[tuple[Edit, list[str], str]] = [
    (lambda claim, part, new: claim.update(version=2, changes=[{"version": 2, "reason": "It was misread."}]),
     ["rule"], "version 2 of the rule, before 1: It was misread"),
    (lambda claim, part, new: part.update(threshold=[1e9, 5e9]),
     ["rule"], "the threshold is 1 to 5 GFLOP/s, before 1 GFLOP/s"),
    (lambda claim, part, new: part.update(rule="supported if some case is at least 1 GFLOP/s"),
     ["rule"], "the rule reads “supported if some case is"),
    (lambda claim, part, new: part.update(quantity="training.rate", unit="1"),
     ["rule"], "decided by training.rate, before by gemm.rate in FLOP/s"),
    (lambda claim, part, new: [source.update(status="verified") for source in claim["sources"]],
     ["source"], "sources changed: A paper: verified, before not verified"),
    (lambda claim, part, new: new["figures"]["card.rate"].update(stated="4 TFLOP/s"),
     ["source"], "published figures changed: A card, rate: 4 TFLOP/s, verified, before 3 TFLOP/s, verified"),
    (again, ["data", "data"], "now 500 [400, 600] MFLOP/s, before 2.00 [1.90, 2.10] GFLOP/s"),
    (another, ["data"], "machines added: A den"),
    (lambda claim, part, new: part.update(outcome="awaiting hardware", estimate=None, low=None, high=None, nodes=[],
                                          cases={}),
     ["data", "data"], "now awaiting hardware, before 2.00 [1.90, 2.10] GFLOP/s"),
    (lambda claim, part, new: claim["parts"].append({**copy.deepcopy(part), "name": "the other half"}),
     ["rule"], "this part is new"),
    (dropped, ["rule"], "this part was dropped"),
    (lambda claim, part, new: new.update(commit="b" * 40),
     ["unknown"], "the same in these files: judged by commit bbbbbbb, before by aaaaaaa"),
    (lambda claim, part, new: None, ["unknown"], "rule and evidence are the same in these files"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "causes", "said"), TOLD)
def test_each_cause_is_told(edit: Edit, causes: list[str], said: str) -> None:
    why = change(edit)
    assert [one["cause"] for one in why] == causes
    assert any(said in one["text"] for one in why), why


def test_a_verdict_that_stays_is_told_only_on_other_grounds() -> None:
    drift = change(lambda claim, part, new: part.update(estimate=2.05e9, low=1.95e9, high=2.15e9), "supported")
    assert drift == [], "measurements drift within their intervals"
    far = change(lambda claim, part, new: part.update(estimate=4e9, low=3.9e9, high=4.1e9), "supported")
    assert [one["cause"] for one in far] == ["data"]
    rule = change(lambda claim, part, new: claim.update(version=2), "supported")
    assert [one["cause"] for one in rule] == ["rule"]


@st.composite
def editions(draw: st.DrawFn) -> dict[str, Any]:
    """Any of the edits one after another, with any verdict and moment, the claim perhaps under another id."""
    edits = draw(st.lists(st.sampled_from([edit for edit, *_ in TOLD if edit is not dropped]), max_size=5))
    moment = draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]))
    made = edited(*edits, verdict=draw(st.sampled_from([str(one) for one in Verdict])), generated_utc=moment)
    made["claims"] += [{**copy.deepcopy(made["claims"][0]), "id": name} for name in draw(st.sets(st.just("W16")))]
    made["claims"][0]["id"] = draw(st.sampled_from(["W15", "N01"]))
    return made


def ids(found: list[dict[str, Any]]) -> set[str]:
    return {one["id"] for one in found}


@settings(max_examples=60, deadline=None)
@given(one=editions(), other=editions())
def test_every_claim_stands_once_and_every_change_has_its_cause_forth_and_back(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    found, back = compare_editions(one, other), compare_editions(other, one)
    listed = [*ids(found["changed"]), *found["stayed"], *ids(found["added"])]
    assert sorted(listed) == sorted(claim["id"] for claim in other["claims"])
    assert ids(found["revised"]) <= set(found["stayed"])
    for each in [*found["changed"], *found["revised"]]:
        places = [CAUSES.index(cause["cause"]) for cause in each["why"] if cause["text"]]
        assert places and places == sorted(places)
    text = "\n".join(format_comparison(found))
    assert all(name in text for name in listed) and headline(found).endswith(".")
    assert ids(found["changed"]) == ids(back["changed"]) and ids(found["added"]) == ids(back["withdrawn"])
    assert sorted(found["nodes"]["added"]) == sorted(back["nodes"]["gone"])
    same = compare_editions(one, copy.deepcopy(one))
    assert same["stayed"] == [claim["id"] for claim in one["claims"]] and machine_sentences(same) == []
    assert not any(same[key] for key in ("changed", "revised", "added", "withdrawn"))


def test_the_command_tells_and_writes_the_comparison(
    first: Judged, second: Judged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "changes.json"
    assert main(["compare", str(first.verdicts), str(second.verdicts), "--json", str(out)]) == 0
    told, found = capsys.readouterr().out, read_json(out)
    assert told.startswith("The edition of 2026-02-01") and "N03  challenged -> supported" in told
    assert found == compare_editions(extract_edition(first.document, ""), extract_edition(second.document, ""))
    before, after = (
        {verdict["id"]: verdict["verdict"] for verdict in made.document["verdicts"]} for made in (first, second)
    )
    assert {one["id"] for one in found["changed"]} == {name for name in before if before[name] != after[name]}
    assert found["nodes"]["added"] == [second.document["nodes"][1]["label"]]
    broken = copy.deepcopy(first.document)
    del broken["verdicts"][0]["parts"]
    write_json(tmp_path / "old.json", broken)
    with pytest.raises(StudyError, match="missing: parts"):
        main(["compare", str(tmp_path / "old.json"), str(first.verdicts)])


def test_every_verdict_that_moved_is_told_with_its_reason(published: Path) -> None:
    now = read_json(published / "verdicts.json")
    before = {verdict["id"]: verdict["verdict"] for verdict in read_json(EARLIER)["verdicts"]}
    moved = [verdict["id"] for verdict in now["verdicts"] if before[verdict["id"]] != verdict["verdict"]]
    changes = changes_since_last(now, published / "verdicts.json", EARLIER)
    assert changes is not None
    rows = {row["id"]: row for row in changes["rows"]}
    assert moved and set(moved) <= set(rows)
    assert all(len(rows[name]["why"]) > 10 for name in moved)
    text = site_sources.page_source(editions_page(now, changes), site_sources.template_environment(), {})
    assert all(f"(claims/{name}.qmd)" in text for name in moved)
