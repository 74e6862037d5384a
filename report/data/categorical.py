"""Text in tables as codes: a few words stand in millions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as arrow
from pyarrow import parquet

from report.data import groups


def coded(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its text as categories in alphabetical order, which compare, group and sort as the texts do."""
    found: dict[str, pd.Series] = {}
    for name, column in table.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            words = list(column.cat.categories)
            if words != sorted(words):
                found[str(name)] = column.cat.set_categories(sorted(words))
        elif isinstance(column.dtype, pd.StringDtype):
            found[str(name)] = column.astype("category")
    return table.assign(**found) if found else table


def read_coded(path: Path, experiments: Sequence[str] = (), columns: Sequence[str] = ()) -> pd.DataFrame:
    """A Parquet file with its text coded; of these experiments and columns alone, if any are named.

    Raises FileNotFoundError, OSError or ValueError if it is not there or cannot be read.
    """
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
    text = [field.name for field in schema if arrow.types.is_string(field.type)]
    with parquet.ParquetFile(path, read_dictionary=text) as file:
        groups = [at for at in range(file.num_row_groups) if not experiments or _may_hold(file, at, experiments)]
        read = [*dict.fromkeys([*columns, "experiment"])] if columns and experiments else list(columns) or None
        contents = file.read_row_groups(groups, columns=read).unify_dictionaries()
    if experiments:
        rows = contents["experiment"].to_pandas().isin(list(experiments)).to_numpy(bool)
        contents = contents if rows.all() else contents.filter(arrow.array(rows))
    return coded((contents.select(list(columns)) if columns else contents).to_pandas())


def _may_hold(file: parquet.ParquetFile, group: int, experiments: Sequence[str]) -> bool:
    """Whether a group of rows may hold one of these experiments, by its first and last in the alphabet."""
    told = file.metadata.row_group(group).column(file.schema_arrow.names.index("experiment")).statistics
    if told is None or not told.has_min_max:
        return True
    return any(told.min <= name <= told.max for name in experiments)


def keys(one: pd.DataFrame, other: pd.DataFrame, columns: Sequence[str]) -> tuple[groups.Ints, groups.Ints]:
    """A number for each row of two tables: equal where rows agree in these columns."""
    both = (pd.concat([one[name], other[name]], ignore_index=True) for name in columns)
    found, _ = groups.fold(groups.ranks(column) for column in both)
    return found[: len(one)], found[len(one) :]
