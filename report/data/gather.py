"""Gather all nodes' samples and results into the dataset's tables (`report.dataset.measured`).

Worker processes, one per core, read and summarise the nodes in batches. They write temporary files, which the parent
process concatenates. Thus memory use does not grow with the number of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pyarrow as arrow
from pyarrow import ipc

from contract import child_processes
from contract.attempts import samples_that_count
from contract.files import write_json
from report.data.node_folders import Folder, find_nodes
from report.data.node_reader import Node, Nodes, empty_samples, print_warnings, read_folders
from report.data.sessions import later_sessions
from report.data.summary import summarise
from report.dataset import measured
from report.dataset.declaration import parameter_columns, tables
from report.dataset.files import table_writer, write_table
from report.formatting import first_items

# Fewest nodes for which worker processes save time, because each process takes a second or two to start.
FEWEST_FOR_PROCESSES = 16
# Nodes per batch to validate and summarise together, because each call has a fixed cost.
BATCH = 8


def gather(directories: Sequence[Path], out: Path, allow_synthetic: bool = False) -> None:
    """Gather all nodes under `directories` into files in `out`.

    The files are the dataset's tables of measurements (as Parquet and, but for samples, CSV), the node records and the
    refused files. The node records are written last, and are missing if a run was killed. Raises StudyError if no node
    can be used, and OSError if `out` cannot be written.
    """
    folders, refused = find_nodes(directories, allow_synthetic)
    whole = _Batch(refused=refused)
    with TemporaryDirectory(prefix="gather-", ignore_cleanup_errors=True) as scratch:
        with table_writer(out, "samples") as samples:
            for part in _gather_batches(folders, Path(scratch)):
                for piece in _read_tables(part.samples):
                    samples.write(piece)
                part.samples.unlink()
                whole.add(part)
            gathered = Nodes(whole.nodes, whole.refused)
            gathered.require_nodes(directories)
            # Written last: without this file, the tables are refused as incomplete.
            (out / "nodes.json").unlink(missing_ok=True)
        results = _write_results(whole, out)
    print_warnings(gathered)
    nodes = [
        {
            **node.record,
            "label": node.label,
            **{name: getattr(node, name) for name in ("source", "rounds", "contributed", "repeats")},
        }
        for node in gathered.nodes
    ]
    write_json(out / "refused.json", gathered.refused)
    write_json(out / "nodes.json", nodes)
    if copies := sorted(path.name for path in out.iterdir() if path.name[0] != "." and path.name not in _file_names()):
        print(
            f"note: {out} also holds {first_items(copies, 3)}: gather wrote no such file, none is read", file=sys.stderr
        )
    print(
        f"{len(gathered.nodes)} node(s), {samples.rows:,} samples, {whole.ok:,} of {results:,} series ok, "
        f"{len(gathered.refused)} file(s) left out: {out}",
        file=sys.stderr,
    )


def _file_names() -> set[str]:
    """Return the names of all files that `gather` writes."""
    return {"nodes.json", "refused.json"} | {f"{name}{suffix}" for name in tables() for suffix in (".parquet", ".csv")}


@dataclass
class _Batch:
    """Results from a batch of nodes.

    nodes: the nodes, without their samples. samples: temporary file with their samples. summaries: temporary files with
    their summary rows. ok: number of series with status ok.
    """

    nodes: list[Node] = field(default_factory=list)
    samples: Path = Path()
    summaries: list[Path] = field(default_factory=list)
    points: list[pl.DataFrame] = field(default_factory=list)
    runs: list[measured.Run] = field(default_factory=list)
    drifts: dict[str, float] = field(default_factory=dict)
    ok: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)

    def add(self, other: _Batch) -> None:
        """Add another batch, except for its samples."""
        self.nodes += other.nodes
        self.summaries += other.summaries
        self.points = [measured.merge_points([*self.points, *other.points])]
        self.runs += other.runs
        self.drifts |= other.drifts
        self.ok += other.ok
        self.refused += other.refused


def _write_results(whole: _Batch, out: Path) -> int:
    """Write all tables but samples; return the number of results."""
    (points,) = whole.points
    columns = parameter_columns(measured.parameter_types(points))
    parameters = measured.parameter_table(points, columns)
    run_rows = measured.run_rows(whole.nodes, whole.runs, whole.drifts)
    protocols = measured.Protocols(whole.nodes)
    pairs: set[tuple[str, str, str]] = set()
    with (
        table_writer(out, "results", columns.values()) as results,
        table_writer(out, "result_flags") as flags,
    ):
        for path in whole.summaries:
            for piece in _read_tables(path):
                summary = pl.DataFrame(piece)
                rows, flag_rows = measured.result_rows(summary, points, parameters, protocols)
                results.write(rows)
                flags.write(flag_rows)
                pairs.update(summary.select("experiment", "metric", "unit").unique().iter_rows())
    wide = points.join(parameters, on="point_id", how="left", maintain_order="left")
    write_table(out, "points", measured.to_table("points", wide.to_dicts(), columns.values()), columns.values())
    for name, table_rows in (
        ("machines", measured.machine_rows(whole.nodes)),
        ("runs", run_rows),
        ("software", measured.software_rows(whole.nodes)),
        ("metrics", measured.metric_rows(pairs)),
        ("parameters", measured.parameter_rows(points, columns)),
    ):
        write_table(out, name, measured.to_table(name, table_rows))
    return results.rows


def _gather_batches(folders: Sequence[Folder], scratch: Path) -> Iterator[_Batch]:
    """Read and summarise the folders in batches; yield the batches in the folders' order."""
    parts = [folders[at : at + BATCH] for at in range(0, len(folders), BATCH)]
    places = [scratch / str(number) for number in range(len(parts))]
    processes = child_processes.available_cpus() if len(folders) >= FEWEST_FOR_PROCESSES else 1
    yield from child_processes.map_parallel(_gather_batch, parts, places, processes=processes)


def _gather_batch(folders: Sequence[Folder], place: Path) -> _Batch:
    results = read_folders(folders)
    samples = Nodes([node for node, _ in results if node], []).all_samples()
    # Tables are dropped as soon as they are converted, because each takes a good part of the memory.
    nodes = [replace(node, samples=empty_samples()) for node, _ in results if node]
    refused = [fault for _, faults in results for fault in faults]
    del results
    counts = samples_that_count(samples)
    # Do not copy the samples of nodes without further attempts.
    summary = summarise(samples if counts.all() else samples[counts], later_sessions(nodes))
    order = {node.id: at for at, node in enumerate(nodes)}
    summary = summary.sort_values("node", key=lambda column: column.map(order), kind="stable")
    table = measured.plain_samples(samples.assign(counts=counts))
    del samples
    points = measured.list_points(table)
    columns = ["node", "experiment", "device", "round", "attempt", "run"]
    runs = list(table.select(columns).unique(maintain_order=True).iter_rows())
    rows = measured.sample_rows(table, points)
    del table
    files = {name: place.with_suffix(f".{name}.arrow") for name in ("samples", "summary")}
    # Write one row group per experiment, to let readers of one experiment skip the other row groups.
    experiments = rows["experiment"].unique(maintain_order=True)
    pieces = (rows.filter(pl.col("experiment") == name).to_arrow() for name in experiments)
    _write_tables(files["samples"], tables()["samples"].schema(), pieces)
    ok = int((summary["status"] == "ok").sum())
    summary_table = arrow.Table.from_pandas(summary, preserve_index=False)
    _write_tables(files["summary"], summary_table.schema, [summary_table])
    drifts = measured.drift_by_run(rows)
    return _Batch(nodes, files["samples"], [files["summary"]], [points], runs, drifts, ok, refused)


def _write_tables(path: Path, schema: arrow.Schema, pieces: Iterable[arrow.Table]) -> None:
    """Write tables into an Arrow file, which `_read_tables` reads."""
    with ipc.new_file(path, schema, options=ipc.IpcWriteOptions(compression="lz4")) as file:
        for piece in pieces:
            file.write_table(piece.cast(schema).combine_chunks())


def _read_tables(path: Path) -> Iterator[arrow.Table]:
    """Read the tables in a file from `_write_tables`."""
    with ipc.open_file(path) as file:
        for at in range(file.num_record_batches):
            yield arrow.Table.from_batches([file.get_batch(at)])
