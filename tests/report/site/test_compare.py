"""Two editions side by side: what changed, why, and what stayed."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report.verdicts import VERDICTS

from contract.files import read_json, write_json
from report.cli import main
from report.site.causes import CAUSES
from report.site.compare import compare, headline, lines, machines
from report.site.editions import SCHEMA, edition

from .conftest import Judged

ROOT = Path(__file__).parents[3]
Edit = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def record(**more: Any) -> dict[str, Any]:
    """An edition of one claim with one part, on one machine."""
    part = {
        "name": "", "quantity": "gemm.rate", "unit": "FLOP/s", "threshold": 1e9, "outcome": "supported",
        "estimate": 2e9, "low": 1.9e9, "high": 2.1e9, "rule": "supported if at least 1 GFLOP/s in every cell",
        "cells": {"supports": 4}, "nodes": ["box"], "figures": ["card.rate"],
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


def change(edit: Edit, verdict: str = "challenged") -> list[dict[str, Any]]:
    """The causes that are told after an edit of the claim, its part and the edition. verdict: the claim's new one."""
    new = record(generated_utc="2026-02-01T00:00:00Z")
    claim = new["claims"][0]
    claim["verdict"] = verdict
    edit(claim, claim["parts"][0], new)
    found = compare(record(), new)
    return [*found["changed"], *found["revised"]][0]["why"] if found["changed"] or found["revised"] else []


def again(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"][0]["ended_utc"] = "2026-01-31"
    part.update(outcome="challenged", estimate=5e8, low=4e8, high=6e8)


def another(claim: dict[str, Any], part: dict[str, Any], new: dict[str, Any]) -> None:
    new["nodes"].append({"id": "den", "label": "A den", "started_utc": None, "ended_utc": None})
    part.update(outcome="depends", nodes=["box", "den"], cells={"supports": 4, "challenges": 2})


@pytest.mark.parametrize(
    ("edit", "causes", "said"),
    [
        (
            lambda claim, part, new: claim.update(version=2, changes=[{"version": 2, "reason": "It was misread."}]),
            ["rule"], "version 2 of the rule, before 1: It was misread",
        ),
        (lambda claim, part, new: claim.update(version=2), ["rule"], "no reason given"),
        (
            lambda claim, part, new: part.update(threshold=5e9, rule="supported if at least 5 GFLOP/s in every cell"),
            ["threshold"], "the threshold is 5 GFLOP/s, before 1 GFLOP/s",
        ),
        (
            lambda claim, part, new: part.update(threshold=[1e9, 5e9]),
            ["threshold"], "the threshold is 1 to 5 GFLOP/s, before 1 GFLOP/s",
        ),
        (
            lambda claim, part, new: part.update(rule="supported if some cell is at least 1 GFLOP/s"),
            ["rule"], "the rule reads “supported if some cell is",
        ),
        (
            lambda claim, part, new: part.update(quantity="training.rate"),
            ["quantity"], "decided by training.rate, before by gemm.rate",
        ),
        (
            lambda claim, part, new: claim["sources"][0].update(status="verified"),
            ["source"], "source verified: A paper",
        ),
        (lambda claim, part, new: claim.update(sources=[]), ["source"], "source dropped: A paper"),
        (
            lambda claim, part, new: new["figures"]["card.rate"].update(stated="4 TFLOP/s"),
            ["figure"], "published figure changed: A card, rate: 4 TFLOP/s, before 3 TFLOP/s",
        ),
        (
            lambda claim, part, new: new["figures"]["card.rate"].update(status="not verified"),
            ["source"], "source no longer verified: A card, rate",
        ),
        (
            lambda claim, part, new: part.update(figures=[]),
            ["figure"], "published figure used no more: A card, rate (3 TFLOP/s)",
        ),
        (again, ["again", "estimate"], "measured again: A box"),
        (
            again, ["again", "estimate"],
            "the estimate moved across the threshold of 1 GFLOP/s: from 2.00 [1.90, 2.10] GFLOP/s to "
            "500 [400, 600] MFLOP/s",
        ),
        (another, ["node", "cells"], "new evidence from A den"),
        (another, ["node", "cells"], "4 of 6 cells support it, before 4 of 4"),
        (
            lambda claim, part, new: part.update(outcome="undecided", estimate=1.1e9, low=9e8, high=1.3e9),
            ["estimate"], "1.10 [0.90, 1.30] GFLOP/s: too close to the threshold of 1 GFLOP/s now",
        ),
        (
            lambda claim, part, new: part.update(
                outcome="awaiting hardware", estimate=None, low=None, high=None, nodes=[], cells={}
            ),
            ["node", "evidence"], "awaiting hardware, where there was 2.00 [1.90, 2.10] GFLOP/s",
        ),
        (
            lambda claim, part, new: claim["parts"].append({**copy.deepcopy(part), "name": "the other half"}),
            ["rule"], "this part is new",
        ),
        (lambda claim, part, new: claim.update(parts=[]), ["rule"], "this part was dropped"),
        (
            lambda claim, part, new: new.update(commit="b" * 40),
            ["unknown"], "the program that judges is (commit bbbbbbb, before aaaaaaa)",
        ),
        (lambda claim, part, new: None, ["unknown"], "neither its rule nor its evidence is another in these files"),
    ],
)  # fmt: skip
def test_each_cause_is_told(edit: Edit, causes: list[str], said: str) -> None:
    why = change(edit)
    assert [one["cause"] for one in why] == causes
    assert any(said in one["text"] for one in why), why
    assert set(causes) <= set(CAUSES)


def test_a_revision_that_is_taken_back_is_told() -> None:
    new = record()
    new["claims"][0].update(version=3, verdict="challenged", changes=[{"version": 3, "reason": "It was misread."}])
    (one,) = compare(new, record())["changed"]
    assert one["why"] == [
        {"cause": "rule", "part": "", "text": "version 1 of the rule, before 3: revisions were taken back"}
    ]


def test_from_undecided_the_estimate_is_told_to_be_clear_of_the_threshold_now() -> None:
    old = record()
    old["claims"][0]["verdict"] = "undecided"
    old["claims"][0]["parts"][0].update(outcome="undecided", low=0.9e9, high=3e9)
    (one,) = compare(old, record())["changed"]
    assert one["why"][0]["text"].endswith("clear of the threshold of 1 GFLOP/s now")


def test_a_verdict_that_stays_is_told_only_on_other_grounds() -> None:
    drift = change(lambda claim, part, new: part.update(estimate=2.05e9, low=1.95e9, high=2.15e9), "supported")
    assert drift == [], "measurements drift within their intervals"
    far = change(lambda claim, part, new: part.update(estimate=4e9, low=3.9e9, high=4.1e9), "supported")
    assert [one["cause"] for one in far] == ["estimate"]
    more = change(lambda claim, part, new: part.update(nodes=["box", "den"], cells={"supports": 8}), "supported")
    assert more == []
    rule = change(lambda claim, part, new: claim.update(version=2), "supported")
    assert [one["cause"] for one in rule] == ["rule"]


def test_what_is_new_and_what_is_withdrawn() -> None:
    new = record()
    new["claims"][0]["id"] = "W16"
    found = compare(record(), new)
    assert [one["id"] for one in found["added"]] == ["W16"] and [one["id"] for one in found["withdrawn"]] == ["W15"]
    assert headline(found) == "No claim is in both, 1 claim is new and 1 was withdrawn."
    text = "\n".join(lines(found))
    assert "New:\nW16  supported: Something is fast." in text and "Withdrawn:\nW15" in text


# ---------------------------------------------------------------- any two editions

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBER = st.one_of(st.none(), st.floats(-1e12, 1e12))
NODES = ("box", "den", "hut")
FIGURES = ("card.rate", "card.price")


@st.composite
def parts(draw: st.DrawFn, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "quantity": draw(st.sampled_from(["gemm.rate", "training.rate"])),
        "unit": draw(st.sampled_from(["", "1", "FLOP/s", "s"])),
        "threshold": draw(st.one_of(st.floats(0, 1e12), st.lists(st.floats(0, 1e12), min_size=2, max_size=2))),
        "outcome": draw(st.sampled_from(VERDICTS[:5])),
        **{key: draw(NUMBER) for key in ("estimate", "low", "high")},
        "rule": draw(TEXT),
        "cells": draw(st.dictionaries(st.sampled_from(["supports", "challenges"]), st.integers(1, 9))),
        "nodes": sorted(draw(st.sets(st.sampled_from(NODES)))),
        "figures": sorted(draw(st.sets(st.sampled_from(FIGURES)))),
    }


@st.composite
def claims(draw: st.DrawFn, name: str) -> dict[str, Any]:
    version = draw(st.integers(1, 4))
    known = draw(st.lists(st.sampled_from(["", "one half", "the other"]), max_size=2, unique=True))
    status = st.sampled_from(["verified", "not verified"])
    return {
        "id": name,
        "says": draw(TEXT),
        "verdict": draw(st.sampled_from(VERDICTS)),
        "version": version,
        "changes": [{"version": number, "reason": draw(TEXT)} for number in range(2, version + 1)],
        "sources": [
            {"title": title, "where": "", "url": "", "status": draw(status)}
            for title in draw(st.lists(st.sampled_from(["A paper", "A card"]), unique=True))
        ],
        "parts": [draw(parts(part)) for part in known],
    }


@st.composite
def editions(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(["G01", "N01", "W01", "W02"]), unique=True))
    moment = st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
    return {
        "generated_utc": draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])),
        "commit": draw(st.one_of(st.none(), TEXT)),
        "study_version": "1",
        "nodes": [
            {"id": name, "label": draw(TEXT), "started_utc": draw(moment), "ended_utc": draw(moment)}
            for name in sorted(draw(st.sets(st.sampled_from(NODES))))
        ],
        "figures": {
            name: {"what": draw(TEXT), "stated": draw(TEXT), "status": draw(st.sampled_from(["verified", "no"]))}
            for name in draw(st.sets(st.sampled_from(FIGURES)))
        },
        "claims": [draw(claims(name)) for name in names],
    }


QUICKLY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ids(found: list[dict[str, Any]]) -> set[str]:
    return {one["id"] for one in found}


@QUICKLY
@given(one=editions())
def test_an_edition_compared_with_itself_has_changed_in_nothing(one: dict[str, Any]) -> None:
    found = compare(one, copy.deepcopy(one))
    assert not any(found[key] for key in ("changed", "revised", "added", "withdrawn"))
    assert found["stayed"] == [claim["id"] for claim in one["claims"]]
    assert found["nodes"] == {"added": [], "gone": [], "again": []} and machines(found) == []


@QUICKLY
@given(one=editions(), other=editions())
def test_forth_and_back_name_the_same_claims(one: dict[str, Any], other: dict[str, Any]) -> None:
    forth, back = compare(one, other), compare(other, one)
    for key in ("changed", "revised"):
        assert ids(forth[key]) == ids(back[key])
    assert set(forth["stayed"]) == set(back["stayed"])
    assert ids(forth["added"]) == ids(back["withdrawn"]) and ids(forth["withdrawn"]) == ids(back["added"])
    assert sorted(forth["nodes"]["added"]) == sorted(back["nodes"]["gone"])
    for each in back["changed"]:
        mirror = next(one for one in forth["changed"] if one["id"] == each["id"])
        assert (each["was"], each["is"]) == (mirror["is"], mirror["was"])


@QUICKLY
@given(one=editions(), other=editions())
def test_every_claim_stands_once_and_every_change_has_its_cause(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = compare(one, other)
    listed = [*ids(found["changed"]), *found["stayed"], *ids(found["added"])]
    assert sorted(listed) == sorted(claim["id"] for claim in other["claims"])
    assert ids(found["revised"]) <= set(found["stayed"])
    for each in [*found["changed"], *found["revised"]]:
        assert each["why"] and all(cause["cause"] in CAUSES and cause["text"] for cause in each["why"])
        places = [CAUSES.index(cause["cause"]) for cause in each["why"]]
        assert places == sorted(places)
    text = "\n".join(lines(found))
    assert all(name in text for name in listed) and headline(found).endswith(".")


# ---------------------------------------------------------------- real verdicts


def test_editions_of_real_verdicts_tell_what_moved(first: Judged, second: Judged) -> None:
    old, new = (edition(one.document, one.verdicts) for one in (first, second))
    found = compare(old, new)
    moved = {one["id"]: one for one in found["changed"]}
    assert (moved["W15"]["was"], moved["W15"]["is"]) == ("challenged", "supported")
    told = {cause["cause"]: cause["text"] for cause in moved["W15"]["why"]}
    assert set(told) == {"node", "estimate", "cells"}
    assert "new evidence from" in told["node"]
    assert "moved across the threshold of 1,000 MAC/cycle" in told["estimate"]
    expected = {one["id"]: one["verdict"] for one in second.document["verdicts"]}
    before = {one["id"]: one["verdict"] for one in first.document["verdicts"]}
    assert set(moved) == {name for name in before if before[name] != expected[name]}
    assert found["nodes"]["added"] == [second.document["nodes"][1]["label"]]


def test_the_command_tells_and_writes_the_comparison(
    first: Judged, second: Judged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "changes.json"
    assert main(["compare", str(first.verdicts), str(second.verdicts), "--json", str(out)]) == 0
    told, found = capsys.readouterr().out, read_json(out)
    assert told.startswith("The edition of 2026-02-01") and "W15  challenged -> supported" in told
    assert found == compare(edition(first.document, ""), edition(second.document, ""))
    assert main(["compare", str(first.verdicts), str(first.verdicts)]) == 0
    assert "None of 88 verdicts changed." in capsys.readouterr().out


def test_a_file_that_cannot_be_compared_is_refused_in_one_line(first: Judged, changed: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "old.json", changed(lambda document: document["verdicts"][0].pop("parts")))
    done = subprocess.run(
        [sys.executable, "-m", "report", "compare", str(tmp_path / "old.json"), str(first.verdicts)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ") and "missing: parts" in done.stderr


def test_the_schema_asks_for_all_that_is_kept_of_a_part() -> None:
    kept = set(record()["claims"][0]["parts"][0])
    extra = SCHEMA["$defs"]["edition"]["properties"]["claims"]["items"]["properties"]["parts"]["items"]["required"]
    assert kept == set(SCHEMA["$defs"]["part"]["required"]) | set(extra)
