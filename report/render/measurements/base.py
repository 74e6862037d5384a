"""What every family of measurements is given, and what it gives back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from contract.files import read_json
from contract.node import job_of, status_of
from report.data.dataset import Dataset
from report.data.gathered import read_dataset, read_summary
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.formatting import within
from report.quantities import quantities
from report.render.figures import Drawing

# A cell of a table that has nothing to say.
NOTHING = "–"
# Characters of a table that half the width of a page holds, and what lies between two columns.
HALF_A_PAGE, BETWEEN_COLUMNS = 70, 3


@dataclass(frozen=True)
class Table:
    """A table in words. align: one letter a column, l or r; widths: of the columns, to any scale."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    widths: Sequence[int]

    @property
    def characters(self) -> int:
        """How many characters wide it is at the least: figures are not broken, words of other columns are."""
        columns = zip(self.align, zip(*self.rows, strict=True), strict=True)
        widest = [max(len(part) for cell in cells for part in _parts(cell, align)) for align, cells in columns]
        return sum(widest) + BETWEEN_COLUMNS * len(widest)

    def filled(self) -> Table:
        """The table without columns that say nothing, widths in per cent."""
        kept = [i for i in range(len(self.head)) if any(row[i] != NOTHING for row in self.rows)]
        total = sum(self.widths[i] for i in kept)
        shares = [round(100 * self.widths[i] / total) for i in kept]
        shares[0] += 100 - sum(shares)
        return Table(
            self.caption,
            [self.head[i] for i in kept],
            [[row[i] for i in kept] for row in self.rows],
            "".join(self.align[i] for i in kept),
            shares,
        )


def _parts(cell: str, align: str) -> list[str]:
    return [cell] if align == "r" else cell.split() or [""]


@dataclass(frozen=True)
class Exhibit:
    """What a family shows of one node: what a reader should see, point by point, with a figure, a table or both.

    wide: the figure has panels side by side and takes the whole width of the page.
    """

    reading: Sequence[str] = ()
    drawing: Drawing | None = None
    table: Table | None = None
    wide: bool = False

    @property
    def beside(self) -> bool:
        """Whether the table stands beside the figure: where both are there, and half a page holds the table."""
        return bool(self.drawing and self.table and not self.wide and self.table.characters <= HALF_A_PAGE)

    def finished(self) -> Exhibit:
        """The same with its table filled."""
        return replace(self, table=self.table.filled()) if self.table else self


@dataclass(frozen=True)
class View:
    """One node's evidence.

    rows: the summary's rows of this node that are ok, with the points' parameters as columns.
    place: the node's number in the report, from 1. alone: no other node is in the report.
    """

    node: str
    place: int
    label: str
    record: Mapping[str, Any]
    rows: pd.DataFrame
    data: Dataset
    alone: bool = True

    @property
    def make(self) -> str:
        """What the node is called by its hardware alone."""
        return self.data.make(self.node)

    @property
    def host(self) -> str:
        """The same without its GPUs."""
        return self.data.host(self.node)

    def devices(self) -> list[str]:
        """Devices that have measured something: the CPU first."""
        return sorted(map(str, self.rows["device"].unique()), key=lambda device: (device != "cpu", device))

    def of(self, experiment: str, metric: str = "time", device: str | None = None) -> pd.DataFrame:
        """The points of one experiment and metric, on one device or on all."""
        rows = self.rows[(self.rows["experiment"] == experiment) & (self.rows["metric"] == metric)]
        return rows[rows["device"] == device].copy() if device else rows.copy()

    def cells(self, experiment: str, metric: str = "time", value: str = "estimate", **wanted: Any) -> Estimates:
        """The same as cells, which carry their intervals through arithmetic; labels as wanted."""
        return self.pick(self.data.summary(experiment, metric, value), **wanted)

    def quantity(self, name: str, **wanted: Any) -> Estimates:
        """The cells of a quantity on this node; none if the quantity is not known."""
        known = quantities().get(name)
        return self.pick(known.estimates(self.data), **wanted) if known else Estimates.empty()

    def pick(self, cells: Estimates, **wanted: Any) -> Estimates:
        """The cells of this node with these labels; none if they are not labelled so."""
        if not len(cells) or not {"node", *wanted} <= set(cells.labels):
            return Estimates.empty()
        return cells.only(node=self.node, **wanted)

    def where(self, device: str = "cpu") -> str:
        """The node, and the device unless that is its processor, for captions."""
        return self.label if device == "cpu" else f"{self.label}, {device}"

    def name(self, figure: str, device: str = "") -> str:
        """The name of a figure's files."""
        return "-".join(filter(None, [figure, str(self.place), device])).replace(":", "-")

    def say(self, text: str, device: str = "cpu") -> str:
        """A sentence that says where it holds, if that is not plain: which of several nodes, which accelerator."""
        places = [*([] if self.alone else [self.label]), *([] if device == "cpu" else [device])]
        if not places:
            return text
        return f"On {', '.join(places)}, {within(text)}"


@dataclass(frozen=True)
class Family:
    """A section of the measurements. show: from one node's evidence to what it has to show; nothing without data."""

    key: str
    title: str
    show: Callable[[View], Iterable[Exhibit]]


@dataclass
class Section:
    """A family with what all nodes have to show."""

    key: str
    title: str
    exhibits: list[Exhibit] = field(default_factory=list)


def with_parameters(table: pd.DataFrame) -> pd.DataFrame:
    """The summary with the points' parameters as columns."""
    params = pd.DataFrame([json.loads(text) for text in table["params"]], index=table.index)
    return table.join(params[[name for name in params.columns if name not in table.columns]])


def left_out_points(data: Path) -> list[dict[str, Any]]:
    """Points without a result, counted by node, experiment, device, status and reason. Raises StudyError."""
    table = read_summary(data)
    lost = table[table["status"] != "ok"]
    keys = ["node", "experiment", "device", "status", "reason"]
    found = [
        {**{name: str(value) for name, value in zip(keys, key, strict=True)}, "count": len(group)}
        for key, group in lost.groupby(keys, sort=True)
    ]
    # What a plan leaves out as a whole has no rows: nothing was started for it.
    for node in read_json(data / "nodes.json"):
        for name, job in node.get("jobs", {}).items():
            experiment, device = job_of(name)
            at = {"node": node["id"], "experiment": experiment, "device": device}
            for left_out, number in job["left_out"].items() if not job["predicted_s"] else ():
                status, reason = status_of(left_out)
                found.append({**at, "status": status, "reason": reason, "count": number})
    return sorted(found, key=lambda row: [row[key] for key in keys])


def views(data: Path, nodes: Sequence[Mapping[str, Any]]) -> list[View]:
    """Each node's evidence in the order of `nodes` (those of the verdicts). Raises StudyError."""
    records = {str(node["id"]): dict(node) for node in nodes}
    evidence = read_dataset(data, read_reference(REFERENCE))
    rows = with_parameters(evidence.table)
    order = [*records, *sorted(set(map(str, rows["node"])) - set(records))]
    ok = rows[rows["status"] == "ok"]
    return [
        View(
            node,
            place,
            str(records.get(node, {}).get("label") or node),
            records.get(node, {}),
            ok[ok["node"] == node],
            evidence,
            alone=len(order) == 1,
        )
        for place, node in enumerate(order, start=1)
    ]
