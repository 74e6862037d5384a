"""Summary rows: read them by number, and format them as text."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from report.formatting import format_count, format_interval, with_unit

_COLUMNS = [
    "row", "node", "experiment", "device", "backend", "dtype", "threads", "params", "metric", "unit", "estimate", "low",
    "high", "n_rounds", "n_samples", "n_disturbed", "flop", "bytes", "flags",
]  # fmt: skip


def read_rows(folder: Path, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
    """Read summary rows from a gathered folder by number, with their result_id and with flags in words.

    Raises StudyError if a table cannot be read or lacks a row.
    """
    if not numbers:
        return {}
    import polars as pl

    from report.data.disturbances import FlagSummary, format_flags
    from report.data.gathered_files import read_summary
    from report.data.table_rows import row_dicts

    table = read_summary(folder, [*_COLUMNS, "result_id"], rows=sorted(numbers))
    rows = {int(row["row"]): row for row in row_dicts(table)}
    if len(rows) < len(set(numbers)):
        raise StudyError(f"{folder}: not the data that these verdicts were made from: judge them again")
    ids = [row["result_id"] for row in rows.values()]
    flags: dict[str, list[FlagSummary]] = {}
    for flag in pl.read_parquet(folder / "result_flags.parquet").filter(pl.col("result_id").is_in(ids)).to_dicts():
        summary = FlagSummary(flag["flag"], flag["n_samples"] or 0, flag["of_samples"] or 0, flag["detail"])
        flags.setdefault(flag["result_id"], []).append(summary)
    return {number: {**row, "flags": format_flags(flags.get(row["result_id"], ()))} for number, row in rows.items()}


def read_rounds(folder: Path, row: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """Return a summary row's rounds, each with its number, its ok sample count and its median.

    The list is empty if the folder contains no samples.
    """
    import polars as pl

    path = folder / "samples.parquet"
    if not path.is_file():
        return []
    node, point, metric = row["result_id"].split("/")
    samples = pl.scan_parquet(path).filter(
        pl.col("node") == node,
        pl.col("point_id") == point,
        pl.col("metric") == metric,
        pl.col("status") == "ok",
        "counts",
    )
    runs = pl.scan_parquet(folder / "runs.parquet").select("run_id", "round_no")
    rounds = samples.join(runs, on="run_id").group_by("round_no").agg(pl.len(), pl.col("value").median())
    return list(rounds.sort("round_no").collect().iter_rows())


def point_text(row: Mapping[str, Any]) -> str:
    """Format a summary row's point, without its experiment: 'torch, float32, 2 threads, n=512'."""
    params = ", ".join(f"{name}={value}" for name, value in json.loads(row["params"]).items())
    threads = format_count(row["threads"], "thread") if row["threads"] else ""
    return ", ".join(filter(None, (row["backend"], row["dtype"], threads, params)))


def row_lines(number: int, row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format a summary row as lines, each a pair (head, text). They state the point, its measured value and its id."""
    estimate, low, high = (_none_if_nan(row[name]) for name in ("estimate", "low", "high"))
    work = (("flop", "FLOP"), ("bytes", "B"))
    parts = [
        f"{row['metric']} {format_interval(estimate, low, high, row['unit'])}",
        f"{format_count(row['n_rounds'], 'round')}, {format_count(row['n_samples'], 'sample')}",
        *(f"{with_unit(row[name], unit)} a call" for name, unit in work if _none_if_nan(row[name])),
        *(
            [f"disturbed: in {row['n_disturbed']} of them others had cores that it needed"]
            if row.get("n_disturbed")
            else []
        ),
        *([f"flags: {row['flags']}"] if row["flags"] else []),
    ]
    return [
        (f"    row {number:<7}", f"{row['experiment']} on {row['device']}: {point_text(row)}"),
        (" " * 15, "; ".join(parts)),
        (" " * 15, row["result_id"]),
    ]


def _none_if_nan(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
