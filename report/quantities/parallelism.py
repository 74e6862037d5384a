"""GPU parallelism: how many threads a GPU can use, and the cost when they diverge."""

from __future__ import annotations

from functools import partial

import numpy as np

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates, exact_estimates
from report.quantities import quantity

FULL_SHARE = 0.9
_PLACE = ["node", "device"]
_gpu_quantity = partial(quantity, device="gpu")


@_gpu_quantity("parallelism.throughput", "FLOP/s", ("in_flight",))
def throughput(data: Dataset) -> Estimates:
    """Rate of all chains of dependent multiply-adds, with one chain per thread, by the threads in flight."""
    chains = data.summary("parallelism", value="flop_per_s").filter(kernel="chains")
    return chains.keep_labels(*_PLACE, "in_flight")


@_gpu_quantity("parallelism.threads_for_90_percent", "threads")
def threads_for_90_percent(data: Dataset) -> Estimates:
    """Fewest threads in flight with which the chains reach nine tenths of their best rate.

    high: the first measured thread count at which the rate's whole interval lies at or above nine tenths of the best.
    low: the largest thread count below `high` at which the whole interval lies below nine tenths of the best; unknown
    if there is none. The estimate is interpolated between two thread counts, on logarithms.
    """
    rows = []
    for place, rates in throughput(data).sort_by("in_flight").groups(*_PLACE):
        shares = rates / rates.take([rates["estimate"].argmax()]).keep_labels(*_PLACE)
        threads, share = shares.numbers("in_flight").to_numpy(), shares.numbers("estimate").to_numpy()
        reached = np.flatnonzero(shares["low"] >= FULL_SHARE)
        if len(reached):
            last = int(reached[0])
            below = np.flatnonzero(shares["high"][:last] < FULL_SHARE)
            first = int(below.max(initial=0))
            # Interpolate linearly between two neighbours, on the logarithms of threads and share.
            after = first + int(np.argmax(share[first : last + 1] >= FULL_SHARE))
            ends = slice(max(after - 1, first), after + 1)
            estimate = np.exp(np.interp(np.log(FULL_SHARE), np.log(share[ends]), np.log(threads[ends])))
            rows.append(
                {
                    **dict(zip(_PLACE, place, strict=True)),
                    "estimate": float(estimate),
                    "low": threads[first] if len(below) else np.nan,
                    "high": threads[last],
                    "detail": f"measured with {threads[0]:,.0f} to {threads[-1]:,.0f}",
                    **rates.counts(),
                }
            )
    return exact_estimates(rows)


@_gpu_quantity("parallelism.linearity", "1", ("in_flight",))
def linearity(data: Dataset) -> Estimates:
    """Rate per thread, relative to that with the fewest threads measured: 1 if throughput is proportional to threads.

    If each thread kept the rate that it has with the fewest threads, some thread count would give the best rate. Cases
    have at most half that count; with more threads, the threads on one scheduler begin to wait for each other.
    """
    parts = []
    for _, rates in throughput(data).sort_by("in_flight").groups(*_PLACE):
        threads = rates.numbers("in_flight")
        each = rates.scaled_by(1 / threads)
        enough = rates["estimate"].max() / each.value("estimate", 0)
        more = each.take((threads > threads[0]) & (threads <= enough / 2))
        parts.append(more / each.take([0]).keep_labels(*_PLACE))
    return concat_estimates(parts)


@quantity("parallelism.path_time", "s", ("paths",))
def path_time(data: Dataset) -> Estimates:
    """Time for a group of 32 threads or elements that take several code paths, with the same work on each path.

    The fastest method sets the time. A CPU has two methods: with vectors, and element by element.
    """
    times = data.summary("parallelism").filter(kernel="paths")
    groups = times.numbers("estimate").groupby([times[name] for name in (*_PLACE, "paths")], observed=True)
    fastest = times.take(sorted(groups.idxmin()))
    return fastest.label(detail=fastest["backend"]).keep_labels(*_PLACE, "paths")


@quantity("parallelism.divergence_cost", "1", ("paths",))
def divergence_cost(data: Dataset) -> Estimates:
    """Time for a group of 32 threads or elements that take several code paths, relative to one path.

    The work is the same on each path.
    """
    fastest = path_time(data)
    return fastest.take(fastest["paths"] != 1) / fastest.filter(paths=1).drop_labels("paths")
