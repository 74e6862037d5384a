"""The bibliography of the pages: documents of the reference data and the sources of others' measurements."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from report.pages.markdown import Markdown, clean, identifier

_UNSAFE = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def key_of(url: str) -> Markdown:
    """The key of a document in the bibliography, the same in every edition."""
    return identifier(f"d-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def key_of_published(source: str) -> Markdown:
    """The key of a source of measurements. Raises StudyError if it is no identifier."""
    return identifier(f"p-{source.replace('.', '-')}")


def bibliography(document: Mapping[str, Any]) -> str:
    """BibTeX of every source that verdicts.json names."""
    return "\n".join(_entries(document))


def _entries(document: Mapping[str, Any]) -> Iterator[str]:
    seen = set()
    for one in document["references"]:
        source = one["source"]
        if source["url"] not in seen:
            seen.add(source["url"])
            yield _entry(key_of(str(source["url"])), source)
    for one in document["published"] or []:
        yield _entry(key_of_published(str(one["id"])), one)


def _entry(key: str, source: Mapping[str, Any]) -> str:
    year = re.match(r"\d{4}", str(source.get("date") or ""))
    fields = {
        "title": f"{{{_tex(str(source['title']))}}}",
        "author": f"{{{_tex(str(source['publisher']))}}}",
        "year": year[0] if year else "",
        "url": re.sub(r"[{}\\\s]", "", str(source["url"])),
        "note": _tex(str(source.get("where") or "")),
    }
    body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{{key},\n{body}\n}}\n"


def _tex(text: str) -> str:
    return re.sub(r"[{}%$#_&\\~^]", lambda sign: _UNSAFE.get(sign[0], "\\" + sign[0]), clean(text))
