"""The page on paper: everything unfolded, no table cut, nothing that only a screen can use."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from tests.report.render.pdf_words import text_of

# The width of A4 less margins of 1 cm, in CSS pixels.
INSIDE = round((210 - 20) / 25.4 * 96)


@pytest.fixture(scope="module")
def page(chromium, report: Path):
    context = chromium.new_context(viewport={"width": INSIDE, "height": 1000})
    page = context.new_page()
    page.goto((report / "index.html").as_uri())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    yield page
    context.close()


@pytest.fixture(scope="module")
def paper(page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Chromium prints on A4."""
    made: Path = tmp_path_factory.mktemp("paper") / "page.pdf"
    page.pdf(path=made, format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "10mm"))
    return made


def test_no_table_and_no_figure_is_wider_than_the_sheet(page) -> None:
    wide = page.evaluate(
        """() => [...document.querySelectorAll("table, figure, svg.plot, pre")]
           .filter((one) => one.checkVisibility())
           .map((one) => [one.getBoundingClientRect(), one])
           .filter(([box, one]) => box.right > document.documentElement.clientWidth + 1 || box.left < -1
             || one.scrollWidth > one.clientWidth + 1 && one.tagName === "PRE")
           .map(([box, one]) => `${one.tagName} ${one.className} to ${box.right}: ${one.textContent.slice(0, 60)}`)"""
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") <= INSIDE


def test_no_cell_is_cut_by_its_frame(page) -> None:
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".table-frame")]
           .filter((one) => one.scrollWidth > one.clientWidth + 1)
           .map((one) => one.getAttribute("aria-label"))"""
    )
    assert cut == []


def flat(text: str) -> str:
    """Text without spaces, ligatures and breaks; PDFium tells no hyphen at the end of a line from a broken word's."""
    return re.sub(r"[\s\u00ad-]", "", unicodedata.normalize("NFKC", text))


def test_every_cell_and_every_card_is_on_paper(report: Path, paper: Path) -> None:
    """The last column of each table too: what is cut is the right edge."""
    page = BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")
    printed = flat(text_of(paper))
    missing = []
    for table in page.select("table"):
        for row in table.select("tbody tr")[-2:]:
            words = flat(row.find_all("td")[-1].get_text())
            if words not in printed:
                missing.append(f"{table.caption.get_text()[:60]}: {words[:80]}")
    assert missing == []
    for card in page.select("section.claim"):
        assert flat(card.h4.get_text()) in printed
