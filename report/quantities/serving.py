"""Quantities of services behind a real server: how long a request takes, how many it bears, what each costs."""

from __future__ import annotations

import numpy as np

from report.data.dataset import Dataset
from report.estimates import Estimates, exact_estimates
from report.quantities import quantity

# What is comfortable to wait for, at the 99th percentile.
LIMIT_S = 0.1
# What tells one server from another.
SERVER = ["node", "device", "service", "dtype", "cores", "backend"]
_LABELS = ("service", "requests_per_s", "cores", "dtype", "backend")


def metric_by_load(data: Dataset, metric: str) -> Estimates:
    """A metric by server and load, loads by rising rate.

    How long a load lasted is no label, nor is how many threads compute an answer: as suits the service.
    """
    return data.summary("serving", metric).ascending(*SERVER, "requests_per_s").without("seconds", "threads")


@quantity("serving.p99_latency_s", "s", _LABELS)
def p99_latency(data: Dataset) -> Estimates:
    """99th percentile of the time from when a request was due until it was answered, by load.

    Of at least 100 requests in each round; rounds are the unit of the interval. A request
    that failed counts with its time-out, so that where one in a hundred has no answer this is a lower bound.
    """
    return metric_by_load(data, "p99_latency")


@quantity("serving.capacity", "requests/s", ("service", "cores", "dtype", "backend"))
def capacity(data: Dataset) -> Estimates:
    """The largest rate that was offered whose 99th percentile stays below LIMIT_S, as at all lower rates; 0 if none.

    Low is the largest that surely does (the whole interval of the percentile), high the smallest
    that surely does not: the capacity lies between. Either is unknown if there is none.
    """
    rows = []
    for server, latencies in p99_latency(data).groups(*SERVER):
        rates, middle, low, high = (
            latencies.numbers(name).to_numpy() for name in ("requests_per_s", "estimate", "low", "high")
        )
        broken = np.flatnonzero(middle >= LIMIT_S)
        borne = int(broken[0]) if len(broken) else len(rates)
        surely_borne, surely_not = rates[:borne][high[:borne] < LIMIT_S], rates[borne:][low[borne:] > LIMIT_S]
        rows.append(
            {
                **dict(zip(SERVER, server, strict=True)),
                "estimate": rates[borne - 1] if borne else 0.0,
                "low": max(surely_borne, default=np.nan if borne else 0.0),
                "high": min(surely_not, default=np.nan),
                "detail": f"offered: {rates[0]:,.0f} to {rates[-1]:,.0f}",
                **latencies.counts(),
            }
        )
    return exact_estimates(rows)


@quantity("serving.failed_share", "1", _LABELS)
def failed_share(data: Dataset) -> Estimates:
    """Share of the requests that were offered and had no answer in time, or a wrong one."""
    return metric_by_load(data, "failed_share")


@quantity("serving.cpu_seconds_per_request", "s", _LABELS)
def cpu_seconds_per_request(data: Dataset) -> Estimates:
    """CPU time of the server's process, its idle moments included, for each request that it answered rightly."""
    return metric_by_load(data, "cpu_per_request")


@quantity("serving.gpu_busy_share", "1", _LABELS, device="gpu")
def gpu_busy_share(data: Dataset) -> Estimates:
    """Share of the time that a GPU spends on requests, from the first to the last operation of each, by its own clock.

    Copies there and back and the gaps between operations count as busy: it is idle for more than the rest.
    """
    return metric_by_load(data, "gpu_busy_share")
