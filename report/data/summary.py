"""From samples to one row per point and metric: estimate, interval, rates, and how they came about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report import statistics
from report.data import flags, groups

POINT = ["node", "experiment", "device", "backend", "dtype", "threads", "params"]
SERIES = [*POINT, "metric"]
# Points that share a variance: one experiment and metric on one device of one node.
GROUP = ["node", "experiment", "device", "metric"]
# What is counted or computed, not timed: equal values in every round are exact.
COUNTED = {
    "repeat_share", "matmul_flop_share", "differing_share", "flushed_share", "distinct_results", "fingerprint",
    "spread_ulp", "spread_median_ulp", "spread_relative", "error_ulp",
    "system_driver_loaded", "system_toolkit_loaded", "toolkit_libraries_loaded", "toolkit_libraries_from_system",
    *(f"{names}operators" for names in ("", "public_")),
    *(f"{names}kernels_{key}" for names in ("", "public_") for key in ("cpu", "cuda", "mps", "xpu")),
}  # fmt: skip

_TEXT = [*(name for name in SERIES if name != "threads"), "unit", "status", "reason", "stop_reason", "origin"]
Array = NDArray[Any]

COLUMNS = {
    "metric": "What was measured",
    "unit": "Unit of estimate, low and high",
    "status": "ok if at least one round is; else the commonest outcome",
    "reason": "Why it is not ok, or what befell single rounds",
    "stop_reason": "Why sampling ended, the commonest",
    "n_rounds": "Rounds that are ok",
    "n_samples": "Samples in those rounds",
    "estimate": "exp of the mean log of the rounds' medians; mean of the rounds' medians for shares",
    "low": f"Lower end of the {100 * statistics.LEVEL:g}% interval",
    "high": f"Upper end of the {100 * statistics.LEVEL:g}% interval",
    "log_se": "Standard error of log estimate; of the estimate itself for shares",
    "df": "Degrees of freedom of the interval",
    "flop": "Floating-point operations of one call",
    "bytes": "Least memory traffic of one call",
    "flop_per_s": "flop / estimate, for times",
    "bytes_per_s": "bytes / estimate, for times",
    "error": "Largest relative error of the result against float64",
    "tolerance": "Largest error that counts as right",
    "flags": "What may have spoilt samples, in how many of them and the worst of it; unstable: rounds differ by more "
    "than their own samples explain; exact: counted and equal in all rounds",
    "origin": "measured, or synthetic (tests only)",
}


def summarise(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per point and metric of a table of samples; columns POINT and COLUMNS, in order.

    Text may come as strings, objects or categories; it leaves as strings. Raises StudyError if a text is missing.
    """
    columns = [*POINT, *COLUMNS]
    if not len(samples):
        return pd.DataFrame(columns=columns)
    rows = _ordered(samples)
    ok = rows.holds("status", "ok")
    n_samples = np.bincount(rows.series[ok], minlength=rows.count)
    good, failed = rows.where(ok), rows.where(~ok)
    # A series of which no round is ok is told from those that failed.
    used = rows.where(ok | (n_samples == 0)[rows.series])
    n_rounds, n_failed, n_every = (some.rounds_each() for some in (good, failed, rows))
    status, reason = failed.commonest("status"), failed.commonest("reason")
    for at in np.flatnonzero((n_rounds > 0) & (n_failed > 0)):
        reason[at] = f"{n_failed[at]} of {n_every[at]} rounds {status[at]}: {reason[at]}"
    unit = used.commonest("unit")
    rounds = _rounds(good)
    estimates, exact = _estimates(good, rounds, unit)
    table = {
        **{name: rows.key(name) for name in SERIES},
        "unit": unit,
        "status": np.where(n_rounds > 0, "ok", status),
        "reason": reason,
        "stop_reason": used.commonest("stop_reason"),
        "n_rounds": n_rounds,
        "n_samples": n_samples,
        **estimates,
        **{name: used.median(name) for name in ("flop", "bytes")},
        **{name: used.largest(name) for name in ("error", "tolerance")},
        "flags": _said(used, _of_rounds(good, rounds, exact)),
        "origin": used.commonest("origin"),
    }
    seconds = np.where(unit == "s", table["estimate"], np.nan)
    for name in ("flop", "bytes"):
        table[f"{name}_per_s"] = table[name] / seconds
    return pd.DataFrame({name: table[name] for name in columns})


@dataclass(frozen=True)
class _Rows:
    """Samples, or some of them, in the order of their series, rounds and values. Arrays are of shape (rows,)."""

    samples: pd.DataFrame
    text: dict[str, groups.Text]
    first: NDArray[np.intp]  # of shape (series,): the place of one of each series' samples
    at: NDArray[np.intp]  # each row's place among the samples
    series: groups.Ints  # its series, numbered from 0
    rounds: groups.Ints  # a number of its series and round, ascending

    @property
    def count(self) -> int:
        return len(self.first)

    def where(self, wanted: NDArray[np.bool_]) -> _Rows:
        return replace(self, at=self.at[wanted], series=self.series[wanted], rounds=self.rounds[wanted])

    def key(self, name: str) -> Array:
        """What all samples of a series have in common, of shape (series,)."""
        column = self.text.get(name)
        return self.samples[name].to_numpy()[self.first] if column is None else column.words[column.codes[self.first]]

    def holds(self, name: str, word: str) -> NDArray[np.bool_]:
        column = self.text[name]
        return np.asarray(column.words == word)[column.codes[self.at]]

    def numbers(self, name: str) -> groups.Floats:
        return self.samples[name].to_numpy(float)[self.at]

    def rounds_each(self) -> groups.Ints:
        """In how many rounds each series is, of shape (series,)."""
        return np.bincount(self.series[groups.Runs.of(self.rounds).start], minlength=self.count)

    def commonest(self, name: str) -> Array:
        """The commonest text of each series; of equally common ones the first in alphabetical order."""
        column = self.text[name]
        return column.words[groups.commonest(column.codes[self.at], self.series, self.count)]

    def median(self, name: str) -> groups.Floats:
        return groups.median_of_known(self.numbers(name), self.series, self.count)

    def largest(self, name: str) -> groups.Floats:
        """The largest known number of each series, all of which must have rows."""
        found: groups.Floats = np.fmax.reduceat(self.numbers(name), groups.Runs.of(self.series).start)
        return found


def _ordered(samples: pd.DataFrame) -> _Rows:
    text = {name: groups.text(samples[name]) for name in _TEXT}
    series = groups.fold(text[name].coded if name in text else groups.ranks(samples[name]) for name in SERIES)
    rounds, _ = groups.fold([series, groups.ranks(samples["round"])])
    at = np.lexsort((samples["value"].to_numpy(float), rounds))
    runs = groups.Runs.of(series[0][at])
    return _Rows(samples, text, at[runs.start], at, np.repeat(np.arange(len(runs.start)), runs.length), rounds[at])


@dataclass(frozen=True)
class _Rounds:
    """Rounds that are ok, one series after another. Arrays are of shape (rounds,)."""

    medians: groups.Floats
    half_widths: groups.Floats  # of those medians, relative
    series: groups.Runs  # the series that have such rounds, and where theirs lie


def _rounds(good: _Rows) -> _Rounds:
    rounds, values = groups.Runs.of(good.rounds), good.numbers("value")
    series = groups.Runs.of(good.series[rounds.start])
    return _Rounds(groups.medians(values, rounds), flags.half_widths(values, rounds), series)


def _estimates(good: _Rows, rounds: _Rounds, unit: Array) -> tuple[dict[str, groups.Floats], NDArray[np.bool_]]:
    """Estimates and intervals of every series, and whether they are exact; unit, as all that is returned: (series,)."""
    # From here on per series that has rounds, which are fewer; `at` says where they belong.
    at, n = rounds.series.value, rounds.series.length
    group = groups.ranks(groups.fold(good.text[name].only(good.first[at]) for name in GROUP)[0])[0]
    share = np.bincount(group, unit[at] != "1")[group] == 0
    lowest = np.minimum.reduceat(rounds.medians, rounds.series.start) if len(at) else rounds.medians
    # A whole group is on one scale: the linear one if it holds shares, or a round that has no logarithm.
    linear = share | (np.bincount(group, lowest <= 0)[group] > 0)
    metric = good.key("metric")[at]
    clipped = share & np.array([name.endswith("share") for name in metric], dtype=bool)
    counted = np.array([name in COUNTED for name in metric], dtype=bool)
    inside = np.repeat(linear, n)
    table = {name: np.full(good.count, np.nan) for name in ("estimate", "low", "high", "log_se", "df")}
    exact = np.zeros(good.count, dtype=bool)
    for which, found in (
        (linear, statistics.linear_estimates(rounds.medians[inside], n[linear], counted[linear], clipped[linear])),
        (~linear, statistics.log_estimates(rounds.medians[~inside], n[~linear], group[~linear])),
    ):
        exact[at[which]] = found.exact
        for name, column in zip(table, (found.estimate, found.low, found.high, found.se, found.df), strict=True):
            table[name][at[which]] = column
    return table, exact


def _of_rounds(good: _Rows, rounds: _Rounds, exact: NDArray[np.bool_]) -> dict[int, list[flags.Seen]]:
    """What is to be said of the rounds of each series, by its number."""
    without_scale = np.bincount(good.series, good.holds("unit", "1"), good.count) > 0
    seen: dict[int, list[flags.Seen]] = {}
    for place, unstable in flags.of_rounds(rounds.medians, rounds.half_widths, rounds.series).items():
        series = int(rounds.series.value[place])
        if not without_scale[series]:
            seen[series] = [unstable]
    for series in np.flatnonzero(exact).tolist():
        seen.setdefault(series, []).append(flags.Seen(flags.EXACT))
    return seen


def _said(used: _Rows, of_rounds: dict[int, list[flags.Seen]]) -> Array:
    """The flags of every series, as text: first what befell its samples, then what is to be said of its rounds."""
    of_samples = flags.of_points(used.samples[flags.COLUMNS].iloc[used.at], used.series)
    said = np.full(used.count, "", dtype=object)
    for series in {*of_samples, *of_rounds}:
        said[series] = flags.text([*of_samples.get(series, []), *of_rounds.get(series, [])])
    return said
