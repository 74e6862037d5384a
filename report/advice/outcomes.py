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
from report.advice.chips import UnknownNameError
from report.advice.jobs import KINDS, WORK, Job, Situation, UnclearJobError, examine
from report.advice.units import item_time
from report.data.names import read_rows
from report.data.published_records import PUBLISHED

OUTCOMES = PUBLISHED / "jobs" / "outcomes.csv"
# Columns with their type, meaning and unit.
COLUMNS: Mapping[str, tuple[str, str, str]] = {
    "source": ("string", "Repository or thread that tells the outcome; whatever its length, it is one source", ""),
    "id": ("string", "Name of the outcome", ""),
    "measured_by": ("string", "Who ran it", ""),
    "where": ("string", "Message, table and row under the address", ""),
    "url": ("string", "Address of the message or file", ""),
    "date": ("string", "Year, month or day when it was posted or measured", ""),
    "kind": ("string", "Kind of job: decode, prompt, serve, train, fine-tune, lora, classify, detect, embed, …", ""),
    "model": ("string", "Model as the source writes it", ""),
    "parameters": ("number", "Parameters of the model, where told", ""),
    "precision": ("string", "Number format as the source writes it", ""),
    "hardware": ("string", "GPU or processor that did the work", ""),
    "device": ("string", "cpu or gpu", ""),
    "count": ("number", "GPUs, or processors", ""),
    "cpu": ("string", "Processor beside the GPU", ""),
    "threads": ("number", "Threads of the processor", ""),
    "tokens_in": ("number", "Tokens of the prompt or before the answer", ""),
    "tokens_out": ("number", "Tokens of the answer", ""),
    "users": ("number", "Requests at once", ""),
    "samples": ("number", "Samples of the data set, or of the job", ""),
    "tokens_per_sample": ("number", "Tokens of one sample", ""),
    "steps": ("number", "Optimiser's steps; denoising steps of a picture", ""),
    "batch": ("number", "Samples in one step or call", ""),
    "epochs": ("number", "Passes over the data set", ""),
    "rows": ("number", "Rows of the table", ""),
    "columns": ("number", "Columns of the table", ""),
    "trees": ("number", "Trees", ""),
    "leaves": ("number", "Leaves of one tree", ""),
    "audio_s": ("number", "Length of the sound", "s"),
    "pictures": ("number", "Pictures made", ""),
    "pixels": ("number", "Pixels of one picture", ""),
    "software": ("string", "Program", ""),
    "version": ("string", "Its version", ""),
    "care": ("string", "as found: a user ran it as it comes; maker: its author did; tuned: an expert did", ""),
    "value": ("number", "Time or rate", ""),
    "unit": ("string", "Unit of the value", ""),
    "how": ("string", "read, or parsed from a file", ""),
    "record": ("string", "Record (source/id) in data/published with the same figure", ""),
    "aside": ("string", "Why constants are not fitted to it; empty if they are", ""),
    "note": ("string", "What limits it", ""),
}
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


def _number(row: Mapping[str, str], name: str) -> float:
    try:
        return float(row[name])
    except ValueError:
        raise UnclearJobError(f"{name}: {row[name]!r} is not a number") from None


def _job(row: Mapping[str, str]) -> Job:
    def number(name: str) -> float | None:
        return _number(row, name) if row[name] else None

    if row["kind"] not in KINDS:
        raise UnclearJobError(f"kind must be one of {', '.join(KINDS)}, not {row['kind']!r}")
    if row["care"] not in CARE:
        raise UnclearJobError(f"care must be one of {', '.join(CARE)}, not {row['care']!r}")
    if not row["date"][:4].isdigit():
        raise UnclearJobError(f"date: {row['date']!r} is not a year, month or day")

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
    table = read_rows(path)
    if table and tuple(table[0]) != tuple(COLUMNS):
        raise StudyError(f"{path}, line 1: the columns have to be {','.join(COLUMNS)}")
    outcomes = []
    for row in table:
        if row["aside"]:
            continue
        try:
            situation = examine(_job(row))
            value = _number(row, "value")
            if not 0 < value < math.inf:
                raise UnclearJobError(f"value must be above 0, not {row['value']}")
            time = item_time(situation, value, row["unit"])
        except (UnknownNameError, UnclearJobError) as error:
            raise StudyError(f"{path}, {row['id']}: {error}") from error
        outcomes.append(Outcome(row["source"], row["id"], situation, time, CARE[row["care"]], row))
    return outcomes
