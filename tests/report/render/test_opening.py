"""The opening: the answer follows the verdicts, and the surprises follow their rule."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import read_yaml
from report.data.reference import read_reference
from report.judging.claims import read_claims
from report.model import DECIDED
from report.quantities import quantities
from report.render.answer import DECLARED, SCHEMA, answer, plain, read_answer
from report.render.opening import opening
from report.render.surprises import surprises
from report.render.words import VERDICTS, with_interval
from tests.report.test_claim_files import copied

ROOT = Path(__file__).resolve().parents[3]
SERVICES = "classifier, look-up in a table, quantised model"
CONVERSATION = "a conversation, 100 ms"
CPU, GPU = {"id": "cpu", "kind": "cpu", "name": "A CPU"}, {"id": "cuda:0", "kind": "gpu", "name": "A GPU"}


def cell(estimate: float, outcome: str, part: str = "", spread: float = 1.1, **labels: Any) -> dict[str, Any]:
    return {
        "part": part, "node": "node-a", "device": "cpu", "label": "as it was measured", **labels,
        "estimate": estimate, "low": estimate / spread, "high": estimate * spread,
        "n_rounds": 3, "n_samples": 9, "outcome": outcome, "behind": "1",
    }  # fmt: skip


def part(outcome: str, cells: list[dict[str, Any]], name: str = "", **more: Any) -> dict[str, Any]:
    """A part whose number is that of its first cell."""
    first = cells[0] if cells else {}
    told = {key: first.get(key) for key in ("estimate", "low", "high")}
    rule = more.get("rule", "at_least")
    return {
        "rejudge": {"how": rule}, "missing": {"device": "gpu"} if outcome == "awaiting hardware" else None,
        "name": name, "quantity": "gemm.rate", "unit": "1", "rule": "at_least", "options": {}, "threshold": 10.0,
        "outcome": outcome, "boundary": None, **told, **more,
    }  # fmt: skip


def claim(name: str, verdict: str, cells: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """A verdict with one part, or those given as `parts`; its number is that of its first part."""
    cells = cells or []
    parts = more.pop("parts", None) or [part(verdict, cells, **more.pop("part", {}))]
    first = {key: parts[0][key] for key in ("estimate", "low", "high", "unit", "quantity", "threshold")}
    articles = {"N": "nuface", "G": "gpuserver", "W": "whygpu"}
    return {
        "id": name, "article": articles[name[0]], "article_title": articles[name[0]].upper(), "section": "S",
        "says": f"What {name} says.", "kind": "measured", "verdict": verdict, "reason": "", "rule": "", **first,
        "boundary": None, "cells": cells, "parts": parts, "flips": [], "evidence_tier": "measured", "same_as": None,
        "version": 1, "changes": [], **more,
    }  # fmt: skip


def document(*verdicts: Mapping[str, Any], devices: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    node = {"id": "node-a", "label": "A CPU, 2 cores", "devices": devices or [CPU], "started_utc": "2026-01-02T03"}
    return {
        "nodes": [node],
        "tally": {name: sum(one["verdict"] == name for one in verdicts) for name in VERDICTS},
        "verdicts": list(verdicts),
    }  # fmt: skip


def said(found: Mapping[str, Any]) -> list[str]:
    return [plain(sentence) for sentence in answer(found)]


def of_a_cpu() -> dict[str, dict[str, Any]]:
    """The verdicts that the answer asks for, as one node without a GPU gives them."""
    hours = [cell(4.23, "challenges", run="nanoGPT"), cell(0.006, "challenges", run="tiny"),
             cell(31.8, "supports", run="ResNet-18"), cell(3e4, "supports", run="BERT")]  # fmt: skip
    waits = [cell(0.0126, "challenges", CONVERSATION, parameters=10_893_312),
             cell(0.00002, "challenges", CONVERSATION, parameters=301_066),
             cell(0.175, "supports", CONVERSATION, parameters=85_645_824)]  # fmt: skip
    waiting = {"reason": "awaiting hardware: no node with a GPU has measured training"}
    answers = [cell(0.032, "supports", SERVICES)]
    return {
        "G25": claim("G25", "depends", hours, part={"unit": "h", "threshold": 24}, evidence_tier="derived"),
        "N04": claim("N04", "supported", hours[2:], part={"unit": "h", "threshold": 24}, evidence_tier="derived"),
        "G15": claim("G15", "depends", waits, parts=[part("depends", waits, CONVERSATION, unit="s", threshold=0.1)]),
        "W25": claim("W25", "supported", [cell(14.9, "supports", run="Llama 3.1 405B")]),
        "N13": claim("N13", "depends", [cell(4929, "challenges", run="Llama 2 70B")], part={"unit": "servers"}),
        "W29": claim("W29", "depends", answers, parts=[part("supported", answers, SERVICES, unit="s")]),
        "G28": claim("G28", "awaiting hardware", parts=[part("awaiting hardware", [], "time")], **waiting),
        "N12": claim("N12", "awaiting hardware", **waiting),
    }


# ------------------------------------------------------------------ the answer


def test_the_answer_says_what_is_enough_what_is_not_and_what_was_not_measured() -> None:
    assert said(document(*of_a_cpu().values())) == [
        "Not for everything: a CPU is enough to answer 99 of 100 single requests to a model of 10.9 million "
        "parameters within 12.6 [11.5, 13.9] ms, and as derived from its rates to train nanoGPT in 4.23 [3.85, 4.65] "
        "hours, but to train Llama 3.1 405B on CPU servers would cost 14.9 [13.5, 16.4] times what it cost on GPUs; "
        "2 claims wait for a GPU, since none has been measured yet.",
        "Of the 8 claims that the articles make, 6 could be decided: 2 hold and 4 depend on the case.",
    ]


@pytest.mark.parametrize(
    ("changed", "told", "not_told"),
    [
        ({"W25": claim("W25", "challenged", [cell(3.0, "challenges", run="X")])},
         "but to train ResNet-18 would take a CPU 31.8 [28.9, 35.0] hours", "what it cost on GPUs"),
        ({"W25": claim("W25", "undecided", [cell(9.9, "undecided", run="X")]),
          "N13": claim("N13", "supported", [cell(2e5, "supports", run="Y")], part={"unit": "servers"})},
         "but to train Y in ninety days without GPUs would take 200,000 [181,818, 220,000] servers", "cost on GPUs"),
        ({"G15": claim("G15", "awaiting hardware", parts=[part("awaiting hardware", [], CONVERSATION)])},
         "Not for everything: as derived from its rates, a CPU is enough to train nanoGPT in 4.23 [3.85, 4.65] hours",
         "single requests"),
        ({"G25": claim("G25", "supported", [cell(31.8, "supports", run="ResNet-18")])},
         "Not for everything: a CPU is enough to answer 99 of 100 single requests", "as derived"),
        ({"G25": claim("G25", "supported", [cell(31.8, "supports", run="ResNet-18")]),
          "G15": claim("G15", "supported", parts=[part("supported", [], CONVERSATION)])},
         "Not for everything: at low traffic a CPU is enough", "as derived"),
        ({"G25": claim("G25", "awaiting source"), "G15": claim("G15", "awaiting source"),
          "W29": claim("W29", "challenged", [cell(2.0, "challenges")])},
         "For the largest models, yes: to train Llama 3.1 405B on CPU servers", "enough"),
        ({name: claim(name, "undecided") for name in ("G25", "N04", "G15", "W25", "W29", "N13")},
         "That is still open: 2 claims wait for a GPU, since none has been measured yet.", "enough"),
        # Without an interval nothing is told as a number.
        ({"W25": claim("W25", "supported", [cell(14.9, "supports", run="X") | {"low": None, "high": None}])},
         "; 2 claims wait for a GPU", "14.9"),
    ],
)  # fmt: skip
def test_another_verdict_makes_another_sentence(changed: dict[str, Any], told: str, not_told: str) -> None:
    first, second = said(document(*(of_a_cpu() | changed).values()))
    assert told in first and not_told not in first
    assert "of the 8 claims that the articles make" in second.lower()
    near = sum(one["verdict"] == "undecided" for one in (of_a_cpu() | changed).values())
    decided = sum(one["verdict"] in DECIDED for one in (of_a_cpu() | changed).values())
    assert (f" {near or 'No'} {'is' if near == 1 else 'are'} too close to call." in second) == bool(near)
    assert f", {decided} could be decided: " in second or not decided


@pytest.mark.parametrize(
    ("outcome", "cells", "told"),
    [
        ("supported", [(3.2, "supports"), (35.0, "supports")], "at least 3.20 [2.91, 3.52] times as fast as all cores"),
        ("depends", [(0.5, "challenges"), (35.0, "supports")], "between 0.500 [0.455, 0.550] and 35.0 [31.8, 38.5]"),
        ("depends", [(1.01, "undecided"), (35.0, "supports")], "up to 35.0 [31.8, 38.5] times as fast as all cores"),
        ("challenged", [(0.5, "challenges"), (0.7, "challenges")], "no faster than all cores of its host, at best 0.7"),
        ("awaiting hardware", [], "how much faster a GPU trains is not decided yet"),
    ],
)  # fmt: skip
def test_with_a_gpu_the_answer_says_what_it_gains(outcome: str, cells: list[tuple[float, str]], told: str) -> None:
    made = [cell(value, side, "time") for value, side in cells]
    changed = {
        "G28": claim("G28", "depends", made, parts=[part(outcome, made, "time"), part("undecided", [], "energy")])
    }
    first, _ = said(document(*(of_a_cpu() | changed).values(), devices=[CPU, GPU]))
    assert told in first and "none has been measured" not in first


def asked_for() -> dict[str, set[str]]:
    """The claims that the declared statements name, with the parts that they name."""
    found: dict[str, set[str]] = {}
    for sentence in read_answer()["sentences"]:
        for one in sentence["parts"]:
            for statement in one["statements"]:
                for name, asked in statement["when"].items():
                    if name[0].isupper():
                        found.setdefault(name, set()).add(asked.get("part", "") if isinstance(asked, dict) else "")
    return found


NAMED = asked_for()


@st.composite
def documents(draw: Callable[..., Any]) -> dict[str, Any]:
    """Every claim that is named with any verdict, any sides among its cells, any of its numbers missing, or absent."""
    made = []
    for name, parts in NAMED.items():
        verdict = draw(st.sampled_from([*VERDICTS, "absent"]))
        sides = draw(st.lists(st.sampled_from(["supports", "challenges", "undecided"]), max_size=3))
        where = sorted(parts)[-1]
        cells = [cell(draw(st.floats(1e-3, 1e6)), side, where) for side in sides]
        for one in cells:
            one |= draw(st.sampled_from([{}, {"low": None}, {"run": "a run", "parameters": 7e9}]))
        if verdict != "absent":
            made.append(claim(name, verdict, cells, parts=[part(verdict, cells, where)], reason="no node with a GPU"))
    made.append(claim("N02", draw(st.sampled_from(sorted(VERDICTS)))))
    return document(*made, devices=draw(st.sampled_from([[CPU], [CPU, GPU]])))


@settings(deadline=None)
@given(documents())
def test_every_combination_gives_two_sentences_that_claim_no_more_than_they_may(found: dict[str, Any]) -> None:
    told = answer(found)
    assert len(told) == 2
    by_id = {one["id"]: one for one in found["verdicts"]}
    for sentence in told:
        text = plain(sentence)
        assert text[0].isupper() and text.endswith(".") and not re.search(r"[{}]|None\b(?! of)|  |\.\.", text), text
        for piece in sentence:
            if piece.claim:
                of = by_id[piece.claim]
                assert (
                    piece.text in [with_interval(one, "1") for one in of["cells"]] and "no interval" not in piece.text
                )
    first = plain(told[0])
    sides = {name: {one["outcome"] for one in of["cells"]} for name, of in by_id.items()}
    verdict = {name: of["verdict"] for name, of in by_id.items()}
    assert "on CPU servers" not in first or verdict["W25"] == "supported"
    assert "without GPUs" not in first or verdict["N13"] == "supported"
    assert "as derived" not in first or "challenges" in sides["G25"]
    assert "single requests" not in first or "challenges" in sides["G15"]
    assert "trains at least" not in first or verdict["G28"] == "supported"
    assert "trains no faster" not in first or verdict["G28"] == "challenged"
    assert "trains between" not in first or sides["G28"] >= {"supports", "challenges"}
    assert "trains up to" not in first or "supports" in sides["G28"]
    gpu = len(found["nodes"][0]["devices"]) > 1
    assert not ("none has been measured" in first and gpu)


# ------------------------------------------------------------------ the declared statements


def test_every_place_is_a_label_and_every_statement_can_be_told() -> None:
    claims = {
        one.id: one for one in read_claims(ROOT / "report" / "claims", read_reference(ROOT / "data" / "reference"))
    }
    seen = 0
    for sentence in read_answer()["sentences"]:
        for one in sentence["parts"]:
            for statement in one["statements"]:
                places = re.findall(r"\{(?:(\w+) of )?([A-Z]\d\d)(?:\[([^\]]+)\])?[^}]*\}", statement["says"])
                for label, name, inside in places:
                    parts = [one for one in claims[name].parts if inside in ("", one.name)]
                    assert len(parts) == 1, "a number of several parts has no one unit"
                    assert not label or label in quantities()[parts[0].quantity].labels
                    seen += 1
    assert seen > 10


def test_no_statement_is_the_articles_own() -> None:
    assert copied(read_yaml(DECLARED, SCHEMA)) == []


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("when: {W25: supported}", "when: {W25: supprtd}", r"line \d+: .*'supprtd' is not allowed.*mean 'supported'"),
        ("when: {W25: supported}", "when: {W99: supported}", r"line \d+: there is no claim 'W99'"),
        ("when: {W25: supported}", "when: {N14: supported}", r"line \d+: tells a number of W25, of which"),
        ("part: time, is: supported", "part: tme, is: supported", r"line \d+: claim G28 has no part 'tme'.*'time'"),
        ("{fares}", "{fare}", r"line \d+: \{fare\} names nothing.*mean 'fares'"),
        ("{N04 supports}", "{N04 nearest}", r"line \d+: \{N04 nearest\} names nothing"),
        ("head: For part of it", "haed: For part of it", r"line \d+: .*unknown key.*mean 'head'"),
        ("version: 4", "version: 5", r"line \d+: version 5 has no reason under 'changes'"),
        ("gpu: measured", "gpus: measured", r"line \d+: .*'gpus' is not gpu, decided or the id of a claim"),
        ("gpu: measured", "gpu: measure", r"line \d+: .*'measure' is not allowed"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, before: str, after: str, complaint: str) -> None:
    text = DECLARED.read_text(encoding="utf-8")
    assert before in text
    shutil.copytree(ROOT / "report" / "claims", tmp_path / "claims")
    (tmp_path / "answer.yaml").write_text(
        text.replace(before, after, 1) if before != "{fares}" else after.join(text.rsplit(before, 1))
    )
    with pytest.raises(StudyError, match=rf"answer\.yaml, {complaint}"):
        read_answer(tmp_path / "answer.yaml")


# ------------------------------------------------------------------ the surprises


def against(name: str, value: float, **more: Any) -> dict[str, Any]:
    """A claim whose number is far below its threshold of 10, unless the value is not."""
    quantity = {"quantity": more.pop("quantity", f"gemm.of_{name}")}
    return claim(name, "challenged", [cell(value, "challenges")], part={**quantity, **more.pop("part", {})}, **more)


def ids(*verdicts: dict[str, Any]) -> list[str]:
    return [str(one.verdict["id"]) for one in surprises(verdicts)]


def test_measured_comes_first_then_the_furthest_and_one_of_an_article() -> None:
    near, far = against("W01", 2.0), against("W02", 0.5)
    derived, documented = (
        against("N01", 0.01, evidence_tier="derived"),
        against("G01", 0.001, evidence_tier="documented"),
    )
    assert ids(near, documented, derived, far) == ["W02", "N01", "G01"]
    assert ids(near, against("N02", 3.0), against("G02", 4.0)) == ["W01", "N02", "G02"]


def test_no_two_ask_the_same_or_count_the_same() -> None:
    assert ids(against("W01", 1.0), against("N01", 2.0, same_as="W01"), against("G01", 3.0)) == ["W01", "G01"]
    similar = {"quantity": "gemm.rate"}
    assert ids(against("W01", 1.0, **similar), against("N01", 2.0, **similar)) == ["W01"]
    published = {"quantity": "reference.value"}
    assert ids(against("W01", 1.0, **published), against("N01", 2.0, **published)) == ["W01", "N01"]


def test_a_result_is_the_number_that_its_claim_is_told_with() -> None:
    cells = [cell(2.0, "challenges"), cell(0.01, "challenges"), cell(11.0, "undecided"), cell(90.0, "supports")]
    (found,) = surprises([claim("W01", "depends", cells)])
    assert found.cell["estimate"] == 2.0
    assert found.beyond == pytest.approx(10 / 2.2)
    # Nearest to the threshold is a cell that supports: what challenges elsewhere is not the claim's number.
    assert surprises([claim("W01", "depends", [cells[3], *cells[:3]])]) == []
    two = [part("challenged", cells[:1], "one"), part("challenged", cells[1:2], "other")]
    (found,) = surprises([claim("W01", "challenged", cells, parts=two)])
    assert found.cell["estimate"] == 2.0, "the first part speaks, not the furthest"
    # A part that is refuted beside one that holds says that the article is half right, which is no surprise.
    parts = [part("challenged", cells[:1]), part("supported", cells[3:], "other")]
    assert surprises([claim("W01", "depends", cells, parts=parts)]) == []


# ------------------------------------------------------------------ in words


def told(*verdicts: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = document(*verdicts, **more)
    claims = [{"id": one["id"], "verdict": one["verdict"], "says": one["says"]} for one in verdicts]
    articles = [{"key": "a", "title": "An article", "claims": claims}]
    return opening(made, claims, articles)


def test_a_surprise_says_what_was_asked_what_was_found_and_where() -> None:
    cells = [
        cell(0.4, "challenges", dtype="float32", service="embedding"),
        cell(0.03, "supports", dtype="int8", service="int8"),
    ]
    p99 = {"quantity": "serving.p99_latency_s", "unit": "s", "rule": "at_most", "threshold": 0.1}
    where = "holds for int8, fails for float32"
    ((one),) = told(claim("W29", "depends", cells, part={**p99, "boundary": where}))["surprises"]
    assert one["number"] == "400 [\\[364, 440\\]]{.ci} ms" and one["asks"] == "allow at most 100 ms"
    assert one["about"] == "P99 latency, float32, search of a million vectors; measured on A CPU, 2 cores"
    assert one["boundary"] == "It holds for int8, fails for float32"
    ((one),) = told(claim("W29", "depends", cells, part={**p99, "boundary": "mlp: fails at 2; cnn: holds"}))[
        "surprises"
    ]
    assert one["boundary"] == "It differs: mlp fails at 2; cnn holds"
    ((one),) = told(claim("W29", "depends", cells, part={**p99, "boundary": "x " * 99}))["surprises"]
    assert one["boundary"] == ""
