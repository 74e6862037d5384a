"""The section on contradictions: its words, its markdown under both targets, and the page at every width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup

from report.judging.contradictions import STANDINGS, Contradiction, decide
from report.render import TEMPLATES
from report.render.contradictions import contradictions, counts, disputes
from report.render.markdown import environment
from tests.report.render.conftest import VERDICTS
from tests.report.render.pdf_words import text_of
from tests.report.rendering import render_beside

HOSTILE = "<b>@word</b> $x$ | y_z [a](b) `c` {{< d >}}"
CARD = {
    "id": "a", "subject": "Card | A", "what": "Memory", "value": 12e9, "unit": "B", "status": "verified",
    "date": "2020",
    "source": {"title": "A <title>", "publisher": "P", "url": "https://example.org/?a=1&b=2", "where": "page 1"},
}  # fmt: skip


def contradiction(name: str, title: str, conflict: str, *sides: list[str], **more: Any) -> Contradiction:
    """One whose every word is hostile; figures: published ones, of which 16 GB are asked."""
    figures = more.pop("figures", ())
    told = {
        "id": name, "title": title, "conflict": conflict, "question": f"Is it so, {HOSTILE}?",
        "why": f"Why, {HOSTILE}.", "boundary": f"The size, {HOSTILE}.", "stands": "each",
        "sides": [{"says": f"What side {place} says, {HOSTILE}.", "claims": ids} for place, ids in enumerate(sides)],
        **({"figures": {"entries": ["a"] * len(figures), "at_least": 16e9, "why": "Asked for."}} if figures else {}),
        **more,
    }  # fmt: skip
    return Contradiction(told, tuple(tuple((claim, "") for claim in ids) for ids in sides), figures)


def declared() -> list[Contradiction]:
    """One with two sides, one with figures, one with four sides and many claims."""
    unread = {**CARD, "value": None, "status": "not verified"}
    return [
        contradiction("two", f"Two {HOSTILE}", "real", ["N01"], ["W02"]),
        contradiction("figures", "Figures", "by figures", ["G03"], ["G04"], stands="opposites", figures=(CARD, unread)),
        contradiction("many", "Many", "in part", ["N03", "N11"], ["G05", "G06"], ["W03"], ["N08"]),
    ]


def decided(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The three as these verdicts decide them."""
    return decide({one["id"]: one for one in document["verdicts"]}, declared())


@pytest.fixture(scope="module")
def document(make_document: Any) -> dict[str, Any]:
    """Synthetic verdicts on the claims of three contradictions, which these verdicts decide."""
    made: dict[str, Any] = make_document()
    made["contradictions"] = decided(made)
    needed = {claim for one in declared() for side in one.sides for claim, _ in side}
    made["verdicts"] = [one | {"see_also": []} for one in made["verdicts"] if one["id"] in needed]
    made["tally"] = {name: sum(one["verdict"] == name for one in made["verdicts"]) for name in VERDICTS}
    return made


@pytest.fixture(scope="module")
def told(document: dict[str, Any]) -> list[dict[str, Any]]:
    return contradictions(document)


@pytest.fixture(scope="module")
def section(told: list[dict[str, Any]]) -> str:
    """The section's markdown."""
    template = environment(TEMPLATES).get_template("parts/contradictions.qmd")
    return template.render(contradictions=told, contradiction_counts=counts(told))


@pytest.fixture(scope="module")
def whole(document: dict[str, Any], report: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small report with the section."""
    folder = tmp_path_factory.mktemp("contradictions")
    (folder / "verdicts.json").write_text(json.dumps(document), encoding="utf-8")
    return render_beside(report, folder / "verdicts.json", folder / "out")


def test_each_has_a_row_and_a_card_with_both_sides_and_their_verdicts(section: str, document: dict[str, Any]) -> None:
    page = BeautifulSoup(
        pypandoc.convert_text(section, "html5", format="markdown", extra_args=["--section-divs"]), "html.parser"
    )
    rows = page.select("table tbody tr")
    assert len(rows) == len(document["contradictions"]) == 3
    verdict = {one["id"]: one["verdict"] for one in document["verdicts"]}
    for one, row in zip(document["contradictions"], rows, strict=True):
        card = page.find(id=f"contradiction-{one['id']}")
        text = " ".join(card.get_text().split())
        assert row.a["href"] == f"#contradiction-{one['id']}"
        assert one["question"] in text and one["boundary"] in text and one["sentence"] in text
        assert [tile["href"][1:] for tile in row.select("a.tile")] == [
            claim["id"] for side in one["sides"] for claim in side["claims"]
        ]
        for side in one["sides"]:
            assert side["says"] in text
            for claim in side["claims"]:
                tile = card.find("a", href=f"#{claim['id']}")
                assert tile.find_parent("li").get_text().strip().startswith(f"{claim['id']} {verdict[claim['id']]}")
    assert not page.find("b"), "data became markup"


def test_figures_are_shown_with_their_sources(section: str) -> None:
    page = BeautifulSoup(pypandoc.convert_text(section, "html5", format="markdown"), "html.parser")
    text = " ".join(page.get_text().split())
    assert "At least 16 GB are asked for." in text
    assert "Card | A: 12.0 GB, too little." in text and "Card | A: unknown, not verified." in text
    assert page.find("a", string="A <title>")["href"] == "https://example.org/?a=1&b=2"


def test_every_standing_has_its_words(document: dict[str, Any]) -> None:
    (one, *_) = document["contradictions"]
    for kind in STANDINGS:
        side = one["sides"][0] | {"standing": kind}
        (shown,) = contradictions(document | {"contradictions": [one | {"sides": [side]}]})
        assert shown["sides"][0]["stands"]


def test_a_claim_that_carries_with_one_part_keeps_its_own_verdict(document: dict[str, Any]) -> None:
    one = document["contradictions"][0]
    side = one["sides"][0]
    claim = side["claims"][0] | {"part": "one core", "verdict": "challenged"}
    verdicts = [v | {"verdict": "depends"} if v["id"] == claim["id"] else v for v in document["verdicts"]]
    (told,) = contradictions(
        document | {"verdicts": verdicts, "contradictions": [one | {"sides": [side | {"claims": [claim]}]}]}
    )
    (shown,) = told["sides"][0]["claims"]
    assert (shown["verdict"], shown["class"], shown["outcome"]) == ("depends", "depends", "challenged")


def test_a_claim_knows_what_contradicts_it(told: list[dict[str, Any]]) -> None:
    assert [(one["title"], one["side"]) for one in disputes(told)["W03"]] == [("Many", "C")]


def test_a_file_without_contradictions_has_no_section(make_document: Any) -> None:
    assert contradictions(make_document()) == []


# ------------------------------------------------------------------ the whole page


def test_claims_and_contradictions_lead_to_each_other(whole: Path) -> None:
    page = BeautifulSoup((whole / "index.html").read_text(encoding="utf-8"), "html.parser")
    ids = {tag["id"] for tag in page.select("[id]")}
    assert {link["href"][1:] for link in page.select("#contradictions a[href^='#']")} <= ids
    assert page.select_one("#W03 a[href='#contradiction-many']").get_text() == "Many"
    assert page.select_one("nav.contents a[href='#contradictions']")


def test_the_pdf_holds_the_section(whole: Path, document: dict[str, Any]) -> None:
    text = " ".join(text_of(whole / "report.pdf").split())
    assert "Where the articles contradict" in text
    for one in document["contradictions"]:
        assert one["answer"] in text


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_no_width_scrolls_sideways_or_cuts_a_row(whole: Path, chromium: Any, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto((whole / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    frame = page.locator(".table-frame:has(table.contradictions)")
    assert frame.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    context.close()
