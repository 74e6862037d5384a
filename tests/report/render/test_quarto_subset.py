"""pandoc reads the page's source as Quarto does; both get the same template, filter and settings."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pypandoc
import pytest
import typst
from bs4 import BeautifulSoup
from pypdf import PdfReader

from contract.files import read_yaml
from report import PACKAGE
from report.render import TEMPLATES, pandoc

# As Quarto 1.9 and 1.10 read: https://github.com/quarto-dev/quarto-cli/blob/main/src/resources/pandoc/datadir/readqmd.lua
QUARTO_READS = "markdown-table_attributes"
SETTINGS = json.loads((PACKAGE / "schemas" / "quarto.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def source(report: Path) -> str:
    return (report / "index.qmd").read_text(encoding="utf-8")


def test_pandoc_reads_it_as_quarto_does_without_a_warning(source: str) -> None:
    assert pandoc.READS == QUARTO_READS
    for target in ("html5", "typst"):
        made = pypandoc.convert_text(source, target, format=pandoc.READS, extra_args=["--fail-if-warnings"])
        assert "W38" in made


def converted(report: Path, folder: Path, target: str, *options: str) -> str:
    """The report's source by pandoc with the report's filter, read as Quarto reads, and as Quarto calls for a PDF."""
    shutil.copytree(report, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.png", "*.html", "*.pdf"))
    for name in ("page.html", "report-script.html"):
        shutil.copyfile(report / name, folder / name)
    made = folder / f"made.{target}"
    pypandoc.convert_file(
        str(folder / "index.qmd"),
        target,
        format=QUARTO_READS,
        outputfile=str(made),
        extra_args=["--standalone", "--lua-filter=report.lua", "--wrap=none", *options],
        cworkdir=str(folder),
    )
    return made.read_text(encoding="utf-8")


def test_captions_keep_no_braces_and_tables_get_their_classes_and_widths(
    report: Path, source: str, tmp_path: Path
) -> None:
    page = BeautifulSoup(converted(report, tmp_path, "html5"), "html.parser")
    wanted = re.findall(r'^: .*\{\.([\w-]+) widths="([\d ]+)"\}$', source, flags=re.MULTILINE)
    found = page.find_all("table")
    assert [table["class"][0] for table in found] == [name for name, _ in wanted] and len(found) > 40
    assert not [table.caption for table in found if "{" in table.caption.get_text()]
    for table, (_, widths) in zip(found, wanted, strict=True):
        shares = [round(float(re.search(r"[\d.]+", column["style"])[0])) for column in table.select("col")]
        assert shares == pytest.approx(list(map(int, widths.split())), abs=1)  # they are made to add up to 100
    assert len(page.select("figure img[alt]")) == len(page.find_all("figure")) > 40


def test_a_caption_loses_the_braces_that_the_template_wrote_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "report.lua").write_bytes((TEMPLATES / "report.lua").read_bytes())
    caption = r': It is \{.no class\} and \{.none\} {.cells .small widths="30 70"}'
    table = f"| a | b |\n|---|---|\n| 1 | 2 |\n\n{caption}\n"
    for reads in (QUARTO_READS, QUARTO_READS + "-smart"):
        extra = ["--lua-filter=report.lua"]
        made = pypandoc.convert_text(table, "html5", format=reads, extra_args=extra, cworkdir=tmp_path)
        page = BeautifulSoup(made, "html.parser")
        assert page.caption.get_text() == "It is {.no class} and {.none}"
        assert page.table["class"] == ["cells", "small"]
        assert [column["style"] for column in page.select("col")] == ["width: 30%", "width: 70%"]


def test_the_partials_make_the_same_document_in_quartos_order(report: Path, tmp_path: Path) -> None:
    # As Quarto's own template has them: what it defines, the template, what the header includes, the page, the call.
    (tmp_path / "template.typ").write_text(
        "#let horizontalrule = line(start: (25%,0%), end: (75%,0%))\n"
        "#show raw.where(block: true): set block(fill: luma(230), width: 100%, inset: 8pt, radius: 2pt)\n\n"
        "$typst-template.typ()$\n\n$for(header-includes)$\n$header-includes$\n$endfor$\n\n"
        '#set page(paper: "us-letter", margin: (x: 1.25in, y: 1.25in), numbering: "1", columns: 1)\n\n'
        "$typst-show.typ()$\n\n$body$\n",
        encoding="utf-8",
    )
    options = ("--template=template.typ", "--include-in-header=report.typ", "--shift-heading-level-by=-1")
    made = converted(report, tmp_path, "typst", *options)
    labels = re.findall(r'^#st-table\("[\w-]+", <(tab-\d+)>', made, flags=re.MULTILINE)
    assert labels == [f"tab-{number}" for number in range(1, len(labels) + 1)] and len(labels) > 40
    typst.Compiler(tmp_path / "made.typst", root=tmp_path, font_paths=[pandoc.FONTS]).compile(
        output=tmp_path / "made.pdf", format="pdf", pdf_standards=[pandoc.STANDARD]
    )
    quarto, own = PdfReader(tmp_path / "made.pdf"), PdfReader(report / "report.pdf")
    assert len(quarto.pages) == len(own.pages)
    for place in (-1, -5, -20):
        one, other = (re.sub(r"\b\d+ / \d+\b", "", pdf.pages[place].extract_text()).split() for pdf in (quarto, own))
        assert one == other


def test_the_project_has_the_settings_that_both_renderers_bear(report: Path) -> None:
    settings = read_yaml(report / "_quarto.yml", SETTINGS)
    assert settings["project"]["render"] == ["index.qmd"]
    for name in ("_quarto.yml", "page.html", "typst-template.typ", "typst-show.typ"):
        assert (report / name).read_bytes() == (TEMPLATES / name).read_bytes()
    # pandoc is told in its own way what Quarto reads there.
    assert f"--toc-depth={settings['toc-depth']}" in Path(pandoc.__file__).read_text(encoding="utf-8")
    assert settings["format"]["typst"]["pdf-standard"] == pandoc.STANDARD
    # Quarto's template sets a table as a figure, and a figure that may not break overprints what follows.
    header = (report / settings["format"]["typst"]["include-in-header"]).read_text(encoding="utf-8")
    assert "#show figure: set block(breakable: true)" in header
