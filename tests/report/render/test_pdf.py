"""The PDF is a document: typeset, numbered, within its margins, tagged, and small."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typst
from pypdf import PdfReader
from pypdf.generic import IndirectObject

from report.render import pandoc, render
from report.render.packed import pack
from tests.report.render.pdf_words import Word, elements, outside, overlapping, words
from tests.report.render.test_render import few, save

MM = 72 / 25.4
LONG = "x" * 3000
AWKWARD = [
    LONG, "/very/long/path/" * 60, "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "gemm.mac_per_cycle_per_core=" * 9, "1,234,567,890 [1,234,567,890, 1,234,567,890] operations", "“” #set page()",
    "a " * 900,
]  # fmt: skip


@pytest.fixture(scope="module")
def pdf(report: Path) -> PdfReader:
    return PdfReader(report / "report.pdf")


def without_figures(report: Path, folder: Path) -> Path:
    """The same report set again with empty figures of the same size: what is found is the document's own."""
    shutil.copytree(report, folder / "report")
    for name in ("pdf.typ",):
        shutil.copyfile(Path(pandoc.__file__).parent.parent / "templates" / name, folder / "report" / name)
    for path in (folder / "report" / "figures").glob("*.svg"):
        head = re.match(r"<svg[^>]*>", path.read_text(encoding="utf-8"))
        assert head is not None
        path.write_text(f"{head[0]}</svg>", encoding="utf-8")
    assert pandoc.typeset(folder / "report") == pandoc.STANDARD
    return folder / "report" / "report.pdf"


def everything_in_its_place(pdf: Path) -> list[Word]:
    found = words(pdf)
    # 14 mm is where the margin column begins; 20 mm are left free on the right.
    assert not outside(found, 14 * MM - 1, 8 * MM, 190 * MM + 1, 289 * MM)
    pairs = overlapping(found)
    assert not pairs, pairs[:5]
    return found


def test_no_word_leaves_the_page_or_its_cell(report: Path, tmp_path: Path) -> None:
    found = everything_in_its_place(without_figures(report, tmp_path))
    assert len(found) > 5000


def test_long_words_of_data_stay_within_their_cells(make_document, tmp_path: Path) -> None:
    document = few(make_document(), 6)
    for place, verdict in enumerate(document["verdicts"]):
        awkward = AWKWARD[place % len(AWKWARD)]
        verdict.update(reason=awkward, note=awkward, boundary=awkward, says=awkward[:400], section=awkward[:300])
        for cell in verdict["cells"]:
            cell["label"] = awkward[:500]
        for part in verdict["parts"]:
            part.update(threshold_why=awkward, name=awkward[:120] if part["name"] else "")
        for cell in verdict["cells"]:
            cell["part"] = verdict["parts"][0]["name"]
    document["nodes"][0].update(label=AWKWARD[2], left_out=AWKWARD)
    document["refused"] = [{"file": text, "reason": text} for text in AWKWARD]
    render(save(document, tmp_path), tmp_path / "out", renderer="pandoc")
    found = everything_in_its_place(without_figures(tmp_path / "out", tmp_path))
    assert "".join(word.text for word in found).replace("-", "").count("x" * 500) >= 1, "broken, and still whole"


def test_the_title_page_says_what_and_when(texts: list[str], make_document) -> None:
    document = make_document()
    first = " ".join(texts[0].split())
    for told in ("Does AI need a GPU?", "88 claims", "Edition of 2026-01-01", document["commit"][:12]):
        assert told in first, told
    assert f"study version {document['study_version']}" in first
    assert document["nodes"][0]["label"] in first


def test_the_contents_list_numbered_sections_and_their_pages(texts: list[str]) -> None:
    (place,) = [number for number, text in enumerate(texts[:6]) if re.search(r"^Contents$", text, flags=re.MULTILINE)]
    contents = "\n".join(texts[place : place + 4])
    listed = re.findall(r"^(\d+(?:\.\d+)?) (\S.*?)(?: \.)+ (\d+)$", contents, flags=re.MULTILINE)
    assert len(listed) > 20
    chapters = [int(number) for number, _, _ in listed if "." not in number]
    assert chapters == list(range(1, len(chapters) + 1))
    for number, title, page in listed[:: max(1, len(listed) // 12)]:
        assert title.split()[0] in texts[int(page) - 1], f"{number} {title} is on page {page}"


def test_figures_and_tables_are_numbered_and_referred_to(texts: list[str]) -> None:
    text = "\n".join(texts)
    for kind in ("Figure", "Table"):
        captions = [int(number) for number in re.findall(rf"{kind}\s(\d+)\.\s", text)]
        # In the order of their places; two on one page may be read the other way round.
        assert sorted(captions) == list(range(1, max(captions) + 1)), kind
        assert len(captions) > 40
        referred = re.findall(rf"{kind}s?\s(\d+)(?:–(\d+))?$", text, flags=re.MULTILINE)
        assert len(referred) > 20
        assert all(int(end or begin) <= max(captions) for begin, end in referred)


def pages_of_cards(texts: list[str]) -> dict[str, int]:
    """The page of each claim's card, as the table of claims tells it."""
    return {claim: int(page) for claim, page in re.findall(r"\b([NGW]\d\d)\s+p\.\s(\d+)", "\n".join(texts[2:12]))}


def test_the_running_head_names_the_claims_of_its_page(texts: list[str]) -> None:
    begin: dict[int, set[str]] = defaultdict(set)
    for claim, page in pages_of_cards(texts).items():
        begin[page].add(claim)
    assert len(begin) > 10
    for number, text in enumerate(texts[3:], 4):
        head, _, _ = text.partition("\n")
        assert "Does AI need a GPU?" in head
        named = set(re.findall(r"\b[NGW]\d\d\b", head))
        if number in begin:
            assert named <= begin[number], f"page {number} says {named}"
            assert len(named) == min(2, len(begin[number]))
    assert any(re.search(r"\d\s+Method\b", text.partition("\n")[0]) for text in texts), "and the chapter"


def test_the_table_of_claims_tells_the_page_of_each_card(texts: list[str]) -> None:
    told = pages_of_cards(texts)
    assert len(told) == 88
    for claim, page in told.items():
        assert re.search(rf"\b{claim}\b", texts[page - 1].partition("\n")[2]), claim
    assert len(set(told.values())) > 10


def test_every_font_is_embedded(pdf: PdfReader) -> None:
    seen = {}
    for page in pdf.pages:
        for resources in resources_of(page["/Resources"].get_object()):
            for font in resources.get("/Font", {}).get_object().values() if "/Font" in resources else ():
                outer = font.get_object()
                inner = outer.get("/DescendantFonts", [outer])[0].get_object()
                seen[outer["/BaseFont"]] = {"/FontFile", "/FontFile2", "/FontFile3"} & set(inner["/FontDescriptor"])
    assert len(seen) >= 4
    assert all(seen.values()), seen


def resources_of(resources: Any) -> Iterator[Any]:
    """Resources of a page, and of the figures within it."""
    yield resources
    for within in resources.get("/XObject", {}).get_object().values() if "/XObject" in resources else ():
        form = within.get_object()
        if "/Resources" in form:
            yield from resources_of(form["/Resources"].get_object())


def test_it_conforms_to_the_standard_for_those_who_listen(report: Path, pdf: PdfReader) -> None:
    root = pdf.trailer["/Root"]
    assert b"<pdfuaid:part>1</pdfuaid:part>" in root["/Metadata"].get_object().get_data()
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == "en"
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]
    assert json.loads((report / "render.json").read_text(encoding="utf-8"))["pdf_standard"] == "ua-1"
    kinds = {str(element.get("/S")) for element in elements(root["/StructTreeRoot"])}
    assert {"/H1", "/H2", "/H3", "/Figure", "/Caption", "/Table", "/TH", "/TD", "/L", "/LI", "/Link", "/TOC"} <= kinds


def test_packing_keeps_every_object(tmp_path: Path) -> None:
    (tmp_path / "a.typ").write_text(
        '#set document(title: "A")\n= One <a>\n'
        "#table(columns: 2, table.header[x][y], ..range(400).map(n => [(#n) endobj]))"
        '\n#lorem(3000) @b\n#set heading(numbering: "1")\n= Two <b>\n',
        encoding="utf-8",
    )
    plain = typst.compile(tmp_path / "a.typ", pdf_standards=["ua-1"])
    packed = pack(plain)
    assert len(packed) < 0.6 * len(plain)
    assert pack(packed) == packed
    (tmp_path / "plain.pdf").write_bytes(plain)
    (tmp_path / "packed.pdf").write_bytes(packed)
    before, after = PdfReader(tmp_path / "plain.pdf", strict=True), PdfReader(tmp_path / "packed.pdf", strict=True)
    assert [page.extract_text() for page in after.pages] == [page.extract_text() for page in before.pages]
    for number in range(1, before.trailer["/Size"]):
        one, other = (reader.get_object(IndirectObject(number, 0, reader)) for reader in (before, after))
        # A reference tells, besides, in which reader it is.
        told, again = (re.sub(r", \d{6,}\)", ")", repr(each)) for each in (one, other))
        assert told == again, number
        if hasattr(one, "get_data"):
            assert one.get_data() == other.get_data()
    assert {key: after.trailer[key] for key in ("/ID",)} == {key: before.trailer[key] for key in ("/ID",)}


def test_a_word_on_another_and_one_in_the_margin_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.typ").write_text(
        "#set page(width: 100pt, height: 100pt, margin: 20pt)\n"
        "above #place(top + left, dy: 3pt)[upon]\n#move(dx: 50pt)[out]",
        encoding="utf-8",
    )
    (tmp_path / "a.pdf").write_bytes(typst.compile(tmp_path / "a.typ"))
    found = words(tmp_path / "a.pdf")
    assert [word.text for word in found] == ["above", "upon", "out"]
    assert [{one.text, other.text} for one, other in overlapping(found)] == [{"above", "upon"}]
    assert [word.text for word in outside(found, 20, 0, 80, 100)] == ["out"]
