"""index.qmd keeps to the markdown that pandoc and Quarto share, and to what Quarto was found to need."""

from __future__ import annotations

import re
from pathlib import Path

import pypandoc
import pytest
from ruamel.yaml import YAML

from report.render import TEMPLATES


@pytest.fixture(scope="module")
def source(report: Path) -> str:
    return (report / "index.qmd").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def body(source: str) -> str:
    """The markdown after the front matter, without the raw blocks."""
    return re.sub(r"^```\{=(?:html|typst)\}\n.*?^```$", "", source.split("---\n", 2)[2], flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def settings(source: str) -> dict:
    return YAML(typ="safe").load(source.split("---\n", 2)[1])


def test_the_settings_that_quarto_needs(settings: dict, report: Path) -> None:
    html, pdf = settings["format"]["html"], settings["format"]["typst"]
    assert html["html-math-method"] == "mathml"
    assert html["theme"] in ("litera", "default"), "a theme that fetches no fonts"
    assert html["embed-resources"] is True
    header = (report / pdf["include-in-header"]).read_text(encoding="utf-8")
    assert "#show figure: set block(breakable: true)" in header
    for name in (html["css"], html["include-after-body"], *settings["filters"]):
        assert (report / name).is_file()


def test_no_code_cells_and_no_shortcodes(source: str) -> None:
    assert not re.search(r"^\s*```\s*\{[a-z]", source, flags=re.MULTILINE)
    assert "{{<" not in source
    assert not re.search(r"`\{?r ", source)


def test_raw_blocks_are_html_or_typst_and_hold_no_data(source: str) -> None:
    assert set(re.findall(r"^```\{(=\w+)\}", source, flags=re.MULTILINE)) <= {"=html", "=typst"}
    for template in TEMPLATES.rglob("*.qmd"):
        for raw in re.findall(r"```\{=\w+\}\n(.*?)```", template.read_text(encoding="utf-8"), flags=re.DOTALL):
            assert "<<" not in raw, f"{template.name}: markdown's escaping does not hold in a raw block"


def test_templates_do_not_go_round_the_escaping() -> None:
    for template in TEMPLATES.rglob("*.qmd"):
        text = template.read_text(encoding="utf-8")
        # What a macro, a call or a captured block returns is escaped a second time, or not at all.
        assert not re.search(r"<%-?\s*(?:macro|call|filter|autoescape)\b", text), template.name
        assert not re.search(r"<%-?\s*set\s+\w+\s*%>", text), template.name


@pytest.mark.parametrize("sign", ["@", "$", "<"])
def test_signs_that_break_a_renderer_are_escaped(body: str, sign: str) -> None:
    addresses = re.sub(r"\]\(<[^>]*>\)", "](…)", body)
    assert not re.search(rf"(?<!\\){re.escape(sign)}", addresses)


def test_numbered_references_are_not_used_without_numbered_sections(settings: dict, body: str) -> None:
    assert "@sec-" not in body or settings.get("number-sections") is True


def test_every_figure_has_its_text_and_its_file(body: str, report: Path) -> None:
    figures = re.findall(r"^!\[.*?\]\((figures/[^)]*)\)\{(.*)\}$", body, flags=re.MULTILINE)
    assert len(figures) > 40
    for path, attributes in figures:
        assert (report / path).is_file()
        assert re.search(r'fig-alt="..', attributes)


def test_fences_are_closed_and_tables_are_captioned(body: str) -> None:
    opened = re.findall(r"^(:{3,})(.*)$", body, flags=re.MULTILINE)
    assert sum(1 for _, what in opened if what.strip()) == sum(1 for _, what in opened if not what.strip())
    rules = re.findall(r"^\|[-:|]+\|$", body, flags=re.MULTILINE)
    captions = re.findall(r"^: .*\{\.[\w-]+ widths=\"[\d ]+\"\}$", body, flags=re.MULTILINE)
    assert len(rules) == len(captions) > 0


def test_table_widths_match_their_columns(body: str) -> None:
    for rule, widths in re.findall(r"^(\|[-:|]+\|)\n.*?widths=\"([\d ]+)\"", body, flags=re.DOTALL | re.MULTILINE):
        assert len(widths.split()) == rule.count("|") - 1
        assert sum(map(int, widths.split())) == 100


def test_pandoc_reads_it_without_a_warning(source: str) -> None:
    for target in ("html5", "typst"):
        made = pypandoc.convert_text(source, target, format="markdown", extra_args=["--fail-if-warnings"])
        assert "W38" in made
