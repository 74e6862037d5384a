"""Cells: estimates with intervals under labels, and the small algebra that carries the intervals through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from report import stats
from report.wording import label_value

# Not labels: what a cell holds. `detail` says what stands behind an aggregate ("torch, 2048x2048x2048"),
# `behind` which rows of the summary, by number; none where it was not followed.
VALUES = ["estimate", "low", "high", "se", "df", "n_rounds", "n_samples", "detail", "behind"]


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

    def __post_init__(self) -> None:
        if "behind" not in self.frame:
            none: list[tuple[int, ...]] = [()] * len(self.frame)
            object.__setattr__(self, "frame", self.frame.assign(behind=pd.Series(none, self.frame.index, dtype=object)))

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

    def value(self, name: str, row: int) -> Any:
        """A label or value of one cell."""
        return self.frame[name].iat[row]

    def label_values(self, row: int) -> dict[str, Any]:
        """The labels of one cell; those that do not apply to it are left out."""
        values = {name: self.value(name, row) for name in self.labels}
        return {name: _plain(value) for name, value in values.items() if not _absent(value)}

    def ends(self, level: float | stats.Floats) -> tuple[stats.Floats, stats.Floats]:
        """Low and high ends of the intervals at another level than the drawn one's, each of shape (cells,).

        What stands as given (infinite df without a standard error: published figures, neighbours of a crossing) stays,
        and so does an end at 0 or 1, where shares are clipped.
        """
        estimate, low, high, se, df = (self.frame[name].to_numpy(float) for name in VALUES[:5])
        grown = np.where(np.isinf(df) & np.isnan(se), 1.0, stats.widening(df, level))
        # What is without end has no width.
        same = (grown == 1) | np.isinf(estimate)
        with np.errstate(invalid="ignore"):
            if self.log:
                wide = estimate * (low / estimate) ** grown, estimate * (high / estimate) ** grown
                return np.where(same, low, wide[0]), np.where(same, high, wide[1])
            wide = estimate - grown * (estimate - low), estimate + grown * (high - estimate)
        stays = [same | np.isin(end, (0.0, 1.0)) for end in (low, high)]
        return np.where(stays[0], low, wide[0]), np.where(stays[1], high, wide[1])

    def all_label_values(self) -> list[dict[str, Any]]:
        """The labels of every cell, as `label_values` says of one."""
        found: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for name in self.labels:
            for labels, value in zip(found, self.frame[name].tolist(), strict=True):
                if not _absent(value):
                    labels[name] = _plain(value)
        return found

    def only(self, **wanted: Any) -> Cells:
        """The cells whose labels have these values (or one of a list of them); device also takes cpu, gpu."""
        keep = np.ones(len(self.frame), dtype=bool)
        for name, value in wanted.items():
            allowed = list(value) if isinstance(value, (list, tuple, set)) else [value]
            column = self.frame[name]
            if name == "device":
                allowed += [one for one in column.unique() if kind_of(one) in allowed]
            keep &= column.isin(allowed).to_numpy(bool)
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

        The largest of near ties is so by luck in part, and its estimate too high. Its interval is that of a level
        at which all k cells whose intervals reach its own would be sure together (Bonferroni): wider with each.
        """
        if not len(self):
            return self
        order = self.frame.sort_values("estimate", ascending=False, kind="stable")
        group = order.groupby(list(by), dropna=False, sort=True).ngroup()
        first = ~group.duplicated()
        least = order.loc[first, "low"].set_axis(group[first])
        reach = (order["high"] >= group.map(least)).groupby(group).sum()
        top = order[first].iloc[np.argsort(group[first].to_numpy(), kind="stable")]
        rivals = reach.sort_index().clip(lower=1).to_numpy(float)
        low, high = Cells(top, self.log).ends(1 - (1 - stats.LEVEL) / rivals)
        grown = stats.widening(top["df"].to_numpy(float), 1 - (1 - stats.LEVEL) / rivals)
        detail = [
            ", ".join(filter(None, map(_named, of, values)))
            for values in top[list(of)].itertuples(index=False, name=None)
        ]
        held = top[[*by, *VALUES]].assign(low=low, high=high, se=top["se"] * grown, detail=detail)
        return Cells(held.reset_index(drop=True), self.log)

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
            behind=[one + below for one, below in zip(pairs["behind"], pairs["behind_below"], strict=True)],
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


def together(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The summary's rows behind several cells, each once, in order."""
    return tuple(sorted({number for one in rows for number in one}))


def _absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def _named(name: str, value: Any) -> str:
    """A label by which a cell is told from others: 'torch', '2 threads'; '' where it has none."""
    if _absent(value) or (name == "threads" and value == 0):
        return ""
    value = _plain(value)
    return label_value(name, value) if name in ("threads", "footprint") and not isinstance(value, str) else str(value)


def _plain(value: Any) -> Any:
    """A label's value as Python's own type; whole floats (params read from JSON) as integers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
