"""Folders of nodes as they lie on disk: found, told apart, and refused where they are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.errors import StudyError
from contract.files import read_regular
from contract.node import NODE_SCHEMA, PARTIAL, RECORD, read_node, record_path
from contract.node_pack import ROUND as ROUND_FILE
from contract.sample_table import MOST_BYTES, load_samples
from contract.schema import one_line
from report.data.contributed_nodes import SIDECAR, pack_of

ROUND = ["experiment", "device", "round"]
RUN = ["run", *ROUND]


@dataclass(frozen=True)
class Folder:
    """Where a node's files lie, before they are read."""

    place: Path  # where its record is
    record: dict[str, Any]  # its id is no other node's
    files: tuple[Path, ...]
    written: str  # the id that its files bear
    contributed: str = ""  # digest of the pack that it, or a part of it, was handed in as
    also: tuple[str, ...] = ()  # others that files of a copy of it bear

    @cached_property
    def begun(self) -> frozenset[tuple[Any, ...]]:
        """The rounds in its first file."""
        return _runs(self.files[0]) if self.files else frozenset()

    @cached_property
    def runs(self) -> dict[Path, frozenset[tuple[Any, ...]]]:
        """The rounds in each of its files."""
        return {path: _runs(path) for path in self.files}


def find_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> tuple[list[Folder], list[dict[str, str]]]:
    """The folders of nodes, those of one kind together, and what was refused; raises as `read_nodes`.

    A folder that holds rounds of one before it is a copy of that, or an earlier or later state of it: each round counts
    once, also where the copy was renamed. Another of the same id is another machine,
    or another run of the same: it is told apart by a number after its id (`<id>.2`). So the first folder named keeps
    its id and its samples, whatever comes after it.
    """
    found: dict[str, Folder] = {}
    refused: list[dict[str, str]] = []
    for place in _folders(directories, refused):
        try:
            record = read_node(record_path(place))
        except StudyError as fault:
            refused.append(refusal(record_path(place), str(fault)))
            continue
        if record["origin"] == "synthetic" and not allow_synthetic:
            raise StudyError(f"{place}: synthetic data is for tests only. Remove the folder or measure the node")
        # A file that no round is called, as a synchroniser's copy, comes after the round itself.
        files = tuple(sorted(place.glob("[!.]*.parquet"), key=lambda path: (not ROUND_FILE.fullmatch(path.name), path)))
        folder = Folder(place, record, files, record["id"], _contributed(place, refused))
        before = _before(folder, found.values())
        if before is None:
            free = (f"{folder.written}.{number}" for number in count(2))
            record["id"] = next(name for name in chain([folder.written], free) if name not in found)
            found[record["id"]] = folder
        else:
            same, more = before
            pack = same.contributed or (folder.contributed if more else "")
            also = (*same.also, folder.written)
            found[same.record["id"]] = replace(same, files=(*same.files, *more), also=also, contributed=pack)
            rest = f"its {len(more)} other files are used with them" if more else "they count once"
            refused.append(refusal(place, f"holds rounds that were already read from {same.place}: {rest}"))
    if not found:
        refuse_none(directories, refused)
    kinds = list(dict.fromkeys(folder.record["kind"] for folder in found.values()))
    return sorted(found.values(), key=lambda folder: kinds.index(folder.record["kind"])), refused


def _contributed(place: Path, refused: list[dict[str, str]]) -> str:
    """The digest of the pack that a node was handed in as; '' where nothing that can be read says so."""
    try:
        return pack_of(place)
    except StudyError as fault:
        refused.append(refusal(place / SIDECAR, f"{fault}: the node counts as one that was not handed in"))
        return ""


def _before(folder: Folder, found: Iterable[Folder]) -> tuple[Folder, list[Path]] | None:
    """Which folder before it holds rounds of this one, and this one's files that it lacks; None if there is none."""
    like = [one for one in found if folder.written in (one.written, *one.also) or _begun_together(one, folder)]
    if not like:
        return None
    own = set().union(*folder.runs.values())
    there = [set().union(*one.runs.values()) for one in like]
    same = next((one for one, known in zip(like, there, strict=True) if known & own), None)
    known = set().union(*there)
    return (same, [path for path, mine in folder.runs.items() if not mine or mine - known]) if same else None


def _begun_together(one: Folder, other: Folder) -> bool:
    """Whether nodes of one kind begin with the same round, so that one is the other under another name."""
    return one.record["kind"] == other.record["kind"] and bool(one.begun) and one.begun == other.begun


def _runs(path: Path) -> frozenset[tuple[Any, ...]]:
    """Each round in a file with the process that measured it, which tells it from all others; none if unreadable.

    From the footer, where it tells: many nodes are asked for all their files.
    """
    try:
        with parquet.ParquetFile(arrow.BufferReader(read_regular(path, MOST_BYTES))) as file:
            at = [file.schema_arrow.names.index(name) for name in RUN]
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            told = [[group.column(place).statistics for place in at] for group in groups]
        if all(one is not None and one.has_min_max and one.min == one.max for group in told for one in group):
            return frozenset(tuple(one.min for one in group) for group in told)
        table = load_samples(path)[0].select(RUN).to_pandas()
    except Exception:
        return frozenset()  # why, is said when its samples are read
    return frozenset(table.drop_duplicates().itertuples(index=False, name=None))


def _folders(directories: Iterable[Path], refused: list[dict[str, str]]) -> list[Path]:
    """Node folders: those given, and those directly under a given folder. Empty folders are no fault.

    A folder that cannot be opened joins `refused`. A link may lead to a folder, as large ones lie elsewhere.
    """
    folders = []
    for directory in directories:
        if _is_node(directory, refused):
            folders.append(directory)
        elif directory.is_dir():
            # Hidden folders are being written.
            shown = sorted(
                (child for child in directory.iterdir() if not child.name.startswith(".")),
                # A folder that no node is called, as a synchroniser's copy, comes after the node itself.
                key=lambda child: (not re.fullmatch(NODE_SCHEMA["properties"]["id"]["pattern"], child.name), child),
            )
            folders += [child for child in shown if _is_node(child, refused)]
    return list(dict.fromkeys(folders))


def _is_node(folder: Path, refused: list[dict[str, str]]) -> bool:
    """Whether a folder holds a node's record or rounds, whatever they are."""
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as fault:
        refused.append(refusal(folder, f"cannot be opened ({fault.strerror})"))
        return False
    return any(name in (RECORD, PARTIAL) or (name.endswith(".parquet") and name[0] != ".") for name in names)


def refusal(path: Path, reason: str) -> dict[str, str]:
    return {"file": one_line(str(path)), "reason": one_line(reason.removeprefix(str(path)).lstrip(":, "))}


def refuse_none(directories: Sequence[Path], refused: Sequence[dict[str, str]]) -> None:
    """Raise StudyError: no node can be used."""
    looked = ", ".join(str(directory) for directory in directories)
    why = f": {refused[0]['file']}: {refused[0]['reason']}" if refused else ""
    raise StudyError(f"no usable node under {looked}{why}. A node folder holds node.json and Parquet files")
