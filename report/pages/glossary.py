"""Read the glossary, link its terms and build its page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from contract.files import read_json, read_yaml
from report import PACKAGE
from report.pages.markdown import Markdown, identifier
from report.pages.site_sources import Page


def read_glossary() -> list[dict[str, Any]]:
    """Read the glossary's entries: term, also (other spellings) and means.

    Raises StudyError for a schema violation.
    """
    terms: list[dict[str, Any]] = read_yaml(
        PACKAGE / "glossary.yaml", read_json(PACKAGE / "schemas" / "glossary.schema.json")
    )
    return terms


def _term_anchor(term: str) -> Markdown:
    spelt = term.lower().replace("/", "-per-")
    return identifier("t-" + re.sub(r"[^a-z0-9]+", "-", spelt).strip("-"))


def term_anchors(glossary: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each spelling of a term to the term's anchor on the glossary page."""
    return {
        name if any(sign.isupper() or sign.isdigit() for sign in name) else name.lower(): str(
            _term_anchor(entry["term"])
        )
        for entry in glossary
        for name in (entry["term"], *entry.get("also", []))
    }


def glossary_page() -> Page:
    """Build the glossary page, with terms in alphabetical order."""
    terms = [
        {"term": str(entry["term"]), "anchor": _term_anchor(str(entry["term"])), "means": str(entry["means"])}
        for entry in sorted(read_glossary(), key=lambda entry: str(entry["term"]).lower())
    ]
    return Page(
        "glossary", "glossary", "Glossary", "Every unit and term of the trade in plain words.", {"terms": terms}
    )
