"""Estimates with intervals, identified by labels, and arithmetic that carries the intervals through.

Every operation accepts an empty table and gives an empty result, so quantities need no code for missing measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from report import statistics
from report.formatting import label_value

# Columns that are values, not labels.
# detail: a text that describes an aggregate, such as "torch, 2048x2048x2048". source_rows: the numbers of the summary
# rows behind the estimate; empty if they were not tracked. logit: True if `se` is the standard error of the estimate's
# log odds, from which low and high follow.
VALUES = ["estimate", "low", "high", "se", "df", "n_rounds", "n_samples", "detail", "source_rows", "logit"]
# Labels that name the library which gave the best estimate. Machines of one kind, and the points in a series, may have
# different best libraries, so these labels do not distinguish cases.
RUNTIMES = ("runtime", "cpu_runtime")


def device_kind(device: str) -> str:
    """Return the kind for a device id: anything but the CPU is an accelerator."""
    return "cpu" if device == "cpu" else "gpu"


@dataclass(frozen=True)
class Estimates:
    """Table with one row per estimate: label columns, and the columns VALUES. Unknown values are nan.

    log: True for the log scale, on which `se` is the standard error of the estimate's logarithm, and low and high
    follow from `se` and `df`. Otherwise (such as shares and published figures), low and high are given, and rows with
    `logit` have the logit scale.
    """

    frame: pd.DataFrame
    log: bool = True

    def __post_init__(self) -> None:
        if "source_rows" not in self.frame:
            none: list[tuple[int, ...]] = [()] * len(self.frame)
            frame = self.frame.assign(source_rows=pd.Series(none, self.frame.index, dtype=object))
            object.__setattr__(self, "frame", frame)
        if "logit" not in self.frame:
            object.__setattr__(self, "frame", self.frame.assign(logit=False))

    @classmethod
    def from_estimates(cls, frame: pd.DataFrame) -> Estimates:
        """Build estimates on the log scale from the columns estimate, se, df and labels."""
        if not len(frame):
            return cls.empty()
        half = statistics.half_width(frame["se"].to_numpy(float), frame["df"].to_numpy(float))
        # An exact figure (se 0) has a zero-width interval.
        half = np.where(frame["se"].to_numpy(float) == 0, 0.0, half)
        estimate = frame["estimate"].to_numpy(float)
        frame = frame.assign(low=estimate * np.exp(-half), high=estimate * np.exp(half))
        return cls(frame.assign(detail=frame.get("detail", "")).reset_index(drop=True))

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], log: bool = False) -> Estimates:
        """Build estimates from rows with labels and VALUES.

        On the log scale, low and high are computed from estimate, se and df.
        """
        if not rows:
            return cls.empty()
        frame = pd.DataFrame(rows)
        # Columns that hold only None would have the type object, so they are converted to float.
        frame = frame.astype({name: float for name in VALUES[:5] if name in frame})
        return cls.from_estimates(frame) if log else cls(frame, log=False)

    @classmethod
    def from_points(
        cls, rows: pd.DataFrame | Sequence[Mapping[str, Any]], points: statistics.PointEstimates, log: bool = False
    ) -> Estimates:
        """Build estimates from rows with labels, counts, detail and source rows, and a point estimate for each row."""
        if not len(rows):
            return cls.empty()
        values = {name: getattr(points, name) for name in ("estimate", "low", "high", "se", "df", "logit")}
        return cls(pd.DataFrame(rows).assign(**values), log)

    @classmethod
    def empty(cls) -> Estimates:
        return cls(pd.DataFrame(columns=VALUES))

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, name: str) -> pd.Series:
        """Return one column; it is empty if the table is. Raises KeyError if a table with rows lacks the column."""
        if name not in self.frame and not len(self):
            return pd.Series([], dtype=object, name=name)
        return self.frame[name]

    def numbers(self, name: str) -> pd.Series:
        """Return one column as floats."""
        return self[name].astype(float)

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        """Return these columns as tuples, row by row."""
        return list(zip(*(self[name].tolist() for name in names), strict=True))

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], Estimates]]:
        """Yield each group of rows that agree in these labels, with its label values, sorted by them."""
        for key, at in self.positions(*names):
            yield key, self.take(at)

    def positions(self, *names: str) -> Iterator[tuple[tuple[Any, ...], NDArray[np.intp]]]:
        """Yield each group's label values and row positions, which is far cheaper than `groups` for many groups."""
        if len(self):
            for key, at in self.frame.groupby(list(names), sort=True, dropna=False, observed=True).indices.items():
                yield key if isinstance(key, tuple) else (key,), np.asarray(at, np.intp)

    @property
    def labels(self) -> list[str]:
        """Names of the label columns."""
        return [name for name in self.frame.columns if name not in VALUES]

    @property
    def are_published(self) -> bool:
        """True if the estimates are from published figures, which have a label for the family of their source."""
        return "family" in self.frame

    @property
    def keys(self) -> list[str]:
        """Names of the labels that distinguish cases: all but RUNTIMES."""
        return [name for name in self.labels if name not in RUNTIMES]

    def value(self, name: str, row: int) -> Any:
        """Return one cell."""
        return self.frame[name].iat[row]

    def label_values(self, row: int) -> dict[str, Any]:
        """Return one row's labels, without empty ones."""
        values = {name: self.value(name, row) for name in self.labels}
        return {name: _python_value(value) for name, value in values.items() if not _is_absent(value)}

    def all_label_values(self) -> list[dict[str, Any]]:
        """Return `label_values` for every row."""
        rows: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for name in self.labels:
            for labels, value in zip(rows, self.frame[name].tolist(), strict=True):
                if not _is_absent(value):
                    labels[name] = _python_value(value)
        return rows

    def ends(self, level: float | statistics.Floats) -> tuple[statistics.Floats, statistics.Floats]:
        """Return the intervals' low and high ends at another level than LEVEL, each with shape (rows,).

        Intervals with infinite df and no standard error do not change; published figures and crossings have such
        intervals. On the linear scale, ends at 0 or 1 do not change either, because shares are clipped there. On the
        logit scale, the distances from the estimate's log odds are widened.
        """
        estimate, low, high, se, df = (self.frame[name].to_numpy(float) for name in VALUES[:5])
        grown = np.where(np.isinf(df) & np.isnan(se), 1.0, statistics.widening_factor(df, level))
        # An infinite estimate's interval has no width to change. An end beyond the largest number is infinite.
        same = (grown == 1) | np.isinf(estimate)
        with np.errstate(invalid="ignore", over="ignore"):
            if self.log:
                wide = estimate * (low / estimate) ** grown, estimate * (high / estimate) ** grown
                return np.where(same, low, wide[0]), np.where(same, high, wide[1])
            wide = estimate - grown * (estimate - low), estimate + grown * (high - estimate)
        stays = [same | np.isin(end, (0.0, 1.0)) for end in (low, high)]
        ends = np.where(stays[0], low, wide[0]), np.where(stays[1], high, wide[1])
        logit = self.logit_mask & ~same
        for end, given in zip(ends, (low, high), strict=True):
            odds, odds_end = special.logit(estimate[logit]), special.logit(given[logit])
            end[logit] = special.expit(odds + grown[logit] * (odds_end - odds))
        return ends

    def at_level(self, level: float | statistics.Floats) -> Estimates:
        """Return the estimates with intervals at another level, and standard errors wider by the same factor."""
        low, high = self.ends(level)
        factor = statistics.widening_factor(self.frame["df"].to_numpy(float), level)
        return Estimates(self.frame.assign(low=low, high=high, se=self.frame["se"] * factor), self.log)

    @property
    def logit_mask(self) -> NDArray[np.bool_]:
        """Mask for the estimates on the logit scale, shape (rows,)."""
        return self.frame["logit"].to_numpy(bool)

    def distances(self, value: float) -> statistics.Floats:
        """Return the distances from `value` to the estimates on the scale of `se`, shape (rows,); nan without one."""
        estimate = self.frame["estimate"].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.log:
                return np.log(estimate / value) if value > 0 else np.full(len(self), np.nan)
            odds = special.logit(estimate) - special.logit(np.float64(value))
        return np.where(self.logit_mask, odds, estimate - value)

    def filter(self, **wanted: Any) -> Estimates:
        """Keep the rows whose labels have these values; a list allows any of its values.

        device='gpu' keeps all devices of this kind, whatever their ids.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            allowed = list(value) if isinstance(value, (list, tuple, set)) else [value]
            column = self[name]
            if name == "device":
                allowed += [device for device in column.unique() if device_kind(device) in allowed]
            keep &= column.isin(allowed).to_numpy(bool)
        return self.take(keep)

    def take(self, rows: Any) -> Estimates:
        """Take rows by mask or by position."""
        mask = np.asarray(rows)
        picked = self.frame.loc[mask] if mask.dtype == bool else self.frame.iloc[list(rows)]
        return Estimates(picked.reset_index(drop=True), self.log)

    def sort_by(self, *labels: str) -> Estimates:
        """Sort the rows by these labels."""
        return self.take(self.frame.sort_values(list(labels), kind="stable").index) if len(self) else self

    def last_per_group(self, *labels: str) -> Estimates:
        """Keep the last row in each group that agrees in these labels."""
        return self.take(~self.frame.duplicated(list(labels), keep="last")) if len(self) else self

    def counts(self) -> dict[str, Any]:
        """Return the counts for an aggregate over all rows: fewest rounds, total samples, all source rows."""
        rounds, samples = self.numbers("n_rounds").min(), self.numbers("n_samples").sum()
        return {
            "n_rounds": int(rounds),
            "n_samples": int(samples),
            "source_rows": merge_source_rows(self["source_rows"]),
        }

    def keep_labels(self, *labels: str) -> Estimates:
        """Keep only these labels and the values. Raises ValueError if several rows agree in all these labels."""
        frame = self.frame[[*labels, *VALUES]] if len(self) else pd.DataFrame(columns=[*labels, *VALUES], dtype=object)
        if frame.duplicated(list(labels)).any():
            raise ValueError(f"several estimates agree in {', '.join(labels)}")
        return Estimates(frame, self.log)

    def best_per_group(self, by: Sequence[str], detail: Sequence[str] = (), keep: Sequence[str] = ()) -> Estimates:
        """Keep the largest estimate in each group of rows that agree in the labels `by`.

        The result has the labels `by` and `keep`; its column detail joins the values of the labels `detail`.

        If several estimates are nearly equal, the largest is partly lucky and overestimates. To compensate, its
        interval has a Bonferroni level for k estimates: k is the number of estimates, itself included, whose intervals
        reach its interval. The interval thus widens with k.
        """
        if not len(self):
            return Estimates(self.frame.reindex(columns=[*by, *keep, *VALUES]), self.log)
        order = self.frame.sort_values("estimate", ascending=False, kind="stable")
        group = order.groupby(list(by), dropna=False, sort=True, observed=True).ngroup()
        first = ~group.duplicated()
        least = order.loc[first, "low"].set_axis(group[first])
        reach = (order["high"] >= group.map(least)).groupby(group, observed=True).sum()
        top = order[first].iloc[np.argsort(group[first].to_numpy(), kind="stable")]
        rivals = reach.sort_index().clip(lower=1).to_numpy(float)
        widened = Estimates(top, self.log).at_level(1 - (1 - statistics.LEVEL) / rivals).frame
        details = [
            ", ".join(filter(None, map(_label_text, detail, values))) for values in top[list(detail)].to_numpy(object)
        ]
        best = widened[[*by, *keep, *VALUES]].assign(detail=details)
        return Estimates(best.reset_index(drop=True), self.log)

    def label(self, **values: Any) -> Estimates:
        """Set label or value columns, each to one value for all rows or to one value per row."""
        return Estimates(self.frame.assign(**values), self.log)

    def set_unknown(self, rows: Any, *values: str) -> Estimates:
        """Set these values to nan in the masked rows."""
        mask = np.asarray(rows, dtype=bool)
        return self.label(**{name: np.where(mask, np.nan, self.numbers(name)) for name in values})

    def drop_labels(self, *labels: str) -> Estimates:
        """Drop these labels."""
        return Estimates(self.frame.drop(columns=list(labels), errors="raise" if len(self) else "ignore"), self.log)

    def inverse(self) -> Estimates:
        """Return reciprocals on the log scale; each interval's ends are swapped."""
        return Estimates.from_estimates(self.frame.assign(estimate=1 / self.frame["estimate"])) if len(self) else self

    def __mul__(self, factor: float) -> Estimates:
        if factor == 1:
            return Estimates(self.frame, self.log)
        scaled: dict[str, Any] = {name: self.frame[name] * factor for name in ("estimate", "low", "high")}
        if not self.log:
            # A multiple of a share has no log odds: its standard error is unknown, and its interval stays as it is.
            scaled["se"] = (self.frame["se"] * factor).mask(self.logit_mask)
            scaled["logit"] = False
        return Estimates(self.frame.assign(**scaled), self.log)

    def __truediv__(self, other: Estimates | float) -> Estimates:
        """Divide by a number, or by the estimates that agree in all keys that the two tables have in common.

        If a table is not on the log scale, low is divided by high and high by low, so the interval is conservative.
        """
        if not isinstance(other, Estimates):
            return self * (1 / other)
        shared = [name for name in self.keys if name in other.keys]
        if not len(self) or not len(other):
            return Estimates(self.frame.iloc[:0])
        how = {"on": shared, "how": "inner"} if shared else {"how": "cross"}
        pairs = self.frame.merge(other.frame, suffixes=("", "_below"), **how)
        se, df = statistics.combine(pairs["se"], pairs["df"], pairs["se_below"], pairs["df_below"])
        both = zip(pairs["source_rows"], pairs["source_rows_below"], strict=True)
        pairs = pairs.assign(
            estimate=pairs["estimate"] / pairs["estimate_below"],
            se=se,
            df=df,
            n_rounds=pairs[["n_rounds", "n_rounds_below"]].min(axis=1),
            n_samples=pairs["n_samples"] + pairs["n_samples_below"],
            source_rows=[above + below for above, below in both],
        )
        columns = [name for name in pairs.columns if not name.endswith("_below")]
        if self.log and other.log:
            return Estimates.from_estimates(pairs[columns])
        ends = {"low": pairs["low"] / pairs["high_below"], "high": pairs["high"] / pairs["low_below"]}
        return Estimates(pairs.assign(**ends, se=np.nan, logit=False)[columns], log=False)

    def ratio(self, label: str, above: Any, below: Any) -> Estimates:
        """Divide rows with the label value `above` by rows with the label value `below`, and drop the label.

        Rows are paired if they agree in all other labels.
        """
        return self.filter(**{label: above}).drop_labels(label) / self.filter(**{label: below}).drop_labels(label)

    def scaled_by(self, column: pd.Series) -> Estimates:
        """Multiply each row's estimate and interval by the row's factor in `column`, which is taken as exact."""
        scaled = {name: self.frame[name] * column.to_numpy(float) for name in ("estimate", "low", "high")}
        return Estimates(self.frame.assign(**scaled), self.log)


def concat_estimates(parts: Sequence[Estimates]) -> Estimates:
    """Concatenate estimates on the same scale. If some lack a label, it is empty in their rows."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return parts[0] if parts else Estimates.empty()
    frame = pd.concat([part.frame.astype(dict.fromkeys(part.labels, object)) for part in filled], ignore_index=True)
    return Estimates(frame, all(part.log for part in filled))


def exact_estimates(rows: Sequence[Mapping[str, Any]]) -> Estimates:
    """Build exact estimates (published or computed figures) from labels, estimate and optional low and high."""
    known = {"se": np.nan, "df": np.inf, "n_rounds": 0, "n_samples": 0, "detail": ""}
    return Estimates.from_rows([{"low": row["estimate"], "high": row["estimate"], **known, **row} for row in rows])


def merge_source_rows(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Merge source rows, sorted and without duplicates."""
    return tuple(sorted({number for row in rows for number in row}))


def _is_absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def _label_text(name: str, value: Any) -> str:
    """Format a label for `detail`: 'torch', '2 threads'; '' if absent."""
    if _is_absent(value) or (name == "threads" and value == 0):
        return ""
    value = _python_value(value)
    return label_value(name, value) if name in ("threads", "footprint") and not isinstance(value, str) else str(value)


def _python_value(value: Any) -> Any:
    """Convert a label's value to a Python type; whole floats (params read from JSON) become integers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
