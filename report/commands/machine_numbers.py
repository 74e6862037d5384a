"""Five numbers of a machine: products, memory, copies to a GPU, training, and the answer to one request."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from contract.errors import StudyError
from contract.files import read_json
from report.data.gather import gather
from report.data.machine_names import own_nodes
from report.data.node_reader import NODES
from report.formatting import (
    count_machines_and_runs,
    format_interval,
    instance_name,
    labels_text,
    range_words,
    with_unit,
)
from report.verdicts import STUDY_DATA, print_fallback

# Networks by preference: a machine shows the first one that it measured.
NETWORKS = ("resnet-50", "bert-base-classifier", "bert-base", "resnet", "cnn", "mlp")


@dataclass(frozen=True)
class Number:
    """One of the five numbers.

    experiment: its experiment. rate: the column with the rate, '' for the time of a call. unit: the rate's unit, '' for
    the items of the experiment. where: values that the rows must have. largest: column in which rows must have the
    largest value. shown: columns that describe the row.
    """

    title: str
    experiment: str
    rate: str
    unit: str
    shown: tuple[str, ...]
    where: Mapping[str, Any]
    largest: str = ""


NUMBERS = (
    Number("matrix product", "gemm", "flop_per_s", "FLOP/s", ("dtype", "backend", "m", "n", "k"), {}),
    Number("memory", "bandwidth", "bytes_per_s", "B/s", ("op", "dtype", "backend"), {}, "footprint"),
    Number(
        "copy to the GPU", "transfer", "bytes_per_s", "B/s", ("size", "host_memory"), {"direction": "host_to_device"}
    ),
    Number("training", "training", "items_per_s", "", ("model", "batch", "dtype", "backend"), {}),
    Number("answer to one request", "inference", "", "s", ("model", "dtype", "backend"), {"batch": 1}),
)


def print_numbers(data: Path | None, nodes: Sequence[str]) -> None:
    """Print the five numbers of each node, per device: the best of its points.

    data: output folder of `gather`; None for the study's, or before any study for the published nodes, with a note on
    stderr. nodes: node ids; without any, the nodes that are not published ones, else all. Raises StudyError if a table
    cannot be read, or a node is not in it.
    """
    records, table = read_results(data)
    if unknown := sorted({*nodes} - {*records}):
        raise StudyError(f"no node {unknown[0]} in {data or STUDY_DATA}. Nodes: {', '.join(records)}")
    own = own_nodes([*records.values()])
    for name in nodes or [name for name in records if name in own] or records:
        print(f"{records[name]['label']} ({instance_name(records[name])})")
        lines = [line for number in NUMBERS for line in number_lines(number, table.filter(node=name))]
        print("\n".join(lines or ["  nothing measured yet"]))


def read_results(data: Path | None) -> tuple[dict[str, dict[str, Any]], pl.DataFrame]:
    """Return the node records by id, and the summary rows with times, as `print_numbers` reads them."""
    folder = data or STUDY_DATA
    if data is None and not (folder / "nodes.json").exists():
        print_fallback(folder, "these are the published machines")
        with TemporaryDirectory() as scratch, redirect_stderr(io.StringIO()):
            gather([NODES], Path(scratch))
            return read_results(Path(scratch))
    records = {str(record["id"]): record for record in read_json(folder / "nodes.json")}
    table = pl.scan_parquet(folder / "results.parquet").filter(pl.col("status") == "ok", pl.col("metric") == "time")
    return records, table.with_columns(pl.col("node", "experiment", "device").cast(pl.String)).collect()


def number_lines(number: Number, rows: pl.DataFrame, others: pl.DataFrame | None = None) -> Iterator[str]:
    """Describe a machine's best result for a number, for each device in `rows`, the summary of the machine.

    others: summary of other machines, whose range then takes the place of the result's labels.
    """
    rows = _measured_rows(number, rows)
    others = None if others is None else _measured_rows(number, others)
    if "model" in number.shown and rows.height:
        models = rows["model"].to_list()
        network = next((name for name in NETWORKS if name in models), models[0])
        rows = rows.filter(model=network)
        others = others.filter(model=network) if others is not None and others.height else others
    for device in sorted(rows["device"].unique()) if rows.height else ():
        row = _best_row(number, rows.filter(device=device))
        estimate, low, high = row["estimate"], row["low"], row["high"]
        if number.rate:
            work = row[number.rate] * estimate
            estimate, low, high = row[number.rate], high and work / high, low and work / low
        unit = number.unit or f"{row['item']}/s"
        text = f"  {number.title:22} {device:8} {format_interval(estimate, low, high, unit):34}"
        labels = {name: row[name] for name in number.shown if row.get(name) not in (None, "")}
        yield f"{text} {labels_text(labels) if others is None else _range_text(number, device, others, unit)}".rstrip()


def _measured_rows(number: Number, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that measured a number; none if the table lacks a column for it."""
    # The table has columns only for parameters of the experiments in it.
    if not {*number.where} <= {*rows.columns}:
        return rows.clear()
    rows = rows.filter(experiment=number.experiment, **number.where)
    return rows.with_columns(pl.col("model").cast(pl.String)) if "model" in rows.columns else rows


def _best_row(number: Number, rows: pl.DataFrame) -> dict[str, Any]:
    if number.largest:
        rows = rows.filter(pl.col(number.largest) == pl.col(number.largest).max())
    return rows.sort(number.rate or "estimate", descending=bool(number.rate)).row(0, named=True)


def _range_text(number: Number, device: str, others: pl.DataFrame, unit: str) -> str:
    """Format the best results of other machines on such a device, from the least to the most.

    others: their rows that measured the number.
    """
    best = [_best_row(number, of_node) for _, of_node in others.filter(device=device).group_by("node")]
    values = sorted(row[number.rate or "estimate"] for row in best)
    if not values:
        return "not measured there"
    ends = range_words(with_unit(values[0], unit), with_unit(values[-1], unit))
    return f"{ends} on {count_machines_and_runs([row['node'] for row in best])}"
