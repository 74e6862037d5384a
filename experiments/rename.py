"""Gives a node another instance: in its record, in every round, and in the name of its folder.

Two hosts that were made from one image share an instance, and a host whose id was made anew gets another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.errors import StudyError
from contract.files import RUN_LOCK, held_lock, read_regular
from contract.node import INSTANCE, PARTIAL, RECORD, kind_of_node, node_id, read_node, record_path, write_node
from contract.schema import check
from contract.tables import MOST_BYTES, under_name

_RECORDS = (RECORD, PARTIAL)


def rename(folder: Path, instance: str) -> str:
    """Rename a node in a folder, and the folder with it, all or nothing; give the new id.

    Samples, their metadata and the times of files stay. Where the folder is that of a run (`results/nodes/`), the
    run's own record (`results/node.json`) bears the new name too, so that the run goes on under it. Everything is
    written into a hidden folder beside it first, which takes the new name when it is whole; the old folder goes last.
    So there is at any time a whole one, and where this was cut off the same call finishes it.

    Raises StudyError for another form of instance, a folder that is no node, a name that is taken, or a file that
    cannot be read or is another node's; OSError.
    """
    if folder.is_symlink():
        raise StudyError(f"{folder}: is a link: name the folder that it leads to")
    folder = folder.resolve()
    check(instance, INSTANCE, "instance (six hexadecimal digits, as in 0a1b2c)")
    with _run_held(folder):
        return _rename(folder, instance)


def _rename(folder: Path, instance: str) -> str:
    gone = folder.with_name(f".{folder.name}.gone")
    if gone.exists():
        shutil.rmtree(gone)
        if not folder.exists() and _id(done := folder.with_name(node_id(kind_of_node(folder.name), instance))):
            return done.name
    before = record_path(folder)
    if not before.is_file():
        raise StudyError(f"{folder}: no node is there: name a folder that holds {RECORD}, say results/nodes/<node>")
    record = read_node(before)
    old, new = str(record["id"]), node_id(record["kind"], instance)
    to = folder.with_name(new)
    if old == new:
        raise StudyError(f"{folder}: its instance is {instance} already")
    made = folder.with_name(f".{new}.made")
    if made.exists():
        shutil.rmtree(made)
    if not to.exists() or not _holds(to, folder, old, new):
        _refuse_taken(folder, to, old, new)
        _write(folder, made, old, new)
        made.replace(to)
    _rename_run(folder, old, new)
    folder.replace(gone)
    shutil.rmtree(gone)
    return new


def _refuse_taken(folder: Path, to: Path, old: str, new: str) -> None:
    """Raise StudyError if another node bears the name. What is left of a call that was cut off makes way."""
    for other in sorted(folder.parent.iterdir()):
        if other == folder or other.name.startswith("."):
            continue
        if other == to and _holds(folder, other, new, old):
            shutil.rmtree(other)
        elif other == to or (record_path(other).is_file() and _id(other) == new):
            raise StudyError(f"{other}: bears the name {new} already: choose another instance")


def _id(folder: Path) -> str:
    """The id of the node in a folder; '' where its record cannot be read."""
    with suppress(StudyError):
        return str(read_node(record_path(folder))["id"])
    return ""


def _holds(whole: Path, part: Path, old: str, new: str) -> bool:
    """Whether a folder of a node has all rounds that another has, which bear another of its names; not of none."""
    files = sorted(part.rglob("*.parquet"))
    with suppress(StudyError):
        return bool(files) and all(
            (there := whole / path.relative_to(part)).is_file() and _table(there).equals(_renamed(path, old, new))
            for path in files
        )
    return False


def _write(folder: Path, made: Path, old: str, new: str) -> None:
    """A copy of a node's folder under its new name."""
    shutil.copytree(folder, made, ignore=lambda _place, names: [name for name in names if name.endswith(".parquet")])
    for name in _RECORDS:
        if (folder / name).is_file():
            record = read_node(folder / name)
            write_node(made / name, {**record, "id": new, "instance": new.partition(".")[2]})
            shutil.copystat(folder / name, made / name)
    for path in sorted(folder.rglob("*.parquet")):
        copy = made / path.relative_to(folder)
        parquet.write_table(_renamed(path, old, new), copy, compression="snappy")
        shutil.copystat(path, copy)


def _renamed(path: Path, old: str, new: str) -> arrow.Table:
    """A round's samples under the new name. Raises StudyError if they are another node's."""
    table = _table(path)
    strangers = set(table.column("node").to_pylist()) - {old, new}
    if strangers:
        raise StudyError(f"{path}: holds samples of {min(map(str, strangers))}, not of {old}: move it away first")
    return under_name(table, old, new)


def _table(path: Path) -> arrow.Table:
    """A round with its metadata, whatever its columns are. Raises StudyError if it cannot be read."""
    try:
        with parquet.ParquetFile(arrow.BufferReader(read_regular(path, MOST_BYTES))) as file:
            table = file.read()
        if "node" not in table.column_names:
            raise StudyError(f"{path}: has no column 'node': move it away first")
    except (arrow.ArrowException, OSError) as broken:
        reason = (str(broken).splitlines() or [type(broken).__name__])[0]
        raise StudyError(f"{path}: cannot be read as Parquet ({reason}): move it away first") from None
    return table


def _run_of(folder: Path) -> Path | None:
    """The folder of the run that a node's folder belongs to; None of published nodes."""
    run = folder.parent.parent
    return run if folder.parent.name == "nodes" and (run / RECORD).is_file() else None


@contextmanager
def _run_held(folder: Path) -> Iterator[None]:
    """Keep a run from working on a node meanwhile. Raises StudyError if one does."""
    run = _run_of(folder)
    handle = held_lock(run / RUN_LOCK) if run else None
    if run and handle is None:
        raise StudyError(f"a run is at work in {run}: wait for it, or stop it, and try again")
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _rename_run(folder: Path, old: str, new: str) -> None:
    """Give the record of the run that a folder belongs to the new name."""
    run = _run_of(folder)
    if run and (record := read_node(run / RECORD))["id"] == old:
        write_node(run / RECORD, {**record, "id": new, "instance": new.partition(".")[2]})
