"""Find node folders on disk, recognize copies of the same node, and refuse invalid folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from contract.node_pack import MANIFEST
from contract.node_pack import ROUND as ROUND_FILE
from contract.sample_table import MOST_BYTES, load_samples
from contract.schema import escape_line
from report.data.contributed_nodes import SIDECAR, read_pack_digest

# Columns of an attempt at a round, which is a file. RUN identifies it by its process, in old files too.
ROUND = ["experiment", "device", "round", "attempt"]
RUN = ["run", "experiment", "device", "round"]


@dataclass(frozen=True)
class Folder:
    """Node record and round files, before the files are read."""

    place: Path  # folder that contains the record
    record: dict[str, Any]  # node record, whose id no other node has
    files: tuple[Path, ...]
    file_id: str  # node id in the round files, which may differ from the record's id
    contributed: str = ""  # digest of the pack that contributed all or some files; '' if none
    other_ids: tuple[str, ...] = ()  # node ids in round files from copies of this folder

    @cached_property
    def first_rounds(self) -> frozenset[tuple[Any, ...]]:
        """RUN column values in the first file."""
        return frozenset(_count_rows(self.files[0])) if self.files else frozenset()

    @cached_property
    def rows_by_run(self) -> dict[Path, Mapping[tuple[Any, ...], int]]:
        """Rows in each file by RUN column values."""
        return {path: _count_rows(path) for path in self.files}


def find_nodes(directories: Sequence[Path], allow_synthetic: bool = False) -> tuple[list[Folder], list[dict[str, str]]]:
    """Find node folders, grouped by kind, and list the refused folders. Raises StudyError, like `read_nodes`.

    If a folder and an earlier folder have rounds in common, they are copies or states of the same node. Each round is
    used only once, even if its files have different names. If a folder has an earlier folder's id but other rounds, it
    is another machine or run, and a number is appended to its id (`<id>.2`). Thus the first folder always keeps its id
    and samples.
    """
    by_id: dict[str, Folder] = {}
    refused: list[dict[str, str]] = []
    for place, record in _sort_copies_last(_read_records(directories, refused)):
        if record["origin"] == "synthetic" and not allow_synthetic:
            raise StudyError(f"{place}: synthetic data is for tests only. Remove the folder or measure the node")
        # Put files without a round's name at the end, because they may be copies that sync tools made.
        files = sorted(_visible(place, ".parquet"), key=lambda path: (not ROUND_FILE.fullmatch(path.name), path))
        folder = Folder(place, record, tuple(files), record["id"], _read_pack_digest(place, refused))
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


def _read_records(directories: Sequence[Path], refused: list[dict[str, str]]) -> list[tuple[Path, dict[str, Any]]]:
    """Return each node folder with its record. Unusable records and further copies are appended to `refused`.

    If RECORD and PARTIAL are both unusable, a copy that a sync tool made is used.
    """
    nodes = []
    for place in _node_folders(directories, refused):
        own = [path for path in (place / RECORD, place / PARTIAL) if path.exists() or path.is_symlink()]
        copies = [path for path in _visible(place, ".json") if path.name not in (RECORD, PARTIAL, SIDECAR, MANIFEST)]
        used: Path | None = None
        for path in (*(own or [record_path(place)]), *copies):
            if used and path in own:
                continue
            try:
                record = read_node(path)
            except StudyError as fault:
                refused.append(refusal(path, str(fault)))
                continue
            if used:
                refused.append(refusal(path, f"the node's record was already read from {used.name}"))
            else:
                used = path
                nodes.append((place, record))
    return nodes


def _visible(folder: Path, suffix: str) -> list[Path]:
    """List a folder's files with `suffix`, or with text after it as in `a.parquet~`, sorted. Hidden files are left out.

    Sync tools and editors add such text to the names of copies.
    """
    return sorted(path for path in folder.iterdir() if path.name[0] != "." and suffix in path.name.lower())


def _sort_copies_last(nodes: Sequence[tuple[Path, dict[str, Any]]]) -> list[tuple[Path, dict[str, Any]]]:
    """Move each folder that is not named as its node to after the folder beside it that is."""
    named = {place: at for at, (place, record) in enumerate(nodes) if place.name == record["id"]}
    keys = [
        max((at, 0), (named.get(place.with_name(record["id"]), 0), int(place not in named)))
        for at, (place, record) in enumerate(nodes)
    ]
    return [nodes[at] for at in sorted(range(len(nodes)), key=keys.__getitem__)]


def _read_pack_digest(place: Path, refused: list[dict[str, str]]) -> str:
    """Return the digest of a contributed node's pack; return '' if there is no digest or it is unreadable."""
    try:
        return read_pack_digest(place)
    except StudyError as fault:
        refused.append(refusal(place / SIDECAR, f"{fault}: the node counts as one that was not handed in"))
        return ""


def _find_earlier(folder: Folder, folders: Iterable[Folder]) -> tuple[Folder, list[Path]] | None:
    """Return an earlier folder that has rounds in common with `folder`, and the files in `folder` with new rounds.

    A round with more rows than in the earlier folders is new too. Returns None if there is no such earlier folder.
    """
    like = [
        other
        for other in folders
        if folder.file_id in (other.file_id, *other.other_ids) or _share_first_round(other, folder)
    ]
    if not like:
        return None
    own = set().union(*folder.rows_by_run.values())
    known = [most_rows(other.rows_by_run.values()) for other in like]
    same = next((other for other, rows in zip(like, known, strict=True) if rows.keys() & own), None)
    if same is None:
        return None
    most = most_rows(known)
    new = (path for path, rows in folder.rows_by_run.items() if not rows or any(rows[run] > most[run] for run in rows))
    return same, list(new)


def most_rows(counts: Iterable[Mapping[tuple[Any, ...], int]]) -> Counter[tuple[Any, ...]]:
    """Return the highest count for each run."""
    most: Counter[tuple[Any, ...]] = Counter()
    for rows in counts:
        most |= Counter(rows)
    return most


def _share_first_round(left: Folder, right: Folder) -> bool:
    """True if two nodes of one kind have the same first round, so that they are the same node under two names."""
    same_kind = left.record["kind"] == right.record["kind"]
    return same_kind and bool(left.first_rounds) and left.first_rounds == right.first_rounds


def _count_rows(path: Path) -> Mapping[tuple[Any, ...], int]:
    """Count a file's rows by RUN column values; the result is empty if the file cannot be read.

    The statistics in the Parquet footer are used if they suffice, because it is slow to read every file in full.
    """
    try:
        with parquet.ParquetFile(arrow.BufferReader(read_plain_file(path, MOST_BYTES))) as file:
            columns = [file.schema_arrow.names.index(name) for name in RUN]
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            statistics = [[group.column(index).statistics for index in columns] for group in groups]
        cells = [cell for group in statistics for cell in group]
        if all(cell is not None and cell.has_min_max and cell.min == cell.max for cell in cells):
            rows: Counter[tuple[Any, ...]] = Counter()
            for cells, group in zip(statistics, groups, strict=True):
                rows[tuple(cell.min for cell in cells)] += group.num_rows
            return rows
        table = load_samples(path)[0].select(RUN).to_pandas()
    except Exception:
        return {}  # the error is reported later, when the samples are read
    return Counter(table.itertuples(index=False, name=None))


def _node_folders(directories: Iterable[Path], refused: list[dict[str, str]]) -> list[Path]:
    """List the node folders among `directories` and directly under them; ignore empty folders.

    Folders that cannot be opened are appended to `refused`. Links are followed, because large folders may be elsewhere.
    """
    folders = []
    for directory in directories:
        if _is_node(directory, refused):
            folders.append(directory)
        elif directory.is_dir():
            # Skip hidden folders, because another process is still writing them.
            visible = sorted(
                (child for child in directory.iterdir() if not child.name.startswith(".")),
                # Put folders without a node id as name at the end, because they may be copies that sync tools made.
                key=lambda child: (not re.fullmatch(NODE_SCHEMA["properties"]["id"]["pattern"], child.name), child),
            )
            folders += [child for child in visible if _is_node(child, refused)]
    return list(dict.fromkeys(folders))


def _is_node(folder: Path, refused: list[dict[str, str]]) -> bool:
    """True if a folder contains a node record or rounds, even if these are invalid."""
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as fault:
        refused.append(refusal(folder, f"cannot be opened ({fault.strerror})"))
        return False
    return any(name in (RECORD, PARTIAL) or (".parquet" in name.lower() and name[0] != ".") for name in names)


def refusal(path: Path, reason: str) -> dict[str, str]:
    """Return the entry for a file or folder in the list of refused files."""
    return {"file": escape_line(str(path)), "reason": escape_line(reason.removeprefix(str(path)).lstrip(":, "))}


def raise_no_nodes(directories: Sequence[Path], refused: Sequence[dict[str, str]]) -> None:
    """Raise StudyError with the searched directories and the first refusal."""
    searched = ", ".join(str(directory) for directory in directories)
    why = f": {refused[0]['file']}: {refused[0]['reason']}" if refused else ""
    raise StudyError(f"no usable node under {searched}{why}. A node folder holds node.json and Parquet files")
