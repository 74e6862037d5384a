"""Cells: estimates with intervals under labels, and the small algebra that carries the intervals through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from report import stats

# Not labels: what a cell holds. `detail` says what stands behind an aggregate ("torch, 2048x2048x2048").
VALUES = ["estimate", "low", "high", "se", "df", "n_rounds", "n_samples", "detail"]


def kind_of(device: str) -> str:
    """Kind of a device by its id: everything that is not the CPU is an accelerator."""
    return "cpu" if device == "cpu" else "gpu"


@dataclass(frozen=True)
class Cells:
    """One row per cell: label columns, and the columns VALUES.

    On the log scale `se` is the standard error of log estimate and low, high
    follow from it and df; otherwise low and high stand as given (shares,
    published figures) and cells can only be scaled. nan: unknown.
    """

    frame: pd.DataFrame
    log: bool = True

    @classmethod
    def from_estimates(cls, frame: pd.DataFrame) -> Cells:
        """Cells on the log scale from columns estimate, se, df and labels."""
        half = stats.half_width(frame["se"].to_numpy(float), frame["df"].to_numpy(float))
        # An exact figure has se 0 and infinite df: its interval is itself.
        half = np.where(frame["se"].to_numpy(float) == 0, 0.0, half)
        estimate = frame["estimate"].to_numpy(float)
        frame = frame.assign(low=estimate * np.exp(-half), high=estimate * np.exp(half))
        return cls(frame.assign(detail=frame.get("detail", "")).reset_index(drop=True))

    @classmethod
    def empty(cls) -> Cells:
        return cls(pd.DataFrame(columns=VALUES))

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def labels(self) -> list[str]:
        """Names of the label columns."""
        return [name for name in self.frame.columns if name not in VALUES]

    def label_values(self, row: int) -> dict[str, Any]:
        """The labels of one cell; those that do not apply to it are left out."""
        values = {name: self.frame.iloc[row][name] for name in self.labels}
        return {name: _plain(value) for name, value in values.items() if not _absent(value)}

    def only(self, **wanted: Any) -> Cells:
        """The cells whose labels have these values (or one of a list of them); device also takes cpu, gpu."""
        keep = np.ones(len(self.frame), dtype=bool)
        for name, value in wanted.items():
            allowed = list(value) if isinstance(value, (list, tuple, set)) else [value]
            column = self.frame[name]
            hit = column.isin(allowed)
            if name == "device":
                hit |= column.map(kind_of).isin(allowed)
            keep &= hit.to_numpy(bool)
        return self.at(keep)

    def at(self, rows: Any) -> Cells:
        """Some of the cells, by mask or by positions."""
        picked = self.frame.loc[rows] if np.asarray(rows).dtype == bool else self.frame.iloc[list(rows)]
        return Cells(picked.reset_index(drop=True), self.log)

    def by(self, *labels: str) -> Cells:
        """The same cells under these labels alone; they must tell the cells apart."""
        frame = self.frame[[*labels, *VALUES]]
        if frame.duplicated(list(labels)).any():
            raise ValueError(f"{', '.join(labels)} do not tell the cells apart")
        return Cells(frame, self.log)

    def best(self, by: Sequence[str], of: Sequence[str] = ()) -> Cells:
        """The largest cell of each group; `detail` names it by its labels `of`.

        Its interval is the cell's own. Among near ties the choice of the largest
        biases the estimate upward, by less than one half-width.
        """
        if not len(self):
            return self
        order = self.frame.sort_values("estimate", ascending=False, kind="stable")
        top = order.groupby(list(by), dropna=False, sort=True).head(1).sort_values(list(by), kind="stable")
        detail = [
            ", ".join(str(_plain(row[name])) for name in of if not _absent(row[name])) for _, row in top.iterrows()
        ]
        return Cells(top[[*by, *VALUES]].assign(detail=detail).reset_index(drop=True), self.log)

    def label(self, **values: Any) -> Cells:
        """The cells with these labels set, the same for all or one value per cell."""
        return Cells(self.frame.assign(**values), self.log)

    def without(self, *labels: str) -> Cells:
        """The cells with these labels dropped."""
        return Cells(self.frame.drop(columns=list(labels)), self.log)

    def __mul__(self, factor: float) -> Cells:
        scaled = {name: self.frame[name] * factor for name in ("estimate", "low", "high")}
        if not self.log:
            scaled["se"] = self.frame["se"] * factor
        return Cells(self.frame.assign(**scaled), self.log)

    def __truediv__(self, other: Cells | float) -> Cells:
        """Ratio to a number, or to those cells that agree in all labels which both sides have.

        Off the log scale the ends are divided crosswise, which is conservative.
        """
        if not isinstance(other, Cells):
            return self * (1 / other)
        shared = [name for name in self.labels if name in other.labels]
        if not len(self) or not len(other):
            return Cells(self.frame.iloc[:0])
        how = {"on": shared, "how": "inner"} if shared else {"how": "cross"}
        pairs = self.frame.merge(other.frame, suffixes=("", "_below"), **how)
        se, df = stats.combine(pairs["se"], pairs["df"], pairs["se_below"], pairs["df_below"])
        pairs = pairs.assign(
            estimate=pairs["estimate"] / pairs["estimate_below"],
            se=se,
            df=df,
            n_rounds=pairs[["n_rounds", "n_rounds_below"]].min(axis=1),
            n_samples=pairs["n_samples"] + pairs["n_samples_below"],
        )
        kept = [name for name in pairs.columns if not name.endswith("_below")]
        if self.log and other.log:
            return Cells.from_estimates(pairs[kept])
        ends = {"low": pairs["low"] / pairs["high_below"], "high": pairs["high"] / pairs["low_below"]}
        return Cells(pairs.assign(**ends, se=np.nan)[kept], log=False)

    def scaled_by(self, column: pd.Series) -> Cells:
        """Each cell times its own exact factor."""
        scaled = {name: self.frame[name] * column.to_numpy(float) for name in ("estimate", "low", "high")}
        return Cells(self.frame.assign(**scaled), self.log)


def concat(parts: Sequence[Cells]) -> Cells:
    """All cells of several sets that were made on the same scale; labels that one lacks are empty there."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return parts[0] if parts else Cells.empty()
    frame = pd.concat([part.frame.astype(dict.fromkeys(part.labels, object)) for part in filled], ignore_index=True)
    return Cells(frame, all(part.log for part in filled))


def exact(rows: Sequence[Mapping[str, Any]]) -> Cells:
    """Cells of published or computed figures: estimate, optionally low and high, and labels."""
    frame = pd.DataFrame([{"low": row["estimate"], "high": row["estimate"], **row} for row in rows])
    values = {"se": np.nan, "df": np.inf, "n_rounds": 0, "n_samples": 0}
    for name, value in values.items():
        frame[name] = value
    if "detail" not in frame:
        frame["detail"] = ""
    return Cells(frame, log=False)


def _absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def _plain(value: Any) -> Any:
    """A label's value as Python's own type; whole floats (params read from JSON) as integers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
