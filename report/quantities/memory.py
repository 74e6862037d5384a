"""Quantities of memory and of the link between host and device."""

from __future__ import annotations

import math

import numpy as np

from report.data.dataset import Dataset
from report.data.machines import of_kind
from report.estimates import Estimates, concat, exact, merged
from report.formatting import with_unit
from report.quantities import quantity

CACHE_MULTIPLE = 4
# Where a GPU does not tell its cache: 256 MiB is above every one that ships at the time of writing.
GPU_CACHE_BYTES = 256 * 2**20
CPU_CACHE_BYTES = 32 * 2**20
_POINT = ["node", "device", "op", "dtype", "threads"]
TO_AND_FROM = ("host_to_device", "device_to_host")
_WAY = ["node", "device", "direction", "host_memory"]
_COPY = [*_WAY, "size"]


def last_level_cache(data: Dataset, node: str, device: str) -> float:
    """Bytes of the largest cache level of a device, all instances together."""
    record = data.record(node)
    if device != "cpu":
        told = next((one.get("l2_bytes") for one in record["devices"] if one["id"] == device), None)
        return float(told or GPU_CACHE_BYTES)
    cpu = record["hardware"]["cpu"]
    caches = cpu.get("caches", {}) if isinstance(cpu, dict) else {}
    return float(max((level["bytes"] for level in caches.values()), default=CPU_CACHE_BYTES))


@quantity(
    "bandwidth.by_footprint",
    unit="B/s",
    needs={"experiments": ["bandwidth"], "device": "any"},
    labels=("op", "dtype", "threads", "backend", "footprint"),
    says="On {node}, passes over data that take up so much ({labels}) move {value}",
)
def by_footprint(data: Dataset) -> Estimates:
    """Bytes per second, counted as STREAM does, at every footprint: of caches where it fits them, else of memory."""
    return data.summary("bandwidth", value="bytes_per_s")


@quantity(
    "bandwidth.rate",
    unit="B/s",
    needs={"experiments": ["bandwidth"], "device": "any"},
    labels=("op", "dtype", "threads", "backend", "footprint"),
    says="On {node}, memory moves {value} ({labels})",
)
def bandwidth_rate(data: Dataset) -> Estimates:
    """Bytes per second, counted as STREAM does, at footprints of at least four times the last-level cache.

    Source: McCalpin's STREAM, run rules. `backend: best` is the fastest library
    and footprint among those.
    """
    cells = by_footprint(data)
    if not len(cells):
        return cells
    places = zip(cells.frame["node"], cells.frame["device"], cells.frame["footprint"], strict=True)
    cells = cells.at([i for i, (n, d, f) in enumerate(places) if f >= CACHE_MULTIPLE * last_level_cache(data, n, d)])
    if not len(cells):
        return cells
    return concat([cells, cells.best(_POINT, of=["backend", "footprint"]).label(backend="best")])


@quantity(
    "bandwidth.over_desktop",
    unit="1",
    needs={"experiments": ["bandwidth"], "device": "both"},
    labels=("op", "dtype", "baseline"),
    says="The memory of the GPU of {node} is {value} times as fast as that of a desktop ({labels})",
)
def over_desktop(data: Dataset) -> Estimates:
    """Memory rate of each GPU over that of the fastest desktop of the data, in the same operation and format.

    baseline: desktop, a node whose processor is a desktop's and takes DDR5 alone (`machines.DESKTOP`), with all
    its threads; the fastest library and footprint on either side. `detail` names it.
    """
    rates, desktops = bandwidth_rate(data), of_kind(data, "desktop")
    if not len(rates) or not desktops:
        return Estimates.empty()
    rates = rates.only(backend="best").without("backend")
    gpus, cpus = rates.only(device="gpu"), rates.only(device="cpu", node=desktops)
    if not len(gpus) or not len(cpus):
        return Estimates.empty()
    most = cpus.frame.groupby("node")["threads"].transform("max")
    cpus = cpus.at((cpus.frame["threads"] == most).to_numpy(bool))
    named = [f"over {data.label(node)}" for node in cpus.frame["node"]]
    best = cpus.label(baseline="desktop", named=named).best(["op", "dtype", "baseline"], of=["named"])
    cells = gpus.without("threads") / best.label(against=best.frame["detail"])
    return cells.label(detail=cells.frame["against"]).without("against") if len(cells) else cells


def copies(data: Dataset, metric: str = "time", value: str = "estimate") -> Estimates:
    """Copies to, from and within GPUs under the labels that tell them apart."""
    cells = data.summary("transfer", metric, value)
    return cells.by(*_COPY) if len(cells) else cells


@quantity(
    "transfer.rate",
    unit="B/s",
    needs={"experiments": ["transfer"], "device": "gpu"},
    labels=("direction", "size", "host_memory"),
    says="On {node}, copies ({labels}) move {value}",
)
def transfer_rate(data: Dataset) -> Estimates:
    """Bytes per second of copies of one size, one after the other.

    direction: host_to_device, device_to_host, both (what arrives on either side
    together), device_to_device (what the device's memory reads and writes), peer.
    """
    return copies(data, value="bytes_per_s")


@quantity(
    "transfer.memory_ratio",
    unit="1",
    needs={"experiments": ["transfer", "bandwidth"], "device": "gpu"},
    labels=("direction", "size", "host_memory", "op", "dtype"),
    says="On {node}, the device's own memory moves {value} times what the link to the host does ({labels})",
)
def memory_ratio(data: Dataset) -> Estimates:
    """Copy rate within device memory over the copy rate between host and device, same device."""
    link, memory = transfer_rate(data), bandwidth_rate(data)
    if not len(link) or not len(memory):
        return Estimates.empty()
    inside, link = memory.only(device="gpu", op="copy", backend="best"), link.only(direction=list(TO_AND_FROM))
    return inside.by("node", "device", "op", "dtype") / link if len(inside) else inside


@quantity(
    "transfer.latency",
    unit="s",
    needs={"experiments": ["transfer"], "device": "gpu"},
    labels=("direction", "host_memory", "size", "clock"),
    says="On {node}, the smallest copy ({labels}) takes {value}",
)
def transfer_latency(data: Dataset) -> Estimates:
    """Time of the smallest copy that was measured.

    clock: host, from the call until the copy has arrived, what a program waits for;
    device, on the link alone, one copy after the other without the host.
    """
    found = []
    for clock, metric in (("host", "request_time"), ("device", "graph_time")):
        cells = copies(data, metric)
        if len(cells):
            sizes = cells.frame["size"].astype(float)
            least = sizes.groupby([cells.frame[name] for name in _WAY]).transform("min")
            found.append(cells.at((sizes == least).to_numpy(bool)).label(clock=clock))
    return concat(found)


@quantity(
    "transfer.duplex_gain",
    unit="1",
    needs={"experiments": ["transfer"], "device": "gpu"},
    labels=("size", "host_memory"),
    says="On {node}, copies both ways at once move {value} times what the faster way does alone ({labels})",
)
def duplex_gain(data: Dataset) -> Estimates:
    """Rate of copies both ways at once over that of the faster way alone, same size: 2 if neither slows the other."""
    rates = transfer_rate(data)
    if not len(rates):
        return rates
    one = rates.only(direction=list(TO_AND_FROM)).best(["node", "device", "size", "host_memory"], of=["direction"])
    return rates.only(direction="both").without("direction") / one if len(one) else one


@quantity(
    "transfer.half_rate_size",
    unit="B",
    needs={"experiments": ["transfer"], "device": "gpu"},
    labels=("direction", "host_memory"),
    says="On {node}, copies ({labels}) reach half of their best rate at {value}",
)
def half_rate_size(data: Dataset) -> Estimates:
    """Size of a copy from which on it reaches half of the best rate: Hockney's n_1/2.

    As for crossovers, low is the last size that surely stays below (the whole interval of its share of the best
    rate), high the first one past it that surely does not, either unknown if there is none; the estimate is
    interpolated on logarithms. No cell where the smallest copy reaches it.
    Source: Hockney, The Science of Computer Benchmarking (SIAM, 1996), chapter 1.
    """
    rates = transfer_rate(data)
    if not len(rates):
        return rates
    found = []
    for way, part in rates.frame.groupby(_WAY):
        order = Estimates(part.assign(size=part["size"].astype(float)).sort_values("size").reset_index(drop=True))
        top = order.at([int(order.frame["estimate"].argmax())])
        ratio = (order / top.by(*_WAY)).frame
        size, share = ratio["size"].to_numpy(float), ratio["estimate"].to_numpy(float)
        less = np.flatnonzero(share < 0.5)
        if not len(less) or less[-1] + 1 == len(size):
            continue
        last = int(less[-1])
        ends = slice(last, last + 2)
        at = float(np.exp(np.interp(math.log(0.5), np.log(share[ends]), np.log(size[ends]))))
        below = np.flatnonzero(ratio["high"].to_numpy(float)[: last + 1] < 0.5)
        above = last + 1 + np.flatnonzero(ratio["low"].to_numpy(float)[last + 1 :] >= 0.5)
        low, high = (float(size[sure[end]]) if len(sure) else math.nan for sure, end in ((below, -1), (above, 0)))
        best = f"best: {with_unit(float(top.frame['estimate'].iloc[0]), 'B/s')}"
        counts = {"n_rounds": int(part["n_rounds"].min()), "n_samples": int(part["n_samples"].sum())}
        labels = dict(zip(_WAY, way, strict=True))
        values = {"estimate": at, "low": low, "high": high, "source_rows": merged(part["source_rows"])}
        cell = exact([{**labels, **values, "detail": best}])
        found.append(Estimates(cell.frame.assign(**counts), log=False))
    return concat(found)
