"""PDFs: a report to print, twenty full pages long, and a complete appendix, both accessible."""

from __future__ import annotations

import json
import re
import shutil
from io import BytesIO
from pathlib import Path

import pypdfium2 as pdfium
import pytest
import typst
from pypdf import PdfReader

from report import verdict_sentences
from report.pages.pandoc import compress_pdf, typeset
from tests.report.pages.conftest import ADDRESS

TEMPLATES = Path(__file__).parents[3] / "report/pages/templates"


def pdf_text(path: Path) -> str:
    return "".join(page.get_textpage().get_text_bounded() for page in pdfium.PdfDocument(path))


def test_report_has_twenty_pages_and_every_claim(site: Path, published_study: Path) -> None:
    verdicts = json.loads((published_study / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    assert len(PdfReader(site / "report.pdf").pages) == 20
    text = " ".join(pdf_text(site / "report.pdf").split())
    assert [verdict["id"] for verdict in verdicts if f"{verdict['id']} " not in text] == []
    # Lines may break at hyphens and within words, and quotation marks are typeset.
    letters = re.sub(r"\W", "", text)
    assert [verdict["id"] for verdict in verdicts if re.sub(r"\W", "", verdict["finding"]) not in letters] == []
    headings = ("What should I do?", "What GPUs cost", "How sure are we?", "Will it fit?", "How it was measured",
                "Objections and limits", "How to cite", "Words used in these pages")  # fmt: skip
    assert [heading for heading in headings if heading not in text] == []


def test_every_page_of_the_report_but_the_last_is_full(site: Path) -> None:
    pages = [page.render(scale=0.5).to_pil().convert("L") for page in pdfium.PdfDocument(site / "report.pdf")]
    for number, page in enumerate(pages[:-1], start=1):
        # Cut off the lower margin to leave out the page number.
        body = page.crop((0, 0, page.width, round(page.height * 277 / 297)))
        box = body.point(lambda value: 255 if value < 200 else 0).getbbox()
        assert box is not None and box[3] >= page.height * (20 + 0.8 * 257) / 297, number


def test_first_page_lists_the_contents(site: Path) -> None:
    reader = PdfReader(site / "report.pdf")
    text = " ".join(pdfium.PdfDocument(site / "report.pdf")[0].get_textpage().get_text_bounded().split())
    for entry in reader.outline:
        if not isinstance(entry, list):
            assert entry.title in text, entry.title


def links_to(path: Path) -> list[str]:
    """Return the addresses, and the names of places, to which a PDF's links lead."""
    notes = [note.get_object() for page in PdfReader(path).pages for note in page.get("/Annots", [])]
    return [str(note["/A"].get("/URI", note["/A"].get("/D")) if "/A" in note else note["/Dest"]) for note in notes]


@pytest.mark.parametrize("address", ["", "https://example.org/"])
def test_claims_number_leads_to_its_place_and_from_there_to_the_site(tmp_path: Path, address: str) -> None:
    for name in ("pdf.typ", "pages.lua"):
        shutil.copy(TEMPLATES / name, tmp_path)
    (tmp_path / "a.qmd").write_text(
        f"---\ntitle: A\n{f'address: <{address}>' if address else ''}\n---\n\n"
        "See [W01](claims/W01.qmd) and [W02](../claims/W02.qmd).\n\n"
        "[]{#claim-W01}[W01](claims/W01.qmd){.outside} is a claim.\n",
        encoding="utf-8",
    )
    typeset(tmp_path, "a", tmp_path)
    links = links_to(tmp_path / "a.pdf")
    sites = [address, f"{address}claims/W02.html", f"{address}claims/W01.html"] if address else []
    assert [link for link in links if link.startswith("http")] == sites
    assert len(links) == 1 + len(sites)


def test_appendix_has_every_claims_rule(site: Path, published_study: Path) -> None:
    verdicts = json.loads((published_study / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    flat = re.sub(r"[\s\u00ad\ufffe-]", "", pdf_text(site / "appendix.pdf"))
    for verdict in verdicts:
        for part in verdict["parts"]:
            first = re.sub(r"[\s-]", "", verdict_sentences.rule_text(part))[:18]
            assert first in flat, (verdict["id"], verdict_sentences.rule_text(part))


@pytest.mark.parametrize("name", ["report", "appendix"])
def test_pdf_names_the_site_and_links_lead_to_its_files(site: Path, name: str) -> None:
    assert ADDRESS in pdf_text(site / f"{name}.pdf")
    notes = [note.get_object() for page in PdfReader(site / f"{name}.pdf").pages for note in page.get("/Annots", [])]
    links = {note["/A"]["/URI"] for note in notes if "/A" in note and "/URI" in note["/A"]}
    assert all(link.startswith(("https://", "http://")) for link in links) and len(links) > 80
    inside = {link.removeprefix(ADDRESS).partition("#")[0] for link in links if link.startswith(ADDRESS)} - {""}
    assert {path for path in inside if not (site / path).is_file()} == set()
    assert "claims/W04.html" in inside if name == "report" else "https://arxiv.org/abs/1810.04805" in links


@pytest.mark.parametrize("name", ["report", "appendix"])
def test_pdf_is_tagged_and_conforms_to_pdf_ua(site: Path, name: str) -> None:
    reader = PdfReader(site / f"{name}.pdf")
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"]
    assert reader.trailer["/Root"]["/Lang"] == "en"
    assert "pdfuaid:part" in reader.trailer["/Root"]["/Metadata"].get_object().get_data().decode()
    assert json.loads((site / "render.json").read_text(encoding="utf-8"))["pdf_standard"][name] == "ua-1"


@pytest.mark.parametrize("name", ["report", "appendix"])
def test_no_character_leaves_its_page(site: Path, name: str) -> None:
    for number, page in enumerate(pdfium.PdfDocument(site / f"{name}.pdf"), start=1):
        width, height = page.get_size()
        text = page.get_textpage()
        for index in range(text.count_chars()):
            left, bottom, right, top = text.get_charbox(index)
            assert left >= -1 and bottom >= -1 and right <= width + 1 and top <= height + 1, (name, number)


def test_tall_picture_shares_a_page_with_its_heading_and_caption(tmp_path: Path) -> None:
    for name in ("pdf.typ", "pages.lua"):
        shutil.copy(TEMPLATES / name, tmp_path)
    (tmp_path / "tall.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="100" height="300"><text x="9" y="290">foot</text></svg>',
        encoding="utf-8",
    )
    (tmp_path / "a.qmd").write_text(
        '---\ntitle: A\n---\n\nBefore.\n\n# Tall\n\n![](tall.svg){width=100% alt="tall"}\n\n[The caption.]{.fine}\n',
        encoding="utf-8",
    )
    typeset(tmp_path, "a", tmp_path)
    pages = [page.get_textpage().get_text_bounded() for page in pdfium.PdfDocument(tmp_path / "a.pdf")]
    (page,) = (page for page in pages if "Tall" in page)
    assert "foot" in page and "The caption." in page


def test_compression_keeps_text_outline_links_and_tags(tmp_path: Path) -> None:
    (tmp_path / "a.typ").write_text(
        '#set document(title: "A")\n= One <a>\n'
        "#table(columns: 2, table.header[x][y], ..range(400).map(n => [(#n) endobj]))"
        '\n#lorem(3000) @b\n#link("https://example.org")[there]\n#set heading(numbering: "1")\n= Two <b>\n',
        encoding="utf-8",
    )
    plain = typst.compile(tmp_path / "a.typ", pdf_standards=["ua-1"])
    packed = compress_pdf(plain)
    assert len(packed) < 0.6 * len(plain)
    assert compress_pdf(packed) == packed
    before, after = PdfReader(BytesIO(plain), strict=True), PdfReader(BytesIO(packed), strict=True)
    assert [page.extract_text() for page in after.pages] == [page.extract_text() for page in before.pages]
    assert [entry.title for entry in after.outline] == [entry.title for entry in before.outline] == ["One", "1 Two"]
    assert after.named_destinations.keys() == before.named_destinations.keys()
    tags = [sorted(reader.trailer["/Root"]["/StructTreeRoot"].get_object()) for reader in (before, after)]
    assert tags[0] == tags[1] and after.metadata == before.metadata
    links = [[sorted(note.get_object()) for page in reader.pages for note in page.get("/Annots", [])]
             for reader in (before, after)]  # fmt: skip
    assert len(links[0]) == len(links[1]) > 0
