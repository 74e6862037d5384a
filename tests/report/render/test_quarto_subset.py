"""The page's source is markdown that pandoc and Quarto read alike; both get the same, with the same settings."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pypandoc
import pytest
import typst
from bs4 import BeautifulSoup
from pypdf import PdfReader
from report.commands.lint.markdown import bare, taken_apart
from ruamel.yaml import YAML

from contract.files import read_yaml
from report.commands.lint import CHECKS, Study
from report.commands.lint import markdown as linted
from report.render import TEMPLATES, pandoc

OWN = [name for name in CHECKS if name.startswith(("markdown-", "quarto-"))]
Broken = Callable[..., list[str]]


def study(report: Path, package: Path | None = None) -> Study:
    none = report / "none"
    return Study(none, none, report, none, package) if package else Study(none, none, report, none)


def faults(of: Study, name: str, text: str | None = None) -> list[str]:
    """What a check finds, in place of index.qmd in `text` if that is given."""
    if text is not None:
        of.__dict__["markdown"] = text
    return list(map(str, CHECKS[name].faults(of)))


@pytest.fixture(scope="module")
def source(report: Path) -> str:
    return (report / "index.qmd").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OWN)
def test_a_report_as_it_is_rendered_has_no_fault(report: Path, name: str) -> None:
    assert faults(study(report), name) == []


def test_the_checks_saw_what_there_is(source: str) -> None:
    apart = taken_apart(source)
    assert len(apart.lines) > 3000
    assert len(list(linted._tables(apart))) > 40
    assert sum(1 for _, line in apart.lines if "![" in bare(line)) > 40
    assert {block.about for block in apart.fenced} >= {"{=html}", "bash"}
    assert set(YAML(typ="safe").load(apart.front)) == {"title", "subtitle", "date"}


@pytest.mark.parametrize(
    ("name", "added", "told"),
    [
        ("markdown-signs", "Mail me@example.org.", "a bare @, which begins a citation"),
        ("markdown-signs", "It costs $5 and $6.", "a bare $, which begins mathematics"),
        ("markdown-signs", "Less <b>bold</b>.", "a bare <, which begins a tag"),
        ("markdown-signs", r"Escaped \\@fig-none.", "a bare @"),
        ("markdown-signs", '![x](figures/a.svg){fig-alt="a < b"}', "a bare <"),
        ("markdown-code", "```{python}\n1\n```", "the code cell {python}"),
        ("markdown-code", "```{r}\n1\n```", "the code cell {r}"),
        ("markdown-code", "So it is `r 1 + 1` here.", "code that Quarto evaluates"),
        ("markdown-code", "So it is `{python} 1 + 1` here.", "code that Quarto evaluates"),
        ("markdown-code", "{{< include secret.txt >}}", "a shortcode in"),
        ("markdown-code", "```bash\n{{< meta title >}}\n```", "a shortcode within a block"),
        ("markdown-raw", "```{=latex}\n\\LaTeX\n```", "a raw block of {=latex}"),
        ("markdown-raw", "A `<br>`{=html} break.", "raw text within"),
        ("markdown-fences", "::: {.answer}\nText.", "a fenced part that is never closed"),
        ("markdown-fences", "Text.\n\n:::", "a fence that closes nothing"),
        ("markdown-fences", "```bash\nmake", "a block of code that is never closed"),
        ("markdown-fences", "- An item.\n## Heading {#heading}", "a heading without an empty line above it"),
        ("markdown-tables", "| a | b |\n|---|---|\n| 1 | 2 |\n\nText.", "a table without caption, class and widths"),
        ("markdown-tables", "| a | b |\n| 1 | 2 |\n", "a table without a rule below its head"),
        ("markdown-tables", '| a |\n|---|\n\n: It {.x widths="50 50"}', "2 widths for 1 columns"),
        ("markdown-tables", '| a | b |\n|---|---|\n\n: It {.x widths="50 40"}', "widths that make 90"),
        ("markdown-tables", '| a | b |\n|---|---|\n| 1 | 2 | 3 |\n\n: It {.x widths="50 50"}', "3 cells in a row"),
        ("markdown-tables", '| a | b |\n|---|---|\n| 1\\|2 |\n\n: It {.x widths="50 50"}', "1 cells in a row"),
        ("markdown-tables", '| a | b |\n|-|--|\n| 1 | 2 |\n\n: It {.x widths="50 50"}', "less than three dashes"),
        ("markdown-anchors", "## Twice {#answer}", "the id 'answer', which stands in line"),
        ("markdown-anchors", '```{=html}\n<p id="answer"></p>\n```', "the id 'answer'"),
        ("markdown-anchors", "[There](#nowhere).", "a link to 'nowhere', which is nowhere"),
        ("markdown-anchors", "## Numbered {#sec-numbered}", "by which Quarto numbers"),
        ("markdown-anchors", "[x]{#fig-x .a}", "by which Quarto numbers"),
        ("markdown-anchors", "::: {.panel-tabset}\n:::", "the class 'panel-tabset', upon which Quarto acts"),
        ("markdown-anchors", "[x]{.a .hidden}", "the class 'hidden', upon which Quarto acts"),
        ("markdown-images", "![Caption](figures/N01.svg){.claim-figure}", "an image without caption"),
        ("markdown-images", '![](figures/N01.svg){fig-alt="words"}', "an image without caption"),
        ("markdown-images", '![Caption](figures/N01.svg){fig-alt=" "}', "an image without caption"),
        ("markdown-images", '![Caption](figures/nothing.svg){fig-alt="words"}', "figures/nothing.svg is not there"),
        ("markdown-images", 'See ![Caption](figures/N01.svg){fig-alt="words"}', "on a line of its own"),
        ("quarto-settings", "In @sec-method.", "refers to a section by a number that it does not have"),
    ],
)  # fmt: skip
def test_each_trap_is_found(report: Path, source: str, name: str, added: str, told: str) -> None:
    found = faults(study(report), name, f"{source}\n\n{added}\n")
    assert any(told in line for line in found), found
    assert all("index.qmd" in line for line in found)


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("markdown-signs", r"Escaped \@word, \$x\$, \<b\> and [a link](<https://example.org/@a?b=1&c=$2>)."),
        ("markdown-code", r"\{\{\< include x \>\}\} and \`r 1\`"),
        ("markdown-code", "```bash\nmake study\n```"),
        ("markdown-fences", ":::: {.a}\n::: {.b}\nText.\n:::\n::::"),
        ("markdown-tables", '| a \\| b | c |\n|---:|:---|\n| 1 | |\n\n: It {.x .y widths="50 50"}'),
        ("markdown-anchors", "[Cells]{.cells} and [x]{.side .v-hidden}"),
    ],
)
def test_what_is_no_trap_is_let_through(report: Path, source: str, name: str, added: str) -> None:
    assert faults(study(report), name, f"{source}\n\n{added}\n") == []


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("```{=html}\n<b><< claim.says >></b>\n```\n", "line 1: data within a fence"),
        ("Text.\n\n<% macro badge(x) %><< x >><% endmacro %>\n", "line 3: what a macro"),
        ("<%- set text %>a<% endset %>\n", "line 1: what a macro"),
        ("<% filter upper %>a<% endfilter %>\n", "line 1: what a macro"),
    ],
)
def test_a_template_that_goes_round_the_escaping_is_found(
    report: Path, tmp_path: Path, template: str, told: str
) -> None:
    path = tmp_path / "report" / "templates" / "parts" / "a.qmd"
    path.parent.mkdir(parents=True)
    path.write_text(template, encoding="utf-8")
    (found,) = faults(study(report, tmp_path / "report"), "markdown-raw")
    assert f"report/templates/parts/a.qmd, {told}" in found
    path.write_text("<% set loop_count = 1 %>\n```{=html}\n<hr>\n```\n", encoding="utf-8")
    assert faults(study(report, tmp_path / "report"), "markdown-raw") == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("theme: none", "theme: litera", "format.html.theme: 'litera' is not allowed. Allowed: none"),
        ("minimal: true", "minimal: false", "format.html.minimal"),
        ("tbl-colwidths: true\n", "\n", "missing: tbl-colwidths"),
        ("template: page.html", "template: other.html", "other.html is not there"),
        ("html-math-method: mathml", "html-math-method: mathjax", "'mathjax' is not allowed"),
        ("embed-resources: true", "embed-resources: false", "format.html.embed-resources"),
        ("embed-resources: true\n", "\n", "missing: embed-resources"),
        ("embed-resources: true", "embed-resource: true", "Did you mean 'embed-resources'?"),
        ("format-links: false", "format-links: true", "format.html.format-links"),
        ("type: default", "type: default\n  output-dir: _output", "output-dir"),
        ("  - report.lua", "  - report.py", "'report.py' is not a file of the report's folder"),
        ("css: report.css", "css: other.css", "other.css is not there"),
        ("pdf-standard: ua-1", "pdf-standard: a-9", "format.typst.pdf-standard"),
        ("enabled: false", "enabled: true", "execute.enabled"),
        ("lang: en", "lang: [", "not YAML"),
    ],
)
def test_settings_that_quarto_was_found_not_to_bear_are_named(
    report: Path, tmp_path: Path, old: str, new: str, told: str
) -> None:
    shutil.copytree(report, tmp_path / "report", ignore=shutil.ignore_patterns("figures", "*.pdf", "*.html"))
    shutil.copyfile(report / "report-script.html", tmp_path / "report" / "report-script.html")
    settings = tmp_path / "report" / "_quarto.yml"
    text = settings.read_text(encoding="utf-8")
    assert old in text
    settings.write_text(text.replace(old, new), encoding="utf-8")
    found = faults(study(tmp_path / "report"), "quarto-settings")
    assert any(told in line for line in found), found


def test_settings_of_the_front_matter_and_a_header_that_lost_its_rule_are_found(
    report: Path, tmp_path: Path, source: str
) -> None:
    shutil.copytree(report, tmp_path / "report", ignore=shutil.ignore_patterns("figures", "*.pdf"))
    (tmp_path / "report" / "report.typ").write_text("#let a = 1\n", encoding="utf-8")
    given = source.replace("---\n", "---\nformat: html\n", 1)
    found = faults(study(tmp_path / "report"), "quarto-settings", given)
    assert ["sets 'format', which is the project's" in found[0], "do not break across pages" in found[1]] == [True] * 2


def test_pandoc_reads_it_without_a_warning(report: Path, source: str) -> None:
    for target in ("html5", "typst"):
        made = pypandoc.convert_text(source, target, format=pandoc.READS, extra_args=["--fail-if-warnings"])
        assert "W38" in made


# As Quarto 1.9 and 1.10 read: https://github.com/quarto-dev/quarto-cli/blob/main/src/resources/pandoc/datadir/readqmd.lua
QUARTO_READS = "markdown-table_attributes"


def converted(report: Path, folder: Path, target: str, *options: str, reads: str = QUARTO_READS) -> str:
    """The report's source by pandoc with the report's filter, read as Quarto reads, and as Quarto calls for a PDF."""
    for name in ("page.html", "report.lua", "report.typ", "typst-show.typ", "typst-template.typ", "_quarto.yml"):
        shutil.copyfile(report / name, folder / name)
    shutil.copyfile(report / "index.qmd", folder / "index.qmd")
    if not (folder / "figures").exists():
        (folder / "figures").symlink_to(report / "figures")
    made = folder / f"made.{target}"
    pypandoc.convert_file(
        str(folder / "index.qmd"),
        target,
        format=reads,
        outputfile=str(made),
        extra_args=["--standalone", "--lua-filter=report.lua", "--wrap=none", *options],
        cworkdir=str(folder),
    )
    return made.read_text(encoding="utf-8")


def test_pandoc_is_told_to_read_as_quarto_does() -> None:
    assert pandoc.READS == QUARTO_READS


def test_captions_keep_no_braces_and_tables_get_their_classes_and_widths(
    report: Path, source: str, tmp_path: Path
) -> None:
    page = BeautifulSoup(converted(report, tmp_path, "html5"), "html.parser")
    wanted = re.findall(r'^: .*\{\.([\w-]+) widths="([\d ]+)"\}$', source, flags=re.MULTILINE)
    assert len(wanted) > 40
    found = page.find_all("table")
    assert [table["class"][0] for table in found] == [name for name, _ in wanted]
    assert not [table.caption for table in found if "{" in table.caption.get_text()]
    for table, (_, widths) in zip(found, wanted, strict=True):
        shares = [round(float(re.search(r"[\d.]+", column["style"])[0])) for column in table.select("col")]
        assert shares == pytest.approx(list(map(int, widths.split())), abs=1)  # they are made to add up to 100
        assert table.parent["class"] == ["table-frame"]
    assert (
        len(page.select(".figure-frame > figure"))
        == len(re.findall(r"^!\[.*\{\.central[ }]", source, re.MULTILINE))
        > 0
    )
    assert len(page.select("figure img[alt]")) == len(page.find_all("figure")) > 40
    assert not page.select("img[data-fig-alt]")


def test_a_caption_loses_the_braces_that_the_template_wrote_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "report.lua").write_bytes((TEMPLATES / "report.lua").read_bytes())
    table = (
        '| a | b |\n|---|---|\n| 1 | 2 |\n\n: It is \\{.no class\\} and \\{.none\\} {.cells .small widths="30 70"}\n'
    )
    told = [
        pypandoc.convert_text(table, "html5", format=reads, extra_args=["--lua-filter=report.lua"], cworkdir=tmp_path)
        for reads in (QUARTO_READS, QUARTO_READS + "-smart")
    ]
    for page in (BeautifulSoup(one, "html.parser") for one in told):
        assert page.caption.get_text() == "It is {.no class} and {.none}"
        assert page.table["class"] == ["cells", "small"]
        assert [column["style"] for column in page.select("col")] == ["width: 30%", "width: 70%"]


def test_the_pdf_labels_its_tables_itself(report: Path, tmp_path: Path) -> None:
    made = converted(report, tmp_path, "typst", "--shift-heading-level-by=-1")
    labels = re.findall(r'^#st-table\("[\w-]+", <(tab-\d+)>', made, flags=re.MULTILINE)
    assert labels == [f"tab-{number}" for number in range(1, len(labels) + 1)]
    assert len(labels) > 40
    # Nothing that pandoc, and not Quarto, would write.
    assert "kind: table" not in made.partition("#st-table")[2]
    assert set(re.findall(r"<(tab-\d+)>", made)) == set(labels)


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
    converted(report, tmp_path, "typst", *options)
    made = tmp_path / "made.typst"
    (tmp_path / "figures").unlink()
    shutil.copytree(report / "figures", tmp_path / "figures", ignore=shutil.ignore_patterns("*.png"))
    typst.Compiler(made, root=tmp_path, font_paths=[pandoc.FONTS]).compile(
        output=tmp_path / "made.pdf", format="pdf", pdf_standards=[pandoc.STANDARD]
    )
    quarto, own = PdfReader(tmp_path / "made.pdf"), PdfReader(report / "report.pdf")
    assert len(quarto.pages) == len(own.pages)
    for place in (-1, -5, -20):
        assert _words(quarto.pages[place].extract_text()) == _words(own.pages[place].extract_text())


def _words(text: str) -> list[str]:
    return re.sub(r"\b\d+ / \d+\b", "", text).split()


def test_the_project_names_what_is_there(report: Path) -> None:
    settings = read_yaml(report / "_quarto.yml")
    assert settings["project"]["render"] == ["index.qmd"]
    for name in ("_quarto.yml", "page.html", "typst-template.typ", "typst-show.typ"):
        assert (report / name).read_bytes() == (TEMPLATES / name).read_bytes()
    # pandoc is told in its own way what Quarto reads there.
    assert f"--toc-depth={settings['toc-depth']}" in Path(pandoc.__file__).read_text(encoding="utf-8")
    assert settings["format"]["typst"]["pdf-standard"] == pandoc.STANDARD
    page = BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")
    assert page.html["lang"] == settings["lang"]
    assert page.nav["aria-label"] == settings["toc-title"]
