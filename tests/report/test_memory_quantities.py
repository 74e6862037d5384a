"""Quantities of memory and of the link to the host give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import CPU, Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured

MIB = 2**20


def copy(
    node: SyntheticNode,
    seconds: float,
    size: int,
    direction: str = "host_to_device",
    host_memory: str = "pinned",
    **more: Any,
) -> SyntheticNode:
    """A copy that takes so long; `both` and device_to_device count twice the bytes, as the experiment does."""
    moved = size * (2 if direction in ("both", "device_to_device") else 1)
    params = {"direction": direction, "size": size, "host_memory": host_memory}
    more = {"spread": 0.0, **more}
    return node.point("transfer", seconds, params=params, bytes=moved, device="cuda:0", dtype="", **more)


def link(synthetic: Factory) -> SyntheticNode:
    """10 µs and 50 GB/s to the device, 40 GB/s to the host, 75 GB/s both ways together."""
    node = synthetic("node-a", gpus=1)
    for size in (4, 65536, MIB, 16 * MIB, 256 * MIB):
        for way, rate in (("host_to_device", 50e9), ("device_to_host", 40e9)):
            copy(node, 10e-6 + size / rate, size, way)
        copy(node, 2 * size / 75e9, size, "both")
        copy(node, 20e-6 + size / 50e9, size, metric="request_time")
    copy(node, 1e-6, 4, metric="graph_time")
    return copy(node, 512 * MIB / 2e12, 256 * MIB, "device_to_device", "none")


def passes(node: SyntheticNode, footprint: int, rate: float, op: str = "triad", **more: Any) -> None:
    params = {"op": op, "footprint": footprint}
    node.point("bandwidth", footprint / rate, params=params, bytes=footprint, **{"spread": 1e-4, **more})


class Desktop(SyntheticNode):
    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"]["model"] = "AMD Ryzen 9 7950X 16-Core Processor"
        return record


def build(synthetic: Factory) -> Dataset:
    """The link, memory of a GPU, and two desktops."""
    node = link(synthetic)
    node.devices[1]["l2_bytes"] = 50 * MIB
    copy(node, 32 * MIB / 8e9, 32 * MIB, host_memory="pageable")
    passes(node, 6 * MIB, 6e12, device="cuda:0")
    for backend, rate in (("torch", 3e12), ("cupy", 2e12)):
        passes(node, 512 * MIB, rate, device="cuda:0", backend=backend)
    passes(node, 512 * MIB, 1e12, "copy", device="cuda:0")
    passes(node, 512 * MIB, 9e11, threads=2)  # no desktop
    for name, rate in (("node-b", 5e10), ("node-c", 6e10)):
        node.folder.parent.mkdir(exist_ok=True)
        desktop = Desktop(synthetic.root / name, [CPU], seed=ord(name[-1]))
        passes(desktop, 512 * MIB, rate, threads=2)
        passes(desktop, 512 * MIB, 9e10)  # one thread is not the whole desktop
        desktop.write()
    return data(synthetic, node)


found = measured(build)
_RATE = {"size": 256 * MIB, "host_memory": "pinned"}


@cases(
    case("bandwidth.by_footprint", {6 * MIB: 6e12, 512 * MIB: 3e12}, by="footprint", op="triad", backend="torch",
         device="gpu"),
    case("bandwidth.rate", {"torch": 3e12, "cupy": 2e12}, by="backend", op="triad", device="gpu"),
    case("bandwidth.rate", 3e12, op="triad", device="gpu", backend="best", detail="torch, footprint 537 MB"),
    case("bandwidth.over_desktop", 50, op="triad", labels={"node": "node-a", "device": "cuda:0", "op": "triad",
         "dtype": "float32", "baseline": "desktop"}),
    case("transfer.rate", 75e9, direction="both", **_RATE),
    case("transfer.rate", 8e9, host_memory="pageable"),
    case("transfer.rate", 2e12, direction="device_to_device"),
    case("transfer.memory_ratio", {"host_to_device": 20, "device_to_host": 25}, by="direction", rel=0.01, **_RATE),
    case("transfer.latency", 20e-6, clock="host", labels={"node": "node-a", "device": "cuda:0", "size": 4,
         "direction": "host_to_device", "host_memory": "pinned", "clock": "host"}),
    case("transfer.latency", 1e-6, clock="device"),
    case("transfer.duplex_gain", 1.5, rel=0.01, **_RATE),
    # 10 µs are 500 kB at 50 GB/s: there a copy takes twice as long as its bytes do.
    case("transfer.half_rate_size", 500e3, direction="host_to_device", host_memory="pinned", low=65536, high=MIB,
         rel=0.35),
)  # fmt: skip
def test_memory(found: Dataset, one: Case) -> None:
    one.check(found)


@pytest.mark.parametrize(
    ("rates", "spread", "ends"),
    [
        # A size that is not surely below half the best rate is no end of where it lies.
        ({65536: 1e9, MIB: 4.9e9, 4 * MIB: 5.1e9, 16 * MIB: 10e9}, 0.05, [(65536, 16 * MIB)]),
        ({MIB: 5e9, 16 * MIB: 8e9}, 0, []),
        ({MIB: 8e9, 16 * MIB: 1e9}, 0, []),
    ],
)
def test_where_half_of_the_best_rate_is_passed(
    synthetic: Factory, rates: dict[int, float], spread: float, ends: list[tuple[int, int]]
) -> None:
    node = synthetic("node-a", gpus=1)
    for size, rate in rates.items():
        copy(node, size / rate, size, spread=spread)
    assert cells("transfer.half_rate_size", data(synthetic, node)).rows("low", "high") == ends
