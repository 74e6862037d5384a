"""Declaration of the dataset's tables, from `tables.yaml`: columns with type, unit and meaning, keys and references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as arrow

from contract.files import read_yaml
from contract.sample_dictionary import TYPES, metric_entry, parameter_entry
from report import PACKAGE

_ARROW = {
    "text": arrow.string(),
    "integer": arrow.int64(),
    "number": arrow.float64(),
    "boolean": arrow.bool_(),
}
# Units in the dataset in place of the study's unit 1. Many programs read a column that holds 1 in all rows as numbers.
_RATIO, _SHARE, _COUNT = PLAIN_UNITS = ("ratio", "share", "count")


@dataclass(frozen=True)
class Column:
    """A column. refers: 'table.column' whose values it holds. record: path of the value in a node's record."""

    name: str
    means: str
    type: str = "text"
    unit: str = ""
    refers: str = ""
    record: str = ""

    @property
    def arrow_type(self) -> arrow.DataType:
        return _ARROW[self.type]


@dataclass(frozen=True)
class Table:
    """A table. key: columns that identify a row. csv: True if it is also written as CSV.

    parameters: True if parameter columns follow the declared ones. csv_parameters: True if the CSV has them too.
    """

    name: str
    title: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    csv: bool = True
    parameters: bool = False
    csv_parameters: bool = True

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def csv_names(self, names: Iterable[str]) -> list[str]:
        """Return those of the Parquet file's column names that the CSV has."""
        return [name for name in names if self.csv_parameters or name in self.names]

    def schema(self, parameters: Iterable[Column] = ()) -> arrow.Schema:
        """Return the Arrow schema. parameters: columns to append if the table has parameter columns."""
        more = tuple(parameters) if self.parameters else ()
        return arrow.schema(
            [
                arrow.field(column.name, column.arrow_type, metadata={"description": column.means, "unit": column.unit})
                for column in (*self.columns, *more)
            ]
        )


@cache
def tables() -> Mapping[str, Table]:
    """Return all declared tables by name, in the declared order."""
    declared = read_yaml(PACKAGE / "dataset" / "tables.yaml")
    return {
        name: Table(
            name,
            entry["title"],
            tuple(entry["key"]),
            tuple(Column(column, **about) for column, about in entry["columns"].items()),
            entry.get("csv", True),
            entry.get("parameters", False),
            entry.get("csv_parameters", True),
        )
        for name, entry in declared.items()
    }


def parameter_columns(values: Mapping[str, set[type]]) -> dict[str, Column]:
    """Return the column of each parameter. values: for each parameter, the Python types that its values have.

    A parameter with the name of another column of points or results gets the prefix `param_`. The type is that of the
    dictionary; for a parameter that it lacks, the narrowest type that holds all values.
    """
    taken = {*tables()["points"].names, *tables()["results"].names}
    columns = {}
    for name in sorted(values):
        entry = parameter_entry(name)
        kind = entry.get("type") or _narrowest_type(values[name])
        if not values[name] <= set(TYPES[kind]):
            kind = _narrowest_type(values[name])
        column = f"param_{name}" if name in taken else name
        columns[name] = Column(column, entry.get("meaning", f"Parameter {name}"), kind, entry.get("unit", ""))
    return columns


def _narrowest_type(types: set[type]) -> str:
    return next((kind for kind, fitting in TYPES.items() if types <= set(fitting)), "text")


def dataset_unit(unit: str, metric: str) -> str:
    """Return a metric's unit for the dataset: share, ratio or count in place of 1."""
    if unit != "1":
        return unit
    if metric.endswith("share"):
        return _SHARE
    return _COUNT if metric_entry(metric).get("unit") == _COUNT else _RATIO
