"""Judging again in the page: the same rules as the engine's, on every claim and part, threshold and baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from report.commands import what_if
from report.judging import rules
from report.model import AWAITING, JUDGED, Side, Threshold, combined
from report.render import TEMPLATES
from report.render.rejudged import as_script, can_be_tried, rejudged
from tests.report import rejudging
from tests.report.rejudging import BASELINES, Bench, bench, judged_fleet
from tests.report.rendering import once

SCRIPT = (TEMPLATES / "scripts" / "rejudge.js").read_text(encoding="utf-8")


def engine(chromium: Any, verdicts: list[dict[str, Any]]) -> Page:
    """A page that holds the data and the script and nothing else."""
    page: Page = chromium.new_page()
    page.set_content(f"<!DOCTYPE html><title>Engine</title>{as_script(verdicts)}<script>{SCRIPT}</script>")
    return page


@pytest.fixture(scope="module", params=["published", "fleet"])
def court(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Every claim judged on the published nodes, and on synthetic ones on which every baseline differs."""
    if request.param == "published":
        return bench(request.getfixturevalue("published"))
    return bench(once(tmp_path_factory, "fleet", judged_fleet))


@pytest.fixture(scope="module")
def page(chromium: Any, court: Bench) -> Iterator[Page]:
    made = engine(chromium, court.document["verdicts"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(chromium: Any) -> Iterator[Page]:
    """The script without any claims."""
    made = engine(chromium, [])
    yield made
    made.close()


def asked(page: Page, questions: list[tuple[str, dict[str, Any], str]]) -> list[dict[str, Any]]:
    """What the page says to all questions: claim, thresholds by part, baseline."""
    found: list[dict[str, Any]] = page.evaluate(
        "(questions) => questions.map(([id, thresholds, baseline]) => study.rejudge(id, thresholds, baseline))",
        [list(one) for one in questions],
    )
    return found


def test_the_page_agrees_with_the_engine_on_every_claim_part_threshold_and_baseline(court: Bench, page: Page) -> None:
    questions: list[tuple[str, dict[str, Any], str]] = []
    expected: list[dict[str, Any]] = []
    for claim in court.claims:
        if not claim.parts:
            questions.append((claim.id, {}, ""))
            expected.append({"verdict": "not testable", "parts": {}})
        for baseline in ("", *BASELINES):
            if baseline and court.parts(claim, baseline) == list(claim.parts):
                # Not told by a baseline, or not measured against this one: as declared, with the declared threshold.
                for place, part in enumerate(claim.parts):
                    declared = part.threshold.json
                    questions.append((claim.id, {part.name: declared}, baseline))
                    expected.append(_expected(court, claim, place, declared, ""))
                continue
            for place, part in enumerate(claim.parts):
                for threshold in court.thresholds(claim, place, baseline):
                    questions.append((claim.id, {part.name: threshold}, baseline))
                    expected.append(_expected(court, claim, place, threshold, baseline))
    found = asked(page, questions)
    wrong = [(q, f, e) for q, f, e in zip(questions, found, expected, strict=True) if f != e]
    assert wrong == []
    assert {question[0] for question in questions} == {claim.id for claim in court.claims}
    assert len(questions) > 1000
    # Thresholds were among them at which verdicts really move.
    moved = {
        question[0]
        for question, one in zip(questions, found, strict=True)
        if one["verdict"] != _now(court, question[0])
    }
    assert len(moved) > 10


def _now(court: Bench, claim: str) -> str:
    return str(next(one["verdict"] for one in court.document["verdicts"] if one["id"] == claim))


def _expected(court: Bench, claim: Any, place: int, threshold: Any, baseline: str) -> dict[str, Any]:
    outcome = court.outcome(claim, place, threshold, baseline)
    parts = {one.part.name: one.outcome for one in court.weighed(claim, baseline)}
    return {
        "verdict": court.verdict(claim, place, outcome, baseline),
        "parts": {**parts, claim.parts[place].name: outcome},
    }


@pytest.mark.parametrize("turn", [1, 2])
def test_the_page_says_what_what_if_says_of_all_claims_at_once(court: Bench, page: Page, turn: int) -> None:
    told, given = rejudging.settings([claim for claim in court.claims if claim.parts], turn)
    changed = what_if.settings(told, court.claims, court.data)
    answers = what_if.what_if(court.data, court.claims, changed, {}, allow_synthetic=True)
    found = asked(page, [(one.claim.id, given[one.claim.id], "") for one in answers])
    assert len(answers) > 20
    for one, other in zip(answers, found, strict=True):
        parts = {name: outcome for name, (_, outcome) in one.parts.items()}
        assert other == {"verdict": one.after, "parts": parts}, one.claim.id


def test_a_field_shows_every_declared_threshold_and_reads_it_back(court: Bench, page: Page) -> None:
    wrong = page.evaluate(
        """() => Object.values(JSON.parse(document.getElementById("rejudge-data").textContent).claims)
          .flatMap((claim) => claim.parts.filter((part) => "power" in part))
          .flatMap(({ threshold, tries, power }) =>
            [threshold, ...tries.map((one) => one[0])].flat().map((value) => [value, power]))
          .filter(([value, power]) => study.rules.parsed(study.rules.shown(value, power), power) !== value)"""
    )
    assert wrong == []


def test_a_claim_that_is_not_known_gives_nothing(alone: Page) -> None:
    assert asked(alone, [("W99", {}, ""), ("constructor", {}, ""), ("", {}, "node")]) == [None, None, None]


def test_a_claim_of_too_many_cells_says_what_to_type(chromium: Any, court: Bench) -> None:
    verdict = next(one for one in court.document["verdicts"] if can_be_tried(one))
    told = json.dumps(rejudged(court.document["verdicts"], most=0))
    page = chromium.new_page()
    page.set_content(
        f"""<!DOCTYPE html><title>Engine</title><section id="{verdict["id"]}">
        <details class="rejudge"><summary>Try</summary></details></section>
        <script type="application/json" id="rejudge-data">{told}</script><script>{SCRIPT}</script>"""
    )
    page.locator("summary").click()
    expect(page.locator("details.rejudge p")).to_contain_text(f"what-if --set '{verdict['id']}")
    assert asked(page, [(verdict["id"], {}, "")]) == [None]
    page.close()


number = st.one_of(
    st.floats(0.5, 20), st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 5e-324])
)
bound = st.one_of(
    number.filter(math.isfinite), st.tuples(st.floats(-3, 9), st.floats(0, 9)).map(lambda p: [p[0], sum(p)])
)


@given(st.lists(st.tuples(number, number, bound, st.sampled_from(["at_least", "at_most"])), min_size=1))
@settings(deadline=None, max_examples=60)
def test_an_interval_lies_where_the_engine_says(alone: Page, cases: list[tuple[float, float, Any, str]]) -> None:
    # A range is always compared within.
    asked_ = [(low, high, one, "within" if isinstance(one, list) else how) for low, high, one, how in cases]
    found = alone.evaluate("(cases) => cases.map((one) => study.rules.side(...one))", [list(case) for case in asked_])
    expected = [
        rules.sides_of(np.array([low]), np.array([high]), Threshold.of(one), how)[0] for low, high, one, how in asked_
    ]
    assert set(expected) <= set(Side) and found == expected


def test_all_counts_of_few_cells_come_out_as_the_engine_says(alone: Page) -> None:
    most = 30
    found = alone.evaluate(
        """([rules, most]) => {
          const found = [];
          for (const rule of rules)
            for (let n = 0; n <= most; n++)
              for (let pro = 0; pro <= n; pro++)
                for (let contra = 0; contra <= n - pro; contra++)
                  found.push(study.rules.ofCounts(rule, n, pro, contra)[0]);
          return found.join("");
        }""",
        [list(rules.RULES), most],
    )
    expected = "".join(
        rules.of_counts(rule, n, pro, contra)[0]
        for rule in rules.RULES
        for n in range(most + 1)
        for pro in range(n + 1)
        for contra in range(n - pro + 1)
    )
    # The outcomes begin with four different letters.
    assert set(expected) == {"s", "c", "d", "u"}
    assert found == expected


@given(st.lists(st.lists(st.sampled_from([*JUDGED, *AWAITING]), min_size=1, max_size=5), min_size=1))
@settings(deadline=None, max_examples=60)
def test_parts_combine_as_the_engine_says(alone: Page, cases: list[list[str]]) -> None:
    found = alone.evaluate(
        "([cases, awaiting]) => cases.map((one) => study.rules.combined(one, awaiting))", [cases, list(AWAITING)]
    )
    assert found == [combined(one) for one in cases]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000", 1000), (" 1,000 ", 1000), ("1,234,567.5", 1234567.5), ("-3", -3), ("\u22123", -3), ("+.5", 0.5),
        ("2e9", 2e9), ("1E-3", 1e-3), ("5.", 5), ("0", 0),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(alone: Page, text: str, value: float) -> None:
    assert alone.evaluate("(text) => study.rules.parsed(text, 0)", text) == value


@pytest.mark.parametrize(
    "text", ["", "  ", "abc", "1,00", "0,5", "1e", "--1", "Infinity", "NaN", "0x10", "1 000", "1.2.3"]
)
def test_what_is_no_number_is_none(alone: Page, text: str) -> None:
    assert math.isnan(alone.evaluate("(text) => study.rules.parsed(text, 0)", text))
