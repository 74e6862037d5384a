"""pandas: what most people use, on one thread (its CSV reader takes several for files, not for text in memory)."""

from __future__ import annotations

import io
from typing import Any

from experiments.devices import Device
from experiments.tabular.base import Columns, Library


class PandasLibrary(Library):
    """DataFrames as pandas builds and reads them by default."""

    name = "pandas"

    def __init__(self, device: Device) -> None:
        import pandas as pd

        super().__init__(device)
        self._pd: Any = pd
        # Where numexpr is installed, pandas hands it large comparisons, and it starts threads of its own.
        pd.set_option("compute.use_numexpr", False)

    def load(self, columns: Columns) -> Any:
        return self._pd.DataFrame(columns)

    def columns(self, table: Any) -> Columns:
        return {name: table[name].to_numpy() for name in table.columns}

    def filter(self, table: Any) -> Any:
        return table[table["value"] > 0]

    def sort(self, table: Any) -> Any:
        return table.sort_values("value", ignore_index=True)

    def group_by(self, table: Any) -> Any:
        # sort=False: no library is asked for an order of the keys.
        groups = table.groupby("key", sort=False, as_index=False)["value"]
        return groups.agg(["sum", "mean"]).rename(columns={"sum": "total"})

    def join(self, left: Any, right: Any) -> Any:
        return left.merge(right, on="key", how="inner")

    def parse_csv(self, text: bytes) -> Any:
        return self._pd.read_csv(io.BytesIO(text))

    def parse_json(self, text: bytes) -> Any:
        return self._pd.read_json(io.BytesIO(text), lines=True)
