"""Services on a real server: latency, capacity, and cost per request."""

from __future__ import annotations

import numpy as np

from report.data.dataset import Dataset
from report.estimates import Estimates, exact_estimates
from report.quantities import quantity

# Longest comfortable wait in seconds, as a limit for the 99th percentile.
LIMIT_S = 0.1
# Labels that identify a server.
SERVER = ["node", "device", "service", "dtype", "cores", "backend"]
_LABELS = ("service", "requests_per_s", "cores", "dtype", "backend")


def metric_by_load(data: Dataset, metric: str) -> Estimates:
    """Return a metric by server and ascending load, without labels for load duration and compute threads."""
    return data.summary("serving", metric).sort_by(*SERVER, "requests_per_s").drop_labels("seconds", "threads")


@quantity("serving.p99_latency_s", "s", _LABELS)
def p99_latency(data: Dataset) -> Estimates:
    """99th percentile latency by load, from the time a request was due until its answer.

    Each round has at least 100 requests, and the interval is over rounds. A failed request counts with its timeout, so
    the result is a lower bound if one in a hundred requests gets no answer.
    """
    return metric_by_load(data, "p99_latency")


@quantity("serving.capacity", "requests/s", ("service", "cores", "dtype", "backend"))
def capacity(data: Dataset) -> Estimates:
    """Largest offered rate up to which the 99th percentile latency stays below LIMIT_S (0.1 s); 0 if there is none.

    low: the largest rate at which the percentile's whole interval lies below the limit. high: the smallest rate at
    which it lies above. The capacity lies between the two. A bound is unknown if there is no such rate.
    """
    rows = []
    for server, latencies in p99_latency(data).groups(*SERVER):
        rates, middle, low, high = (
            latencies.numbers(name).to_numpy() for name in ("requests_per_s", "estimate", "low", "high")
        )
        broken = np.flatnonzero(middle >= LIMIT_S)
        n_within = int(broken[0]) if len(broken) else len(rates)
        within, above = rates[:n_within][high[:n_within] < LIMIT_S], rates[n_within:][low[n_within:] > LIMIT_S]
        rows.append(
            {
                **dict(zip(SERVER, server, strict=True)),
                "estimate": rates[n_within - 1] if n_within else 0.0,
                "low": max(within, default=np.nan if n_within else 0.0),
                "high": min(above, default=np.nan),
                "detail": f"offered: {rates[0]:,.0f} to {rates[-1]:,.0f}",
                **latencies.counts(),
            }
        )
    return exact_estimates(rows)


@quantity("serving.failed_share", "1", _LABELS)
def failed_share(data: Dataset) -> Estimates:
    """Share of offered requests without an answer in time, or with a wrong answer."""
    return metric_by_load(data, "failed_share")


@quantity("serving.cpu_seconds_per_request", "s", _LABELS)
def cpu_seconds_per_request(data: Dataset) -> Estimates:
    """CPU time that the server process uses per correct answer, including its CPU time while idle."""
    return metric_by_load(data, "cpu_per_request")


@quantity("serving.gpu_busy_share", "1", _LABELS, device="gpu")
def gpu_busy_share(data: Dataset) -> Estimates:
    """Share of time that a GPU spends on requests, each from its first to its last operation, by the GPU's own clock.

    Copies both ways and gaps between operations count as busy, so the GPU is idle for longer than the remaining time.
    """
    return metric_by_load(data, "gpu_busy_share")
