"""The bibliography: pandoc reads every entry, whatever its title, and keys are stable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pypandoc
from bs4 import BeautifulSoup
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.files import read_json
from report.pages.bibliography import document_key, format_bibtex, published_key, sources_page
from report.pages.markdown import clean

HOSTILE = [
    "A paper & its <title>", "100% of {everything} for $5", "unbalanced } and { and \\", "@misc{other, title = {x}}",
    "a_b^c~d#e", "\\input{secret} \\textbf{x}", "quoted \"so\" and ``so'' -- and --- so", "مرحبا", "new\nline",
    "% a comment", "$x$, $$y$$, \\(z\\)", "Company and Sons and others",
]  # fmt: skip
text = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
)


def make_verdicts(titles: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Any]:
    """Build verdicts with a reference per title in `titles`, and a published source per title in `sources`."""
    published = [
        {"id": f"made-up-{i}.x", **make_source("https://example.org", title)} for i, title in enumerate(sources)
    ]
    references = [{"source": make_source(f"https://example.org/{i}", title)} for i, title in enumerate(titles)]
    return {"references": references, "published": published}


def make_source(url: str, title: str) -> dict[str, Any]:
    return {"url": url, "title": title, "publisher": title, "date": "2024-05-01", "where": title}


def read_bibtex(bibtex: str) -> list[dict[str, Any]]:
    """Read the entries with pandoc."""
    return list(json.loads(pypandoc.convert_text(bibtex, "csljson", format="bibtex")))


def remove_typography(title: str) -> str:
    """Keep letters, digits and markup characters, because pandoc may replace quotes, dashes and spaces."""
    return "".join(character for character in title if character.isalnum() or character in "<>&%{}$@\\#^_~")


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@example(HOSTILE)
@given(titles=st.lists(text, min_size=10, max_size=20))
def test_page_lists_every_source_for_any_title(tmp_path: Path, titles: list[str]) -> None:
    (tmp_path / "references.bib").write_text(format_bibtex(make_verdicts(titles, titles)), encoding="utf-8")
    html = pypandoc.convert_text(
        "---\nnocite: '@*'\n---\n", "html5", format="markdown",
        extra_args=["--citeproc", f"--bibliography={tmp_path / 'references.bib'}", "--wrap=none"],
    )  # fmt: skip
    page = BeautifulSoup(html, "html.parser")
    entries = {str(entry["id"]).removeprefix("ref-"): entry for entry in page.select(".csl-entry")}
    assert len(entries) == 2 * len(titles)
    for i, title in enumerate(titles):
        for key in (document_key(f"https://example.org/{i}"), published_key(f"made-up-{i}.x")):
            assert remove_typography(clean(title)) in remove_typography(entries[key].get_text())
            assert "2024" in entries[key].get_text()
            assert not entries[key].find(["strong", "sub", "sup", "code", "script"])


def test_repeated_document_has_one_entry() -> None:
    twice = {"references": [{"source": make_source("https://example.org/a", "A")}] * 2, "published": None}
    assert [entry["id"] for entry in read_bibtex(format_bibtex(twice))] == [document_key("https://example.org/a")]


def test_hostile_address_stays_in_its_field() -> None:
    (entry,) = read_bibtex(
        format_bibtex({"references": [{"source": make_source("https://a.org/}\n@misc{b", "A")}], "published": []})
    )
    assert entry["title"] == "A"
    assert "\n" not in entry["URL"]


@given(st.lists(st.text(), min_size=2, max_size=30, unique=True))
def test_keys_are_unique_per_address_and_stable(addresses: list[str]) -> None:
    assert len({document_key(address) for address in addresses}) == len(addresses)
    assert document_key("https://example.org/paper?a=1") == "d-bbf89368"


def test_published_sources_are_read_under_distinct_keys(published_study: Path) -> None:
    verdicts: Mapping[str, Any] = read_json(published_study / "verdicts.json")
    entries = read_bibtex(format_bibtex(verdicts))
    assert len({entry["id"] for entry in entries}) == len(entries)
    urls = {str(reference["source"]["url"]) for reference in verdicts["references"]}
    assert {entry["id"] for entry in entries} == {
        *map(document_key, urls),
        *(published_key(entry["id"]) for entry in verdicts["published"]),
    }
    assert all(entry["title"] and entry["author"] for entry in entries)


def test_only_citing_pages_list_sources(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.with_suffix(".qmd").exists()]
    cites = {page: "\nnocite: " in page.with_suffix(".qmd").read_text(encoding="utf-8") for page in pages}
    assert {*cites.values()} == {True, False}
    for page in pages:
        # Pages of evidence are too large to parse in a short time, so search their text.
        listed = re.search(r'<div id="refs"[^>]*>\s*<div[^>]* class="csl-entry"', page.read_text(encoding="utf-8"))
        assert bool(listed) == cites[page], page


def test_documents_are_sorted_links_and_those_without_claims_stand_apart() -> None:
    references = [
        {"source": make_source(f"https://example.org/{title}", title), "subject": "A chip", "what": "cores", "value": 4,
         "unit": "1", "status": "verified", "used_by": used}
        for title, used in (("b paper", ["G01", "peak.rate"]), ("A paper", ["N01"]), ("a list", ["prices.hour"]))
    ]  # fmt: skip
    context = sources_page({"references": references, "published": None}).context
    assert [row["plain"] for row in context["documents"]] == ["A paper", "b paper"]
    assert [row["plain"] for row in context["others"]] == ["a list"]
    assert context["documents"][1]["title"] == "[b paper](<https://example.org/b%20paper>)"
