"""Lints a report: every number has a source, a unit, an interval and a count; no join, no rule and no ratio is bare.

Each check has a name, a test that breaks it, and a place in the method section (`report.render.twelve`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from report.commands.lint import figures, markdown, page, pdf, program, verdicts
from report.commands.lint.study import CHECKS, Check, Fault, Study


def lint(study: Study) -> list[Fault]:
    """What every check finds, check by check. Raises StudyError for a file that is missing or unreadable."""
    return [fault for one in CHECKS.values() for fault in one.faults(study)]


def run(verdicts: Path, data: Path, report: Path, reference: Path) -> int:
    """Print a line for each fault; 1 if there are any, else 0 and what was looked at."""
    study = Study(verdicts, data, report, reference)
    faults = lint(study)
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} fault(s) in {report}", file=sys.stderr)
        return 1
    cells = sum(len(cells) for *_, cells in study.parts())
    print(
        f"{len(CHECKS)} checks, {len(study.document['verdicts'])} verdicts, {cells} cells, "
        f"{len(study.figures)} figures: no fault in {report}"
    )
    return 0


__all__ = [
    "CHECKS",
    "Check",
    "Fault",
    "Study",
    "figures",
    "lint",
    "markdown",
    "page",
    "pdf",
    "program",
    "run",
    "verdicts",
]
