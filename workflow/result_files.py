"""Check the content of a run's files, because Snakemake checks only that they exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from contract.errors import StudyError
from contract.looks import read_further_rounds, session_begins
from contract.node import missing_rounds, parse_time, read_node
from contract.node_pack import round_file_name
from experiments.jobs import Plan, read_plan

T = TypeVar("T")


def usable_record(path: Path | str) -> dict[str, Any] | None:
    """Read a node record; return None if it is missing or unreadable."""
    return _read_or_none(read_node, path)


def usable_plan(path: Path | str) -> Plan | None:
    """Read a plan; return None if it is missing, damaged or from another version of this program."""
    return _read_or_none(read_plan, path)


def usable_further_rounds(path: Path | str) -> dict[str, Any] | None:
    """Read further rounds (`contract.looks`); return None if the file is missing or damaged."""
    return _read_or_none(read_further_rounds, path)


def _read_or_none(read: Callable[[Path], T], path: Path | str) -> T | None:
    try:
        return _read_cached(read, Path(path), Path(path).stat().st_mtime_ns)
    except (StudyError, OSError):
        return None


@cache
def _read_cached(read: Callable[[Path], Any], path: Path, _changed_ns: int) -> Any:
    return read(path)


def unusable_rounds(required_metadata: Mapping[str, Mapping[str, Any]], node: str) -> list[str]:
    """List the existing round files that must be measured again.

    required_metadata: for each file, the metadata that it must have, such as `planned`; fields that the file lacks are
        ignored.
    If a file holds a round that does not match its name and folder, raises StudyError, so that it is not overwritten.
    """
    unusable = []
    for file, wanted in required_metadata.items():
        path = Path(file)
        if path.exists():
            about = _about_round(path, path.stat().st_mtime_ns, path.stat().st_size, node)
            if about is None or any(about.get(name, value) != value for name, value in wanted.items()):
                unusable.append(file)
    return unusable


@cache
def _about_round(path: Path, _changed_ns: int, _size: int, node: str) -> dict[str, Any] | None:
    """Read a round's metadata; return None if the file is unreadable."""
    # Import inside the function, because loading pandas takes longer than a dry run in an empty folder.
    from contract.sample_table import load_samples

    try:
        samples, about = load_samples(path)
        keys = samples.select(["node", "experiment", "device", "round"]).to_pandas().drop_duplicates()
    except (StudyError, KeyError):
        return None
    for owner, *key in keys.itertuples(index=False, name=None):
        if owner != node or round_file_name(*key) != path.name:
            raise StudyError(
                f"{path}: holds {round_file_name(*key)} of {owner}, and {path.name} of {node} belongs there: "
                "move it away, and give the same command again"
            )
    return about if len(keys) else None


def session_is_due(record: Mapping[str, Any] | None, now: datetime) -> bool:
    """Tell if a round that starts at `now` begins another session of a node. record: its sealed record, if any."""
    ended = (record or {}).get("ended_utc")
    return session_begins(parse_time(ended) if ended else None, now)


def is_measured(nodes: Path | str) -> bool:
    """True if a node in the folder `nodes` has a sealed record and all its planned rounds."""
    for path in Path(nodes).glob("*/node.json"):
        record = usable_record(path) or {"id": "", "jobs": {}}
        rounds: dict[str, Mapping[str, Any]] = {
            str(path.parent / f"{name}.parquet"): {} for name in missing_rounds(record, ())
        }
        if rounds and all(map(Path.exists, map(Path, rounds))) and not unusable_rounds(rounds, record["id"]):
            return True
    return False
