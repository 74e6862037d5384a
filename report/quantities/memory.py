"""Memory bandwidth, and transfers between host and device."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from contract.node import gpu_cache_bytes
from report.data.dataset import Dataset
from report.data.machine_kinds import nodes_of_kind
from report.estimates import Estimates, concat_estimates, exact_estimates
from report.formatting import with_unit
from report.quantities import quantity
from report.quantities.rate_arithmetic import BEST_LABELS, best_ratios, most_threads

CACHE_MULTIPLE = 4
CPU_CACHE_BYTES = 32 * 2**20
TO_AND_FROM = ("host_to_device", "device_to_host")
_POINT = ["node", "device", "op", "dtype", "threads"]
_WAY = ["node", "device", "direction", "host_memory"]
_COPY = ("direction", "size", "host_memory")
_LABELS = ("op", "dtype", "threads", "backend", "footprint")

_transfer_quantity = partial(quantity, device="gpu")


def last_level_cache(data: Dataset, node: str, device: str) -> float:
    """Return the bytes in a device's largest cache level, summed over all caches at that level."""
    record = data.record(node)
    if device != "cpu":
        return float(gpu_cache_bytes(next((entry for entry in record["devices"] if entry["id"] == device), {})))
    cpu = record["hardware"]["cpu"]
    caches = cpu.get("caches", {}) if isinstance(cpu, dict) else {}
    return float(max((level["bytes"] for level in caches.values()), default=CPU_CACHE_BYTES))


@quantity("bandwidth.by_footprint", "B/s", _LABELS)
def footprint_rates(data: Dataset) -> Estimates:
    """Bytes per second, counted as in STREAM, at every footprint.

    The result is a cache's bandwidth if the footprint fits into that cache, and the memory's bandwidth if it fits into
    none. Passes that take a GPU less than 50 microseconds are timed in a graph, to exclude launches by the host.
    """
    return data.device_summary("bandwidth", "bytes_per_s")


@quantity("bandwidth.rate", "B/s", _LABELS)
def bandwidth_rate(data: Dataset) -> Estimates:
    """Bytes per second, counted as in STREAM, at footprints of at least four times the last-level cache.

    McCalpin's run rules for STREAM set the minimum footprint. `backend: best` is the fastest library and footprint.
    """
    rates = footprint_rates(data)
    least = [CACHE_MULTIPLE * last_level_cache(data, *place) for place in rates.rows("node", "device")]
    rates = rates.take(rates["footprint"] >= least)
    return concat_estimates(
        [rates, rates.best_per_group(_POINT, detail=["backend", "footprint"]).label(backend="best")]
    )


def share_of_bandwidth(data: Dataset, rates: Estimates, moved: Estimates) -> Estimates:
    """Divide rates by the bandwidth measured in STREAM's fastest pass with the same thread count.

    rates: bytes per second at each point. moved: bytes per call at the same points, in the same order. Points that
    might fit into caches (fewer bytes than CACHE_MULTIPLE times the last-level cache) are left out.
    """
    sizes = moved.rows("node", "device", "estimate")
    large = rates.take([total >= CACHE_MULTIPLE * last_level_cache(data, *place) for *place, total in sizes])
    return large / bandwidth_rate(data).filter(backend="best").best_per_group(
        ["node", "device", "threads"], detail=["op", "dtype"]
    )


@quantity("bandwidth.over_desktop", "1", ("op", "baseline", *BEST_LABELS), device="both")
def gpu_over_desktop(data: Dataset) -> Estimates:
    """Each GPU's memory bandwidth, relative to the fastest desktop computer in the data, for the same operation.

    baseline: desktop, a node with a desktop processor that takes only DDR5 (`machine_kinds.DESKTOP`), with all its
    threads. Both sides use the fastest library and footprint. precision: equal (the same dtype on both sides) or best
    (each side's fastest dtype). runtime, cpu_runtime: libraries on the GPU and on the desktop; `detail` names the
    desktop.
    """
    rates = bandwidth_rate(data)
    rates = rates.take(rates["backend"] != "best")
    desktops = most_threads(rates.filter(device="cpu", node=nodes_of_kind(data, "desktop")))
    labelled = desktops.label(baseline="desktop", named=[data.label(node) for node in desktops["node"]])
    cpu = labelled.drop_labels("node", "device")
    return concat_estimates(best_ratios(rates.filter(device="gpu"), cpu, ["op", "baseline"], ["named"]))


def copy_estimates(data: Dataset, metric: str = "time", value: str = "estimate") -> Estimates:
    """Return estimates for copies to, from and within GPUs, with the labels that distinguish the copies."""
    return data.summary("transfer", metric, value).keep_labels(*_WAY, "size")


@_transfer_quantity("transfer.rate", "B/s", _COPY)
def transfer_rate(data: Dataset) -> Estimates:
    """Bytes per second in consecutive copies of equal size.

    direction: host_to_device; device_to_host; both, which copies in both directions at once and adds up the bytes that
    arrive on the two sides; device_to_device, which counts the bytes that the device's memory reads and writes; or
    peer, which copies to another GPU.
    """
    return copy_estimates(data, value="bytes_per_s")


@_transfer_quantity("transfer.memory_ratio", "1", (*_COPY, "op", "dtype"), experiments=["transfer", "bandwidth"])
def memory_ratio(data: Dataset) -> Estimates:
    """Copy rate within device memory, relative to the copy rate between host and device, on the same device."""
    inside = (
        bandwidth_rate(data)
        .filter(device="gpu", op="copy", backend="best")
        .keep_labels("node", "device", "op", "dtype")
    )
    return inside / transfer_rate(data).filter(direction=TO_AND_FROM)


@_transfer_quantity("transfer.half_rate_size", "B", ("direction", "host_memory"))
def half_rate_size(data: Dataset) -> Estimates:
    """Copy size from which the rate stays at or above half the best rate: Hockney's n_1/2.

    low: the last size at which the rate's whole interval lies below half the best. high: the first later size at which
    it lies at or above half the best. Each bound is unknown if there is no such size. The estimate is interpolated
    between two sizes, on logarithms. If no copy is slower than half the best, there is no case.

    Source: Hockney, The Science of Computer Benchmarking (SIAM, 1996), chapter 1.
    """
    rows = []
    for way, rates in transfer_rate(data).sort_by("size").groups(*_WAY):
        top = rates.take([rates["estimate"].argmax()])
        shares = rates / top.keep_labels(*_WAY)
        size, share, low, high = (shares.numbers(name).to_numpy() for name in ("size", "estimate", "low", "high"))
        # Count the sizes up to and including the largest size at which the rate is below half the best.
        below = int(np.flatnonzero(share < 0.5).max(initial=-1)) + 1
        if 0 < below < len(size):
            ends = slice(below - 1, below + 1)
            rows.append(
                {
                    **dict(zip(_WAY, way, strict=True)),
                    "estimate": float(np.exp(np.interp(math.log(0.5), np.log(share[ends]), np.log(size[ends])))),
                    "low": max(size[:below][high[:below] < 0.5], default=math.nan),
                    "high": min(size[below:][low[below:] >= 0.5], default=math.nan),
                    "detail": f"best: {with_unit(top.value('estimate', 0), 'B/s')}",
                    **rates.counts(),
                }
            )
    return exact_estimates(rows)
