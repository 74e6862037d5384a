"""Published outcomes: jobs that people ran, with the time or the rate that they got.

`data/published/jobs/outcomes.csv` has one row an outcome. A source is one repository or thread, whatever its length.
Rows with a reason in `aside` stay in the file, but constants are not fitted to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.errors import StudyError
from report.advice.chips import UnknownName, read_table
from report.advice.jobs import WORK, Job, Situation, Unclear, examine
from report.advice.units import item_time
from report.data.published_records import PUBLISHED

OUTCOMES = PUBLISHED / "jobs" / "outcomes.csv"
# How much care was taken: 1 for experts, 0 for users who ran it as it comes.
CARE = {"as found": 0.0, "maker": 0.5, "tuned": 1.0}


@dataclass(frozen=True)
class Outcome:
    """An outcome with its recognised job. time: seconds for one natural item; care: see CARE."""

    source: str
    id: str
    situation: Situation
    time: float
    care: float
    row: Mapping[str, str]


def _job(row: Mapping[str, str]) -> Job:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    count, threads = number("count"), number("threads")
    apple_processor = row["device"] == "cpu" and "Apple" in f"Apple {row['hardware']}" and not row["threads"]
    return Job(
        id=row["id"],
        kind=row["kind"],
        model=row["model"],
        hardware=f"{row['hardware']} (CPU)" if apple_processor else row["hardware"],
        parameters=number("parameters"),
        precision=row["precision"] or None,
        count=int(count) if count else None,
        threads=int(threads) if threads else None,
        work={name: number(name) for name in WORK},
        software=row["software"] or None,
        year=float(row["date"][:4]),
        unit=row["unit"],
        text=row["note"],
    )


def read_outcomes(path: Path = OUTCOMES) -> list[Outcome]:
    """Read all outcomes that are not set aside. Raises StudyError for a row that cannot be understood."""
    outcomes = []
    for row in read_table(path):
        if row["aside"]:
            continue
        try:
            situation = examine(_job(row))
            time = item_time(situation, float(row["value"]), row["unit"])
        except (UnknownName, Unclear) as error:
            raise StudyError(f"{path}, {row['id']}: {error}") from error
        if not (time > 0 and math.isfinite(time)):
            raise StudyError(f"{path}, {row['id']}: the time of one item is {time}")
        outcomes.append(Outcome(row["source"], row["id"], situation, time, CARE[row["care"]], row))
    return outcomes
