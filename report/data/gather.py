"""Gather: every node's samples and their summary as tidy tables, with the data dictionary.

Nodes are read, checked and summarised some at a time, by as many processes as there
are cores, and written as they come: what is held at once does not grow with their number.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import csv, parquet

from contract import ending
from contract.files import atomic, write_json
from contract.tables import SAMPLES, dictionary
from report.data.nodes import Folder, Node, Nodes, empty_samples, find_nodes, read_folders, warn
from report.data.summary import COLUMNS, POINT, summarise
from report.publish import write_datapackage

# Starting processes takes a second or two each: worth it from so many nodes on.
MANY = 16
# Nodes that are checked and summarised at once: what it costs to begin is shared by them.
TOGETHER = 8
# Rows that are written at once.
AT_ONCE = 200_000
_TEXT = {"metric", "unit", "status", "reason", "stop_reason", "flags", "origin"}
_WHOLE = {"n_rounds", "n_samples"}
_UNITS = {"flop": "FLOP", "bytes": "B", "flop_per_s": "FLOP/s", "bytes_per_s": "B/s"}
_ARROW = {"float64": arrow.float64(), "int64": arrow.int64()}
SCHEMAS = {
    "samples": arrow.schema(
        [(name, _ARROW.get(str(one.dtype), arrow.string())) for name, one in SAMPLES.columns.items()]
    ),
    "summary": arrow.schema(
        [("row", arrow.int64())]
        + [(name, arrow.int64() if name == "threads" else arrow.string()) for name in POINT]
        + [
            (name, arrow.string() if name in _TEXT else arrow.int64() if name in _WHOLE else arrow.float64())
            for name in COLUMNS
        ]
    ),
}


def gather(directories: Sequence[Path], out: Path, allow_synthetic: bool = False) -> None:
    """Write samples, summary (Parquet and CSV), dictionary, nodes, what was refused and datapackage.json into `out`.

    Raises StudyError if no node can be used, OSError if `out` cannot be written.
    """
    folders, refused = find_nodes(directories, allow_synthetic)
    found = Nodes([], refused)
    with ExitStack() as files:
        tables = {name: _Table(files, out, name) for name in SCHEMAS}
        ok = 0
        for part in _parts(folders):
            found.nodes += part.nodes
            found.refused += part.refused
            ok += part.ok
            tables["samples"].add(part.samples)
            first = tables["summary"].rows
            rows = arrow.array(range(first, first + len(part.summary)), arrow.int64())
            tables["summary"].add(part.summary.set_column(0, "row", rows))
        found.check(directories)
        for table in tables.values():
            table.flush()
    warn(found)
    with atomic(out / "dictionary.csv") as path:
        whole_dictionary().to_csv(path, index=False)
    nodes = [{**node.record, "label": node.label, "source": node.source, "rounds": node.rounds} for node in found.nodes]
    write_json(out / "nodes.json", nodes)
    write_json(out / "refused.json", found.refused)
    write_datapackage(out)
    print(
        f"{len(found.nodes)} node(s), {tables['samples'].rows:,} samples, {ok:,} of {tables['summary'].rows:,} series "
        f"ok, {len(found.refused)} file(s) left out: {out}",
        file=sys.stderr,
    )


class _Table:
    """A table under construction as Parquet and CSV; both are put in place together when the stack closes well.

    Rows are written some nodes at a time; samples by experiment, each in a group of rows of its own, so that a reader
    who asks for one experiment passes by the others.
    """

    def __init__(self, files: ExitStack, out: Path, name: str) -> None:
        self.rows, schema = 0, SCHEMAS[name]
        self._parted, self._waited = name == "samples", 0
        self._waiting: dict[str, list[arrow.Table]] = {}
        self._parquet = files.enter_context(
            parquet.ParquetWriter(files.enter_context(atomic(out / f"{name}.parquet")), schema, compression="zstd")
        )
        self._csv = files.enter_context(csv.CSVWriter(files.enter_context(atomic(out / f"{name}.csv")), schema))

    def add(self, contents: arrow.Table) -> None:
        if self._parted:
            experiment = contents["experiment"].combine_chunks().dictionary_encode()
            of, names = experiment.indices.to_numpy(), experiment.dictionary.to_pylist()
        else:
            of, names = np.zeros(len(contents), int), [""]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        # A node's samples come by experiment: a part of them is no copy.
        for start, end in pairwise([*starts.tolist(), len(of)]):
            self._waiting.setdefault(names[of[start]], []).append(contents.slice(start, end - start))
        self.rows += len(contents)
        if self.rows - self._waited >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was added since the last time."""
        for _, parts in sorted(self._waiting.items()):
            contents = arrow.concat_tables(parts).combine_chunks()
            self._parquet.write_table(contents)
            self._csv.write_table(contents)
        self._waiting, self._waited = {}, self.rows


@dataclass(frozen=True)
class _Part:
    """Some nodes, without their samples; these and their summary as the tables that are written; what was refused."""

    nodes: list[Node]
    samples: arrow.Table
    summary: arrow.Table  # its rows are numbered when all are there
    ok: int  # series
    refused: list[dict[str, str]]


def _parts(folders: Sequence[Folder]) -> Iterator[_Part]:
    """All nodes, some at a time, in order."""
    workers = ending.available_cpus()
    parts = [folders[at : at + TOGETHER] for at in range(0, len(folders), TOGETHER)]
    if len(folders) < MANY or workers < 2:
        yield from map(_part, parts)
        return
    with (
        TemporaryDirectory(prefix="gather-", ignore_cleanup_errors=True) as between,
        ending.pool(workers, get_context("spawn")) as pool,
    ):
        # A window, so that what is done does not pile up before it is written.
        ahead: deque[Future[_Part]] = deque()
        for number, part in enumerate(parts):
            ahead.append(pool.submit(_sent, part, Path(between) / str(number)))
            if len(ahead) > 2 * workers:
                yield _received(ahead.popleft().result())
        while ahead:
            yield _received(ahead.popleft().result())


def _part(folders: Sequence[Folder]) -> _Part:
    found = read_folders(folders)
    nodes = [node for node, _ in found if node]
    samples = Nodes(nodes, []).samples()
    summary = summarise(samples)
    places = summary["node"].map({node.id: place for place, node in enumerate(nodes)})
    summary = summary.iloc[np.argsort(places.to_numpy(), kind="stable")].assign(row=0)
    for node in nodes:
        node.samples = empty_samples()
    return _Part(
        nodes,
        _arrow(samples, "samples"),
        _arrow(summary, "summary"),
        int((summary["status"] == "ok").sum()),
        [fault for _, faults in found for fault in faults],
    )


def _sent(folders: Sequence[Folder], place: Path) -> _Part:
    """As `_part`, its tables in files named after `place`: to pickle them takes a third of the time they took to make.

    `_received` puts them back.
    """
    part = _part(folders)
    for table, name in ((part.samples, "samples"), (part.summary, "summary")):
        with arrow.ipc.new_file(f"{place}.{name}", table.schema) as file:
            file.write_table(table)
    return replace(part, samples=place, summary=place)


def _received(part: _Part) -> _Part:
    """What `_sent` made. Files are mapped, and go when nobody reads them any more."""
    return replace(part, samples=_mapped(f"{part.samples}.samples"), summary=_mapped(f"{part.summary}.summary"))


def _mapped(path: str) -> arrow.Table:
    table = arrow.ipc.open_file(arrow.memory_map(path)).read_all()
    # Where a mapped file cannot be removed, its folder goes in the end.
    with suppress(OSError):
        Path(path).unlink()
    return table


def _arrow(frame: pd.DataFrame, name: str) -> arrow.Table:
    return arrow.Table.from_pandas(frame, schema=SCHEMAS[name], preserve_index=False)


def whole_dictionary() -> pd.DataFrame:
    """The data dictionary of both tables: table, column, type, unit, whether it may be empty, meaning."""
    samples = dictionary().assign(table="samples")
    summary = pd.DataFrame(
        [
            {"table": "summary", "column": name, "unit": _UNITS.get(name, ""), "meaning": meaning}
            for name, meaning in {"row": "Number of the row, from 0: what a verdict's cells name", **COLUMNS}.items()
        ]
    )
    columns = ["table", "column", "type", "unit", "may_be_empty", "meaning"]
    return pd.concat([samples, summary], ignore_index=True).reindex(columns=columns)
