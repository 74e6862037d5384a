"""Tables as arrays: one implementation in NumPy's interface, for NumPy on the CPU and CuPy on the GPU."""

from __future__ import annotations

import io
from typing import Any

from experiments.devices import Device
from experiments.kernels.cuda import cupy_on
from experiments.tabular.base import ON_TEXT, Columns, Library


class ArrayLibrary(Library):
    """What both share. xp: the module, numpy or cupy; tables are its arrays by name."""

    xp: Any

    def load(self, columns: Columns) -> Any:
        return {name: self.xp.asarray(column) for name, column in columns.items()}

    def filter(self, table: Any) -> Any:
        # Positions first: faster than a mask per column, which is gone over twice for each.
        return _rows(table, self.xp.flatnonzero(table["value"] > 0))

    def sort(self, table: Any) -> Any:
        return _rows(table, self.xp.argsort(table["value"]))

    def group_by(self, table: Any) -> Any:
        """Sort by key, number the runs of equal keys, add up by that number.

        Not `numpy.add.reduceat`: CuPy takes differences of running totals there, which
        lose digits as the table grows.
        """
        xp = self.xp
        ordered = _rows(table, xp.argsort(table["key"]))
        key = ordered["key"]
        first = xp.concatenate([xp.ones(1, dtype=bool), key[1:] != key[:-1]])
        run = xp.cumsum(first, dtype=xp.int64) - 1
        total = xp.bincount(run, weights=ordered["value"])
        return {"key": key[xp.flatnonzero(first)], "total": total, "mean": total / xp.bincount(run)}

    def join(self, left: Any, right: Any) -> Any:
        """Look each key up in the right table's sorted keys."""
        xp = self.xp
        right = _rows(right, xp.argsort(right["key"]))
        place = xp.minimum(xp.searchsorted(right["key"], left["key"]), len(right["key"]) - 1)
        found = xp.flatnonzero(right["key"].take(place) == left["key"])
        return {**_rows(left, found), "weight": right["weight"].take(place.take(found))}


class NumpyLibrary(ArrayLibrary):
    """NumPy, on one thread."""

    name = "numpy"
    without = dict.fromkeys(("parse_json",), "has no reader of JSON")

    def __init__(self, device: Device) -> None:
        import numpy as np

        super().__init__(device)
        self.xp = np

    def columns(self, table: Any) -> Columns:
        return dict(table)

    def parse_csv(self, text: bytes) -> Any:
        types = [("id", "i8"), ("value", "f8"), ("name", "U16")]
        table = self.xp.loadtxt(io.StringIO(text.decode()), dtype=types, delimiter=",", skiprows=1, ndmin=1)
        return {name: table[name] for name, _ in types}


class CupyLibrary(ArrayLibrary):
    """CuPy: the same on a GPU."""

    name = "cupy"
    fits = ("gpu",)
    without = dict.fromkeys(ON_TEXT, "works on arrays of numbers: it reads no text")

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        # Both CuPy and torch work on the default stream: the device's events see this library's kernels and copies.
        self.xp = cupy_on(device.name)

    def columns(self, table: Any) -> Columns:
        return {name: self.xp.asnumpy(column) for name, column in table.items()}


def _rows(table: Any, positions: Any) -> Any:
    """The rows at these positions, in their order: copies."""
    return {name: column.take(positions) for name, column in table.items()}
