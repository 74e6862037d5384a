"""Build the page section on changes since the last edition."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from report.formatting import capitalize
from report.pages import verdict_words
from report.pages.editions.edition_comparison import (
    compare_editions,
    edition_day,
    format_causes,
    headline,
    machine_sentences,
)
from report.pages.editions.edition_record import earlier_editions, extract_edition, read_editions
from report.pages.markdown import identifier
from report.verdicts import EDITIONS, newest_edition


def changes_since_last(document: Mapping[str, Any], verdicts: Path, previous: Path | None) -> dict[str, Any] | None:
    """Return the changes since the previous edition as a template context; None if there is no previous edition.

    document: the parsed file `verdicts`. previous: an earlier verdicts.json, or a site's editions.json; None compares
    with the newest edition in this folder. Raises StudyError if either file cannot be compared.
    """
    number = newest_edition()
    if previous is None and number is None:
        return None
    current = extract_edition(document, verdicts)
    if previous is not None:
        earlier = earlier_editions(read_editions(previous), current)
        if not earlier:
            print(f"note: {previous}: has no earlier edition: changes are not listed", file=sys.stderr)
    else:
        try:
            earlier = earlier_editions(read_editions(EDITIONS / str(number) / "verdicts.json"), current)
        except StudyError as fault:
            print(f"note: {fault}: changes are not listed", file=sys.stderr)
            return None
    if not earlier:
        return None
    comparison = compare_editions(earlier[-1], current)
    return {
        "since": edition_day(comparison["old"]),
        "headline": headline(comparison),
        "machines": " ".join(machine_sentences(comparison)),
        "rows": [_change_row(change) for change in (*comparison["changed"], *comparison["revised"])],
        "earlier": [f"{edition_day(record)}: version {record['study_version']}" for record in earlier],
    }


def _change_row(change: Mapping[str, Any]) -> dict[str, Any]:
    before, now = (verdict_words.verdict_word(str(change[name])) for name in ("was", "is"))
    return {
        "id": identifier(str(change["id"])),
        "says": str(change["says"]),
        "before": before,
        "now": now,
        "why": " ".join(capitalize(text).rstrip(".") + "." for text in format_causes(change["why"])),
    }
