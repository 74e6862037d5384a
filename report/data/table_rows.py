"""Rows of a table as dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def row_dicts(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert table rows to dictionaries of Python values.

    `DataFrame.to_dict` returns the same dictionaries, but takes several times as long.
    """
    names = [str(name) for name in table.columns]
    columns = [_python_values(column) for _, column in table.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(column: pd.Series) -> list[Any]:
    values = column.tolist()
    if column.dtype == object:
        return [value.item() if isinstance(value, (np.number, np.bool_)) else value for value in values]
    return values
