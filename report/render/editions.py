"""What changed since the last edition, as the page tells it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report.formatting import capital
from report.render import words
from report.render.markdown import identifier
from report.site.compare import compare, day, headline, machines, reasons
from report.site.editions import before, edition, read_editions

Record = Mapping[str, Any]


def since_last(document: Record, verdicts: Path, previous: Path | None) -> dict[str, Any] | None:
    """A comparison with the last edition before this one (see `compare`); None without one.

    document: what the file `verdicts` holds. previous: an earlier verdicts.json, or the editions.json of a site.
    Raises StudyError if either file cannot be compared.
    """
    if previous is None:
        return None
    current = edition(document, verdicts)
    earlier = before(read_editions(previous), current)
    if not earlier:
        print(f"note: {previous}: holds no other edition before this one: no changes are told", file=sys.stderr)
        return None
    return compare(earlier[-1], current)


def changes(found: Record | None) -> dict[str, Any] | None:
    """What the template prints of a comparison; None for none."""
    if found is None:
        return None
    return {
        "day": day(found["old"]),
        "headline": headline(found),
        "machines": machines(found),
        "changed": [_claim(one) for one in found["changed"]],
        "revised": [_claim(one) for one in found["revised"]],
        "added": [_single(one) for one in found["added"]],
        "withdrawn": [{**_single(one), "id": str(one["id"])} for one in found["withdrawn"]],
    }


def _claim(one: Record) -> dict[str, Any]:
    return {
        "id": identifier(str(one["id"])),
        "says": str(one["says"]),
        **{name: _verdict(str(one[name])) for name in ("was", "is")},
        "why": _sentences(reasons(one["why"])),
    }


def _single(one: Record) -> dict[str, Any]:
    return {"id": identifier(str(one["id"])), "says": str(one["says"]), "is": _verdict(str(one["verdict"]))}


def _verdict(name: str) -> dict[str, str]:
    return {"name": name, "class": words.verdict_class(name)}


def _sentences(texts: Sequence[str]) -> list[str]:
    """Each with a capital letter and a full stop."""
    return [capital(text) + ("" if text.endswith((".", "!", "?", "”")) else ".") for text in texts]
