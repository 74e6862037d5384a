"""Check a dataset: the digest of every file, columns, types, keys and references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from pyarrow import ArrowException, parquet

from report.dataset.declaration import Table, tables
from report.dataset.digests import digest_faults
from report.dataset.files import type_name
from report.dataset.package import dataset_files

# Tables of each kind of evidence, with the column of ids.
_EVIDENCE = {
    "result": ("results", "result_id"),
    "record": ("records", "record_id"),
    "reference": ("reference", "reference_id"),
}


def print_faults(folder: Path) -> int:
    """Print each fault of a dataset; return 1 if there are any. Raises StudyError if the folder holds no dataset."""
    faults = list(dataset_faults(folder))
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{folder}: {len(tables())} tables, all files as their digests say, all keys and references hold")
    return 1 if faults else 0


def dataset_faults(folder: Path) -> Iterator[str]:
    """Yield a line per fault: the file, and what is wrong. Raises StudyError if the list of digests is missing."""
    yield from digest_faults(folder, dataset_files(folder))
    for table in tables().values():
        try:
            yield from _table_faults(folder, table)
        except (OSError, ArrowException, pl.exceptions.PolarsError) as broken:
            yield f"{table.name}.parquet: cannot be read ({str(broken).splitlines()[0]})"
    try:
        yield from _evidence_faults(folder)
    except (OSError, pl.exceptions.PolarsError) as broken:
        yield f"cell_evidence.parquet: cannot be checked ({str(broken).splitlines()[0]})"


def _table_faults(folder: Path, table: Table) -> Iterator[str]:
    path = folder / f"{table.name}.parquet"
    schema = parquet.read_schema(path)
    for column in table.columns:
        if column.name not in schema.names:
            yield f"{path.name}: column {column.name!r} is missing"
            return
        kind = type_name(schema.field(column.name).type)
        if kind != column.type:
            yield f"{path.name}: column {column.name!r} holds {kind}, not {column.type}"
    if not table.parameters and (more := set(schema.names) - set(table.names)):
        yield f"{path.name}: column {min(more)!r} is not declared"
    rows = pl.scan_parquet(path)
    key = list(table.key)
    for name in key:
        if rows.filter(pl.col(name).is_null()).select(pl.len()).collect().item():
            yield f"{path.name}: column {name!r} of its key has missing values"
    twice = rows.group_by(key).len().filter(pl.col("len") > 1).sort(key).head(1).collect()
    if len(twice):
        values = ", ".join(f"{name} {twice[name][0]!r}" for name in key)
        yield f"{path.name}: two rows have the key {values}"
    for column in table.columns:
        if column.refers:
            other, _, named = column.refers.partition(".")
            yield from _reference_faults(rows, path.name, column.name, folder / f"{other}.parquet", named)


def _reference_faults(rows: pl.LazyFrame, file: str, column: str, other: Path, named: str) -> Iterator[str]:
    """Yield a line if a value of a column is in no row of the other table. Empty values refer to nothing."""
    known = pl.scan_parquet(other).select(pl.col(named).alias(column))
    values = rows.select(column).unique().filter(pl.col(column).is_not_null() & (pl.col(column) != ""))
    lost = values.join(known, on=column, how="anti").sort(column).collect()
    if len(lost):
        yield f"{file}: {column} {lost[column][0]!r} is not in {other.name}{_and_others(len(lost))}"


def _evidence_faults(folder: Path) -> Iterator[str]:
    evidence = pl.scan_parquet(folder / "cell_evidence.parquet")
    for kind, (table, named) in _EVIDENCE.items():
        rows = evidence.filter(pl.col("kind") == kind)
        yield from _reference_faults(rows, "cell_evidence.parquet", "evidence_id", folder / f"{table}.parquet", named)
    cells = pl.scan_parquet(folder / "cells.parquet").select("cell_id")
    bare = cells.join(evidence, on="cell_id", how="anti").sort("cell_id").collect()
    if len(bare):
        yield f"cells.parquet: cell_id {bare['cell_id'][0]!r} has no evidence{_and_others(len(bare))}"


def _and_others(number: int) -> str:
    return f" (and {number - 1} more)" if number > 1 else ""
