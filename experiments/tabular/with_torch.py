"""Tables as PyTorch's tensors: the same code on the CPU and on GPUs, AMD's among them."""

from __future__ import annotations

from typing import Any

from experiments.tabular.base import ON_TEXT, Columns, Library
from experiments.work import Unsupported


class TorchLibrary(Library):
    """Tables are tensors by name, on the device that is measured."""

    name = "torch"
    fits = ("cpu", "gpu")
    without = dict.fromkeys(ON_TEXT, "works on tensors: it reads no text")

    @property
    def threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def load(self, columns: Columns) -> Any:
        import torch

        if not self.device.float64 and any(column.dtype == "float64" for column in columns.values()):
            raise Unsupported(f"the table has a column of float64: {self.device.name} does not compute with that")
        return {name: torch.from_numpy(column).to(self.device.name) for name, column in columns.items()}

    def columns(self, table: Any) -> Columns:
        return {name: column.cpu().numpy() for name, column in table.items()}

    def filter(self, table: Any) -> Any:
        import torch

        return _rows(table, torch.nonzero(table["value"] > 0).squeeze(1))

    def sort(self, table: Any) -> Any:
        import torch

        value, order = torch.sort(table["value"])
        return {"row": table["row"].index_select(0, order), "value": value}

    def group_by(self, table: Any) -> Any:
        """Sort by key, number the runs of equal keys, add up by that number."""
        import torch

        ordered, order = torch.sort(table["key"])
        key, run, count = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
        value = table["value"].index_select(0, order)
        total = torch.zeros(len(key), dtype=value.dtype, device=value.device).index_add_(0, run, value)
        return {"key": key, "total": total, "mean": total / count}

    def join(self, left: Any, right: Any) -> Any:
        """Look each key up in the right table's sorted keys."""
        import torch

        keys, order = torch.sort(right["key"])
        place = torch.searchsorted(keys, left["key"]).clamp_(max=len(keys) - 1)
        found = torch.nonzero(keys.index_select(0, place) == left["key"]).squeeze(1)
        there = order.index_select(0, place.index_select(0, found))
        return {**_rows(left, found), "weight": right["weight"].index_select(0, there)}


def _rows(table: Any, positions: Any) -> Any:
    """The rows at these positions, in their order: copies."""
    return {name: column.index_select(0, positions) for name, column in table.items()}
