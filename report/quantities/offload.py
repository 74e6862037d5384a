"""One request from end to end: what of it is computing, what the way to the GPU and back, and from where on it pays.

A request's time is the host's, from the first launch until the result lies in host
memory. Beside it stands what the GPU takes for each part with no host in its way: the
rest of the whole is launching and waiting, while the GPU has nothing to do.
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
# The CPU that the article speaks of.
CORES = 100
_ITEMSIZE = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_LABELS = (*WORK, *WAY)
_BATCH = ("op", "batch", "size", "uses", "dtype")

_gpu_quantity = partial(quantity, device="gpu")
_both_quantity = partial(quantity, device="both")
per_second = Estimates.inverse


def request_bytes(op: str, m: int, n: int, k: int, dtype: str) -> int:
    """Bytes of a request's data that travel there and back, as the experiment defines its operations."""
    elements = {"elementwise": 2 * m, "gemv": k + m, "gemm": m * k + k * n + m * n, "mlp": 2 * m * k}[op]
    return elements * _ITEMSIZE[dtype]


def request_estimates(data: Dataset, metric: str = "time") -> Estimates:
    """What the experiment measured under a metric, with the size of each request."""
    return _with_size(data.summary("offload", metric))


def _with_size(times: Estimates) -> Estimates:
    return times.label(size=[request_bytes(*shape) for shape in times.rows("op", "m", "n", "k", "dtype")])


def gpu_request_times(data: Dataset) -> Estimates:
    """Seconds of whole requests to a GPU."""
    return request_estimates(data).only(device="gpu").without("threads", "backend")


def gpu_part_times(data: Dataset, part: str) -> Estimates:
    """Seconds that a GPU takes for one of PARTS, whichever way the request is launched."""
    return request_estimates(data, f"device_time.{part}").without("threads", "backend", "launch")


def sum_times(*parts: Estimates) -> Estimates:
    """The sum of times that were measured in the same rounds, whose luck they share: their errors add up."""
    together, rows = concat_estimates(parts), []
    names = together.labels
    order = {labels: row for row, labels in enumerate(parts[0].rows(*names))}
    for labels, times in together.groups(*names):
        if len(times) == len(parts):
            total, errors = times["estimate"].sum(), times["estimate"] * times["se"]
            error = {"se": errors.sum(skipna=False) / total, "df": times["df"].min()}
            rows.append({**dict(zip(names, labels, strict=True)), **times.counts(), "estimate": total, **error})
    return Estimates.of(sorted(rows, key=lambda row: order[tuple(row[name] for name in names)]), log=True)


def transfer_times(data: Dataset) -> Estimates:
    """Seconds that a GPU takes for both copies."""
    return sum_times(gpu_part_times(data, "h2d"), gpu_part_times(data, "d2h"))


def host_rates(data: Dataset) -> Estimates:
    """Requests per second of a CPU alone, by the fastest library measured for each; `detail` says which.

    baseline: core, one thread; node, as many threads as suit it, where all were tried as well.
    What the experiment gemm measured counts too: its products start and end in host memory.
    """
    products = _with_size(data.summary("gemm").only(device="cpu", dtype=list(_ITEMSIZE)).label(op="gemm", uses=1))
    labels = ["node", *WORK]
    times = [part.by(*labels, "backend", "threads") for part in (request_estimates(data).only(device="cpu"), products)]
    rates = with_library(concat_estimates(times).inverse())
    most, tried = (rates["threads"].groupby([rates[name] for name in by]).transform("max") for by in (["node"], labels))
    baselines = {"core": rates.only(threads=1), "node": rates.at(tried == most)}
    return concat_estimates(
        [part.best(labels, of=["library"]).label(baseline=name) for name, part in baselines.items()]
    )


@quantity("offload.request_time", "s", (*_LABELS, "backend", "threads"))
def request_time(data: Dataset) -> Estimates:
    """Time of one request on the host's clock, from the first launch until its result lies in host memory.

    On a CPU nothing travels and host_memory is none.
    """
    return request_estimates(data)


@_gpu_quantity("offload.phase_share", "1", (*_LABELS, "clock", "phase"))
def phase_share(data: Dataset) -> Estimates:
    """Share of a request's time by phase, seen by either clock.

    clock device: what the GPU takes for h2d, compute and d2h, and launch_and_wait, the
    rest, with the ends of the others' intervals. clock host: until each launch returns, and
    then until the GPU is done (synchronise). The shares of either clock add up to 1.
    """
    whole = gpu_request_times(data)
    parts = {name: gpu_part_times(data, name) for name in PARTS}
    shares = [(part / whole).label(phase=name, clock="device") for name, part in parts.items()]
    shares.append(complement(sum_times(*parts.values()) / whole).label(phase=REST, clock="device"))
    for name in HOST_PARTS:
        part = request_estimates(data, f"time.{name}").without("threads", "backend")
        shares.append((part / whole).label(phase=name, clock="host"))
    return concat_estimates(shares)


@_gpu_quantity("offload.transfer_share", "1", (*_BATCH, *WAY))
def transfer_share(data: Dataset) -> Estimates:
    """Time of both copies on the GPU's clock over that of the whole request, from pinned memory.

    batch: the rows of an mlp's request. uses: how often its data are computed on once they are there.
    """
    return _with_batch(transfer_times(data) / gpu_request_times(data))


@_gpu_quantity("offload.transfer_over_compute", "1", (*_BATCH, "host_memory"))
def transfer_over_compute(data: Dataset) -> Estimates:
    """Time of both copies over that of the computation, both on the GPU's clock, from pinned memory."""
    return _with_batch(transfer_times(data) / gpu_part_times(data, "compute"))


def _with_batch(ratios: Estimates) -> Estimates:
    """Under the number of rows of an mlp's request, and under the size of any other."""
    mlp = ratios["op"] == "mlp"
    labels = {"size": ratios["size"].mask(mlp, None), "batch": ratios["m"].where(mlp, None)}
    return ratios.without("m", "n", "k").label(**labels)


@_both_quantity("offload.speedup", "1", (*_LABELS, "baseline"), reads=("gemm",))
def speedup(data: Dataset) -> Estimates:
    """Time of the CPU's fastest library over that of the whole request to the GPU, same work and number format."""
    return ratio_with_detail(gpu_request_times(data).inverse(), host_rates(data))


@_both_quantity(
    "offload.speedup_over_100_cores", "1", ("m", "n", "k", "dtype", "transfers"), experiments=["offload", "gemm"]
)
def speedup_over_100_cores(data: Dataset) -> Estimates:
    """Time of a matrix product on 100 cores over that on the GPU, in the same number format.

    The cores: 100 times the rate of the fastest library on one, which takes it that all keep
    the clock of one and share the work without loss; real ones do neither. The GPU:
    transfers included, the fastest of the ways that a whole request was made; excluded, computing alone.
    """
    core = host_rates(data).only(op="gemm", uses=1, baseline="core").without("baseline")
    point = ["node", "device", *WORK]
    included = gpu_request_times(data).inverse().best(point, of=WAY).label(transfers="included")
    excluded = gpu_part_times(data, "compute").inverse().best(point, of=WAY[:1]).label(transfers="excluded")
    return ratio_with_detail(concat_estimates([included, excluded]), core * CORES).without("op", "uses", "size")


@_both_quantity("offload.crossover", "B", ("op", "uses", "dtype", *WAY, "baseline"), reads=("gemm",))
def crossover(data: Dataset) -> Estimates:
    """Size of a request from which on the GPU answers first: bytes that travel there and back.

    low: the last size at which the CPU surely does, high: the first at which the GPU does; the
    estimate lies between, by the ratio of their times. Where the GPU does not overtake there
    is no estimate, and `detail` says who is ahead.
    """
    gains = speedup(data).without("m", "n", "k")
    even = gains.label(estimate=1.0, low=1.0, high=1.0, se=0.0, df=np.inf)
    sides = concat_estimates([gains.label(side="the GPU"), even.label(side="the CPU")])
    found = crossings(sides, {"over": "side", "of": "the GPU", "to": "the CPU", "along": "size"}).estimates
    series = [name for name in found.labels if name != "side"]
    by_size = dict(zip(gains.rows(*series, "size"), gains["estimate"], strict=True))
    # Where the CPU answers first past the crossing.
    behind = [by_size.get(place, np.nan) < 1 for place in found.rows(*series, "high")]
    return found.without("side").unknown(behind, "estimate", "low", "high")
