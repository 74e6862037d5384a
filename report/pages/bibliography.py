"""Bibliography for the pages: reference documents and sources with published measurements."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from report import formatting
from report.formatting import format_count
from report.pages.markdown import Markdown, clean, identifier, link
from report.pages.site_sources import Page

_CLAIM = re.compile(r"[A-Z]\d\d")

_UNSAFE = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def document_key(url: str) -> Markdown:
    """Return the bibliography key for a document, which depends only on its URL."""
    return identifier(f"d-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def published_key(source: str) -> Markdown:
    """Return the bibliography key for a source of measurements. Raises StudyError if the key is no identifier."""
    return identifier(f"p-{source.replace('.', '-')}")


def format_bibtex(document: Mapping[str, Any]) -> str:
    """Format every source in verdicts.json as BibTeX."""
    return "\n".join(_bibtex_entries(document))


def _bibtex_entries(document: Mapping[str, Any]) -> Iterator[str]:
    urls = set()
    for figure in document["references"]:
        source = figure["source"]
        if source["url"] not in urls:
            urls.add(source["url"])
            yield _bibtex_entry(document_key(str(source["url"])), source)
    for published_source in document["published"] or []:
        yield _bibtex_entry(published_key(str(published_source["id"])), published_source)


def _bibtex_entry(key: str, source: Mapping[str, Any]) -> str:
    year = re.match(r"\d{4}", str(source.get("date") or ""))
    fields = {
        "title": f"{{{_escape_tex(str(source['title']))}}}",
        "author": f"{{{_escape_tex(str(source['publisher']))}}}",
        "year": year[0] if year else "",
        "url": re.sub(r"[{}\\\s]", "", str(source["url"])),
        "note": _escape_tex(str(source.get("where") or "")),
    }
    body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{{key},\n{body}\n}}\n"


def _escape_tex(text: str) -> str:
    return re.sub(r"[{}%$#_&\\~^]", lambda sign: _UNSAFE.get(sign[0], "\\" + sign[0]), clean(text))


def sources_page(document: Mapping[str, Any], listed: bool = False) -> Page:
    """Build the page that lists published figures and published measurements, each with the claims that use it.

    listed: True if other pages list all evidence by id.
    """
    documents: dict[str, dict[str, Any]] = {}
    for figure in document["references"]:
        source = figure["source"]
        row = documents.setdefault(str(source["url"]), {"what": [], "claims": []})
        row["title"], row["plain"] = link(str(source["title"]), str(source["url"])), str(source["title"])
        row["publisher"] = str(source["publisher"])
        value = "could not be verified" if figure["value"] is None else str(figure["value"])
        if isinstance(figure["value"], int | float):
            value = formatting.threshold_text(figure["value"], str(figure["unit"]))
        read = figure["status"] == "verified"
        row["what"].append({"text": f"{figure['subject']}, {figure['what']}: {value}", "read": read})
        row["claims"] += [identifier(str(name)) for name in figure["used_by"] if _CLAIM.fullmatch(str(name))]
    rows = [
        {
            **row,
            "what": sorted(row["what"], key=lambda figure: not figure["read"]),
            "claims": list(dict.fromkeys(sorted(row["claims"]))),
        }
        for row in sorted(documents.values(), key=lambda row: str(row["plain"]).lower())
    ]
    runs = [
        {
            "title": link(str(run["title"]), str(run["url"])),
            "note": str(run["note"]),
            "records": f"{run['records']:,}",
            "claims": [identifier(str(name)) for name in run["used_by"] if _CLAIM.fullmatch(str(name))],
        }
        for run in sorted(document["published"] or [], key=lambda run: str(run["title"]).lower())
    ]
    records = sum(run["records"] for run in document["published"] or [])
    sources = format_count(len(runs), "source")
    counts = f"{records:,} records from {sources}, each read from the place where it was published."
    used = [row for row in rows if row["claims"]]
    return Page("sources", "sources", "Sources", "Published figures and published runs that claims use.",
                {"documents": used, "others": [row for row in rows if not row["claims"]], "runs": runs,
                 "counts": counts, "listed": listed})  # fmt: skip
