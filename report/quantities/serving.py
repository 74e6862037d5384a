"""Quantities of services behind a real server: how long a request takes, how many it bears, what each costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, merged
from report.quantities import quantity

# What is comfortable to wait for, at the 99th percentile.
LIMIT_S = 0.1
_LABELS = ("service", "requests_per_s", "cores", "dtype", "backend")
_NEEDS = {"experiments": ["serving"], "device": "any"}
# What tells one server from another.
SERVER = ["node", "device", "service", "dtype", "cores", "backend"]


def loads(data: Dataset, metric: str) -> Estimates:
    """A metric by server and load, loads by rising rate.

    How long a load lasted is no label, nor is how many threads compute an answer: as suits the service.
    """
    cells = data.summary("serving", metric)
    if not len(cells):
        return cells
    frame = cells.frame.astype({"requests_per_s": float})
    order = frame.sort_values([*SERVER, "requests_per_s"], kind="stable").index
    return cells.at(list(order)).without("seconds", "threads")


@quantity(
    "serving.p99_latency_s",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, 99 of 100 requests are answered within {value} ({labels})",
)
def p99_latency(data: Dataset) -> Estimates:
    """99th percentile of the time from when a request was due until it was answered, by load.

    Of at least 100 requests in each round; rounds are the unit of the interval. A request
    that failed counts with its time-out, so that where one in a hundred fails this is a lower bound.
    """
    return loads(data, "p99_latency")


@quantity(
    "serving.capacity",
    unit="requests/s",
    needs=_NEEDS,
    labels=("service", "cores", "dtype", "backend"),
    says="On {node}, a server ({labels}) bears {value} with 99 of 100 answers within a tenth of a second",
)
def capacity(data: Dataset) -> Estimates:
    """The largest rate that was offered whose 99th percentile stays below LIMIT_S, as at all lower rates; 0 if none.

    Low is the largest that surely does (the whole interval of the percentile), high the smallest
    that surely does not: the capacity lies between. Either is unknown if there is none.
    """
    found = p99_latency(data)
    if not len(found):
        return Estimates.empty()
    rows: list[dict[str, Any]] = []
    for server, part in found.frame.groupby(SERVER, sort=True, dropna=False):
        rate = part["requests_per_s"].to_numpy(float)
        low, high, middle = (part[name].to_numpy(float) for name in ("low", "high", "estimate"))
        broken = np.flatnonzero(middle >= LIMIT_S)
        borne = int(broken[0]) if len(broken) else len(rate)
        held, lost = np.flatnonzero(high[:borne] < LIMIT_S), np.flatnonzero(low[borne:] > LIMIT_S)
        rows.append(
            {
                **dict(zip(SERVER, server, strict=True)), "estimate": rate[borne - 1] if borne else 0.0,
                "low": rate[held[-1]] if len(held) else np.nan if borne else 0.0,
                "high": rate[borne + lost[0]] if len(lost) else np.nan, "se": np.nan, "df": np.inf,
                "n_rounds": int(part["n_rounds"].min()), "n_samples": int(part["n_samples"].sum()),
                "detail": f"offered: {rate[0]:,.0f} to {rate[-1]:,.0f}", "source_rows": merged(part["source_rows"]),
            }
        )  # fmt: skip
    return Estimates(pd.DataFrame(rows), log=False)


@quantity(
    "serving.failed_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the share of requests without a right answer in time is {value} ({labels})",
)
def failed_share(data: Dataset) -> Estimates:
    """Share of the requests that were offered and had no answer in time, or a wrong one."""
    return loads(data, "failed_share")


@quantity(
    "serving.cpu_seconds_per_request",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, a request costs the server {value} of CPU time ({labels})",
)
def cpu_seconds_per_request(data: Dataset) -> Estimates:
    """CPU time of the server's process, its idle moments included, for each request that it answered rightly."""
    return loads(data, "cpu_per_request")


@quantity(
    "serving.gpu_busy_share",
    unit="1",
    needs={"experiments": ["serving"], "device": "gpu"},
    labels=_LABELS,
    says="On {node}, the GPU of a server is busy for {value} of the time ({labels})",
)
def gpu_busy_share(data: Dataset) -> Estimates:
    """Share of the time that a GPU spends on requests, from the first to the last operation of each, by its own clock.

    Copies there and back and the gaps between operations count as busy: it is idle for more than the rest.
    """
    return loads(data, "gpu_busy_share")
