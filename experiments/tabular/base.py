"""What the experiment asks of a library that works on tables. A new library is one subclass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.devices import Device
from experiments.devices.base import Kind

# NumPy arrays of equal length by name: how tables come to a library and go from it.
Columns = dict[str, Any]

ON_TABLES = ("filter", "sort", "group_by", "join")
ON_TEXT = ("parse_csv", "parse_json")


class Library:
    """One library. What it calls a table is its own affair (`Any` below); no call changes a table that it is given.

    name: as it stands in the column `backend`. fits: kinds of devices on which it works.
    without: the operations that it lacks, and why; it defines the others.
    """

    name: str
    fits: tuple[Kind, ...] = ("cpu",)
    without: Mapping[str, str] = {}

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def threads(self) -> int:
        """CPU threads that it works with, as things are in this process."""
        return 1

    def load(self, columns: Columns) -> Any:
        """The table of these NumPy arrays, where the library works."""
        raise NotImplementedError

    def columns(self, table: Any) -> Columns:
        """The table as NumPy arrays on the host."""
        raise NotImplementedError

    def filter(self, table: Any) -> Any:
        """Of (row, value) the rows whose value is above zero, in their order."""
        raise NotImplementedError

    def sort(self, table: Any) -> Any:
        """(row, value) in ascending order of value; ties in any order."""
        raise NotImplementedError

    def group_by(self, table: Any) -> Any:
        """From (key, value) one row (key, total, mean) per key, in any order."""
        raise NotImplementedError

    def join(self, left: Any, right: Any) -> Any:
        """(key, row, weight) of each pair of (key, row) and (key, weight) with equal keys, in any order.

        Keys of the right table are unique.
        """
        raise NotImplementedError

    def parse_csv(self, text: bytes) -> Any:
        """The table (id, value, name): whole number, number, word; the first line holds the names."""
        raise NotImplementedError

    def parse_json(self, text: bytes) -> Any:
        """The same table from JSON lines: one object a line."""
        raise NotImplementedError
