"""Text from data stays text, in HTML and in the PDF."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pypandoc
import pytest
import typst
from bs4 import BeautifulSoup, Tag
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from report.pages.markdown import Markdown, attribute, clean, environment, escape, finalize, identifier, link

HOSTILE = [
    "<script>alert(1)</script>", "mail @word and @fig-none", "$x$ and $$y$$", "]](http://example.org) [a](b) ![c](d)",
    "مرحبا \u202eabc\u202c שלום", "a" * 10_000, "1. first\n2. second", "(a) item", "# heading", "- item",
    "--- dash ... dots 'quotes' \"double\"", "Table: not a caption", ": definition", "::: {.note}",
    "{{< include secret >}} `r 1+1` ```{python}", "&lt;b&gt; &amp; &#64;", "\\begin{x} \\alpha \\", "| a | b |",
    "https://example.org/x?y=1&z=2", "~sub~ ^sup^ ~~out~~ [^1] ^[note]", "% title",
    "= heading <label> #let x = 1", "a_b_c *d* **e**", "2026) bracket", "\x00\x07 control",
]  # fmt: skip
text = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), max_size=60))


def convert(source: str, to: str) -> str:
    return pypandoc.convert_text(source, to, format="markdown", extra_args=["--wrap=none"])


def element_text(element: Tag) -> str:
    return " ".join(element.get_text().split())


def cleaned_text(value: str) -> str:
    return " ".join(clean(value).split())


# For each place on a page: a function that builds Markdown with a text in this place, a CSS selector to find the
# element with the text, and a function that reads the text from the element.
PLACES: dict[str, tuple[Callable[[str], str], str, Callable[[Any], str]]] = {
    "paragraph": (lambda value: f"::: {{.p}}\n{escape(value) or 'x'}\n:::\n\n", "div.p", element_text),
    "table": (lambda value: f"| {escape(value) or 'x'} | x |\n", "tbody td:first-child", element_text),
    "attribute": (lambda value: f'[x]{{title="{attribute(value) or "x"}"}}\n\n', "span", lambda tag: tag["title"]),
}


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@example(HOSTILE)
@given(st.lists(text, min_size=20, max_size=40))
def test_any_text_survives_pandoc(place: str, values: list[str]) -> None:
    """Convert many texts in each pandoc run, because starting pandoc costs more than the conversion."""
    source, selector, read_text = PLACES[place]
    head = "| text | other |\n|:----|:---|\n" if place == "table" else ""
    page = BeautifulSoup(convert(head + "".join(map(source, values)), "html"), "html.parser")
    assert [cleaned_text(read_text(tag)) for tag in page.select(selector)] == [
        cleaned_text(value) or "x" for value in values
    ]
    assert not page.find(["script", "a", "img", "em", "strong", "ol", "ul", "code"])


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@example(HOSTILE)
@given(st.lists(text, min_size=20, max_size=40))
def test_any_text_compiles_to_pdf(values: list[str]) -> None:
    body = "\n\n".join(f"Value {escape(value)}." for value in values)
    cases = "\n".join(f"| {escape(value)} | x |" for value in values)
    source = convert(f"{body}\n\n| text | other |\n|:---|:---|\n{cases}\n", "typst")
    assert typst.compile(source.encode(), format="pdf")[:5] == b"%PDF-"


def test_template_escapes_data(tmp_path: Path) -> None:
    (tmp_path / "page.qmd").write_text("<< words >> << made >> << count >>")
    page = environment(tmp_path).get_template("page.qmd").render(words="<b>*x*", made=Markdown("**y**"), count=3)
    assert page == r"\<b\>\*x\* **y** 3"


@pytest.mark.parametrize("value", [None, 0.5, True, ["x"], {"a": 1}])
def test_template_refuses_unformatted_values(value: object) -> None:
    with pytest.raises(TypeError, match="format it as text"):
        finalize(value)


def test_missing_template_value_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.qmd").write_text("<< absent >>")
    with pytest.raises(jinja2.UndefinedError):
        environment(tmp_path).get_template("page.qmd").render()


@pytest.mark.parametrize("filter_name", ["safe", "escape", "e", "forceescape", "striptags", "tojson"])
def test_no_filter_bypasses_escaping(tmp_path: Path, filter_name: str) -> None:
    (tmp_path / "page.qmd").write_text(f"<< words | {filter_name} >>")
    with pytest.raises(jinja2.TemplateAssertionError):
        environment(tmp_path).get_template("page.qmd")


@given(st.one_of(st.sampled_from(HOSTILE), st.text()))
def test_only_identifiers_become_anchors_and_file_names(value: str) -> None:
    if value.isascii() and value[:1].isalpha() and not set(value) - set(string.ascii_letters + string.digits + "-_"):
        assert identifier(value) == value
    else:
        with pytest.raises(StudyError, match="is not an id"):
            identifier(value)


def test_only_web_addresses_become_links() -> None:
    assert link("a [b]", "https://example.org/x y>") == r"[a \[b\]](<https://example.org/x%20y%3E>)"
    assert link("go", "javascript:alert(1)") == "go"
    assert link("go", "http://[broken") == "go"
