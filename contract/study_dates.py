"""Find dates that no measurement can have, and tell if this machine's clock is wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from contract.errors import StudyError
from contract.node import parse_time, utc_time
from contract.provenance import ROOT, run_git

# Time of the study's first commit: no measurement is older.
FIRST = "2026-11-20T18:34:00Z"
# A date is in the future if it is more than these seconds ahead of this machine's clock, which may be wrong.
AHEAD_S = 86_400.0
# The clock may be this far ahead of this version's commit before a note is due.
_VERSION_LASTS = timedelta(days=2 * 365)
_KEYS = ("started_utc", "ended_utc")


def impossible_date(*sources: Mapping[str, object]) -> str:
    """Return the first impossible date among the start and end times in `sources`, with the reason; '' if none is.

    sources: node records, or metadata of rounds. Dates are compared with this machine's clock, unless it is wrong.
    """
    dates = sorted({(str(source[key]), key) for source in sources for key in _KEYS if key in source})
    latest = utc_time(-AHEAD_S)
    for date, key in dates:
        if date < FIRST:
            first = f"lies before the study's first version ({FIRST[:10]})"
            return f"{key} {date} {first}: set the machine's clock and measure again"
        if date > latest >= FIRST:
            return f"{key} {date} lies in the future: set the machine's clock and measure again"
    return ""


def check_clock() -> str:
    """Return a note if this machine's clock shows an unlikely date, else ''.

    Raises StudyError if it shows a date before the study's first commit, because nobody could use the measurements.
    """
    now = datetime.fromtimestamp(time.time(), UTC)
    shown = f"this machine's clock shows {now:%Y-%m-%d}"
    mend = "set the clock (sudo timedatectl set-ntp true; without a network, sudo date --set)"
    if now < parse_time(FIRST):
        raise StudyError(
            f"{shown}, before the study's first version ({FIRST[:10]}): {mend}, then give the command again"
        )
    written = _commit_time()
    if now < written - timedelta(seconds=AHEAD_S):
        return f"{shown}, before this version of the study ({written:%Y-%m-%d}): {mend}"
    if now > written + _VERSION_LASTS:
        return f"{shown}, years after this version of the study ({written:%Y-%m-%d}): {mend}, or get the newest version"
    return ""


def _commit_time(root: Path = ROOT) -> datetime:
    """Return the time of the checkout's commit, or of the study's first commit if `root` is no checkout."""
    try:
        return datetime.fromtimestamp(int(run_git(root, "log", "-1", "--format=%ct")), UTC)
    except (StudyError, ValueError, OverflowError, OSError):
        return parse_time(FIRST)
