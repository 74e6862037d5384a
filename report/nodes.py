"""Node folders as they lie on disk: found, read, and refused one file at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from contract.node import read_node
from contract.tables import SAMPLES, read_samples
from report.wording import node_label


@dataclass
class Node:
    """One node: its record, the samples of all its rounds, and what is known about each round."""

    record: dict[str, Any]
    source: str
    samples: pd.DataFrame
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def label(self) -> str:
        """A short name for people: processor and cores, and the accelerators."""
        return node_label(self.record)

    def kinds(self) -> set[str]:
        """Kinds of devices that the node has: cpu, gpu."""
        return {device["kind"] for device in self.record["devices"]}

    def duty(self) -> float | None:
        """Share of the rounds' wall time that was spent warming up and timing; None if no round says."""
        wall = sum(float(about.get("wall_s") or 0) for about in self.rounds)
        busy = sum(float(about.get("warmup_s") or 0) + float(about.get("timed_s") or 0) for about in self.rounds)
        return busy / wall if wall > 0 else None


@dataclass
class Nodes:
    """All nodes that could be used, in the order given, and what could not be used and why."""

    nodes: list[Node]
    refused: list[dict[str, str]]

    def samples(self) -> pd.DataFrame:
        """The samples of all nodes, in the columns of `contract.tables.SAMPLES`."""
        tables = [node.samples for node in self.nodes if len(node.samples)]
        return pd.concat(tables, ignore_index=True) if tables else empty_samples()


def empty_samples() -> pd.DataFrame:
    """A table of samples without rows."""
    return pd.DataFrame({name: pd.Series(dtype=str(column.dtype)) for name, column in SAMPLES.columns.items()})


def read_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> Nodes:
    """Read every node folder among or directly under `directories`.

    A file that cannot be used is left out, with its reason in `refused` and on
    stderr. The first folder of a node wins over later ones with the same id.
    Raises StudyError if no node can be used, or for synthetic data unless
    `allow_synthetic`, which tests alone may set.
    """
    found = Nodes([], [])
    for folder in _folders(directories):
        try:
            record = read_node(folder / "node.json")
        except StudyError as fault:
            _refuse(found, folder / "node.json", str(fault))
            continue
        first = next((node for node in found.nodes if node.id == record["id"]), None)
        if first is not None:
            _refuse(found, folder, f"the node {record['id']} was already read from {first.source}")
            continue
        if record["origin"] == "synthetic" and not allow_synthetic:
            raise StudyError(f"{folder}: synthetic data is for tests only. Remove the folder or measure the node")
        found.nodes.append(_read_folder(folder, record, found))
    if not found.nodes:
        looked = ", ".join(str(directory) for directory in directories)
        why = f": {found.refused[0]['file']}: {found.refused[0]['reason']}" if found.refused else ""
        raise StudyError(f"no usable node under {looked}{why}. A node folder holds node.json and Parquet files")
    if found.refused:
        rest = f"the other {len(found.nodes)} nodes are" if len(found.nodes) > 1 else "the rest of the data is"
        for one in found.refused:
            print(f"warning: left out: {one['file']}: {one['reason']} ({rest} used)", file=sys.stderr)
    return found


def _folders(directories: Iterable[Path]) -> list[Path]:
    """Node folders: those given, and those directly under a given folder. Empty folders are no fault."""
    folders = []
    for directory in directories:
        if (directory / "node.json").exists() or any(directory.glob("*.parquet")):
            folders.append(directory)
        elif directory.is_dir():
            inside = sorted(child for child in directory.iterdir() if child.is_dir())
            folders += [c for c in inside if (c / "node.json").exists() or any(c.glob("*.parquet"))]
    return list(dict.fromkeys(folders))


def _read_folder(folder: Path, record: dict[str, Any], found: Nodes) -> Node:
    node = Node(record, str(folder.parent), empty_samples())
    tables: list[pd.DataFrame] = []
    seen: dict[tuple[Any, ...], str] = {}
    for path in sorted(folder.glob("*.parquet")):
        try:
            table, about = read_samples(path)
            _belongs(table, record, seen)
        except StudyError as fault:
            _refuse(found, path, str(fault))
        except Exception as fault:
            # Whatever is wrong inside one file must not cost the others.
            _refuse(found, path, f"cannot be read ({type(fault).__name__}: {fault})")
        else:
            seen.update(dict.fromkeys(_keys(table), path.name))
            tables.append(table)
            node.rounds.append({"file": path.name, **about})
    if tables:
        node.samples = pd.concat(tables, ignore_index=True)
    return node


def _keys(table: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(table[["experiment", "device", "round"]].drop_duplicates().itertuples(index=False, name=None))


def _belongs(table: pd.DataFrame, record: dict[str, Any], seen: dict[tuple[Any, ...], str]) -> None:
    """Raise StudyError if the table is another node's, of another origin, or a round that was already read."""
    for column, wanted in (("node", record["id"]), ("origin", record["origin"])):
        other = table.index[table[column] != wanted]
        if len(other):
            value = table.loc[other[0], column]
            raise StudyError(
                f"column {column!r}, row {other[0]}: {value!r}, but this folder's node.json says {wanted!r}"
            )
    for key in sorted(_keys(table)):
        if key in seen:
            raise StudyError(f"round {key[2]} of {key[0]} on {key[1]} was already read from {seen[key]}")


def _refuse(found: Nodes, path: Path, reason: str) -> None:
    found.refused.append({"file": str(path), "reason": reason.removeprefix(str(path)).lstrip(":, ")})
