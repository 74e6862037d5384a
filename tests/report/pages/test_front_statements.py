"""Front page sentences: printed only if verdicts and measurements support them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import read_json
from report.outcomes import DECIDED
from report.pages import front_page
from report.pages.advice_page import example_rows
from report.pages.articles import article_context
from report.pages.figure_data import Evidence
from report.pages.front_statements import Fact, Statements, read_front
from tests.report.claim_mistakes import reported_line, write_yaml

CONVERSATION = "a conversation, 100 ms"
NOTHING = [[{"says": "Nothing."}]]
GOOD: dict[str, Any] = {
    "answer": [[{"says": "It depends."}]], "articles": [], "findings": [], "sure": NOTHING, "limits": NOTHING,
}  # fmt: skip


def make_case(estimate: float, outcome: str, part: str = "", **labels: Any) -> dict[str, Any]:
    ends = {"estimate": estimate, "low": estimate / 1.1, "high": estimate * 1.1}
    return {"part": part, "node": "synthetic", "outcome": outcome, "labels": labels, **ends}


def make_claim(
    name: str, verdict: str, *cases: Mapping[str, Any], parts: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a verdict with the estimate and interval of its first case. parts: outcomes by part name."""
    first = {key: cases[0][key] if cases else None for key in ("estimate", "low", "high")}
    shared = {"unit": "1", "threshold": 10.0, **first}
    parts_ = [{**shared, "name": part, "outcome": outcome} for part, outcome in (parts or {"": verdict}).items()]
    summary = {"id": name, "verdict": verdict, "evidence_tier": "measured", **shared}
    return {**summary, "cases": list(cases), "parts": parts_}


def statements_for(
    *verdicts: Mapping[str, Any], gpu: bool = False, facts: Mapping[str, Fact] | None = None, marks: bool = False
) -> Statements:
    devices = [{"id": "cpu", "kind": "cpu"}, *([{"id": "cuda:0", "kind": "gpu"}] if gpu else [])]
    return Statements({"verdicts": list(verdicts), "nodes": [{"devices": devices}]}, facts or {}, marks=marks)


def with_answer(statement: Mapping[str, Any]) -> dict[str, Any]:
    return {**GOOD, "answer": [[statement]]}


@pytest.mark.parametrize(
    ("declared", "line", "message"),
    [
        (with_answer({"says": "{W99 least} times"}), "- - says:", "there is no claim 'W99'"),
        (with_answer({"when": {"W99": "supported"}, "says": "So."}), "W99:", "there is no claim 'W99'"),
        (with_answer({"when": {"W29": "suported"}, "says": "So."}), "W29:", "Did you mean 'supported'"),
        (with_answer({"when": {"W29": {"some": "supported"}}, "says": "So."}), "W29:", "Did you mean 'supports'"),
        (
            with_answer({"when": {"G15": {"part": "a chat", "is": "depends"}}, "says": "So."}),
            "G15:",
            "no part 'a chat'",
        ),
        (with_answer({"says": "{G15 [a chat] most} seconds"}), "- - says:", "claim G15 has no number"),
        (with_answer({"says": "{W29 biggest} seconds"}), "- - says:", "claim W29 has no number {W29 biggest}"),
        (with_answer({"says": "{replaced trainings} processors"}), "- - says:", "Did you mean 'replaced training'"),
        (with_answer({"says": "So.", "wen": {}}), "wen:", "unknown key"),
        ({**GOOD, "articles": [{"key": "W", "best": ["W29"], "says": NOTHING}]}, "- key:", "missing: worst"),
    ],
)
def test_mistake_is_reported_with_its_line(tmp_path: Path, declared: dict[str, Any], line: str, message: str) -> None:
    path = write_yaml(tmp_path / "front.yaml", declared)
    with pytest.raises(StudyError) as fault:
        read_front(path)
    assert message in str(fault.value) and reported_line(fault.value, path).startswith(line)


@given(st.sampled_from(DECIDED), st.lists(st.sets(st.sampled_from(DECIDED), min_size=1)))
def test_first_statement_whose_conditions_hold_is_used(verdict: str, accepted: list[set[str]]) -> None:
    text = statements_for(make_claim("W29", verdict)).first_that_holds(
        [{"when": {"W29": sorted(verdicts)}, "says": f"Statement {index}."} for index, verdicts in enumerate(accepted)]
    )
    matching = [index for index, verdicts in enumerate(accepted) if verdict in verdicts]
    assert text == (f"Statement {matching[0]}." if matching else None)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True),
        ({"W29": "supported", "G15": "depends"}, True),
        ({"W29": "supported", "G15": "supported"}, False),
        ({"W29": {"some": "challenges"}}, False),
        ({"G15": {"some": ["challenges", "supports"]}}, True),
        ({"G15": {"part": CONVERSATION, "is": "challenged"}}, True),
        ({"G15": {"part": CONVERSATION, "some": "supports"}}, False),
        ({"G15": {"part": "no such part", "is": "depends"}}, False),
        ({"N01": "supported"}, False),
        ({"gpu": "none"}, True),
        ({"gpu": "measured"}, False),
    ],
)
def test_all_conditions_must_hold(when: dict[str, Any], holds: bool) -> None:
    parts = {"the rest": "supported", CONVERSATION: "challenged"}
    cases = [make_case(20, "supports", "the rest"), make_case(5, "challenges", CONVERSATION)]
    front = statements_for(
        make_claim("W29", "supported", make_case(12, "supports")), make_claim("G15", "depends", *cases, parts=parts)
    )
    assert front.holds(when) is holds


@given(st.sampled_from(["W29 least", "W29 [other] most", "N01 least", "W29 estimate", "machines", "replaced training"]))
def test_statement_with_an_unfilled_placeholder_is_omitted(place: str) -> None:
    front = statements_for(make_claim("W29", "supported"))
    assert front.fill(f"It takes {{{place}}}.") is None
    assert front.first_that_holds([{"says": f"It takes {{{place}}}."}, {"says": "It takes long."}]) == "It takes long."
    assert front.texts([[{"says": f"It takes {{{place}}}."}], [{"says": "Second."}]]) == ["Second."]


@given(st.sampled_from(["<b>a</b>", "*a*", "$a$ $b$", "@a", "[a](b)", "a]{.b}"]))
def test_label_in_a_placeholder_stays_text(hostile: str) -> None:
    sentence = statements_for(
        make_claim("W29", "supported", make_case(12, "supports", model=hostile)), marks=True
    ).fill("{W29 model of most}.")
    page = BeautifulSoup(pypandoc.convert_text(sentence, "html5", format="markdown"), "html.parser")
    assert page.a is not None and page.a.get_text() == hostile


@pytest.fixture(scope="module")
def evidence(published_study: Path) -> Evidence:
    return Evidence(read_json(published_study / "verdicts.json"), published_study / "data")


def test_each_part_of_the_front_page_has_text(evidence: Evidence) -> None:
    declared = read_front()
    context = front_page.front_context(
        evidence.document,
        Statements(evidence.document, front_page.collect_facts(evidence)),
        declared,
        [*front_page.front_charts(evidence)],
        example_rows(None, evidence.document["verdicts"]),
    )
    for part in ("answer", "sure", "limits", "jobs"):
        assert context[part], part
    assert all(article["says"] and article["best"] and article["worst"] for article in context["articles"])
    for row in context["jobs"]:
        assert row["hardware"] and row["rate"] and "◇ predicted" in row["sure"], row["job"]


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ({"W04": "depends", "W02": "challenged", "W09": "challenged"}, "W02"),
        ({"W04": "depends", "W02": "supported", "W09": "challenged"}, "W09"),
        ({"W04": "depends", "W02": "supported", "W09": "undecided"}, "W04"),
        ({"W04": "supported", "W02": "supported", "W09": "undecided"}, None),
    ],
)
def test_worst_claim_is_challenged_if_the_article_has_one(verdicts: dict[str, str], worst: str | None) -> None:
    about = {"article": "why", "article_title": "Why", "finding": "A finding."}
    claims = [{**make_claim(*claim), **about} for claim in verdicts.items()]
    article = {"key": "why", "best": ["W04"], "worst": ["W04", "W02"], "says": NOTHING}
    summary = front_page._article_summary(article, statements_for(*claims), claims)
    assert summary["worst"] == worst
    page = {"key": "why", "source": "A blog", "thesis": "A GPU.", "sections": []}
    counts = [int(count) for count in re.findall(r"\d+", article_context(page, {"verdicts": claims})["fares"])]
    assert counts[0] == sum(counts[1:]) == len(claims), "the counts add up"
