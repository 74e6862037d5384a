"""Looks and further rounds.

Looks are fixed round counts after which a node's results are judged, if undecided results are measured further. Further
rounds measure some planned points again: those behind undecided claims before the next look, and anchors in a later
session. A point is an object with the sample table's columns KEY.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from contract.files import read_json
from contract.node import integer_schema, list_schema, map_schema, number_schema, object_schema, text_schema
from contract.schema import check_document

# Round counts after which results are judged.
LOOKS = (3, 5, 8)
# Least time between two sessions, from the last end to the next start.
SESSIONS_APART = timedelta(hours=1)
# Highest number that a session may have.
MOST_SESSIONS = 9
# Columns that identify a point on a node.
KEY = ("experiment", "device", "backend", "dtype", "threads", "params")

_POINT = object_schema(
    " ".join(KEY),
    experiment=text_schema(),
    device=text_schema(),
    backend=text_schema(),
    dtype=text_schema(),
    threads=integer_schema(1e6),
    params=text_schema(4000),
)
_POINTS = list_schema(_POINT, 100_000)
# Undecided cases with the points behind them; cases that need fewest rounds come first. rounds: round count that would
# decide a case, if its estimate and spread stay as they are; null if unknown.
_OPEN_CASES = object_schema(
    "cases",
    cases=list_schema(
        object_schema("rounds points", rounds={"anyOf": [integer_schema(1e6), {"type": "null"}]}, points=_POINTS),
        100_000,
    ),
)
# rounds: the further rounds' numbers. points: the points behind undecided cases. anchors: other points, measured in the
# same rounds to learn the spread between sessions. look: round count at the look to follow; null for none. seconds:
# predicted seconds per round by job.
_FURTHER_ROUNDS = object_schema(
    "rounds points anchors look seconds",
    rounds=list_schema(integer_schema(1e6), 100),
    points=_POINTS,
    anchors=_POINTS,
    look={"anyOf": [integer_schema(1e6), {"type": "null"}]},
    seconds=map_schema(number_schema(1e8), 1000),
)


def look_rounds(planned: int) -> list[int]:
    """Return the round counts at a run's looks: its planned rounds first, then the larger counts in LOOKS."""
    return [planned, *(rounds for rounds in LOOKS if rounds > planned)]


def further_stages(planned: int) -> dict[str, range]:
    """Return each stage's round numbers: the rounds before each look, and those in each session.

    planned: the plan's round count. Sessions have round numbers that no look reaches: 21 and 22 in session 2.
    """
    looks = look_rounds(planned)
    before_looks = {f"look-{end}": range(start + 1, end + 1) for start, end in itertools.pairwise(looks)}
    sessions = {f"session-{number}": session_rounds(number) for number in range(2, MOST_SESSIONS + 1)}
    return {**before_looks, **sessions}


def session_begins(ended: datetime | None, now: datetime) -> bool:
    """Tell if a round that starts at `now` begins another session. ended: the end of the last round, if any."""
    return ended is not None and now - ended >= SESSIONS_APART


def session_rounds(number: int) -> range:
    """Return a session's round numbers."""
    return range(10 * number + 1, 10 * number + 3)


def node_looks(record: Mapping[str, Any]) -> list[int]:
    """Return the round counts at a node's looks; empty if its undecided results were not measured further."""
    return [int(look["rounds"]) for look in record.get("looks", ())]


def read_open_cases(path: Path) -> list[dict[str, Any]]:
    """Read undecided cases from a file. Raises StudyError."""
    cases: list[dict[str, Any]] = _read(path, _OPEN_CASES)["cases"]
    return cases


def read_further_rounds(path: Path) -> dict[str, Any]:
    """Read further rounds from a file. Raises StudyError."""
    return _read(path, _FURTHER_ROUNDS)


def points_digest(further: Mapping[str, Any]) -> str:
    """Hash the points in further rounds to 12 digits."""
    text = json.dumps([further["points"], further["anchors"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _read(path: Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = read_json(path)
    check_document(document, schema, str(path))
    return document
