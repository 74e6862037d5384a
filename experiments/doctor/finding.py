"""A check's answer, and how it is told on a terminal and to programs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much a finding matters to results. A note is worth knowing; a warning spoils them."""

    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """The observation of a check, its consequence, and its remedy: a command where there is one."""

    name: str
    level: Level
    seen: str
    why: str = ""
    mend: str = ""


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Level.OK, seen)


def note(name: str, seen: str, why: str, mend: str = "") -> Finding:
    return Finding(name, Level.NOTE, seen, why, mend)


def warning(name: str, seen: str, why: str, mend: str) -> Finding:
    return Finding(name, Level.WARNING, seen, why, mend)


_TITLES = {Level.WARNING: "Will spoil results", Level.NOTE: "Worth knowing", Level.OK: "In order"}


def format_findings(findings: Sequence[Finding], width: int) -> str:
    """The findings as text of `width` columns at most, the worst first, and whether to measure now."""
    column = max((len(finding.name) for finding in findings), default=0) + 2
    blocks = []
    for level, title in _TITLES.items():
        group = [_format_finding(finding, column, width) for finding in findings if finding.level is level]
        if group:
            blocks.append("\n".join([f"{title} ({len(group)})", *group]))
    count = _count_warnings(findings)
    verdict = "Nothing here will spoil results."
    if count:
        verdict = f"{count} {'thing' if count == 1 else 'things'} will spoil results: mend what can be mended, or "
        verdict += "expect flagged samples and wider intervals."
    return "\n\n".join([*blocks, textwrap.fill(verdict, width)])


def _format_finding(finding: Finding, column: int, width: int) -> str:
    room = max(width - column - 2, 30)
    wrapped = [*textwrap.wrap(finding.seen, room), *textwrap.wrap(finding.why, room)]
    # A command is kept on one line, so that it can be copied.
    wrapped += [f"> {finding.mend}"] if finding.mend else []
    return f"  {finding.name:{column}}" + f"\n{'':{column + 2}}".join(wrapped)


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for JSON."""
    return {"warnings": _count_warnings(findings), "findings": [asdict(finding) for finding in findings]}


def _count_warnings(findings: Sequence[Finding]) -> int:
    return sum(finding.level is Level.WARNING for finding in findings)
