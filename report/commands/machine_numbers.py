"""Five numbers of a machine: products, memory, copies to a GPU, training, and the answer to one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from contract.errors import StudyError
from contract.files import read_json
from report.formatting import format_interval, labels_text
from report.pages.figure_data import own_nodes

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


def print_numbers(data: Path, nodes: Sequence[str]) -> None:
    """Print the five numbers of each node, per device: the best of its points.

    data: output folder of `gather`. nodes: node ids; without any, the nodes that are not published ones, else all.
    Raises StudyError if a table cannot be read, or a node is not in it.
    """
    entries = read_json(data / "nodes.json")
    records = {str(record["id"]): record for record in entries}
    if unknown := sorted({*nodes} - {*records}):
        raise StudyError(f"no node {unknown[0]} in {data}. Nodes: {', '.join(records)}")
    own = own_nodes(entries)
    table = pl.scan_parquet(data / "results.parquet").filter(pl.col("status") == "ok", pl.col("metric") == "time")
    for name in nodes or [name for name in records if name in own] or records:
        print(records[name]["label"])
        rows = table.filter(node=name).collect()
        lines = [line for number in NUMBERS for line in number_lines(number, rows)]
        print("\n".join(lines or ["  nothing measured yet"]))


def number_lines(number: Number, rows: pl.DataFrame) -> Iterator[str]:
    """Describe a machine's best result for a number, for each device in `rows`, the summary of the machine."""
    # The table has columns only for parameters of the experiments in it.
    if not {*number.where} <= {*rows.columns}:
        return
    rows = rows.filter(pl.col("experiment").cast(pl.String) == number.experiment, **number.where)
    if not rows.height:
        return
    if "model" in number.shown:
        models = rows["model"].cast(pl.String).to_list()
        network = next((name for name in NETWORKS if name in models), models[0])
        rows = rows.filter(pl.col("model").cast(pl.String) == network)
    for (device,), of_device in sorted(rows.group_by("device"), key=lambda pair: str(pair[0])):
        if number.largest:
            of_device = of_device.filter(pl.col(number.largest) == pl.col(number.largest).max())
        row = of_device.sort(number.rate or "estimate", descending=bool(number.rate)).row(0, named=True)
        estimate, low, high = row["estimate"], row["low"], row["high"]
        if number.rate:
            work = row[number.rate] * estimate
            estimate, low, high = row[number.rate], high and work / high, low and work / low
        labels = {name: row[name] for name in number.shown if row[name] not in (None, "")}
        unit = number.unit or f"{row['item']}/s"
        yield f"  {number.title:22} {device:8} {format_interval(estimate, low, high, unit):34} {labels_text(labels)}"
