"""The bibliography: whatever a title holds, pandoc reads every entry, and keys stay what they were."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pypandoc
from bs4 import BeautifulSoup
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.files import read_json
from report.pages.bibliography import document_key, format_bibtex, published_key
from report.pages.markdown import clean

HOSTILE = [
    "A paper & its <title>", "100% of {everything} for $5", "unbalanced } and { and \\", "@misc{other, title = {x}}",
    "a_b^c~d#e", "\\input{secret} \\textbf{x}", "quoted \"so\" and ``so'' -- and --- so", "مرحبا", "new\nline",
    "% a comment", "$x$, $$y$$, \\(z\\)", "Company and Sons and others",
]  # fmt: skip
text = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
)


def document(titles: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Any]:
    """Made-up references and sources of others' measurements with these titles."""
    published = [{"id": f"made-up-{at}.x", **source("https://example.org", one)} for at, one in enumerate(sources)]
    references = [{"source": source(f"https://example.org/{at}", one)} for at, one in enumerate(titles)]
    return {"references": references, "published": published}


def source(url: str, title: str) -> dict[str, Any]:
    return {"url": url, "title": title, "publisher": title, "date": "2024-05-01", "where": title}


def read(bibtex: str) -> list[dict[str, Any]]:
    """The entries as pandoc reads them."""
    return list(json.loads(pypandoc.convert_text(bibtex, "csljson", format="bibtex")))


def squeezed(told: str) -> str:
    """Without what typography may change: quotes, dashes and spaces."""
    return "".join(sign for sign in told if sign.isalnum() or sign in "<>&%{}$@\\#^_~")


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@example(HOSTILE)
@given(titles=st.lists(text, min_size=10, max_size=20))
def test_a_page_lists_every_source_whatever_its_title_holds(tmp_path: Path, titles: list[str]) -> None:
    (tmp_path / "references.bib").write_text(format_bibtex(document(titles, titles)), encoding="utf-8")
    made = pypandoc.convert_text(
        "---\nnocite: '@*'\n---\n", "html5", format="markdown",
        extra_args=["--citeproc", f"--bibliography={tmp_path / 'references.bib'}", "--wrap=none"],
    )  # fmt: skip
    page = BeautifulSoup(made, "html.parser")
    entries = {str(one["id"]).removeprefix("ref-"): one for one in page.select(".csl-entry")}
    assert len(entries) == 2 * len(titles)
    for at, title in enumerate(titles):
        for key in (document_key(f"https://example.org/{at}"), published_key(f"made-up-{at}.x")):
            assert squeezed(clean(title)) in squeezed(entries[key].get_text())
            assert "2024" in entries[key].get_text()
            assert not entries[key].find(["strong", "sub", "sup", "code", "script"])


def test_a_document_that_is_named_twice_has_one_entry() -> None:
    twice = {"references": [{"source": source("https://example.org/a", "A")}] * 2, "published": None}
    assert [one["id"] for one in read(format_bibtex(twice))] == [document_key("https://example.org/a")]


def test_an_address_cannot_leave_its_field() -> None:
    (found,) = read(
        format_bibtex({"references": [{"source": source("https://a.org/}\n@misc{b", "A")}], "published": []})
    )
    assert found["title"] == "A"
    assert "\n" not in found["URL"]


@given(st.lists(st.text(), min_size=2, max_size=30, unique=True))
def test_keys_follow_from_the_address_alone_and_are_those_of_earlier_editions(addresses: list[str]) -> None:
    assert len({document_key(address) for address in addresses}) == len(addresses)
    assert document_key("https://example.org/paper?a=1") == "d-bbf89368"


def test_published_sources_have_keys_of_their_own_and_all_are_read(published: Path) -> None:
    verdicts: Mapping[str, Any] = read_json(published / "verdicts.json")
    found = read(format_bibtex(verdicts))
    assert len({one["id"] for one in found}) == len(found)
    urls = {str(reference["source"]["url"]) for reference in verdicts["references"]}
    assert {one["id"] for one in found} == {
        *map(document_key, urls),
        *(published_key(one["id"]) for one in verdicts["published"]),
    }
    assert all(one["title"] and one["author"] for one in found)


def test_a_page_that_cites_lists_its_sources_and_no_other_does(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.with_suffix(".qmd").exists()]
    cites = {page: "\nnocite: " in page.with_suffix(".qmd").read_text(encoding="utf-8") for page in pages}
    assert {*cites.values()} == {True, False}
    for page in pages:
        listed = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").select("#refs .csl-entry")
        assert bool(listed) == cites[page], page
