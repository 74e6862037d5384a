"""Gather: every node's samples and their summary as tidy tables, with the data dictionary.

Nodes are read, checked and summarised one by one, by as many processes as there are
cores, and written as they come: what is held at once does not grow with their number.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import csv, parquet

from contract.files import atomic, write_json
from contract.tables import SAMPLES, dictionary
from report.metadata import write_datapackage
from report.nodes import Node, Nodes, empty_samples, find_nodes, read_folder, warn
from report.summary import COLUMNS, POINT, summarise

# Starting processes takes a second or two each: worth it from so many nodes on.
MANY = 8
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
    records, refused = find_nodes(directories, allow_synthetic)
    found = Nodes([], refused)
    with ExitStack() as files:
        tables = {name: _Table(files, out, name) for name in SCHEMAS}
        ok = 0
        for node, summary, faults in _each(records):
            found.nodes.append(node)
            found.refused += faults
            ok += int((summary["status"] == "ok").sum())
            tables["samples"].add(node.samples)
            summary.insert(0, "row", range(tables["summary"].rows, tables["summary"].rows + len(summary)))
            tables["summary"].add(summary)
            node.samples = empty_samples()
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
        self.rows, self.schema = 0, SCHEMAS[name]
        self._parted, self._waited = name == "samples", 0
        self._waiting: dict[str, list[arrow.Table]] = {}
        self._parquet = files.enter_context(
            parquet.ParquetWriter(files.enter_context(atomic(out / f"{name}.parquet")), self.schema, compression="zstd")
        )
        self._csv = files.enter_context(csv.CSVWriter(files.enter_context(atomic(out / f"{name}.csv")), self.schema))

    def add(self, frame: pd.DataFrame) -> None:
        contents = arrow.Table.from_pandas(frame, schema=self.schema, preserve_index=False)
        of = frame["experiment"].to_numpy(object) if self._parted else np.full(len(frame), "")
        starts = np.flatnonzero(of[1:] != of[:-1]) + 1
        # A node's samples come by experiment: a part of them is no copy.
        for start, end in zip([0, *starts], [*starts, len(of)], strict=True):
            if end > start:
                self._waiting.setdefault(of[start], []).append(contents.slice(start, end - start))
        self.rows += len(frame)
        if self.rows - self._waited >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was added since the last time."""
        for _, parts in sorted(self._waiting.items()):
            contents = arrow.concat_tables(parts)
            self._parquet.write_table(contents)
            self._csv.write_table(contents)
        self._waiting, self._waited = {}, self.rows


def _each(records: Sequence[tuple[Path, dict[str, Any]]]) -> Iterator[tuple[Node, pd.DataFrame, list[dict[str, str]]]]:
    """Each node with its samples, their summary and the files that cannot be used, in order."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if len(records) < MANY or workers < 2:
        yield from (_summarised(*record) for record in records)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        # A window, so that what is done does not pile up before it is written.
        ahead: deque[Future[tuple[Node, pd.DataFrame, list[dict[str, str]]]]] = deque()
        for record in records:
            ahead.append(pool.submit(_summarised, *record))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _summarised(folder: Path, record: dict[str, Any]) -> tuple[Node, pd.DataFrame, list[dict[str, str]]]:
    node, refused = read_folder(folder, record)
    return node, summarise(node.samples), refused


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
