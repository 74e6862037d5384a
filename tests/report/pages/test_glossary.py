"""The glossary: each term once, with links from every spelling on a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import pypandoc
import pytest
from bs4 import BeautifulSoup

from contract.files import read_json
from report.pages import site_sources
from report.pages.figure_data import Evidence
from report.pages.glossary import read_glossary
from report.pages.markdown import escape
from report.pages.site_content import Content, build_content


@pytest.fixture(scope="module")
def content(published_study: Path) -> Content:
    return build_content(Evidence(read_json(published_study / "verdicts.json"), None))


@pytest.fixture(scope="module")
def anchors(content: Content) -> dict[str, str]:
    """Anchors on the glossary page, by term."""
    (page,) = [page for page in content.pages if page.path == "glossary"]
    html = render_source(site_sources.page_source(page, site_sources.template_environment(), {}))
    return {head.get_text(): str(head["id"]) for head in html.find_all(id=True)}


def render_source(source: str) -> BeautifulSoup:
    """Convert a page's source with pandoc."""
    extra = [f"--lua-filter={site_sources.TEMPLATES / 'pages.lua'}", "--wrap=none"]
    return BeautifulSoup(pypandoc.convert_text(source, "html5", format="markdown", extra_args=extra), "html.parser")


def render_with_terms(paragraphs: Sequence[str], terms: Mapping[str, str]) -> BeautifulSoup:
    body = "\n\n".join(paragraphs)
    return render_source(f"---\nroot: ../\nglossary-terms: {json.dumps(dict(terms))}\n---\n\n{body}\n")


def test_each_spelling_belongs_to_one_term() -> None:
    spelt = [{str(name).casefold() for name in (entry["term"], *entry.get("also", []))} for entry in read_glossary()]
    assert [name for name, count in Counter(chain.from_iterable(spelt)).items() if count > 1] == []


def test_every_spelling_links_to_its_term(content: Content, anchors: Mapping[str, str]) -> None:
    spelt = [[str(term["term"]), *map(str, term.get("also", []))] for term in read_glossary()]
    lost = []
    # A page links each term only once, so test only one spelling per term on a page.
    for names in zip_longest(*spelt):
        wanted = {name: f"../glossary.html#{anchors[term[0]]}" for name, term in zip(names, spelt, strict=True) if name}
        page = render_with_terms([escape(f"About ({name}).") for name in wanted], content.terms)
        links = {link.get_text(): link["href"] for link in page.select("a.term")}
        lost += [(name, links.get(name)) for name, place in wanted.items() if links.get(name) != place]
    assert lost == []


def test_first_use_of_a_term_is_linked() -> None:
    terms = {"roofline": "t-roofline", "FLOP": "t-flop"}
    page = render_with_terms(
        ["# The roofline", "A [roofline](x.html) and a Roofline.", "Another roofline of flop and floppy FLOP"], terms
    )
    assert [link.get_text() for link in page.select("a.term")] == ["Roofline", "FLOP"]
    assert not page.h1.select("a")
