"""Index to the site's pages, sections and words, for the search field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report.pages.markdown import clean
from report.pages.site_sources import Page
from report.publish.claimreview import script_json

SEARCH = "site/search-data.js"
# Case labels by which readers look for a claim.
_LABELS = ("gpu", "cpu", "accelerator", "machine", "model", "run", "server", "subject")
# An entry's kind, by its page's template; pages with other templates are left out.
_KINDS = {
    "claim": "Claim", "family": "Measurement", "picture": "Picture", "article": "Article", "advice": "Advice",
    "jobs-page": "Advice", "machines": "Machine", "gpu": "Page", "method": "Page", "objections": "Page",
    "sources": "Page", "editions": "Page", "glossary": "Page", "claims": "Page", "measurements": "Page",
    "pictures": "Page", "runs": "Runs", "runs-index": "Page",
}  # fmt: skip
# Words that visitors use for a page and that it lacks, by its path.
_ALSO = {
    "measurements/transfers": "transfer overhead, copying over PCIe",
    "runs/index": "cost, buy, rent",
}
# Most letters in an entry's further words.
_ROOM = 700

Entry = tuple[str, str, str, str]


def search_script(pages: Sequence[Page], document: Mapping[str, Any]) -> str:
    """Return a script that sets the entries: kind, title, address without `.html`, and further words of each."""
    words = {str(verdict["id"]): _claim_words(verdict) for verdict in document["verdicts"]}
    entries = [entry for page in pages if page.template in _KINDS for entry in _page_entries(page, words)]
    return f"window.searchEntries = {script_json(entries, separators=(',', ':'))};\n"


def _page_entries(page: Page, words: Mapping[str, str]) -> Iterator[Entry]:
    """Yield an entry for a page, and one for each section, machine, job or word on it that has an anchor."""
    kind = _KINDS[page.template]
    more = words.get(str(page.context["c"]["id"]), "") if page.template == "claim" else ""
    yield _entry(kind, page.title, page.path, f"{page.description} {more} {_ALSO.get(page.path, '')}")
    for exhibit in page.context.get("exhibits", ()) if page.template == "family" else ():
        chart = exhibit["chart"]
        yield _entry(kind, chart.title, f"{page.path}#{chart.name}", chart.note)
    for group in page.context.get("kinds", ()) if page.template == "machines" else ():
        for node in group["nodes"]:
            devices = ", ".join(device["name"] for device in node["devices"])
            yield _entry(kind, node["label"], f"{page.path}#machine-{node['number']}", devices)
    for example in page.context.get("examples", ()) if page.template == "advice" else ():
        yield _entry(
            kind, example["title"], f"{page.path}#job-{example['id']}", " ".join(map(str, example["sentences"]))
        )
    for term in page.context.get("terms", ()) if page.template == "glossary" else ():
        yield _entry("Word", str(term["term"]), f"{page.path}#{term['anchor']}", str(term["means"]))


def _entry(kind: str, title: str, path: str, words: str) -> Entry:
    return kind, clean(title), path, clean(words)[:_ROOM]


def _claim_words(verdict: Mapping[str, Any]) -> str:
    """List the GPUs, processors and models in a claim's cases."""
    names = {
        str(case["labels"][name]): None for case in verdict["cases"] for name in _LABELS if case["labels"].get(name)
    }
    return ", ".join(names)
