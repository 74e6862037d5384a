"""The glossary: each term once, and every spelling of it on a page leads to it."""

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
def content(published: Path) -> Content:
    return build_content(Evidence(read_json(published / "verdicts.json"), None))


@pytest.fixture(scope="module")
def anchors(content: Content) -> dict[str, str]:
    """The anchor of each term, as the glossary's page has it."""
    (page,) = [page for page in content.pages if page.path == "glossary"]
    made = page_of(site_sources.page_source(page, site_sources.template_environment(), {}))
    return {head.get_text(): str(head["id"]) for head in made.find_all(id=True)}


def page_of(source: str) -> BeautifulSoup:
    """A page as pandoc makes it of its source."""
    extra = [f"--lua-filter={site_sources.TEMPLATES / 'pages.lua'}", "--wrap=none"]
    return BeautifulSoup(pypandoc.convert_text(source, "html5", format="markdown", extra_args=extra), "html.parser")


def explained(paragraphs: Sequence[str], terms: Mapping[str, str]) -> BeautifulSoup:
    body = "\n\n".join(paragraphs)
    return page_of(f"---\nroot: ../\nglossary-terms: {json.dumps(dict(terms))}\n---\n\n{body}\n")


def test_a_spelling_belongs_to_one_term() -> None:
    spelt = [{str(name).casefold() for name in (one["term"], *one.get("also", []))} for one in read_glossary()]
    assert [name for name, count in Counter(chain.from_iterable(spelt)).items() if count > 1] == []


def test_every_spelling_on_a_page_leads_to_its_term(content: Content, anchors: Mapping[str, str]) -> None:
    spelt = [[str(one["term"]), *map(str, one.get("also", []))] for one in read_glossary()]
    lost = []
    # A page links a term once: of each term one spelling a page.
    for names in zip_longest(*spelt):
        wanted = {name: f"../glossary.html#{anchors[one[0]]}" for name, one in zip(names, spelt, strict=True) if name}
        made = explained([escape(f"About ({name}).") for name in wanted], content.terms)
        found = {link.get_text(): link["href"] for link in made.select("a.term")}
        lost += [(name, found.get(name)) for name, place in wanted.items() if found.get(name) != place]
    assert lost == []


def test_a_page_links_a_term_where_it_first_uses_it() -> None:
    terms = {"roofline": "t-roofline", "FLOP": "t-flop"}
    made = explained(
        ["# The roofline", "A [roofline](x.html) and a Roofline.", "Another roofline of flop and floppy FLOP"], terms
    )
    assert [link.get_text() for link in made.select("a.term")] == ["Roofline", "FLOP"]
    assert not made.h1.select("a")
