"""Quantities of memory and of the link between host and device."""

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
    """Bytes of the largest cache level of a device, all instances together."""
    record = data.record(node)
    if device != "cpu":
        return float(gpu_cache_bytes(next((one for one in record["devices"] if one["id"] == device), {})))
    cpu = record["hardware"]["cpu"]
    caches = cpu.get("caches", {}) if isinstance(cpu, dict) else {}
    return float(max((level["bytes"] for level in caches.values()), default=CPU_CACHE_BYTES))


@quantity("bandwidth.by_footprint", "B/s", _LABELS)
def footprint_rates(data: Dataset) -> Estimates:
    """Bytes per second, counted as STREAM does, at every footprint: of caches where it fits them, else of memory.

    Passes that take a GPU less than 50 microseconds are timed in a graph, without the host that launches each.
    """
    return data.device_summary("bandwidth", "bytes_per_s")


@quantity("bandwidth.rate", "B/s", _LABELS)
def bandwidth_rate(data: Dataset) -> Estimates:
    """Bytes per second, counted as STREAM does, at footprints of at least four times the last-level cache.

    Source: McCalpin's STREAM, run rules. `backend: best` is the fastest library
    and footprint among those.
    """
    rates = footprint_rates(data)
    least = [CACHE_MULTIPLE * last_level_cache(data, *place) for place in rates.rows("node", "device")]
    rates = rates.at(rates["footprint"] >= least)
    return concat_estimates([rates, rates.best(_POINT, of=["backend", "footprint"]).label(backend="best")])


def share_of_bandwidth(data: Dataset, rates: Estimates, moved: Estimates) -> Estimates:
    """Rates over the measured bandwidth: the fastest of STREAM's passes by as many threads.

    rates: bytes per second of points; moved: bytes of a call of the same points, in the same order. Points whose bytes
    could stay in caches (fewer than CACHE_MULTIPLE times the last one) are left out.
    """
    sizes = moved.rows("node", "device", "estimate")
    large = rates.at([total >= CACHE_MULTIPLE * last_level_cache(data, *place) for *place, total in sizes])
    return large / bandwidth_rate(data).only(backend="best").best(["node", "device", "threads"], of=["op", "dtype"])


@quantity("bandwidth.over_desktop", "1", ("op", "baseline", *BEST_LABELS), device="both")
def gpu_over_desktop(data: Dataset) -> Estimates:
    """Memory rate of each GPU over that of the fastest desktop of the data, in the same operation.

    baseline: desktop, a node whose processor is a desktop's and takes DDR5 alone (`machine_kinds.DESKTOP`), with all
    its threads; the fastest library and footprint on either side. precision: equal (the same dtype on both sides) or
    best (each side's fastest dtype). runtime, cpu_runtime: the libraries of the GPU and of the desktop, which `detail`
    names.
    """
    rates = bandwidth_rate(data)
    rates = rates.at(rates["backend"] != "best")
    desktops = most_threads(rates.only(device="cpu", node=nodes_of_kind(data, "desktop")))
    named = desktops.label(baseline="desktop", named=[data.label(node) for node in desktops["node"]])
    cpu = named.without("node", "device")
    return concat_estimates(best_ratios(rates.only(device="gpu"), cpu, ["op", "baseline"], ["named"]))


def copy_estimates(data: Dataset, metric: str = "time", value: str = "estimate") -> Estimates:
    """Copies to, from and within GPUs under the labels that tell them apart."""
    return data.summary("transfer", metric, value).by(*_WAY, "size")


@_transfer_quantity("transfer.rate", "B/s", _COPY)
def transfer_rate(data: Dataset) -> Estimates:
    """Bytes per second of copies of one size, one after the other.

    direction: host_to_device, device_to_host, both (what arrives on either side
    together), device_to_device (what the device's memory reads and writes), peer.
    """
    return copy_estimates(data, value="bytes_per_s")


@_transfer_quantity("transfer.memory_ratio", "1", (*_COPY, "op", "dtype"), experiments=["transfer", "bandwidth"])
def memory_ratio(data: Dataset) -> Estimates:
    """Copy rate within device memory over the copy rate between host and device, same device."""
    inside = bandwidth_rate(data).only(device="gpu", op="copy", backend="best").by("node", "device", "op", "dtype")
    return inside / transfer_rate(data).only(direction=TO_AND_FROM)


@_transfer_quantity("transfer.half_rate_size", "B", ("direction", "host_memory"))
def half_rate_size(data: Dataset) -> Estimates:
    """Size of a copy from which on it reaches half of the best rate: Hockney's n_1/2.

    As for crossovers, low is the last size that surely stays below (the whole interval of its share of the best
    rate), high the first one past it that surely does not, either unknown if there is none; the estimate is
    interpolated on logarithms. No case where the smallest copy reaches it.
    Source: Hockney, The Science of Computer Benchmarking (SIAM, 1996), chapter 1.
    """
    rows = []
    for way, rates in transfer_rate(data).ascending("size").groups(*_WAY):
        top = rates.at([rates["estimate"].argmax()])
        shares = rates / top.by(*_WAY)
        size, share, low, high = (shares.numbers(name).to_numpy() for name in ("size", "estimate", "low", "high"))
        # The number of copies up to the largest that stays below.
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
