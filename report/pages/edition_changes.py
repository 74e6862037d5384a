"""Build the page section on changes since the last edition."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def changes_since_last(document: Mapping[str, Any], verdicts: Path, previous: Path | None) -> dict[str, Any] | None:
    """Compare with the previous edition; None if there is none.

    document: content from the file `verdicts`. previous: an earlier verdicts.json, or a site's editions.json. Raises
    StudyError if either file cannot be compared.
    """
    if previous is None:
        return None
    current = extract_edition(document, verdicts)
    earlier = earlier_editions(read_editions(previous), current)
    if not earlier:
        print(f"note: {previous}: holds no other edition before this one: no changes are told", file=sys.stderr)
        return None
    found = compare_editions(earlier[-1], current)
    return {
        "since": edition_day(found["old"]),
        "headline": headline(found),
        "machines": " ".join(machine_sentences(found)),
        "rows": [_change_row(one) for one in (*found["changed"], *found["revised"])],
        "earlier": [f"{edition_day(one)}: version {one['study_version']}" for one in earlier],
    }


def _change_row(one: Mapping[str, Any]) -> dict[str, Any]:
    before, now = (verdict_words.verdict_word(str(one[name])) for name in ("was", "is"))
    return {
        "id": identifier(str(one["id"])),
        "says": str(one["says"]),
        "before": before,
        "now": now,
        "why": " ".join(capitalize(text).rstrip(".") + "." for text in format_causes(one["why"])),
    }
