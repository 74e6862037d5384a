"""A server's CPU and an H100 in a few numbers each, and how long they take for so much work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.workflow.standin.machine import last_cache

ITEMSIZE = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1}


class Lack(Exception):  # noqa: N818 - an outcome that is recorded, not an error
    """What this device does not do."""


@dataclass(frozen=True)
class Chip:
    """A device.

    flops: FLOP/s by number format, that products reach. half: FLOP of a product that reaches half of them. memory,
    cached: bytes/s of memory and of the last cache, which holds cache bytes. launch_s: what a call takes at least;
    host_s: until it returns. power_w: under load.
    """

    kind: str
    flops: dict[str, float]
    half: float
    memory: float
    cache: float
    cached: float
    launch_s: float
    host_s: float
    free: float
    power_w: float = 0.0
    more: dict[str, Any] = field(default_factory=dict)

    def product_s(self, flop: float, moved: float, dtype: str, share: float = 1.0) -> float:
        """Seconds of a product; share: of the rate that the best code reaches."""
        if dtype not in self.flops:
            raise Lack(f"no {dtype} on this device")
        return max((flop + self.half) / (self.flops[dtype] * share), self.moved_s(moved)) + self.launch_s

    def moved_s(self, moved: float, footprint: float = math.inf) -> float:
        """Seconds of a pass over data."""
        return moved / (self.cached if footprint <= self.cache else self.memory)


def gpu() -> Chip:
    """An H100 of the SXM kind, as published measurements have it."""
    return Chip(
        "gpu",
        {
            "float64": 55e12, "float32": 51e12, "tf32": 370e12, "bfloat16": 640e12, "float16": 650e12,
            "float8_e4m3fn": 1100e12, "int8": 1200e12,
        },
        half=1e9, memory=2.9e12, cache=50e6, cached=5.5e12, launch_s=3e-6, host_s=6e-6, free=79e9, power_w=640.0,
    )  # fmt: skip


def cpu(threads: int) -> Chip:
    """So many cores of a server's processor."""
    threads = max(1, threads)
    core = {"float64": 75e9, "float32": 150e9, "bfloat16": 280e9, "float16": 0.3e9, "int8": 500e9}
    return Chip(
        "cpu", {name: rate * threads**0.93 for name, rate in core.items()}, half=1e5 * threads,
        memory=min(170e9, 12e9 * threads), cache=last_cache(), cached=35e9 * threads**0.9,
        launch_s=1e-6 if threads == 1 else 6e-6, host_s=2e-6, free=120e9, power_w=8.0 * threads,
    )  # fmt: skip


def chip(device: str, threads: int) -> Chip:
    """The device of this name."""
    return cpu(threads) if device == "cpu" else gpu()
