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
    """Read summary rows from a gathered folder by number.

    Raises StudyError if the table cannot be read or lacks a row.
    """
    if not numbers:
        return {}
    import pyarrow
    from pyarrow import parquet

    path = folder / "summary.parquet"
    try:
        # Summaries from earlier editions lack some of these columns.
        available = set(parquet.read_schema(path).names)
        columns = [name for name in _COLUMNS if name in available]
        table = parquet.read_table(path, columns=columns, filters=[("row", "in", sorted(numbers))])
    except (OSError, pyarrow.ArrowException) as broken:
        raise StudyError(f"{path}: cannot be read ({str(broken).splitlines()[0]}): gather again") from None
    rows = {int(row["row"]): row for row in table.to_pylist()}
    if len(rows) < len(set(numbers)):
        raise StudyError(f"{folder}: not the data that these verdicts were made from: judge them again")
    return rows


def read_rounds(folder: Path, row: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """Return a summary row's rounds, each with its number, its ok sample count and its median.

    The list is empty if the folder contains no samples, as in a published edition of the report.
    """
    import polars as pl

    path = folder / "samples.parquet"
    if not path.is_file():
        return []
    same_point = [
        pl.col(name) == row[name] for name in ("node", "experiment", "device", "backend", "dtype", "threads", "params")
    ]
    samples = pl.scan_parquet(path).filter(*same_point, pl.col("metric") == row["metric"], pl.col("status") == "ok")
    rounds = samples.group_by("round").agg(pl.len(), pl.col("value").median()).sort("round").collect()
    return list(rounds.iter_rows())


def row_lines(number: int, row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format a summary row as two lines, each a pair (head, text). They state the point and its measured value."""
    params = ", ".join(f"{name}={value}" for name, value in json.loads(row["params"]).items())
    threads = format_count(row["threads"], "thread") if row["threads"] else ""
    point = ", ".join(filter(None, (row["backend"], row["dtype"], threads, params)))
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
    return [(f"    row {number:<7}", f"{row['experiment']} on {row['device']}: {point}"), (" " * 15, "; ".join(parts))]


def _none_if_nan(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
