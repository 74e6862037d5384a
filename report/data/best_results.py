"""Five numbers of a machine: products, memory, copies to a GPU, training, and the answer to one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from contract.files import read_json

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


@dataclass(frozen=True)
class Best:
    """The best result for a number on a device, in `unit`.

    labels: describe the result. beside: best results of other machines on such a device, by node id.
    """

    number: Number
    device: str
    estimate: float
    low: float
    high: float
    unit: str
    labels: Mapping[str, Any]
    beside: Mapping[str, float] = field(default_factory=dict)


NUMBERS = (
    Number("matrix product", "gemm", "flop_per_s", "FLOP/s", ("dtype", "backend", "m", "n", "k"), {}),
    Number("memory", "bandwidth", "bytes_per_s", "B/s", ("op", "dtype", "backend"), {}, "footprint"),
    Number(
        "copy to the GPU", "transfer", "bytes_per_s", "B/s", ("size", "host_memory"), {"direction": "host_to_device"}
    ),
    Number("training", "training", "items_per_s", "", ("model", "batch", "dtype", "backend"), {}),
    Number("answer to one request", "inference", "", "s", ("model", "dtype", "backend"), {"batch": 1}),
)


def read_results(folder: Path) -> tuple[dict[str, dict[str, Any]], pl.DataFrame]:
    """Return the node records by id, and the summary rows with times, from the output folder of `gather`.

    Raises StudyError if a file cannot be read.
    """
    records = {str(record["id"]): record for record in read_json(folder / "nodes.json")}
    table = pl.scan_parquet(folder / "results.parquet").filter(pl.col("status") == "ok", pl.col("metric") == "time")
    return records, table.with_columns(pl.col("node", "experiment", "device").cast(pl.String)).collect()


def best_results(rows: pl.DataFrame, others: pl.DataFrame | None = None) -> Iterator[Best]:
    """Yield a machine's best result for each number and device.

    rows, others: summary rows of the machine and of other machines, from `read_results`.
    """
    for number in NUMBERS:
        own = _measured_rows(number, rows)
        rest = None if others is None else _measured_rows(number, others)
        if "model" in number.shown and own.height:
            models = own["model"].to_list()
            network = next((name for name in NETWORKS if name in models), models[0])
            own = own.filter(model=network)
            rest = rest.filter(model=network) if rest is not None and rest.height else rest
        for device in sorted(own["device"].unique()) if own.height else ():
            yield _best_result(number, device, own.filter(device=device), rest)


def count_disturbed(rows: pl.DataFrame) -> Counter[str]:
    """Count the results that other processes disturbed in most rounds, by experiment."""
    return Counter(rows.filter(2 * pl.col("n_disturbed") > pl.col("n_rounds"))["experiment"].to_list())


def _best_result(number: Number, device: str, rows: pl.DataFrame, others: pl.DataFrame | None) -> Best:
    row = _best_row(number, rows)
    estimate, low, high = row["estimate"], row["low"], row["high"]
    if number.rate:
        work = row[number.rate] * estimate
        estimate, low, high = row[number.rate], high and work / high, low and work / low
    beside = {} if others is None else {
        str(node): float(_best_row(number, of_node)[number.rate or "estimate"])
        for (node,), of_node in others.filter(device=device).group_by("node")
    }  # fmt: skip
    labels = {name: row[name] for name in number.shown if row.get(name) not in (None, "")}
    return Best(number, device, estimate, low, high, number.unit or f"{row['item']}/s", labels, beside)


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
