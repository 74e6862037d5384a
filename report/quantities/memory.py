"""Quantities of memory and of the link between host and device."""

from __future__ import annotations

from report.cells import Cells, concat
from report.evidence import Data
from report.quantities import quantity

CACHE_MULTIPLE = 4
# Where a GPU does not tell its cache: 256 MiB is above every one that ships at the time of writing.
GPU_CACHE_BYTES = 256 * 2**20
CPU_CACHE_BYTES = 32 * 2**20
_POINT = ["node", "device", "op", "dtype", "threads"]


def last_level_cache(data: Data, node: str, device: str) -> float:
    """Bytes of the largest cache level of a device, all instances together."""
    record = next(one.record for one in data.nodes.nodes if one.id == node)
    if device != "cpu":
        told = next((one.get("l2_bytes") for one in record["devices"] if one["id"] == device), None)
        return float(told or GPU_CACHE_BYTES)
    cpu = record["hardware"]["cpu"]
    caches = cpu.get("caches", {}) if isinstance(cpu, dict) else {}
    return float(max((level["bytes"] for level in caches.values()), default=CPU_CACHE_BYTES))


@quantity(
    "bandwidth.rate",
    unit="B/s",
    needs={"experiments": ["bandwidth"], "device": "any"},
    labels=("op", "dtype", "threads", "backend", "footprint"),
    says="On {node}, memory moves {value} ({labels})",
)
def bandwidth_rate(data: Data) -> Cells:
    """Bytes per second, counted as STREAM does, at footprints of at least four times the last-level cache.

    Source: McCalpin's STREAM, run rules. `backend: best` is the fastest library
    and footprint among those.
    """
    cells = data.summary("bandwidth", value="bytes_per_s")
    if not len(cells):
        return cells
    places = zip(cells.frame["node"], cells.frame["device"], cells.frame["footprint"], strict=True)
    cells = cells.at([i for i, (n, d, f) in enumerate(places) if f >= CACHE_MULTIPLE * last_level_cache(data, n, d)])
    if not len(cells):
        return cells
    return concat([cells, cells.best(_POINT, of=["backend", "footprint"]).label(backend="best")])


@quantity(
    "transfer.rate",
    unit="B/s",
    needs={"experiments": ["transfer"], "device": "gpu"},
    labels=("direction", "size", "host_memory"),
    says="On {node}, copies between host and device ({labels}) move {value}",
)
def transfer_rate(data: Data) -> Cells:
    """Bytes per second of one copy between host and device memory."""
    cells = data.summary("transfer", value="bytes_per_s")
    if not len(cells):
        return cells
    return cells.by("node", "device", "direction", "size", "host_memory")


@quantity(
    "transfer.memory_ratio",
    unit="1",
    needs={"experiments": ["transfer", "bandwidth"], "device": "gpu"},
    labels=("direction", "size", "host_memory", "op", "dtype"),
    says="On {node}, the device's own memory moves {value} times what the link to the host does ({labels})",
)
def memory_ratio(data: Data) -> Cells:
    """Copy rate within device memory over the copy rate between host and device, same device."""
    link, memory = transfer_rate(data), bandwidth_rate(data)
    if not len(link) or not len(memory):
        return Cells.empty()
    inside = memory.only(device="gpu", op="copy", backend="best")
    return inside.by("node", "device", "op", "dtype") / link if len(inside) else inside
