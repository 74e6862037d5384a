"""Copies between host and device memory: rate by size, direction and kind of host memory."""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.work import Threads, Work


def memory(size: int, **_: Any) -> float:
    """The device's buffer; the host's is as large."""
    return float(size)


@experiment("transfer", memory=memory, fits=("gpu",))
def transfer(
    device: Device,
    direction: Literal["host_to_device", "device_to_host"],
    size: int,
    host_memory: Literal["pinned", "pageable"],
    backend: Literal["torch"],
    threads: Threads,
) -> Work:
    """One copy of `size` bytes, until it has arrived."""
    import torch

    host = torch.randint(0, 256, (size,), dtype=torch.uint8)
    if host_memory == "pinned":
        host = host.pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=device.name)
    source, target = (host, there) if direction == "host_to_device" else (there, host)

    def check() -> float:
        source.copy_(torch.randint(0, 256, (size,), dtype=torch.uint8))
        target.copy_(source)
        return float((target.cpu() != source.cpu()).double().mean())

    return Work(
        run=lambda: target.copy_(source, non_blocking=host_memory == "pinned"),
        bytes=float(size),
        check=check,
        tolerance=0.0,
    )
