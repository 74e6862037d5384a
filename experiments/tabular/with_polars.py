"""Polars: columns in Arrow's format, on a pool of threads that is fixed when the process starts."""

from __future__ import annotations

from typing import Any

from experiments.devices import Device
from experiments.tabular.base import Columns, Library


class PolarsLibrary(Library):
    """Eager frames: every call returns a table that is there."""

    name = "polars"

    def __init__(self, device: Device) -> None:
        import polars as pl

        super().__init__(device)
        self._pl: Any = pl

    @property
    def threads(self) -> int:
        return int(self._pl.thread_pool_size())

    def load(self, columns: Columns) -> Any:
        return self._pl.DataFrame(columns)

    def columns(self, table: Any) -> Columns:
        return {name: table[name].to_numpy() for name in table.columns}

    def filter(self, table: Any) -> Any:
        return table.filter(self._pl.col("value") > 0)

    def sort(self, table: Any) -> Any:
        return table.sort("value")

    def group_by(self, table: Any) -> Any:
        value = self._pl.col("value")
        return table.group_by("key").agg(total=value.sum(), mean=value.mean())

    def join(self, left: Any, right: Any) -> Any:
        return left.join(right, on="key", how="inner")

    def parse_csv(self, text: bytes) -> Any:
        return self._pl.read_csv(text)

    def parse_json(self, text: bytes) -> Any:
        return self._pl.read_ndjson(text)
