"""Write the dataset's tables as Parquet and CSV, and read their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as arrow
from pyarrow import compute, csv, parquet

from contract.files import atomic_path
from report.dataset.declaration import Column, Table, tables

# Beginnings of a text that a spreadsheet takes for a formula.
_FORMULA = r"^[=+@\t\r-]"


@dataclass
class Writer:
    """Writer that appends pieces of a table to a Parquet file and, unless `lines` is None, to a CSV file."""

    table: parquet.ParquetWriter
    lines: csv.CSVWriter | None
    rows: int = 0

    def write(self, piece: arrow.Table) -> None:
        piece = piece.cast(self.table.schema)
        self.table.write_table(piece)
        if self.lines:
            self.lines.write_table(escape_formulas(piece))
        self.rows += len(piece)


@contextmanager
def table_writer(folder: Path, name: str, parameters: Iterable[Column] = ()) -> Iterator[Writer]:
    """Open a writer for a table in `folder`. The table's files appear there only when they are complete.

    parameters: the parameter columns of a table that has some.
    """
    table = tables()[name]
    schema = table.schema(parameters)
    with (
        atomic_path(folder / f"{name}.parquet") as whole,
        parquet.ParquetWriter(whole, schema, compression="zstd", compression_level=9) as file,
    ):
        if not table.csv:
            yield Writer(file, None)
            return
        with atomic_path(folder / f"{name}.csv") as text, csv.CSVWriter(text, schema) as lines:
            yield Writer(file, lines)


def write_table(folder: Path, name: str, rows: arrow.Table, parameters: Iterable[Column] = ()) -> None:
    """Write a whole table, with `table_writer`."""
    with table_writer(folder, name, parameters) as writer:
        writer.write(rows)


def escape_formulas(table: arrow.Table) -> arrow.Table:
    """Put an apostrophe before texts that a spreadsheet would run as a formula; replace carriage returns by spaces."""
    for at, field in enumerate(table.schema):
        if field.type != arrow.string():
            continue
        texts = compute.replace_substring(table.column(at), "\r", " ")
        risky = compute.match_substring_regex(texts, _FORMULA)
        if compute.any(risky).as_py():
            texts = compute.if_else(risky, compute.binary_join_element_wise("'", texts, ""), texts)
        table = table.set_column(at, field, texts)
    return table


def columns_of(folder: Path, table: Table) -> list[Column]:
    """Return a table's columns as its file has them: the declared ones, then parameters."""
    declared = {column.name: column for column in table.columns}
    columns = []
    for field in parquet.read_schema(folder / f"{table.name}.parquet"):
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        own = Column(field.name, about.get("description", ""), type_name(field.type), about.get("unit", ""))
        columns.append(declared.get(field.name, own))
    return columns


def type_name(kind: arrow.DataType) -> str:
    """Return the declared name of an Arrow type."""
    if arrow.types.is_boolean(kind):
        return "boolean"
    if arrow.types.is_integer(kind):
        return "integer"
    return "number" if arrow.types.is_floating(kind) else "text"
