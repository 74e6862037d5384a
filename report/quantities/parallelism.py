"""Quantities of parallelism: how many threads a GPU can put to use, and what it costs if they part ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, concat, merged
from report.quantities import quantity

FULL_SHARE = 0.9
PRODUCTS = ("naive", "tiled", "library")
_PLACE = ["node", "device"]
_GPU = {"experiments": ["parallelism"], "device": "gpu"}


def points(data: Dataset, kernel: str | list[str], value: str = "estimate", metric: str = "time") -> Estimates:
    """Points of some kernels; none where nothing of the kind was measured."""
    cells = data.summary("parallelism", metric, value)
    return cells.only(kernel=kernel) if len(cells) else cells


@quantity(
    "parallelism.throughput",
    unit="FLOP/s",
    needs=_GPU,
    labels=("in_flight",),
    says="On {node}, {labels} do {value}",
)
def throughput(data: Dataset) -> Estimates:
    """Rate of chains of dependent multiply-adds, one a thread, by threads in flight."""
    cells = points(data, "chains", "flop_per_s")
    return cells.by(*_PLACE, "in_flight") if len(cells) else cells


@quantity(
    "parallelism.threads_for_90_percent",
    unit="threads",
    needs=_GPU,
    says="On {node}, nine tenths of the best throughput take {value}",
)
def threads_for_90_percent(data: Dataset) -> Estimates:
    """Threads in flight from which on the chains run at nine tenths of their best rate.

    As for crossovers, low and high are the neighbouring numbers that were measured of
    which one is surely below (the whole interval of its share of the best) and one
    surely not; the estimate is interpolated on logarithms where the share passes. Low
    is unknown if even the fewest threads are not surely below.
    """
    rows = []
    for place, series in _series(throughput(data)):
        at = series.frame["in_flight"].to_numpy(float)
        best = series.at([int(series.frame["estimate"].argmax())])
        share = (series / best.by(*_PLACE)).frame
        reached = np.flatnonzero(share["low"] >= FULL_SHARE)
        if not len(reached):
            continue
        last = int(reached[0])
        below = np.flatnonzero(share["high"][:last] < FULL_SHARE)
        first = int(below[-1]) if len(below) else 0
        between = slice(first, last + 1)
        rows.append(
            {
                **place, "estimate": _passes(at[between], share["estimate"].to_numpy(float)[between]),
                "low": at[first] if len(below) else np.nan, "high": at[last], "se": np.nan, "df": np.inf,
                "n_rounds": int(share["n_rounds"].min()), "n_samples": int(series.frame["n_samples"].sum()),
                "detail": f"measured with {at[0]:,.0f} to {at[-1]:,.0f}", "source_rows": merged(series.frame["source_rows"]),
            }
        )  # fmt: skip
    return Estimates(pd.DataFrame(rows), log=False) if rows else Estimates.empty()


@quantity(
    "parallelism.linearity",
    unit="1",
    needs=_GPU,
    labels=("in_flight",),
    says="On {node}, each of {labels} does {value} of what it does with the fewest in flight",
)
def linearity(data: Dataset) -> Estimates:
    """Rate per thread over that with the fewest threads measured: 1 where throughput is proportional to the threads.

    Up to half as many threads as would reach the best rate if each kept doing what it
    does among the fewest: beyond, those of one scheduler begin to wait for each other.
    """
    parts = []
    for _, series in _series(throughput(data)):
        at = series.frame["in_flight"].astype(float)
        each = series.scaled_by(1 / at)
        enough = series.frame["estimate"].max() / each.frame["estimate"].iloc[0]
        more = (at > at.iloc[0]) & (at <= enough / 2)
        parts.append(each.at(more.to_numpy(bool)) / each.at([0]).by(*_PLACE))
    return concat(parts)


@quantity(
    "parallelism.path_time",
    unit="s",
    needs={"experiments": ["parallelism"], "device": "any"},
    labels=("paths",),
    says="On {node}, the work takes {value} with {labels} in a group of 32",
)
def path_time(data: Dataset) -> Estimates:
    """Time with so many paths in a group of 32 threads or elements: same work on each path.

    Of several ways to do it (a CPU's vectors, or one element at a time) the fastest counts.
    """
    cells = points(data, "paths")
    if not len(cells):
        return cells
    frame = cells.frame.astype({"paths": float})
    fastest = cells.at(sorted(frame.groupby([*_PLACE, "paths"])["estimate"].idxmin()))
    return fastest.label(detail=fastest.frame["backend"]).by(*_PLACE, "paths")


@quantity(
    "parallelism.divergence_cost",
    unit="1",
    needs={"experiments": ["parallelism"], "device": "any"},
    labels=("paths",),
    says="On {node}, the same work takes {value} times as long with {labels} in a group of 32 as with one",
)
def divergence_cost(data: Dataset) -> Estimates:
    """Time with several paths in a group of 32 threads or elements over that with one: same work on each path."""
    fastest = path_time(data)
    if not len(fastest):
        return fastest
    one = (fastest.frame["paths"] == 1).to_numpy(bool)
    return fastest.at(~one) / fastest.at(one).without("paths")


@quantity(
    "parallelism.product_rate",
    unit="FLOP/s",
    needs=_GPU,
    labels=("kernel", "n"),
    says="On {node}, a matrix product in float32 ({labels}) runs at {value}",
)
def product_rate(data: Dataset) -> Estimates:
    """Rate of products that a thread a cell computes, plainly or tile by tile, and of the library's.

    Short ones are those of a graph, which leaves the host out.
    """
    found = [points(data, list(PRODUCTS), "flop_per_s", metric) for metric in ("graph_time", "time")]
    cells = concat([cells.by(*_PLACE, "kernel", "n") for cells in found if len(cells)])
    if not len(cells):
        return cells
    return cells.at(~cells.frame.duplicated([*_PLACE, "kernel", "n"]).to_numpy(bool))


def _series(cells: Estimates) -> list[tuple[dict[str, Any], Estimates]]:
    """Node and device, and its cells by rising number of threads."""
    if not len(cells):
        return []
    order = cells.frame.sort_values(by="in_flight", key=lambda column: column.astype(float), kind="stable")
    return [
        (dict(zip(_PLACE, place, strict=True)), cells.at(list(part.index)))
        for place, part in order.groupby(_PLACE, sort=True)
    ]


def _passes(at: Any, share: Any) -> float:
    """Where the share first passes FULL_SHARE, linear in the logarithms of both."""
    first = int(np.flatnonzero(share >= FULL_SHARE)[0])
    if first == 0:
        return float(at[0])
    x, y = np.log(at[first - 1 : first + 1]), np.log(share[first - 1 : first + 1] / FULL_SHARE)
    return float(np.exp(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0])))
