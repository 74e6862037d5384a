"""What quantities draw on: the summary of all nodes, and published figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from contract.tables import SAMPLES
from report.cells import Cells, kind_of
from report.nodes import Nodes
from report.summary import POINT, summarise

# Counters average over up to a second, and a point's first readings still hold its preparation.
SETTLED = 0.5


class MissingSourceError(Exception):
    """A published figure that a quantity needs is not at hand, or was not verified. `what` says which."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass
class Data:
    """The evidence: summary rows of all nodes, the nodes themselves, and reference entries by id.

    summarised: the summary, where it is at hand already; else it is made from the nodes' samples.
    """

    nodes: Nodes
    reference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    summarised: InitVar[pd.DataFrame | None] = None

    def __post_init__(self, summarised: pd.DataFrame | None) -> None:
        self.table = summarise(self.nodes.samples()) if summarised is None else summarised

    def summary(self, experiment: str, metric: str = "time", value: str = "estimate", per: str = "") -> Cells:
        """Cells of one experiment's points that are ok; the point's parameters become labels.

        value: estimate (in the metric's unit), or flop_per_s or bytes_per_s. per: flop or bytes
        of a call, by which the value is divided.
        """
        rows = self.table[
            (self.table["experiment"] == experiment)
            & (self.table["metric"] == metric)
            & (self.table["status"] == "ok")
            & self.table[value].notna()
        ]
        if per:
            rows = rows[rows[per] > 0]
            rows = rows.assign(**{value: rows[value] / rows[per]})
        return _cells(rows, value)

    def readings(self, experiment: str, column: str, metric: str = "time", settled: float = SETTLED) -> Cells:
        """Cells of what a counter showed beside an experiment's samples, in the unit of that column of the samples.

        column: clock_mhz, memory_clock_mhz, temperature_c, power_w or utilisation. A round's value
        is the median over its samples past the share `settled` of them; rounds are the unit of the
        interval, as for times. A counter that shows no clock or no power does not count.
        """
        samples, unit = self.nodes.samples(), (SAMPLES.columns[column].metadata or {})["unit"]
        read = samples[
            (samples["experiment"] == experiment)
            & (samples["metric"] == metric)
            & (samples["status"] == "ok")
            & (samples[column] >= 0 if unit == "1" else samples[column] > 0)
        ]
        place = read.groupby([*POINT, "round"])["elapsed_s"].rank(pct=True)
        read = read[place > settled]
        return _cells(summarise(read.assign(metric=column, value=read[column], unit=unit)), "estimate")

    def percentile(self, experiment: str, share: float, least: int, metric: str = "time") -> Cells:
        """Cells of a percentile of an experiment's samples, by nearest rank: that of every round.

        Rounds with fewer than `least` samples say nothing of it; rounds are the unit of the
        interval, as for times.
        """
        samples = self.nodes.samples()
        samples = samples[
            (samples["experiment"] == experiment) & (samples["metric"] == metric) & (samples["status"] == "ok")
        ]
        values = samples.groupby([*POINT, "round"])["value"]
        ranked = values.transform(lambda one: np.quantile(one, share, method="inverted_cdf"))
        enough = values.transform("size") >= least
        return _cells(summarise(samples.assign(value=ranked)[enough]), "estimate")

    def entry(self, name: str) -> Mapping[str, Any]:
        """A verified published figure. Raises MissingSourceError."""
        entry = self.reference.get(name)
        if entry is None:
            raise MissingSourceError(f"no reference entry {name}")
        if entry["status"] != "verified" or entry.get("value") is None:
            raise MissingSourceError(f"{entry['subject']}, {entry['what']} ({entry['source']['title']}: not verified)")
        return entry

    def figure(self, name: str) -> float:
        """The value of a verified published figure. Raises MissingSourceError."""
        return float(self.entry(name)["value"])

    def statuses(self, experiment: str, kind: str) -> pd.DataFrame:
        """Every row of the summary of an experiment on devices of one kind, ok or not."""
        return self.table[(self.table["experiment"] == experiment) & (self.table["device"].map(kind_of) == kind)]

    def with_kind(self, kind: str) -> list[str]:
        """Ids of the nodes that have a device of this kind."""
        return [node.id for node in self.nodes.nodes if kind in node.kinds()]

    def label(self, node: str) -> str:
        """A node's short name for people; ids are told apart where two nodes share one."""
        labels = {one.id: one.label for one in self.nodes.nodes}
        label = labels.get(node, node)
        return f"{label} ({node})" if list(labels.values()).count(label) > 1 else label


def _cells(rows: pd.DataFrame, value: str) -> Cells:
    """Rows of the summary as cells: off the log scale if they are shares."""
    if not len(rows):
        return Cells.empty()
    params = pd.DataFrame([json.loads(text) for text in rows["params"]], index=rows.index, dtype=object)
    labels = [name for name in POINT if name not in ("experiment", "params")]
    frame = pd.concat([rows[labels].astype(object), params], axis=1).assign(
        estimate=rows[value].astype(float),
        low=rows["low"],
        high=rows["high"],
        se=rows["log_se"],
        df=rows["df"],
        n_rounds=rows["n_rounds"],
        n_samples=rows["n_samples"],
        detail="",
    )
    if (rows["unit"] == "1").all():
        return Cells(frame.reset_index(drop=True), log=False)
    return Cells.from_estimates(frame)
