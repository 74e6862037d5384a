"""Gather all nodes' samples and summaries into tidy tables, with the data dictionary.

Worker processes, one per core, read and summarise the nodes in batches. They write temporary files, which the parent
process concatenates. Thus memory use does not grow with the number of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as arrow
from pyarrow import csv, ipc, parquet

from contract import child_processes
from contract.files import atomic_path, write_json
from contract.sample_table import SAMPLES, sample_dictionary
from report.data.node_folders import Folder, find_nodes
from report.data.node_reader import Node, Nodes, print_warnings, read_folders
from report.data.summary import COLUMNS, POINT, summarise
from report.publish import write_datapackage

# Fewest nodes for which worker processes save time, because each process takes a second or two to start.
FEWEST_FOR_PROCESSES = 16
# Nodes per batch to validate and summarise together, because each call has a fixed cost.
BATCH = 8
_TEXT = {"metric", "unit", "status", "reason", "stop_reason", "flags", "origin"}
_INTEGERS = {"n_rounds", "n_samples", "n_disturbed"}
_UNITS = {"flop": "FLOP", "bytes": "B", "flop_per_s": "FLOP/s", "bytes_per_s": "B/s"}
_ARROW = {"float64": arrow.float64(), "int64": arrow.int64()}
SCHEMAS = {
    "samples": arrow.schema(
        [(name, _ARROW.get(str(column.dtype), arrow.string())) for name, column in SAMPLES.columns.items()]
    ),
    "summary": arrow.schema(
        [("row", arrow.int64())]
        + [(name, arrow.int64() if name == "threads" else arrow.string()) for name in POINT]
        + [
            (name, arrow.string() if name in _TEXT else arrow.int64() if name in _INTEGERS else arrow.float64())
            for name in COLUMNS
        ]
    ),
}


def gather(directories: Sequence[Path], out: Path, allow_synthetic: bool = False) -> None:
    """Gather all nodes under `directories` into files in `out`.

    The files contain the samples and the summary (as Parquet and CSV), the data dictionary, the node records, the
    refused files, and the data package's description. Raises StudyError if no node can be used, and OSError if `out`
    cannot be written.
    """
    folders, refused = find_nodes(directories, allow_synthetic)
    gathered = Nodes([], refused)
    ok = 0
    with (
        TemporaryDirectory(prefix="gather-", ignore_cleanup_errors=True) as scratch,
        _open_writer(out, "samples") as samples,
        _open_writer(out, "summary") as summary,
    ):
        for part in _gather_batches(folders, Path(scratch)):
            gathered.nodes += part.nodes
            gathered.refused += part.refused
            ok += part.ok
            for piece in _read_tables(part.samples):
                samples.write(piece)
            for piece in _read_tables(part.summary):
                row = arrow.array(range(summary.rows, summary.rows + len(piece)), arrow.int64())
                summary.write(piece.set_column(0, "row", row))
        gathered.require_nodes(directories)
    print_warnings(gathered)
    with atomic_path(out / "dictionary.csv") as path:
        data_dictionary().to_csv(path, index=False)
    nodes = [
        {
            **node.record,
            "label": node.label,
            **{name: getattr(node, name) for name in ("source", "rounds", "contributed")},
        }
        for node in gathered.nodes
    ]
    write_json(out / "nodes.json", nodes)
    write_json(out / "refused.json", gathered.refused)
    write_datapackage(out)
    print(
        f"{len(gathered.nodes)} node(s), {samples.rows:,} samples, {ok:,} of {summary.rows:,} series ok, "
        f"{len(gathered.refused)} file(s) left out: {out}",
        file=sys.stderr,
    )


@dataclass(frozen=True)
class _Batch:
    """Results from a batch of nodes.

    nodes: the nodes, without their samples. samples, summary: temporary files with their samples and summary rows.
    """

    nodes: list[Node]
    samples: Path
    summary: Path
    ok: int  # number of series with status ok
    refused: list[dict[str, str]]


def _gather_batches(folders: Sequence[Folder], scratch: Path) -> Iterator[_Batch]:
    """Read and summarise the folders in batches; yield the batches in the folders' order."""
    parts = [folders[at : at + BATCH] for at in range(0, len(folders), BATCH)]
    places = [scratch / str(number) for number in range(len(parts))]
    processes = child_processes.available_cpus() if len(folders) >= FEWEST_FOR_PROCESSES else 1
    yield from child_processes.map_parallel(_gather_batch, parts, places, processes=processes)


def _gather_batch(folders: Sequence[Folder], place: Path) -> _Batch:
    results = read_folders(folders)
    nodes = [node for node, _ in results if node]
    samples = Nodes(nodes, []).samples()
    summary = summarise(samples)
    order = {node.id: at for at, node in enumerate(nodes)}
    summary = summary.sort_values("node", key=lambda column: column.map(order), kind="stable").assign(row=0)
    files = {name: place.with_suffix(f".{name}.arrow") for name in SCHEMAS}
    # Write one row group per experiment, to let readers of one experiment skip the other row groups.
    rows = arrow.Table.from_pandas(samples, SCHEMAS["samples"], preserve_index=False).sort_by("experiment")
    sizes = samples["experiment"].value_counts().sort_index()
    pieces = [rows.slice(end - size, size) for end, size in zip(sizes.cumsum(), sizes, strict=True)]
    _write_tables(files["samples"], SCHEMAS["samples"], pieces)
    whole = arrow.Table.from_pandas(summary, SCHEMAS["summary"], preserve_index=False)
    _write_tables(files["summary"], SCHEMAS["summary"], [whole])
    bare = [replace(node, samples=samples.iloc[:0]) for node in nodes]
    refused = [fault for _, faults in results for fault in faults]
    return _Batch(bare, files["samples"], files["summary"], int((summary["status"] == "ok").sum()), refused)


def _write_tables(path: Path, schema: arrow.Schema, pieces: Iterable[arrow.Table]) -> None:
    """Write tables into an Arrow file, which `_read_tables` reads."""
    with ipc.new_file(path, schema, options=ipc.IpcWriteOptions(compression="lz4")) as file:
        for piece in pieces:
            file.write_table(piece.combine_chunks())


def _read_tables(path: Path) -> Iterator[arrow.Table]:
    """Read the tables in a file from `_write_tables`, and then remove this file."""
    with ipc.open_file(path) as file:
        for at in range(file.num_record_batches):
            yield arrow.Table.from_batches([file.get_batch(at)])
    path.unlink()


@dataclass
class _Writer:
    """Writer that appends pieces of a table to a Parquet file and to a CSV file."""

    table: parquet.ParquetWriter
    lines: csv.CSVWriter
    rows: int = 0

    def write(self, piece: arrow.Table) -> None:
        self.table.write_table(piece)
        self.lines.write_table(piece)
        self.rows += len(piece)


@contextmanager
def _open_writer(out: Path, name: str) -> Iterator[_Writer]:
    """Open a writer for a table in `out`. The table's files appear in `out` only when they are complete."""
    schema = SCHEMAS[name]
    with (
        atomic_path(out / f"{name}.parquet") as whole,
        atomic_path(out / f"{name}.csv") as text,
        parquet.ParquetWriter(whole, schema, compression="zstd") as table,
        csv.CSVWriter(text, schema) as lines,
    ):
        yield _Writer(table, lines)


def data_dictionary() -> pd.DataFrame:
    """Return the data dictionary for the tables `samples` and `summary`.

    It has the columns table, column, type, unit, may_be_empty and meaning.
    """
    samples = sample_dictionary().assign(table="samples")
    summary = pd.DataFrame(
        [
            {"table": "summary", "column": name, "unit": _UNITS.get(name, ""), "meaning": meaning}
            for name, meaning in {"row": "Number of the row, from 0: what a verdict's cases name", **COLUMNS}.items()
        ]
    )
    columns = ["table", "column", "type", "unit", "may_be_empty", "meaning"]
    return pd.concat([samples, summary], ignore_index=True).reindex(columns=columns)
