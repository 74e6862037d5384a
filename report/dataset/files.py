"""Write the dataset's tables as Parquet and CSV, and read their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as arrow
from pyarrow import parquet

from contract.files import atomic_path
from report.dataset.declaration import Column, Table, tables

# Beginnings of texts that a spreadsheet takes for a formula, and an apostrophe.
_FORMULA = r"^[=+@\t\r'\x{ff1d}\x{ff0b}\x{ff20}\x{ff0d}-]"
# Texts that spreadsheets, pandas or polars take for a number, a truth value or a missing value by their defaults.
_NUMBER = r"^\s*([0-9][0-9,_' ]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*%?\s*$"
_WORD = (
    r"^\s*((?i:true|false|inf|infinity|nan)|NA|N/A|n/a|NULL|null|None|<NA>|\#N/A|\#N/A N/A|\#NA|1\.\#(IND|QNAN))\s*$"
)
# Rows from which polars tells a column's type. Later rows that hold a column's first value are moved to the beginning.
LEAD = 100
_AT = "row number"


@dataclass
class Writer:
    """Writer that appends pieces of a table to a Parquet file."""

    table: parquet.ParquetWriter
    rows: int = 0

    def write(self, piece: arrow.Table) -> None:
        self.table.write_table(piece.cast(self.table.schema))
        self.rows += len(piece)


@contextmanager
def table_writer(folder: Path, name: str, parameters: Iterable[Column] = ()) -> Iterator[Writer]:
    """Open a writer for a table in `folder`. The table's files appear there only when they are complete.

    parameters: the parameter columns of a table that has some.
    """
    table = tables()[name]
    schema = table.schema(parameters)
    with atomic_path(folder / f"{name}.parquet") as whole:
        with parquet.ParquetWriter(whole, schema, compression="zstd", compression_level=9) as file:
            yield Writer(file)
        if table.csv:
            with atomic_path(folder / f"{name}.csv") as text:
                write_csv(pl.scan_parquet(whole).select(table.csv_names(schema.names)), text)


def write_table(folder: Path, name: str, rows: arrow.Table, parameters: Iterable[Column] = ()) -> None:
    """Write a whole table, with `table_writer`."""
    with table_writer(folder, name, parameters) as writer:
        writer.write(rows)


def write_csv(rows: pl.LazyFrame, path: Path) -> None:
    """Write rows as CSV that pandas and polars read by their defaults as the types that the columns have.

    Texts that they or a spreadsheet would read as another type or as a formula get an apostrophe. The rows keep their
    order, but for rows beyond the first LEAD that hold a column's first value. Raises OSError.
    """
    schema = rows.collect_schema()
    numbers = [name for name, kind in schema.items() if kind != pl.String]
    texts = [name for name in schema if name not in numbers]
    firsts = rows.select(pl.col(numbers).is_not_null().arg_max()).collect().rows()
    # Each moved row pushes the others back by one.
    lead = sorted({at for row in firsts for at in row if at and at >= LEAD - len(numbers)})
    indexed = rows.with_columns(map(escape_text, texts)).with_row_index(_AT)
    moved = pl.col(_AT).is_in(lead)
    pl.concat([indexed.filter(moved), indexed.filter(~moved)]).drop(_AT).sink_csv(path, quote_style="necessary")


def escape_text(column: str) -> pl.Expr:
    """Put an apostrophe before the texts in a column that programs misread; replace carriage returns by spaces."""
    text = pl.col(column).str.replace_all("\r", " ", literal=True)
    risky = text.str.contains("|".join((_FORMULA, _NUMBER, _WORD)))
    return pl.when(risky).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).alias(column)


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
