"""Find node folders on disk, recognize copies of the same node, and refuse invalid folders."""

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
from contract.files import read_plain_file
from contract.node import NODE_SCHEMA, PARTIAL, RECORD, read_node, record_path
from contract.node_pack import ROUND as ROUND_FILE
from contract.sample_table import MOST_BYTES, load_samples
from contract.schema import escape_line
from report.data.contributed_nodes import SIDECAR, read_pack_digest

ROUND = ["experiment", "device", "round"]
RUN = ["run", *ROUND]


@dataclass(frozen=True)
class Folder:
    """Files of a node, before they are read."""

    place: Path  # folder with the record
    record: dict[str, Any]  # its id is unique
    files: tuple[Path, ...]
    file_id: str  # node id in the files
    contributed: str = ""  # digest of the pack that added all or part of it
    other_ids: tuple[str, ...] = ()  # node ids in files from its copies

    @cached_property
    def first_rounds(self) -> frozenset[tuple[Any, ...]]:
        """RUN keys of the runs in the first file."""
        return _read_runs(self.files[0]) if self.files else frozenset()

    @cached_property
    def runs(self) -> dict[Path, frozenset[tuple[Any, ...]]]:
        """RUN keys of the runs in each file."""
        return {path: _read_runs(path) for path in self.files}


def find_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> tuple[list[Folder], list[dict[str, str]]]:
    """Find node folders, grouped by kind, and list the refused ones. Raises StudyError, like `read_nodes`.

    A folder that shares rounds with an earlier one is a copy, or another state, of the same node: each round counts
    once, even under another name. A folder with the same id but other rounds is another machine or run: its id gets a
    number (`<id>.2`). So the first folder always keeps its id and samples.
    """
    by_id: dict[str, Folder] = {}
    refused: list[dict[str, str]] = []
    for place in _node_folders(directories, refused):
        try:
            record = read_node(record_path(place))
        except StudyError as fault:
            refused.append(refusal(record_path(place), str(fault)))
            continue
        if record["origin"] == "synthetic" and not allow_synthetic:
            raise StudyError(f"{place}: synthetic data is for tests only. Remove the folder or measure the node")
        # Files without a round's name, such as copies by sync tools, come last.
        files = tuple(sorted(place.glob("[!.]*.parquet"), key=lambda path: (not ROUND_FILE.fullmatch(path.name), path)))
        folder = Folder(place, record, files, record["id"], _read_pack_digest(place, refused))
        earlier = _find_earlier(folder, by_id.values())
        if earlier is None:
            free = (f"{folder.file_id}.{number}" for number in count(2))
            record["id"] = next(name for name in chain([folder.file_id], free) if name not in by_id)
            by_id[record["id"]] = folder
        else:
            same, more = earlier
            pack = same.contributed or (folder.contributed if more else "")
            other_ids = (*same.other_ids, folder.file_id)
            by_id[same.record["id"]] = replace(same, files=(*same.files, *more), other_ids=other_ids, contributed=pack)
            rest = f"its {len(more)} other files are used with them" if more else "they count once"
            refused.append(refusal(place, f"holds rounds that were already read from {same.place}: {rest}"))
    if not by_id:
        raise_no_nodes(directories, refused)
    kinds = list(dict.fromkeys(folder.record["kind"] for folder in by_id.values()))
    return sorted(by_id.values(), key=lambda folder: kinds.index(folder.record["kind"])), refused


def _read_pack_digest(place: Path, refused: list[dict[str, str]]) -> str:
    """Return the digest of the pack that a node came in; '' if there is none or it cannot be read."""
    try:
        return read_pack_digest(place)
    except StudyError as fault:
        refused.append(refusal(place / SIDECAR, f"{fault}: the node counts as one that was not handed in"))
        return ""


def _find_earlier(folder: Folder, folders: Iterable[Folder]) -> tuple[Folder, list[Path]] | None:
    """Find an earlier folder that shares rounds with `folder`, and the files in `folder` with new rounds."""
    like = [
        other
        for other in folders
        if folder.file_id in (other.file_id, *other.other_ids) or _share_first_round(other, folder)
    ]
    if not like:
        return None
    own = set().union(*folder.runs.values())
    known = [set().union(*other.runs.values()) for other in like]
    same = next((other for other, runs in zip(like, known, strict=True) if runs & own), None)
    all_known = set().union(*known)
    return (same, [path for path, runs in folder.runs.items() if not runs or runs - all_known]) if same else None


def _share_first_round(left: Folder, right: Folder) -> bool:
    """True if nodes of one kind begin with the same round, which makes them one node under two names."""
    same_kind = left.record["kind"] == right.record["kind"]
    return same_kind and bool(left.first_rounds) and left.first_rounds == right.first_rounds


def _read_runs(path: Path) -> frozenset[tuple[Any, ...]]:
    """Read the RUN keys in a file; empty if it cannot be read.

    Uses the Parquet footer where its statistics suffice: reading every file in full is slow with many nodes.
    """
    try:
        with parquet.ParquetFile(arrow.BufferReader(read_plain_file(path, MOST_BYTES))) as file:
            columns = [file.schema_arrow.names.index(name) for name in RUN]
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            statistics = [[group.column(index).statistics for index in columns] for group in groups]
        cells = [cell for group in statistics for cell in group]
        if all(cell is not None and cell.has_min_max and cell.min == cell.max for cell in cells):
            return frozenset(tuple(cell.min for cell in group) for group in statistics)
        table = load_samples(path)[0].select(RUN).to_pandas()
    except Exception:
        return frozenset()  # the reason is reported when the samples are read
    return frozenset(table.drop_duplicates().itertuples(index=False, name=None))


def _node_folders(directories: Iterable[Path], refused: list[dict[str, str]]) -> list[Path]:
    """List the node folders among `directories` and directly under them; empty folders are ignored.

    Appends folders that cannot be opened to `refused`. Follows links, as large folders may lie elsewhere.
    """
    folders = []
    for directory in directories:
        if _is_node(directory, refused):
            folders.append(directory)
        elif directory.is_dir():
            # Skip hidden folders, because another process is still writing them.
            visible = sorted(
                (child for child in directory.iterdir() if not child.name.startswith(".")),
                # Folders without a node's name, such as copies by sync tools, come last.
                key=lambda child: (not re.fullmatch(NODE_SCHEMA["properties"]["id"]["pattern"], child.name), child),
            )
            folders += [child for child in visible if _is_node(child, refused)]
    return list(dict.fromkeys(folders))


def _is_node(folder: Path, refused: list[dict[str, str]]) -> bool:
    """True if the folder contains a node record or rounds, valid or not."""
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as fault:
        refused.append(refusal(folder, f"cannot be opened ({fault.strerror})"))
        return False
    return any(name in (RECORD, PARTIAL) or (name.endswith(".parquet") and name[0] != ".") for name in names)


def refusal(path: Path, reason: str) -> dict[str, str]:
    """Return the record for a refused file or folder."""
    return {"file": escape_line(str(path)), "reason": escape_line(reason.removeprefix(str(path)).lstrip(":, "))}


def raise_no_nodes(directories: Sequence[Path], refused: Sequence[dict[str, str]]) -> None:
    """Raise StudyError with the searched directories and the first refusal."""
    searched = ", ".join(str(directory) for directory in directories)
    why = f": {refused[0]['file']}: {refused[0]['reason']}" if refused else ""
    raise StudyError(f"no usable node under {searched}{why}. A node folder holds node.json and Parquet files")
