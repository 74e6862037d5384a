"""Requests from end to end: compute time, transfer time, and the size at which a GPU pays off.

Request time is measured on the host, from the first launch until the result is in host memory. The GPU's own clock
measures the copy to the GPU, the computation and the copy back, without the host. The remaining request time is
launches and waits, while the GPU is idle.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from report.compared_estimates import crossings
from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.rate_arithmetic import complement, ratio_with_detail, with_library

PARTS = ("h2d", "compute", "d2h")
HOST_PARTS = ("enqueue_h2d", "enqueue_compute", "enqueue_d2h", "launch", "synchronise")
REST = "launch_and_wait"
WORK = ("op", "m", "n", "k", "size", "uses", "dtype")
WAY = ("host_memory", "launch")
# Cores in the article's CPU.
CORES = 100
_ITEMSIZE = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_LABELS = (*WORK, *WAY)
_BATCH = ("op", "batch", "size", "uses", "dtype")

_gpu_quantity = partial(quantity, device="gpu")
_both_quantity = partial(quantity, device="both")
per_second = Estimates.inverse


def request_bytes(op: str, m: int, n: int, k: int, dtype: str) -> int:
    """Return the bytes that a request transfers both ways, for the operations in the experiment `offload`."""
    elements = {"elementwise": 2 * m, "gemv": k + m, "gemm": m * k + k * n + m * n, "mlp": 2 * m * k}[op]
    return elements * _ITEMSIZE[dtype]


def request_estimates(data: Dataset, metric: str = "time") -> Estimates:
    """Return an `offload` metric with the label `size`: bytes that a request transfers both ways."""
    return _with_size(data.summary("offload", metric))


def _with_size(times: Estimates) -> Estimates:
    return times.label(size=[request_bytes(*shape) for shape in times.rows("op", "m", "n", "k", "dtype")])


def gpu_request_times(data: Dataset) -> Estimates:
    """Return seconds per whole request to a GPU."""
    return request_estimates(data).filter(device="gpu").drop_labels("threads", "backend")


def gpu_part_times(data: Dataset, part: str) -> Estimates:
    """Return the seconds for one of PARTS by the GPU's own clock, without the label for the launch method."""
    return request_estimates(data, f"device_time.{part}").drop_labels("threads", "backend", "launch")


def sum_times(*parts: Estimates) -> Estimates:
    """Add times measured in the same rounds. Their errors are correlated, so the standard errors add up too."""
    together, rows = concat_estimates(parts), []
    names = together.labels
    order = {labels: row for row, labels in enumerate(parts[0].rows(*names))}
    for labels, times in together.groups(*names):
        if len(times) == len(parts):
            total, errors = times["estimate"].sum(), times["estimate"] * times["se"]
            error = {"se": errors.sum(skipna=False) / total, "df": times["df"].min()}
            rows.append({**dict(zip(names, labels, strict=True)), **times.counts(), "estimate": total, **error})
    return Estimates.from_rows(sorted(rows, key=lambda row: order[tuple(row[name] for name in names)]), log=True)


def transfer_times(data: Dataset) -> Estimates:
    """Return the seconds for both copies, to the GPU and back, by the GPU's own clock."""
    return sum_times(gpu_part_times(data, "h2d"), gpu_part_times(data, "d2h"))


def host_rates(data: Dataset) -> Estimates:
    """Return requests per second on a CPU alone, with the fastest library for each request; `detail` names the library.

    baseline: `core` is one thread. `node` is the fastest thread count, and covers only requests that were also
    measured with all threads. Products from the experiment `gemm` count as requests, because they start and end in host
    memory.
    """
    products = _with_size(data.summary("gemm").filter(device="cpu", dtype=list(_ITEMSIZE)).label(op="gemm", uses=1))
    labels = ["node", *WORK]
    times = [
        part.keep_labels(*labels, "backend", "threads")
        for part in (request_estimates(data).filter(device="cpu"), products)
    ]
    rates = with_library(concat_estimates(times).inverse())
    most, tried = (
        rates["threads"].groupby([rates[name] for name in by], observed=True).transform("max")
        for by in (["node"], labels)
    )
    baselines = {"core": rates.filter(threads=1), "node": rates.take(tried == most)}
    return concat_estimates(
        [part.best_per_group(labels, detail=["library"]).label(baseline=name) for name, part in baselines.items()]
    )


@quantity("offload.request_time", "s", (*_LABELS, "backend", "threads"))
def request_time(data: Dataset) -> Estimates:
    """Time per request on the host's clock, from the first launch until the result is in host memory.

    On a CPU nothing is transferred, and the label host_memory is `none`.
    """
    return request_estimates(data)


@_gpu_quantity("offload.phase_share", "1", (*_LABELS, "clock", "phase"))
def phase_share(data: Dataset) -> Estimates:
    """Share of the request time that each phase takes, by the GPU's clock and by the host's clock.

    On the GPU's clock (`clock: device`), the phases are h2d (copy to the GPU), compute, d2h (copy back), and
    launch_and_wait, which is the remaining time; its bounds follow from the other intervals. On the host's clock
    (`clock: host`), each launch is a phase until it returns, and the last phase, synchronise, lasts until the GPU is
    done. The shares on each clock add up to 1.
    """
    whole = gpu_request_times(data)
    parts = {name: gpu_part_times(data, name) for name in PARTS}
    shares = [(part / whole).label(phase=name, clock="device") for name, part in parts.items()]
    shares.append(complement(sum_times(*parts.values()) / whole).label(phase=REST, clock="device"))
    for name in HOST_PARTS:
        part = request_estimates(data, f"time.{name}").drop_labels("threads", "backend")
        shares.append((part / whole).label(phase=name, clock="host"))
    return concat_estimates(shares)


@_gpu_quantity("offload.transfer_share", "1", (*_BATCH, *WAY))
def transfer_share(data: Dataset) -> Estimates:
    """Time for both copies by the GPU's clock, divided by the time for the whole request, from pinned host memory.

    batch: rows in an mlp request. uses: computations per transfer.
    """
    return _with_batch(transfer_times(data) / gpu_request_times(data))


@_gpu_quantity("offload.transfer_over_compute", "1", (*_BATCH, "host_memory"))
def transfer_over_compute(data: Dataset) -> Estimates:
    """Time for both copies, divided by the compute time, both by the GPU's clock and from pinned host memory."""
    return _with_batch(transfer_times(data) / gpu_part_times(data, "compute"))


def _with_batch(ratios: Estimates) -> Estimates:
    """Replace m, n and k by a label: `batch`, the row count, for mlp requests, and `size` for all others."""
    mlp = ratios["op"] == "mlp"
    labels = {"size": ratios["size"].mask(mlp, None), "batch": ratios["m"].where(mlp, None)}
    return ratios.drop_labels("m", "n", "k").label(**labels)


@_both_quantity("offload.speedup", "1", (*_LABELS, "baseline"), reads=("gemm",))
def speedup(data: Dataset) -> Estimates:
    """Request time on the CPU with the fastest library, divided by the time for the whole request on the GPU.

    Work and number format are the same.
    """
    return ratio_with_detail(gpu_request_times(data).inverse(), host_rates(data))


@_both_quantity(
    "offload.speedup_over_100_cores", "1", ("m", "n", "k", "dtype", "transfers"), experiments=["offload", "gemm"]
)
def speedup_over_100_cores(data: Dataset) -> Estimates:
    """Time for a matrix product on 100 cores, divided by that on the GPU, in the same number format.

    The rate on 100 cores is 100 times the fastest library's rate on one core, as if all cores kept their clock and
    shared the work without loss; real cores do neither. transfers: if included, the fastest whole request gives the
    GPU's time; if excluded, the compute time alone.
    """
    core = host_rates(data).filter(op="gemm", uses=1, baseline="core").drop_labels("baseline")
    point = ["node", "device", *WORK]
    included = gpu_request_times(data).inverse().best_per_group(point, detail=WAY).label(transfers="included")
    excluded = (
        gpu_part_times(data, "compute").inverse().best_per_group(point, detail=WAY[:1]).label(transfers="excluded")
    )
    return ratio_with_detail(concat_estimates([included, excluded]), core * CORES).drop_labels("op", "uses", "size")


@_both_quantity("offload.crossover", "B", ("op", "uses", "dtype", *WAY, "baseline"), reads=("gemm",))
def crossover(data: Dataset) -> Estimates:
    """Smallest request size from which the GPU is faster than the CPU, in bytes transferred both ways.

    low: the last size at which the whole interval shows that the CPU is faster. high: the first size at which it shows
    that the GPU is. The interval is that of the ratio between their times, from which the estimate is interpolated. If
    there is no crossover, there is no estimate, and `detail` names the faster side.
    """
    gains = speedup(data).drop_labels("m", "n", "k")
    even = gains.label(estimate=1.0, low=1.0, high=1.0, se=0.0, df=np.inf)
    sides = concat_estimates([gains.label(side="the GPU"), even.label(side="the CPU")])
    points = crossings(sides, {"over": "side", "of": "the GPU", "to": "the CPU", "along": "size"}).estimates
    series = [name for name in points.labels if name != "side"]
    by_size = dict(zip(gains.rows(*series, "size"), gains["estimate"], strict=True))
    # If the CPU is faster at the size `high`, the crossover is unknown, because the GPU loses its lead at that size.
    behind = [by_size.get(place, np.nan) < 1 for place in points.rows(*series, "high")]
    return points.drop_labels("side").set_unknown(behind, "estimate", "low", "high")
