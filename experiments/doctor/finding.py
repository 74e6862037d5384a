"""Findings, and functions to format them for a terminal or as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """Severity of a finding: a warning means that results would be wrong or noisy; a note only informs."""

    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """A check's result.

    seen: the observation.
    why: the observation's consequence for the results.
    mend: the fix, as a command if possible.
    """

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


_TITLES = {Level.WARNING: "Will spoil results", Level.NOTE: "Worth knowing", Level.OK: "OK"}


def format_findings(findings: Sequence[Finding], width: int) -> str:
    """Format the findings, the most severe first, and end with a verdict; wrap lines at `width` columns."""
    column = max((len(finding.name) for finding in findings), default=0) + 2
    blocks = []
    for level, title in _TITLES.items():
        group = [_format_finding(finding, column, width) for finding in findings if finding.level is level]
        if group:
            blocks.append("\n".join([f"{title} ({len(group)})", *group]))
    count = _count_warnings(findings)
    verdict = "No problem found that would spoil results."
    if count:
        verdict = f"{count} problem{'s' * (count != 1)} will spoil results: fix {'it' if count == 1 else 'them'} if "
        verdict += "possible, or expect flagged samples and wider intervals."
    return "\n\n".join([*blocks, textwrap.fill(verdict, width)])


def _format_finding(finding: Finding, column: int, width: int) -> str:
    room = max(width - column - 2, 30)
    wrapped = [*textwrap.wrap(finding.seen, room), *textwrap.wrap(finding.why, room)]
    # Do not wrap the fix, so that commands can be copied.
    wrapped += [f"> {finding.mend}"] if finding.mend else []
    return f"  {finding.name:{column}}" + f"\n{'':{column + 2}}".join(wrapped)


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    return {"warnings": _count_warnings(findings), "findings": [asdict(finding) for finding in findings]}


def _count_warnings(findings: Sequence[Finding]) -> int:
    return sum(finding.level is Level.WARNING for finding in findings)
