"""Claim pages: figures show the cases next to the threshold, titles are true, texts escaped, and tables complete."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.files import read_json
from report.data.reference_figures import REFERENCE, read_reference
from report.findings import sentence_number
from report.formatting import YES_NO
from report.judging.claim_files import read_claims
from report.judging.judge import CLAIMS
from report.pages import charts, claim_page
from report.pages.claim_figure import MOST_ROWS, chart_title, claim_chart, parts_to_draw, result_text
from report.pages.claim_page import claim_context
from report.pages.figure_data import Evidence
from report.pages.markdown import clean
from report.pages.quantity_words import read_quantity_words, scope_text
from report.pages.threshold_slider import sliders_json
from report.quantities import quantities
from tests.golden.__main__ import kept_pages

sizes = st.one_of(st.integers(-3, 6).map(float), st.floats(1e-3, 1e6))
LINE = "the line"


def make_verdict(estimates: Sequence[float], threshold: float, **labels: Sequence[Any]) -> dict[str, Any]:
    """Return a verdict with one part and with one case per estimate. labels: for each label, its value in each case."""
    cases = [
        {
            "part": "", "node": "synthetic", "detail": f"case {i}", "estimate": value, "low": value, "high": value,
            "outcome": "supports" if value >= threshold else "challenges",
            "labels": {name: values[i] for name, values in labels.items()},
        }
        for i, value in enumerate(estimates)
    ]  # fmt: skip
    part = {
        "name": "", "quantity": "training.rate", "unit": "1", "rule": "at_least", "threshold": threshold,
        "outcome": "depends", "tier": "measured", "estimate": estimates[0],
    }  # fmt: skip
    summary = {"id": "N01", "verdict": "depends", "evidence_tier": "measured", "estimate": estimates[0]}
    return {**summary, "finding_part": "", "parts": [part], "cases": cases}


def figure_rows(chart: charts.Chart) -> list[tuple[str, str]]:
    """Return label and number text for each row in the figure."""
    with charts.theme():
        (axes,) = chart.draw(charts.WIDE).axes
    labels = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
    # Bold texts are headings of groups.
    return list(zip(labels, [text.get_text() for text in axes.texts if text.get_weight() != "bold"], strict=True))


@settings(max_examples=40)
@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30, unique_by=lambda x: f"{x:.4g}"), st.floats(1e-3, 1e6))
def test_figure_shows_the_extremes_and_the_cases_next_to_the_threshold(
    estimates: list[float], threshold: float
) -> None:
    names = {f"run {i}": value for i, value in enumerate(estimates)}
    chart = claim_chart(make_verdict(estimates, threshold, run=list(names)), {})
    assert chart is not None
    if len(estimates) == 1:
        assert len(figure_rows(chart)) == 1
        return
    shown = [names[f"run {label.removeprefix('run ')}"] for label, _ in figure_rows(chart)]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == min(len(estimates), MOST_ROWS)
    above = [value for value in estimates if value >= threshold]
    below = [value for value in estimates if value < threshold]
    deciding = {max(estimates), min(estimates), *([min(above)] if above else []), *([max(below)] if below else [])}
    assert deciding <= set(shown)


@settings(max_examples=40)
@given(st.data())
def test_figure_rows_have_distinct_labels(data: st.DataObject) -> None:
    cases = st.tuples(st.sampled_from(["GPT", "ResNet"]), st.sampled_from([1, 8, 64]), st.sampled_from([1, 2]))
    combinations = data.draw(st.lists(cases, min_size=2, max_size=12, unique=True))
    labels = {name: [case[i] for case in combinations] for i, name in enumerate(("model", "batch", "threads"))}
    chart = claim_chart(make_verdict([float(i + 1) for i in range(len(combinations))], 3.0, **labels), {})
    assert chart is not None
    row_labels = [label for label, _ in figure_rows(chart)]
    assert all(row_labels) and len(set(row_labels)) == len(row_labels)


def test_claim_without_numbers_has_no_figure() -> None:
    verdict = make_verdict([1.0], 2.0)
    assert claim_chart({**verdict, "cases": [{**verdict["cases"][0], "estimate": None}]}, {}) is None
    assert claim_chart({**verdict, "cases": []}, {}) is None


def is_on_side(value: float, ends: Sequence[float], side: str) -> bool:
    """Return True if `value` lies on the given side of a threshold or range.

    ends: the threshold, or both ends of the range.
    """
    within = ends[0] <= value <= ends[-1]
    return {
        "above": value > ends[0],
        "below": value < ends[0],
        "at or below": value <= ends[0],
        "within": within,
        "outside": not within,
    }[side]


@given(st.lists(sizes, min_size=1, max_size=12), st.lists(sizes, min_size=1, max_size=2, unique=True).map(sorted))
def test_figure_title_counts_the_sides_correctly(estimates: list[float], ends: list[float]) -> None:
    title = chart_title(estimates, "12 times", ends, LINE)
    line = f"the threshold of {LINE}" if len(ends) == 1 else LINE
    if title == f"Exactly {LINE}":
        assert set(estimates) == set(ends)
        return
    match = re.fullmatch(
        rf"12 times(?:; (?P<some>\d+) of (?P<of>\d+)|,) (?P<side>above|below|at or below|within|outside) {line}", title
    )
    assert match, title
    count = sum(is_on_side(value, ends, match["side"]) for value in estimates)
    assert (int(match["some"] or count), int(match["of"] or count)) == (count, len(estimates))


@pytest.mark.parametrize(
    ("values", "directions", "ends", "title"),
    [
        ([1.7, 6.0, 48.0], ["CPU faster", "GPU faster"], [10.0, 100.0],
         "GPU faster: typically 6.0 times, from 1.7 to 48 times; 1 of 3 within the line"),
        ([0.2, 0.5, 3.0], ["CPU faster", "GPU faster"], [1.0],
         "Typically 0.50 times, from 0.20 to 3.0 times; 1 of 3 above the threshold of the line"),
        ([0.5, 0.2], ["CPU cheaper", "GPU cheaper"], [],
         "CPU cheaper: 0.20 to 0.50 times"),
        ([2.0] * 5, [], [1.0], "2.0 times in all 5 results, above the threshold of the line"),
    ],
)  # fmt: skip
def test_figure_title_gives_the_typical_result_and_the_direction(
    values: list[float], directions: list[str], ends: list[float], title: str
) -> None:
    results = result_text(values, lambda value: sentence_number(value, "1"), " times")
    assert chart_title(values, results, ends, LINE, directions) == title


def test_figure_shows_the_parts_that_decide(document: Mapping[str, Any]) -> None:
    for verdict in document["verdicts"]:
        outcomes = {part["outcome"] for part in parts_to_draw(verdict)}
        drawable = {case["part"] for case in verdict["cases"] if case["estimate"] is not None}
        decided = {part["outcome"] for part in verdict["parts"] if part["name"] in drawable and part["unit"] != YES_NO}
        assert verdict["verdict"] not in decided or outcomes <= {verdict["verdict"]}, verdict["id"]


HOSTILE = ["</script><script>alert(1)</script>", "<!--", "a\u2028b", "&amp;", '"', "\\", "مرحبا"]


@given(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30)))
def test_part_name_cannot_break_out_of_the_slider_script(name: str) -> None:
    slider = {"parts": [name], "unit": "1", "declared": 2.0, "range": [1.0, 4.0], "log": False}
    pieces = [[1.0, "supported", "depends", 0]]
    text = sliders_json({"parts": [{}, {}], "by_threshold": [{**slider, "pieces": pieces}]})
    page = BeautifulSoup(f'<script type="application/json">{text}</script><p>after</p>', "html.parser")
    assert page.p is not None and page.p.get_text() == "after"
    assert not set(text) & set("<>&\u2028\u2029")
    (parsed,) = json.loads(page.script.string)
    assert parsed["name"].casefold() == clean(name).casefold()


@pytest.fixture(scope="module")
def document(published_study: Path) -> Any:
    return read_json(published_study / "verdicts.json")


def test_published_figures_show_few_cases_with_distinct_labels(document: Mapping[str, Any]) -> None:
    names = Evidence(document, None).names
    for verdict in document["verdicts"]:
        chart = claim_chart(verdict, names)
        rows = chart.draw.rows if chart else []
        labels = [(row["group"], row["label"]) for row in rows]
        assert len(labels) <= MOST_ROWS and bool(labels) == bool(parts_to_draw(verdict)), verdict["id"]
        assert all(label for _, label in labels) and len(set(labels)) == len(labels), (verdict["id"], labels)
        assert not [label for _, label in labels if "…" in label or re.search(r"\(\d\)$", label)], verdict["id"]


# Internal words and NaN, which pages must not show. "256-cell" LSTMs, sentences that begin with "None of" and anchors
# of cases are allowed.
FORBIDDEN = re.compile(r"(?<!\d[- ])(?<!#)\bcells?\b|\bholds up to\b|\bfails\b|\b(?:nan|inf|None(?! of))\b")


def test_pages_avoid_internal_words(document: Mapping[str, Any], site: Path) -> None:
    sources = {"of a fleet": "\n".join(kept_pages("fleet")).partition("==== explained")[0]}
    # Exempt the pages on claims about matrix cells, because they need the word "cell".
    matrices = {
        verdict["id"]
        for verdict in document["verdicts"]
        if any("_cell" in part["quantity"] for part in verdict["parts"])
    }
    pages = {str(path.relative_to(site).with_suffix("")): path for path in site.rglob("*.qmd")}
    assert {f"claims/{verdict['id']}" for verdict in document["verdicts"]} < {*pages}
    for name, path in pages.items():
        # Pages of evidence quote the published sources' own words, and the appendix lists parameters by name.
        if name.removeprefix("claims/") not in matrices and not name.startswith(("evidence/", "appendix")):
            sources[name] = path.read_text(encoding="utf-8")
    assert {
        name: text[max(match.start() - 60, 0) : match.end() + 30]
        for name, text in sources.items()
        if (match := FORBIDDEN.search(text))
    } == {}


# Code or names from the program in running text: a backtick, or a dotted name with an underscore that names no file.
PROGRAM_TEXT = re.compile(r"`|\b[a-z]\w*\.[a-z]+_\w+\b(?!\.go)")
# Scripts, code, and lists that quote published records.
QUOTED = re.compile(
    r"<(script|style|code|pre)\b.*?</\1>|<(a|span)\b[^>]*class=\"code\"[^>]*>.*?</\2>"
    r"|<details[^>]*><summary>Evidence by id.*?</details>",
    re.DOTALL,
)


def test_pages_show_no_program_text(site: Path) -> None:
    texts = {
        str(path.relative_to(site)): re.sub(r"<[^>]*>", " ", QUOTED.sub("", path.read_text(encoding="utf-8")))
        for path in site.rglob("*.html")
        # Pages of evidence quote the measured and published records.
        if path.parent.name != "evidence"
    }
    assert len(texts) > 100
    shown = {name: text[max(match.start() - 60, 0) : match.end() + 30] for name, text in texts.items()
             if (match := PROGRAM_TEXT.search(text))}  # fmt: skip
    assert shown == {}


def test_quantities_and_scopes_of_claims_have_words() -> None:
    claims = read_claims(CLAIMS, read_reference(REFERENCE))
    parts = [part for claim in claims for part in (*claim.parts, *claim.published)]
    assert {part.quantity for part in parts} == {*read_quantity_words()} <= {*quantities()}
    texts = [scope_text(part.scope) for part in parts] + [words.means for words in read_quantity_words().values()]
    assert not [text for text in texts if PROGRAM_TEXT.search(text) or re.search("[a-z]_[a-z]", text)]


def test_page_lists_real_contradictions(document: Mapping[str, Any]) -> None:
    pages = {verdict["id"]: claim_context(verdict, document, {}) for verdict in document["verdicts"]}
    real = [entry for entry in document["contradictions"] if entry["conflict"] == "real"]
    assert real
    for entry in real:
        sides = [{str(claim["id"]) for claim in side["claims"]} for side in entry["sides"]]
        for own in sides:
            others = set.union(*(side for side in sides if side is not own))
            for name in own - others:
                (shown,) = [
                    conflict for conflict in pages[name]["conflicts"] if conflict["question"] == entry["question"]
                ]
                assert {str(claim["id"]) for claim in shown["claims"]} == others & set(pages)
                for side in entry["sides"]:
                    is_quoted = side["says"].rstrip(".") in shown["says"]
                    assert is_quoted == (name not in {claim["id"] for claim in side["claims"]})
                assert all(claim["word"] == pages[claim["id"]]["word"] for claim in shown["claims"])


def test_every_case_is_listed_with_its_side(document: Mapping[str, Any]) -> None:
    for verdict in document["verdicts"]:
        tables = claim_context(verdict, document, {})["tables"]
        known = [case for case in verdict["cases"] if case.get("estimate") is not None]
        listed = [row for table in tables for row in table["rows"]]
        assert len(listed) + sum(table["more"] for table in tables) == len(known), verdict["id"]
        if len(listed) == len(known):
            sides = [case["outcome"] for case in known]
            for side, word in (("supports", "for"), ("challenges", "against")):
                assert [row["side"] for row in listed].count(word) == sides.count(side), verdict["id"]


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([{"beside": None, "least": 1.0, "most": 2.0, "unit": "1"}], ""),
        ([{"beside": 22.0, "least": 0.684, "most": 24.2, "unit": "1"}], "gave 0.68 to 24."),
        ([{"beside": 2.0, "least": 3e9, "most": 3e9, "unit": "B/s"}], "gave 3.0 GB/s."),
    ],
)
def test_published_results_beside_ours_are_a_range(others: list[dict[str, Any]], sentence: str) -> None:
    assert claim_page._comparison_sentence({"others": others}).endswith(sentence)
    assert bool(sentence) == bool(claim_page._comparison_sentence({"others": others}))
