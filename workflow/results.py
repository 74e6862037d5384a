"""Whether the files of a run can be used: Snakemake asks only whether they are there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from contract.errors import StudyError
from contract.node import missing_rounds, read_node
from contract.pack import round_name
from experiments.jobs import Plan, read_plan


def is_record(path: Path | str) -> bool:
    """Whether a node's record is there and can be read."""
    try:
        read_node(Path(path))
    except StudyError:
        return False
    return True


def usable_plan(path: Path | str) -> Plan | None:
    """The plan in a file; None if it is missing, damaged or of another version of this program."""
    try:
        return _plan_at(Path(path), Path(path).stat().st_mtime_ns)
    except (StudyError, OSError):
        return None


@cache
def _plan_at(path: Path, _changed_ns: int) -> Plan:
    return read_plan(path)


def damaged_rounds(files: Iterable[str], node: str) -> list[str]:
    """Those of the files of rounds that are there and cannot be read.

    Raises StudyError for a round that is not the one that its name and folder say: nothing of it is overwritten.
    """
    there = [Path(file) for file in files if Path(file).exists()]
    return [str(path) for path in there if not _is_round(path, path.stat().st_mtime_ns, path.stat().st_size, node)]


@cache
def _is_round(path: Path, _changed_ns: int, _size: int, node: str) -> bool:
    # Loads pandas, which takes longer than a dry run in an empty folder.
    from contract.tables import load_samples

    try:
        held = load_samples(path)[0].select(["node", "experiment", "device", "round"]).to_pandas().drop_duplicates()
    except (StudyError, KeyError):
        return False
    for owner, *key in held.itertuples(index=False, name=None):
        if owner != node or round_name(*key) != path.name:
            raise StudyError(
                f"{path}: holds {round_name(*key)} of {owner}, and {path.name} of {node} belongs there: "
                "move it away, and give the same command again"
            )
    return len(held) > 0


def is_measured(nodes: Path | str) -> bool:
    """Whether a folder of nodes holds a sealed one with all its rounds."""
    for path in filter(is_record, Path(nodes).glob("*/node.json")):
        record = read_node(path)
        rounds = [str(path.parent / f"{name}.parquet") for name in missing_rounds(record, ())]
        if all(Path(file).exists() for file in rounds) and not damaged_rounds(rounds, record["id"]):
            return True
    return False
