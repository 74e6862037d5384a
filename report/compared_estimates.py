"""Prepare estimates for a rule: form ratios, slopes and crossings, and pool machines by kind.

All machines of one kind form one case, which is estimated by their median. Ratios, slopes and crossings are formed
within each machine, before machines are pooled. The median's interval uses order statistics (David and Nagaraja 2003,
Order Statistics, section 7.1): the number of machines below the true median is binomial with probability 1/2, so the
k-th smallest and the k-th largest value enclose the median, whatever distribution the machines have. The pooled low is
the machines' k-th smallest low, and the pooled high is their k-th largest high. With fewer than eight machines, no k
reaches 99%. Then low and high span all machines' intervals, and so leave the case undecided if machines disagree. They
are a range of the machines measured, which covers the kind's median less often: in 50% of cases with two machines, 75%
with three, 94% with five. A
machine without an interval may lie on either side, so its low ranks first and its high ranks last.

A machine with several runs counts once in the median, with its runs' smallest low and largest high. In this module, an
instance is one run.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from contract.errors import StudyError
from contract.node import kind_of_node, machine_of_node
from contract.schema import did_you_mean
from report import statistics
from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, exact_estimates, merge_source_rows
from report.formatting import case_name, format_exact
from report.outcomes import Side
from report.statistics import Floats

# Tolerance for rounding errors when machine weights are summed.
_ROUNDING = 1e-6
# For a label over which ratios are formed, the labels whose values change with it, itself included. Two cases form a
# ratio if they agree in all other labels.
_FOLLOWS = {"device": ["device", "threads"], "entry": ["entry", "subject"]}
# For a numeric label, the labels that only name its values. They do not split a series along the numeric label.
_NAMES = {"parameters": ["model"]}


@dataclass(frozen=True)
class ComparedEstimates:
    """Estimates to compare with a threshold, and their unit.

    settled: each estimate's side if it does not depend on the threshold, otherwise None.
    """

    estimates: Estimates
    unit: str
    settled: list[Side | None]


# The following functions form ratios, slopes and crossings.


def without_settled_sides(cases: Estimates, unit: str) -> ComparedEstimates:
    return ComparedEstimates(cases, unit, [None] * len(cases))


def _require_label(cases: Estimates, label: str, rule: str) -> None:
    if label not in cases.labels:
        raise StudyError(f"rule {rule}: no label {label!r}. Labels: {', '.join(cases.labels)}." + did_you_mean(
            label, cases.labels
        ))  # fmt: skip


def ratios(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Divide the cases with one label value by the cases with another value for the same label.

    The two cases in a pair agree in all other labels; a case without a partner gives no ratio.
    options: `over` names the label, `of` its value in the numerator, and `to` its value in the denominator.
    Raises StudyError if the label is unknown.
    """
    over = str(options["over"])
    if not len(cases):
        return without_settled_sides(cases, "1")
    _require_label(cases, over, "ratio")
    differ = [name for name in _FOLLOWS.get(over, [over]) if name in cases.labels]
    above, below = cases.filter(**{over: options["of"]}), cases.filter(**{over: options["to"]})
    return without_settled_sides(above / below.drop_labels(*differ), "1")


def _series_along(cases: Estimates, along: str) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Split cases into series along the numeric label `along`.

    Return each series, sorted by this label, with its other label values.
    """
    labels = [name for name in cases.keys if name not in (along, *_NAMES.get(along, []))]
    frame = cases.frame.assign(**{along: pd.to_numeric(cases.frame[along])}).dropna(subset=[along])
    if not labels:
        return [({}, frame.sort_values(along))]
    groups: list[tuple[dict[str, Any], pd.DataFrame]] = []
    for key, part in frame.groupby(labels, dropna=False, sort=True, observed=True):
        values: tuple[Hashable, ...] = key if isinstance(key, tuple) else (key,)
        groups.append((dict(zip(labels, values, strict=True)), part.sort_values(along)))
    return groups


def slopes(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Fit the exponent p in quantity ~ along^p to each series, by weighted least squares on logarithms.

    Weights are inverse squared standard errors. If the points scatter about the line more than their errors explain,
    the slope's standard error is increased to match the scatter, with n - 2 degrees of freedom. Points that are not
    positive or have no standard error are left out. A series with fewer than two distinct values for `along` gives no
    slope.
    """
    along = str(options["along"])
    if not len(cases):
        return without_settled_sides(cases, "1")
    _require_label(cases, along, "trend")
    rows = []
    for labels, part in _series_along(cases, along):
        estimate = part["estimate"].to_numpy(float)
        # Standard errors of logarithms. On the logit scale, the factor is d log s / d logit s = 1 - s.
        per_log = np.where(part["logit"], 1 - estimate, 1 / estimate)
        se = part["se"].to_numpy(float) * (1.0 if cases.log else per_log)
        usable = (estimate > 0) & np.isfinite(se) & (se > 0) & (part[along].to_numpy(float) > 0)
        x, y, w = np.log(part[along].to_numpy(float)[usable]), np.log(estimate[usable]), se[usable] ** -2.0
        if len(np.unique(x)) < 2:
            continue
        slope, error, df = _fit_line(x, y, w, part["df"].to_numpy(float)[usable])
        half = float(statistics.half_width(error, df))
        x_min, x_max = (float(end) for end in (part[along][usable].min(), part[along][usable].max()))
        ends = f"{along} {format_exact(x_min)} to {format_exact(x_max)}"
        rows.append(
            {**labels, "estimate": slope, "low": slope - half, "high": slope + half, "detail": ends,
             "se": error, "df": df,
             "n_rounds": int(part["n_rounds"].min()), "n_samples": int(part["n_samples"].sum()),
             "source_rows": merge_source_rows(part["source_rows"][usable])}
        )  # fmt: skip
    return without_settled_sides(exact_estimates(rows), "1")


def _fit_line(x: Any, y: Any, w: Any, dfs: Any) -> tuple[float, float, float]:
    """Fit a line by weighted least squares; return its slope, standard error and degrees of freedom."""
    centre = np.sum(w * x) / np.sum(w)
    sxx = float(np.sum(w * (x - centre) ** 2))
    slope = float(np.sum(w * (x - centre) * y) / sxx)
    residual = y - np.sum(w * y) / np.sum(w) - slope * (x - centre)
    free = len(x) - 2
    scatter = float(np.sum(w * residual**2) / free) if free > 0 else 0.0
    if scatter > 1:
        return slope, math.sqrt(scatter / sxx), float(free)
    # The slope's df are a weighted harmonic mean of the points' df, as in `statistics.combine`. A point's weight is its
    # fraction of the slope's variance.
    part = w * (x - centre) ** 2 / sxx
    return slope, math.sqrt(1 / sxx), float(1 / np.sum(part / dfs))


def crossings(cases: Estimates, options: Mapping[str, Any]) -> ComparedEstimates:
    """Find the value of a numeric label at which two series cross. Each pair of series gives one case.

    At each label value, the ratio between the two series tells which is ahead; the value is undecided if the ratio's
    interval contains 1 or is unknown. low and high are the decided values just before and just after the lead first
    changes; the estimate is interpolated between them on logarithms. A pair that never crosses challenges the claim,
    unless some value is undecided.
    """
    along = str(options["along"])
    if not len(cases):
        return without_settled_sides(cases, "1")
    _require_label(cases, along, "crossover")
    rows: list[dict[str, Any]] = []
    settled: list[Side | None] = []
    compared = ratios(cases, options).estimates
    if not len(compared):
        return without_settled_sides(compared, "1")
    low_ends, high_ends = compared.ends(statistics.DECIDING)
    decided_by = Estimates(compared.frame.assign(low=low_ends, high=high_ends), compared.log)
    for labels, part in _series_along(decided_by, along):
        x, r = part[along].to_numpy(float), part["estimate"].to_numpy(float)
        sides = np.where(part["low"] > 1, 1, np.where(part["high"] < 1, -1, 0))
        decided = np.flatnonzero(sides)
        turn = next((k for k in range(len(decided) - 1) if sides[decided[k]] != sides[decided[k + 1]]), None)
        row = {
            **labels,
            "n_rounds": int(part["n_rounds"].min()),
            "n_samples": int(part["n_samples"].sum()),
            "source_rows": merge_source_rows(part["source_rows"]),
        }
        if turn is None:
            surely = len(decided) == len(sides)
            first = options["of"] if (r > 1).all() else options["to"]
            what = f"{first} is ahead at every {along} measured" if surely else "too close to tell at some values"
            rows.append({**row, "estimate": math.nan, "low": math.nan, "high": math.nan, "detail": what})
            settled.append(Side.CHALLENGES if surely else Side.UNDECIDED)
            continue
        a, b = decided[turn], decided[turn + 1]
        low, high = x[a], x[b]
        ahead = options["of"] if sides[b] > 0 else options["to"]
        detail = f"{ahead} is ahead from {along} {format_exact(high)} on, not up to {format_exact(low)}"
        rows.append(
            {**row, "estimate": _crossing_place(x[a : b + 1], r[a : b + 1]), "low": low, "high": high, "detail": detail}
        )
        settled.append(None)
    return ComparedEstimates(exact_estimates(rows), "1", settled)


def _crossing_place(x: Any, r: Any) -> float:
    """Interpolate, on logarithms, the first `x` at which the ratio `r` passes 1."""
    y = np.log(r)
    k = int(np.flatnonzero(np.sign(y[:-1]) != np.sign(y[1:]))[0])
    share = y[k] / (y[k] - y[k + 1])
    at = np.log(x[k : k + 2]) if x[k] > 0 else x[k : k + 2]
    value = at[0] + share * (at[1] - at[0])
    return float(np.exp(value) if x[k] > 0 else value)


# The following class and functions pool machines by kind.


@dataclass(frozen=True)
class PooledEstimates(Estimates):
    """Estimates with one row per case, some pooled over several machines of a kind.

    instances: the estimates before pooling.
    instance_rows: for each instance, the number of the row into which it is pooled, shape (instances,).

    A pooled row names the first of its nodes in alphabetical order. Its `detail` and its labels RUNTIMES come from the
    median machine, or from the lower of two middle machines. It has no standard error, so `ends` computes its interval
    at another level from the instances' intervals.
    """

    instances: Estimates = field(default_factory=Estimates.empty)
    instance_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    @cached_property
    def instance_counts(self) -> NDArray[np.intp]:
        """Count the instances in each row, shape (rows,)."""
        return np.bincount(self.instance_rows, minlength=len(self.frame))

    @cached_property
    def _machine_numbers(self) -> NDArray[np.intp]:
        """Return each instance's machine number, shape (instances,). Machine numbers follow the row order."""
        codes, nodes = pd.factorize(self.instances["node"])
        machines = pd.factorize(np.array([machine_of_node(str(node)) for node in nodes], dtype=object))[0]
        # A published figure has no node, so each figure counts as a machine of its own.
        node_machines = np.where(codes < 0, -1, machines[codes])
        return np.unique(self.instance_rows * (len(nodes) + 1) + node_machines + 1, return_inverse=True)[1].reshape(-1)

    @cached_property
    def _machine_order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the instances in machine order, shape (instances,), and each machine's start, shape (machines,)."""
        order = np.argsort(self._machine_numbers, kind="stable")
        return order, np.flatnonzero(np.diff(self._machine_numbers[order], prepend=-1))

    def reduce_runs(self, least: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """Reduce each machine's runs to one value by the ufunc `least` (such as np.minimum), shape (machines,)."""
        order, starts = self._machine_order
        return np.asarray(least.reduceat(values[order], starts))

    @cached_property
    def machine_rows(self) -> NDArray[np.intp]:
        """Return each machine's row number, shape (machines,), in ascending order."""
        order, starts = self._machine_order
        return self.instance_rows[order][starts]

    @cached_property
    def machine_counts(self) -> NDArray[np.intp]:
        """Count the machines in each row, shape (rows,)."""
        return np.bincount(self.machine_rows, minlength=len(self.frame))

    @cached_property
    def nodes(self) -> list[list[str]]:
        """List the nodes in each row, sorted by name; a row with a published figure has no nodes."""
        by_row: list[list[str]] = [[] for _ in range(len(self.frame))]
        for row, node in zip(self.instance_rows.tolist(), self.instances["node"].tolist(), strict=True):
            if isinstance(node, str):
                by_row[row].append(node)
        return [sorted(names) for names in by_row]

    def values_at_rank(self, values: Floats, ranks: NDArray[np.intp], unknown_last: bool) -> Floats:
        """Return for each row the value at a rank among the row's machines (0 is the smallest), shape (rows,).

        values: one value per machine. unknown_last: True if nan ranks after all numbers, False if it ranks before them.
        """
        unknown = np.isnan(values)
        order = np.lexsort((values, unknown if unknown_last else ~unknown, self.machine_rows))
        n = self.machine_counts
        return values[order][np.cumsum(n) - n + ranks]

    def bounds(self, least: Floats, most: Floats, level: float = statistics.DECIDING) -> tuple[Floats, Floats]:
        """Return low and high bounds on each row's median over machines, each with shape (rows,).

        least, most: bounds for each instance, shape (instances,). level: the interval level for the median.
        """
        n = self.machine_counts
        below = median_ranks(n, level)
        return (
            self.values_at_rank(self.reduce_runs(np.minimum, least), below - 1, unknown_last=False),
            self.values_at_rank(self.reduce_runs(np.maximum, most), n - below, unknown_last=True),
        )

    def ends(self, level: float | Floats) -> tuple[Floats, Floats]:
        """Return the intervals' low and high ends at another level, each with shape (rows,)."""
        return self.bounds(*self.instances.ends(level), float(np.max(level)))

    @cached_property
    def medians(self) -> tuple[Floats, NDArray[np.intp]]:
        """Return two arrays, shape (rows,): medians over machines, and the middle instances' positions in `instances`.

        If two instances are in the middle, the position is the lower one's. The median is nan unless more than half the
        machines have an estimate.
        """
        values, n = self.instances.numbers("estimate").to_numpy(), self.instance_counts
        # Each machine has the weight 1, which is divided equally among its runs.
        weights = 1 / np.bincount(self._machine_numbers)[self._machine_numbers]
        known = np.bincount(self.instance_rows, np.where(np.isnan(values), 0, weights), len(n))
        names = pd.factorize(self.instances["node"], sort=True)[0]
        order = np.lexsort((names, values, np.isnan(values), self.instance_rows))
        lost = 2 * known <= self.machine_counts + _ROUNDING
        places, summed = self.instance_rows[order], np.cumsum(weights[order])
        # Subtract the weights in all earlier rows, so that each row's sums start from 0.
        summed -= np.concatenate([[0], np.cumsum(self.machine_counts)[:-1]])[places]
        half = known[places] / 2
        before = np.bincount(places[summed < half - _ROUNDING], minlength=len(n))
        through = np.bincount(places[summed <= half + _ROUNDING], minlength=len(n))
        starts = np.cumsum(n) - n
        at = order[starts + np.where(lost, n - 1, before)]
        lower, upper = values[at], values[order[starts + np.where(lost, n - 1, through)]]
        with np.errstate(invalid="ignore"):
            middle = np.sqrt(lower) * np.sqrt(upper) if self.log else (lower + upper) / 2
        return np.where(lower == upper, lower, middle), at


def median_ranks(n: NDArray[np.intp], level: float) -> NDArray[np.intp]:
    """Return k so that the k-th smallest and the k-th largest of n enclose the median at a level; 1 if no k does."""
    alpha = (1 - level) / 2
    return np.maximum(1, stats.binom.ppf(alpha, n, 0.5)).astype(np.intp)


def pool_compared(compared: ComparedEstimates) -> ComparedEstimates:
    """Pool the compared estimates with `pool_machines`.

    A pooled row has a settled side if at least n - k + 1 of its n machines have this settled side; k is from
    `median_ranks`.
    """
    pooled = pool_machines(compared.estimates)
    if not isinstance(pooled, PooledEstimates):
        return compared
    return ComparedEstimates(pooled, compared.unit, _settled_sides(pooled, compared.settled))


def pool_machines(estimates: Estimates) -> Estimates:
    """Pool rows from machines of one kind into one row if they agree in every other key.

    Returns `estimates` unchanged if every kind has one machine.
    """
    if "node" not in estimates.labels:
        return estimates
    codes, nodes = pd.factorize(estimates["node"])
    kinds = pd.factorize(np.array([kind_of_node(str(node)) for node in nodes], dtype=object))[0]
    if len(np.unique(kinds)) == len(nodes):
        return estimates
    groups = _group_numbers(estimates, np.where(codes < 0, -1 - np.arange(len(codes)), kinds[codes]))
    n = np.bincount(groups)
    if n.max() == 1:
        return estimates
    first = np.unique(groups, return_index=True)[1]
    blank = PooledEstimates(estimates.frame.iloc[first].reset_index(drop=True), estimates.log, estimates, groups)
    return _fill_pooled_rows(blank)


def _group_numbers(estimates: Estimates, kinds: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return each row's group number: rows with the same kind and keys form a group. Numbers follow the row order."""
    keys = pd.DataFrame({name: pd.factorize(estimates[name])[0] for name in estimates.keys if name != "node"})
    numbers = keys.assign(node=kinds).groupby(["node", *keys.columns], sort=False, observed=True).ngroup().to_numpy()
    return pd.factorize(numbers)[0].astype(np.intp)


def _fill_pooled_rows(blank: PooledEstimates) -> PooledEstimates:
    """Fill each row that pools several instances with the pooled values; the other rows stay as they are."""
    frame, each = blank.frame, blank.instances.frame
    estimate, at = blank.medians
    low, high = blank.bounds(each["low"].to_numpy(float), each["high"].to_numpy(float))
    several = np.flatnonzero(blank.instance_counts > 1)
    members = np.flatnonzero(np.isin(blank.instance_rows, several))
    rows: dict[int, list[tuple[int, ...]]] = {}
    for row, behind in zip(
        blank.instance_rows[members].tolist(), each["source_rows"].iloc[members].tolist(), strict=True
    ):
        rows.setdefault(row, []).append(behind)
    grouped = each.iloc[members].groupby(blank.instance_rows[members], observed=True)
    values = {
        "node": grouped["node"].min().to_numpy(),
        "estimate": estimate[several],
        "low": low[several],
        "high": high[several],
        "se": np.nan,
        "df": np.inf,
        "logit": False,
        "n_rounds": grouped["n_rounds"].min().to_numpy(),
        "n_samples": grouped["n_samples"].sum().to_numpy(),
        **{name: each[name].to_numpy(object)[at[several]] for name in ("detail", *RUNTIMES) if name in each},
    }
    columns = {}
    for name, pooled_values in values.items():
        column = frame[name].to_numpy(copy=True)
        column[several] = pooled_values
        columns[name] = column
    behind = frame["source_rows"].to_numpy(object, copy=True)
    for row in several.tolist():
        behind[row] = merge_source_rows(rows[row])
    columns["source_rows"] = behind
    return PooledEstimates(frame.assign(**columns), blank.log, blank.instances, blank.instance_rows)


def _settled_sides(cases: PooledEstimates, settled: Sequence[Side | None]) -> list[Side | None]:
    sides: list[Side | None] = [None] * len(cases)
    if not any(settled):
        return sides
    n = cases.machine_counts
    needed = n - median_ranks(n, statistics.DECIDING) + 1
    for side in Side:
        agree = cases.reduce_runs(np.logical_and, np.array([settled_side is side for settled_side in settled]))
        votes = np.bincount(cases.machine_rows[agree], minlength=len(n))
        for row in np.flatnonzero(votes >= needed).tolist():
            sides[row] = side
    return sides


def row_nodes(estimates: Estimates) -> list[list[str]]:
    """List each row's nodes: several for a pooled row, none for published figures."""
    if isinstance(estimates, PooledEstimates):
        return estimates.nodes
    nodes = estimates["node"].tolist() if "node" in estimates.labels else [None] * len(estimates)
    return [[node] if isinstance(node, str) else [] for node in nodes]


def instance_ranges(estimates: Estimates) -> dict[int, tuple[float, float]]:
    """Map each pooled row to the smallest and largest estimate among its instances."""
    if not isinstance(estimates, PooledEstimates):
        return {}
    values = estimates.instances.numbers("estimate").groupby(estimates.instance_rows, observed=True)
    ends = zip(values.min().tolist(), values.max().tolist(), strict=True)
    return {row: both for row, both in enumerate(ends) if estimates.instance_counts[row] > 1}


def derivation_labels(estimates: Estimates, row: int) -> dict[str, Any]:
    """Return one row's labels; for a pooled row, its median machine's labels."""
    if isinstance(estimates, PooledEstimates):
        return estimates.instances.label_values(int(estimates.medians[1][row]))
    return estimates.label_values(row)


def nodes_by_kind(estimates: Estimates) -> Mapping[str, list[str]]:
    """Group all nodes in `estimates` by their kind."""
    by_kind: dict[str, dict[str, None]] = {}
    for nodes in row_nodes(estimates):
        for node in nodes:
            by_kind.setdefault(kind_of_node(node), {})[node] = None
    return {kind: sorted(nodes) for kind, nodes in by_kind.items()}


def row_name(estimates: Estimates, row: int) -> str:
    """Format the name for the case in one row."""
    return case_name(estimates.label_values(row), str(estimates.value("detail", row)))


def row_machine(estimates: Estimates, row: int, data: Dataset) -> str:
    """Format the node or pooled machines in one row; '' for a published figure."""
    nodes = row_nodes(estimates)[row]
    return data.group_label(nodes) if nodes else ""
