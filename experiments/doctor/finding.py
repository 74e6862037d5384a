"""What a check of the machine says, and how it is told on a terminal and to programs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much it matters to results. A note is worth knowing; a warning spoils them."""

    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """One check's answer: what was seen, why it matters and how to mend it (a command where there is one)."""

    name: str
    level: Level
    seen: str
    why: str = ""
    mend: str = ""


def ok(name: str, seen: str) -> Finding:
    """Nothing to mend."""
    return Finding(name, Level.OK, seen)


def note(name: str, seen: str, why: str, mend: str = "") -> Finding:
    """Worth knowing when results are read."""
    return Finding(name, Level.NOTE, seen, why, mend)


def warning(name: str, seen: str, why: str, mend: str) -> Finding:
    """Will spoil results until it is mended."""
    return Finding(name, Level.WARNING, seen, why, mend)


_TITLES = {
    Level.WARNING: "Will spoil results",
    Level.NOTE: "Worth knowing",
    Level.OK: "In order",
}


def told(findings: Sequence[Finding], width: int) -> str:
    """The findings as text of `width` columns at most, the worst first."""
    column = max((len(finding.name) for finding in findings), default=0) + 2
    blocks = []
    for level, title in _TITLES.items():
        group = [finding for finding in findings if finding.level is level]
        if group:
            blocks.append(
                "\n".join([f"{title} ({len(group)})", *(_lines(finding, column, width) for finding in group)])
            )
    return "\n\n".join([*blocks, textwrap.fill(verdict(findings), width)])


def _lines(finding: Finding, column: int, width: int) -> str:
    room = max(width - column - 2, 30)
    # A command is kept on one line, so that it can be copied.
    wrapped = [*textwrap.wrap(finding.seen, room), *(textwrap.wrap(finding.why, room))]
    wrapped += [f"> {finding.mend}"] if finding.mend else []
    first, *rest = wrapped
    indent = " " * (column + 2)
    return "\n".join([f"  {finding.name:{column}}{first}", *(f"{indent}{line}" for line in rest)])


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence: whether to measure now."""
    count = _warnings(findings)
    if not count:
        return "Nothing here will spoil results."
    what = "1 thing" if count == 1 else f"{count} things"
    return f"{what} will spoil results: mend what can be mended, or expect flagged samples and wider intervals."


def for_programs(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as JSON has them."""
    return {"warnings": _warnings(findings), "findings": [asdict(finding) for finding in findings]}


def _warnings(findings: Sequence[Finding]) -> int:
    return sum(finding.level is Level.WARNING for finding in findings)
