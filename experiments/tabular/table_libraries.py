"""Table libraries behind one interface; to add one, subclass Library and list it in LIBRARIES."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from experiments.devices import Device
from experiments.devices.base import Kind
from experiments.kernels.cuda_compile import open_cupy
from experiments.workload import Unsupported

# NumPy arrays by column name, all equally long: the exchange format for tables.
Columns = dict[str, Any]

ON_TABLES = ("filter", "sort", "group_by", "join")
ON_TEXT = ("parse_csv", "parse_json")


class Library:
    """One table library. Tables have the library's own type (`Any` below); no call changes its input tables.

    name: value in the column `backend`. fits: kinds of devices that the library runs on. without: operations that the
    library lacks, with the reason; a subclass defines all other operations.
    """

    name: str
    fits: tuple[Kind, ...] = ("cpu",)
    without: Mapping[str, str] = {}

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def threads(self) -> int:
        """Return the number of CPU threads that the library uses in this process."""
        return 1

    def load(self, columns: Columns) -> Any:
        """Load NumPy arrays into a table in the library's memory."""
        raise NotImplementedError

    def columns(self, table: Any) -> Columns:
        """Return the table as NumPy arrays on the host."""
        raise NotImplementedError

    def filter(self, table: Any) -> Any:
        """Select the (row, value) rows whose value is above zero, in order."""
        raise NotImplementedError

    def sort(self, table: Any) -> Any:
        """Sort (row, value) by ascending value; ties in any order."""
        raise NotImplementedError

    def group_by(self, table: Any) -> Any:
        """Reduce (key, value) to one row (key, total, mean) per key, in any order."""
        raise NotImplementedError

    def join(self, left: Any, right: Any) -> Any:
        """Join (key, row) with (key, weight) on equal keys, to (key, row, weight) in any order.

        Keys in the right table are unique.
        """
        raise NotImplementedError

    def parse_csv(self, text: bytes) -> Any:
        """Parse a table with columns id (whole number), value (number) and name (word), named in the first line."""
        raise NotImplementedError

    def parse_json(self, text: bytes) -> Any:
        """Parse the same table from JSON lines: one object per line."""
        raise NotImplementedError


class PandasLibrary(Library):
    """pandas with default settings, on one thread; its CSV reader uses several threads for files only, not for text."""

    name = "pandas"

    def __init__(self, device: Device) -> None:
        import pandas as pd

        super().__init__(device)
        self._pd: Any = pd
        # Turn numexpr off: if it is installed, pandas hands it large comparisons, and numexpr starts threads for them.
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
        # sort=False: no library has to order the keys.
        groups = table.groupby("key", sort=False, as_index=False)["value"]
        return groups.agg(["sum", "mean"]).rename(columns={"sum": "total"})

    def join(self, left: Any, right: Any) -> Any:
        return left.merge(right, on="key", how="inner")

    def parse_csv(self, text: bytes) -> Any:
        return self._pd.read_csv(io.BytesIO(text))

    def parse_json(self, text: bytes) -> Any:
        return self._pd.read_json(io.BytesIO(text), lines=True)


class PolarsLibrary(Library):
    """Polars with eager frames; the size of its thread pool is fixed at process start."""

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


class TorchLibrary(Library):
    """PyTorch tensors by column name, on the measured device; the same code runs on the CPU and on every GPU."""

    name = "torch"
    fits = ("cpu", "gpu")
    without = dict.fromkeys(ON_TEXT, "works on tensors: it reads no text")

    @property
    def threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def load(self, columns: Columns) -> Any:
        import torch

        if not self.device.supports_float64 and any(column.dtype == "float64" for column in columns.values()):
            raise Unsupported(f"the table has a column of float64: {self.device.name} does not compute with that")
        return {name: torch.from_numpy(column).to(self.device.name) for name, column in columns.items()}

    def columns(self, table: Any) -> Columns:
        return {name: column.cpu().numpy() for name, column in table.items()}

    def filter(self, table: Any) -> Any:
        import torch

        return _select_rows(table, torch.nonzero(table["value"] > 0).squeeze(1))

    def sort(self, table: Any) -> Any:
        import torch

        value, order = torch.sort(table["value"])
        return {"row": table["row"].index_select(0, order), "value": value}

    def group_by(self, table: Any) -> Any:
        """Sort by key, number the runs of equal keys, and sum the values in each run."""
        import torch

        ordered, order = torch.sort(table["key"])
        key, run, count = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
        value = table["value"].index_select(0, order)
        total = torch.zeros(len(key), dtype=value.dtype, device=value.device).index_add_(0, run, value)
        return {"key": key, "total": total, "mean": total / count}

    def join(self, left: Any, right: Any) -> Any:
        """Look up each key in the right table's sorted keys."""
        import torch

        keys, order = torch.sort(right["key"])
        position = torch.searchsorted(keys, left["key"]).clamp_(max=len(keys) - 1)
        matches = torch.nonzero(keys.index_select(0, position) == left["key"]).squeeze(1)
        right_rows = order.index_select(0, position.index_select(0, matches))
        return {**_select_rows(left, matches), "weight": right["weight"].index_select(0, right_rows)}


def _select_rows(table: Any, positions: Any) -> Any:
    """Copy the rows at `positions` from a table of tensors, in the order of `positions`."""
    return {name: column.index_select(0, positions) for name, column in table.items()}


class CupyLibrary(Library):
    """CuPy arrays by column name, on a GPU."""

    name = "cupy"
    fits = ("gpu",)
    without = dict.fromkeys(ON_TEXT, "works on arrays of numbers: it reads no text")

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        # CuPy and torch share the default stream, so the device's events time this library's kernels and copies.
        self.xp: Any = open_cupy(device.name)

    def load(self, columns: Columns) -> Any:
        return {name: self.xp.asarray(column) for name, column in columns.items()}

    def filter(self, table: Any) -> Any:
        # Find the positions first, because a mask would be scanned twice per column.
        return _take_rows(table, self.xp.flatnonzero(table["value"] > 0))

    def sort(self, table: Any) -> Any:
        return _take_rows(table, self.xp.argsort(table["value"]))

    def group_by(self, table: Any) -> Any:
        """Sort by key, number the runs of equal keys, and sum the values in each run.

        Avoid `numpy.add.reduceat`, which CuPy computes from differences between running totals: the differences lose
        digits as the table grows.
        """
        xp = self.xp
        ordered = _take_rows(table, xp.argsort(table["key"]))
        key = ordered["key"]
        first = xp.concatenate([xp.ones(1, dtype=bool), key[1:] != key[:-1]])
        run = xp.cumsum(first, dtype=xp.int64) - 1
        total = xp.bincount(run, weights=ordered["value"])
        return {"key": key[xp.flatnonzero(first)], "total": total, "mean": total / xp.bincount(run)}

    def join(self, left: Any, right: Any) -> Any:
        """Look up each key in the right table's sorted keys."""
        xp = self.xp
        right = _take_rows(right, xp.argsort(right["key"]))
        place = xp.minimum(xp.searchsorted(right["key"], left["key"]), len(right["key"]) - 1)
        matches = xp.flatnonzero(right["key"].take(place) == left["key"])
        return {**_take_rows(left, matches), "weight": right["weight"].take(place.take(matches))}

    def columns(self, table: Any) -> Columns:
        return {name: self.xp.asnumpy(column) for name, column in table.items()}


def _take_rows(table: Any, positions: Any) -> Any:
    """Copy the rows at these positions from arrays, in order."""
    return {name: column.take(positions) for name, column in table.items()}


LIBRARIES: dict[str, type[Library]] = {
    library.name: library for library in (PandasLibrary, PolarsLibrary, TorchLibrary, CupyLibrary)
}


def open_library(name: str, device: Device, op: str) -> Library:
    """Open the library `name` on `device` for an operation in `Library`.

    Raises Unsupported if it does not run there, lacks the operation or is not installed.
    """
    library = LIBRARIES[name]
    if device.kind not in library.fits:
        raise device.unsupported_backend(name)
    if op in library.without:
        raise Unsupported(f"{name} {library.without[op]}")
    return library(device)
