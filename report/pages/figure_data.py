"""Data behind the figures: measurements, quantities and names per node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contract.node import count_machines
from report.data.dataset import Dataset, DataUse
from report.data.gathered_files import read_dataset, read_summary
from report.data.machine_names import own_nodes
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import Estimates, device_kind
from report.formatting import short_processor, substitutes_text
from report.pages import machine_selection
from report.quantities import quantities


@dataclass(frozen=True)
class View:
    """Evidence from one node.

    node: id of the node.
    name: name to show on pages.
    record: the node's entry in the verdicts document.
    rows: the node's summary rows with status ok, with parameters as columns.
    own: True if the user added the node to published nodes.
    """

    node: str
    name: str
    record: Mapping[str, Any]
    rows: pd.DataFrame
    data: Dataset
    own: bool = False

    def devices(self) -> list[str]:
        """List devices with results, the CPU first."""
        return sorted(map(str, self.rows["device"].unique()), key=lambda device: (device != "cpu", device))

    def points(self, experiment: str, metric: str = "time", device: str | None = None) -> pd.DataFrame:
        """Return the node's summary rows for an experiment and metric, on one device or on all devices."""
        self.data.used.rows.add((experiment, metric))
        rows = self.rows[(self.rows["experiment"] == experiment) & (self.rows["metric"] == metric)]
        return rows[rows["device"] == device].copy() if device else rows.copy()

    def cases(self, experiment: str, metric: str = "time", value: str = "estimate", **wanted: Any) -> Estimates:
        """Return points for an experiment and metric as estimates, which carry intervals through calculations.

        value: estimate, flop_per_s or bytes_per_s.
        wanted: labels that the points must have.
        """
        return _filter_cases(self.data.summary(experiment, metric, value), {"node": self.node, **wanted})

    def quantity(self, name: str, **wanted: Any) -> Estimates:
        """Return estimates for a quantity on this node, filtered by label; empty if the quantity was not measured."""
        return _quantity_estimates(self.data, name, {"node": self.node, **wanted})

    def device_name(self, device: str) -> str:
        """Name a device: the processor by the node's name, a GPU by its own name."""
        if device_kind(device) == "cpu":
            return self.name
        full_name = next((entry["name"] for entry in self.record.get("devices", ()) if entry["id"] == device), device)
        cards = [device for device in self.record.get("devices", ()) if device["kind"] == "gpu"]
        return short_processor(str(full_name)) + (f", {device}" if len(cards) > 1 else "")


class Evidence:
    """The nodes in a verdicts document, their measurements, and published measurements.

    data: folder written by `report gather`. If there are many nodes, pages show only the nodes in `shown_nodes`, and
    the property `data` holds only their measurements.
    """

    def __init__(self, document: Mapping[str, Any], data: Path | None) -> None:
        self.own = own_nodes(document["nodes"])
        self.document, self.folder = {**document, "nodes": self._sort_nodes(document["nodes"])}, data
        self.names = {str(node["id"]): str(node.get("label") or node["id"]) for node in self.document["nodes"]}

    def _sort_nodes(self, nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Put the user's nodes first, and among equals the node with most results."""
        return sorted(nodes, key=lambda node: (str(node["id"]) not in self.own, -int(node.get("n_ok") or 0)))

    @cached_property
    def shown_nodes(self) -> list[str]:
        """Ids of the nodes to list on pages. Raises StudyError if the folder is not from `report gather`."""
        nodes = self.document["nodes"]
        few = count_machines(str(node["id"]) for node in nodes) <= machine_selection.MOST
        if self.folder is None or few:
            return machine_selection.select_nodes(nodes, None)
        return machine_selection.select_nodes(nodes, read_summary(self.folder, machine_selection.COLUMNS))

    @property
    def choice(self) -> str:
        """Sentence that explains how the shown nodes were selected; '' if all are shown."""
        return machine_selection.selection_text(
            len(self.shown_nodes), [str(node["id"]) for node in self.document["nodes"]], self.folder is not None
        )

    @property
    def substitutes(self) -> list[str]:
        """Sentences on the number formats that the shown GPUs lack, each with the format measured in its place."""
        return sorted(
            {
                f"{short_processor(str(device['name']))} has {text}."
                for node in self.document["nodes"]
                if node["id"] in self.shown_nodes
                for device in node["devices"]
                if (text := substitutes_text(device))
            }
        )

    @cached_property
    def data(self) -> Dataset | None:
        """Gathered data from the shown nodes; None without a folder. Raises StudyError like `shown_nodes`."""
        if self.folder is None:
            return None
        nodes = self.shown_nodes if self.choice else ()
        return read_dataset(self.folder, read_reference(REFERENCE), read_published(PUBLISHED), nodes)

    @cached_property
    def views(self) -> list[View]:
        """Evidence from each shown node, the user's nodes first. Raises StudyError like `shown_nodes`."""
        if self.data is None:
            return []
        rows = _with_parameters(self.data.table)
        ok = rows[rows["status"] == "ok"]
        records = {str(node["id"]): dict(node) for node in self.document["nodes"] if node["id"] in self.shown_nodes}
        order = [*records, *sorted(set(map(str, rows["node"])) - set(records))]
        return [
            View(
                node,
                self.names.get(node, node),
                records.get(node, {}),
                ok[ok["node"] == node],
                self.data,
                node in self.own,
            )
            for node in order
        ]

    @contextmanager
    def track_use(self) -> Iterator[DataUse]:
        """Record the data that is read within the block; yield this record."""
        if self.data is None:
            yield DataUse()
            return
        with self.data.track_use() as used:
            yield used

    def quantity(self, name: str, **wanted: Any) -> Estimates:
        """Return estimates for a quantity on all shown nodes, filtered by label."""
        return _quantity_estimates(self.data, name, wanted) if self.data else Estimates.empty()


def _quantity_estimates(data: Dataset, name: str, wanted: Mapping[str, Any]) -> Estimates:
    """Return estimates for a quantity, filtered by label. Raises KeyError for an unknown quantity or label."""
    quantity = quantities()[name]
    if undeclared := set(wanted) - {*quantity.labels, "node", "device"}:
        raise KeyError(f"{name} has no label {', '.join(sorted(undeclared))}")
    return _filter_cases(quantity.estimates(data), wanted)


def _filter_cases(cases: Estimates, wanted: Mapping[str, Any]) -> Estimates:
    """Select the cases with the wanted labels; return no cases if a label name is unknown."""
    return cases.filter(**wanted) if len(cases) and set(wanted) <= set(cases.labels) else Estimates.empty()


def _with_parameters(table: pd.DataFrame) -> pd.DataFrame:
    params = pd.DataFrame([json.loads(text) for text in table["params"]], index=table.index)
    return table.join(params[[name for name in params.columns if name not in table.columns]])
