"""The rendered report: whole, self-contained, complete; and what happens when rendering fails."""

from __future__ import annotations

import json
import os
import re
import stat
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader, PdfWriter

from contract.errors import StudyError
from report.render import pandoc, render
from report.render.answer import answer, plain
from report.render.words import VERDICTS
from tests.report.render.pdf_words import elements
from tests.report.rendering import render_beside


def save(document: dict[str, Any], folder: Path) -> Path:
    path = folder / "verdicts.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def few(document: dict[str, Any], count: int = 4) -> dict[str, Any]:
    """The same document with its first verdicts only: quick to render."""
    verdicts = document["verdicts"][:count]
    for verdict in verdicts:
        verdict["see_also"] = []
    return {**document, "verdicts": verdicts, "tally": dict.fromkeys(VERDICTS, 0) | {"supported": count}}


@pytest.fixture(scope="module")
def pdf(report: Path) -> PdfReader:
    return PdfReader(report / "report.pdf")


def test_every_file_of_the_report_is_there(report: Path) -> None:
    made = {str(path.relative_to(report)) for path in report.rglob("*") if path.is_file()}
    assert {"index.html", "report.pdf", "index.qmd", "render.json", "report.css", "report.lua", "report.typ"} <= made
    assert not [name for name in made if name.startswith(".")]
    svgs = {Path(name).stem for name in made if name.startswith("figures/") and name.endswith(".svg")}
    assert not [name for name in made if name.endswith(".png")]
    assert "gemm-1-cpu" in svgs


def test_every_claim_has_a_row_and_a_card(page: BeautifulSoup, make_document) -> None:
    document = make_document()
    rows = page.select("table.claims tbody tr")
    cards = page.select("section.claim")
    ids = [verdict["id"] for verdict in document["verdicts"]]
    assert [row.td.get_text(strip=True) for row in rows] == ids
    assert sorted(card["id"] for card in cards) == sorted(ids)
    for verdict, row in zip(document["verdicts"], rows, strict=True):
        assert verdict["verdict"] in row.get_text()
        assert verdict["says"] in " ".join(row.get_text().split())
        card = page.find(id=verdict["id"])
        assert card.select_one(".badge").get_text() == verdict["verdict"]
        assert " ".join(verdict["reason"].split()[1:]) in " ".join(card.get_text().split())


def test_every_figure_has_words_of_its_own(page: BeautifulSoup) -> None:
    alts = [figure["aria-label"] for figure in page.select("figure svg[role=img]")]
    assert len(alts) > 40
    assert all(len(alt) > 30 for alt in alts)
    assert len(set(alts)) == len(alts)


def test_ids_are_unique_and_links_within_the_page_resolve(page: BeautifulSoup) -> None:
    ids = [element["id"] for element in page.find_all(id=True)]
    assert len(set(ids)) == len(ids)
    wanted = {link["href"][1:] for link in page.find_all("a", href=re.compile("^#."))}
    assert wanted <= set(ids)


def test_the_page_loads_nothing_from_anywhere(report: Path, page: BeautifulSoup) -> None:
    for tag, name in (("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")):
        for element in page.find_all(tag):
            assert element.get(name, "data:").startswith("data:"), element
    styles = " ".join(style.get_text() for style in page.find_all("style"))
    # A place within the page is none outside it.
    assert not re.search(r"@import|url\((?!['\"]?(?:data:|#))", styles)
    assert (report / "index.html").stat().st_size < 3_000_000


def test_tables_and_landmarks_speak_to_screen_readers(page: BeautifulSoup) -> None:
    for table in page.find_all("table"):
        assert table.caption.get_text(strip=True)
        assert all(head.get("scope") == "col" for head in table.find_all("th"))
    assert page.main
    assert page.header
    assert page.nav["aria-label"]
    assert page.select_one("a.skip")["href"] == "#main"
    assert page.html["lang"] == "en"
    assert len(page.find_all("h1")) == 1


def test_the_answer_tells_the_tally(page: BeautifulSoup, make_document) -> None:
    document = make_document()
    told = " ".join(page.select_one(".answer").get_text().split())
    assert told == " ".join(plain(sentence) for sentence in answer(document))
    shown = [badge.get_text() for badge in page.select(".key .badge")]
    assert shown == [f"{count} {name}" for name, count in document["tally"].items()]
    assert [piece.get_text() for piece in page.select(".tally .seg")] == [text.split()[0] for text in shown]
    tiles = [tile.get_text() for tile in page.select(".claim-tiles .tile")]
    assert sorted(tiles) == sorted(verdict["id"] for verdict in document["verdicts"])


def test_only_synthetic_data_carries_the_banner(
    page: BeautifulSoup, report: Path, make_document, tmp_path: Path
) -> None:
    assert "Synthetic data" in page.select_one(".notice").get_text()
    render_beside(report, save(few(make_document(origin="measured")), tmp_path), tmp_path / "out")
    plain = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Synthetic" not in BeautifulSoup(plain, "html.parser").main.get_text()


def test_the_pdf_is_a_document(pdf: PdfReader, texts: list[str], make_document) -> None:
    assert len(texts) > 10
    assert "Does AI need a GPU?" in texts[0]
    assert "Synthetic data" in texts[0]
    assert any("Contents" in page for page in texts[:3])
    assert f"2 / {len(texts)}" in texts[1]
    assert "Does AI need a GPU?" in texts[5], "the running head"
    text = "".join(texts)
    for verdict in make_document()["verdicts"]:
        assert text.count(verdict["id"]) >= 3, "in the tally, the table and its card"
    assert pdf.metadata is not None
    assert pdf.metadata.title == "Does AI need a GPU?"
    assert pdf.trailer["/Root"].get("/StructTreeRoot") is not None, "tagged, for screen readers"


def test_figures_in_the_pdf_have_their_text(report: Path, make_document) -> None:
    content = PdfReader(report / "report.pdf").trailer["/Root"]["/StructTreeRoot"]
    alts = [str(element["/Alt"]) for element in elements(content) if "/Alt" in element]
    decided = [one["id"] for one in make_document()["verdicts"] if one["cells"]]
    assert all(any(f"claim {claim}." in alt for alt in alts) for claim in decided)


def test_a_second_render_draws_nothing_anew_and_removes_what_is_gone(make_document, tmp_path: Path) -> None:
    out = tmp_path / "out"
    document = few(make_document(), 3)
    render(save(document, tmp_path), out, renderer="pandoc")
    (out / "mine.txt").write_text("not the report's")
    gone = document["verdicts"].pop(0)["id"]
    render(save(document, tmp_path), out, renderer="pandoc")
    assert json.loads((out / "render.json").read_text())["figures_drawn"] == 0
    assert not (out / "figures" / f"{gone}.svg").exists()
    assert (out / "mine.txt").read_text() == "not the report's"


def test_a_render_that_fails_leaves_the_old_report(make_document, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"
    path = save(few(make_document(), 2), tmp_path)
    render(path, out, renderer="pandoc")
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}

    def killed(folder: Path) -> None:
        (folder / "index.html").write_text("half a page")
        raise KeyboardInterrupt

    monkeypatch.setattr(pandoc, "render", killed)
    with pytest.raises(KeyboardInterrupt):
        render(path, out, renderer="pandoc")
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_what_a_killed_render_left_is_cleared_away(make_document, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".render-old").mkdir(parents=True)
    render(save(few(make_document(), 1), tmp_path), out, renderer="pandoc")
    assert not list(out.glob(".render-*"))


@pytest.mark.parametrize(
    ("content", "complaint"), [("{}", "lacks"), ("[]", "not a file of verdicts"), ("{", "not JSON")]
)
def test_what_is_no_file_of_verdicts_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "verdicts.json").write_text(content)
    with pytest.raises(StudyError, match=complaint):
        render(tmp_path / "verdicts.json", tmp_path / "out", renderer="pandoc")
    assert not (tmp_path / "out").exists()


DEBRIS = ("index_files", "index.typ", ".gitignore", ".quarto", "_quarto.yml.local")
# What went wrong stands before a stack of any depth.
FAILS = r"touch index.typ; printf 'Starting\nERROR: no such engine\n\n at a\n at b\n at c\n at d\n at e\n' >&2; exit 3"


def fake_quarto(folder: Path, version: str = "1.9.1", fails: bool = False, refuses: bool = False) -> Path:
    """A program that answers as quarto does and writes down how it was called.

    fails: at everything. refuses: to write a PDF that is to conform to a standard.
    """
    small = PdfWriter()
    small.add_blank_page(595, 842)
    small.write(folder / "some.pdf")
    program = folder / "quarto"
    program.write_text(
        f"""#!/bin/sh
[ -n "$NO_COLOR" ] || [ "$1" = --version ] || exit 9
if [ "$1" = --version ]; then echo {version}; exit 0; fi
echo "$PWD" "$@" >> "{folder}/calls"
ls >> "{folder}/saw"; cp _quarto.yml.local "{folder}/local"
mkdir -p index_files .quarto && touch index_files/debris .quarto/cache .gitignore
{FAILS if fails else ""}
{"grep -q pdf-standard _quarto.yml && [ $4 = typst ] && { echo no font >&2; exit 1; }" if refuses else ""}
case "$4" in
  html) echo '<html><head></head><body><p>by quarto</p></body></html>' > index.html ;;
  typst) cp "{folder}/some.pdf" report.pdf ;;
esac
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize("renderer", ["auto", "quarto"])
def test_quarto_is_used_where_it_is_found(make_document, tmp_path: Path, monkeypatch, renderer: str) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(fake_quarto(tmp_path)))
    out = tmp_path / "out"
    render(save(few(make_document(), 2), tmp_path), out, renderer=renderer)
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call[1:] for call in calls] == [
        ["render", ".", "--to", "html", "--no-execute"],
        ["render", ".", "--to", "typst", "--no-execute"],
    ]
    # Quarto would look for an absolute path within the project.
    (fonts,) = json.loads((tmp_path / "local").read_text())["font-paths"]
    assert not Path(fonts).is_absolute()
    assert os.path.normpath(Path(calls[0][0], fonts)) == str(pandoc.FONTS)
    assert all(Path(call[0]).parent == out and not Path(call[0]).exists() for call in calls), "in a scratch folder"
    needed = {"index.qmd", "figures", "page.html", "report.css", "report.lua", "report.typ", "report-script.html"}
    assert needed <= set((tmp_path / "saw").read_text().split())
    assert "by quarto" in (out / "index.html").read_text()
    assert len(PdfReader(out / "report.pdf").pages) == 1
    assert not [name for name in DEBRIS if (out / name).exists()]
    record = json.loads((out / "render.json").read_text())
    assert (record["renderer"], record["version"], record["pdf_standard"]) == ("quarto", "1.9.1", "ua-1")


def test_a_standard_that_quartos_typst_refuses_is_done_without(
    make_document, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(fake_quarto(tmp_path, refuses=True)))
    out = tmp_path / "out"
    render(save(few(make_document(), 1), tmp_path), out, renderer="quarto")
    assert json.loads((out / "render.json").read_text())["pdf_standard"] == ""
    assert "does not conform to PDF/UA-1" in capsys.readouterr().err
    assert "pdf-standard: ua-1" in (out / "_quarto.yml").read_text(), "the settings are published as they are"
    assert [line.split()[4] for line in (tmp_path / "calls").read_text().splitlines()] == ["html", "typst", "typst"]


def test_quarto_that_is_asked_for_and_missing_is_an_error(make_document, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "bin"))
    with pytest.raises(StudyError, match=r"QUARTO_PATH \(.*nowhere\), then .*bin.*, then PATH"):
        render(save(few(make_document(), 1), tmp_path), tmp_path / "out", renderer="quarto")


def test_an_old_quarto_is_passed_over_with_a_note(make_document, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", f"{fake_quarto(tmp_path, '1.8.27').parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("QUARTO_PATH", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "bin"))
    path = save(few(make_document(), 1), tmp_path)
    render(path, tmp_path / "out", renderer="auto")
    record = json.loads((tmp_path / "out" / "render.json").read_text())
    assert record["renderer"] == "pandoc"
    assert "1.8.27" in record["note"]
    assert "1.8.27" in capsys.readouterr().err
    with pytest.raises(StudyError, match=r"1\.9 or newer"):
        render(path, tmp_path / "out", renderer="quarto")


def test_quartos_own_words_are_passed_on(make_document, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(fake_quarto(tmp_path, fails=True)))
    with pytest.raises(StudyError, match=r"exit 3\): ERROR: no such engine / at a .*use --renderer pandoc"):
        render(save(few(make_document(), 1), tmp_path), tmp_path / "out", renderer="quarto")
    assert not (tmp_path / "out" / "index.html").exists()


def test_where_quarto_fails_pandoc_renders_with_a_note(make_document, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("QUARTO_PATH", str(fake_quarto(tmp_path, fails=True)))
    out = tmp_path / "out"
    render(save(few(make_document(), 1), tmp_path), out, renderer="auto")
    record = json.loads((out / "render.json").read_text())
    assert record["renderer"] == "pandoc"
    assert record["pdf_standard"] == "ua-1"
    assert "no such engine" in record["note"]
    assert "no such engine" in capsys.readouterr().err
    assert 'class="claims"' in (out / "index.html").read_text()
    assert not [name for name in DEBRIS if (out / name).exists()]


def test_a_fingerprint_is_read_as_it_was_written(page: BeautifulSoup) -> None:
    rows = {row.td.get_text(): row.find_all("td")[1].get_text() for row in page.select("#node-1 table tbody tr")}
    assert rows["CPU, cores used"] == "2"
    assert rows["Memory"] == "8 GiB"
    assert rows["CPU, caches"] == "L1d 64 KiB (2 × 32 KiB), L3 32 MiB"
    assert rows["CPU, virtual"] == "yes"
