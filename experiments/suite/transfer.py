"""Copies to, from and within a GPU: time and rate by size, direction and kind of host memory.

One buffer lies on each side and is used over and over, as in NVIDIA's nvbandwidth. A
small one stays in the CPU's caches, which the link reads and writes through on most
hosts; one that is larger than they are crosses the host's memory too. That memory
is on the NUMA node of the core that first touched it: where the GPU hangs on
another, a copy crosses the link between the two as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Threads, Unsupported, Workload, largest_error

if TYPE_CHECKING:
    import torch

# Bytes that are written and compared at a time in a check.
PART = 1 << 20

Direction = Literal["host_to_device", "device_to_host", "both", "device_to_device", "peer"]
HostMemory = Literal["pinned", "pageable", "none"]


def memory(size: int, direction: str, **_: Any) -> float:
    """The device's buffers; the host has as many."""
    return float(size) * (2 if direction in ("both", "device_to_device") else 1)


def extra_s(size: int, **_: Any) -> float:
    """Drawing, locking and comparing host memory."""
    return 0.1 + size / 0.5e9


@experiment("transfer", memory=memory, fits=("gpu",), extra_s=extra_s)
def transfer(
    device: Device,
    direction: Direction,
    size: int,
    host_memory: HostMemory,
    backend: Literal["torch"],
    threads: Threads,
) -> Workload:
    """One copy of `size` bytes, until it has arrived; `both`: one each way at the same time.

    direction: device_to_device stays within the device's memory, peer goes to another
    GPU, by whichever way the driver finds (NVLink, PCIe, the host's memory); either has
    host_memory none. host_memory: pinned is locked, so that the device copies by itself
    while the host goes on; pageable passes through a buffer of the driver's.
    Bytes: those that arrive; within a device, those that its memory reads and writes.

    time is that of copies one after the other as PyTorch launches them, by events;
    graph_time that of short ones without the host, the link's own. request_time is what
    somebody waits for who asks for one copy: .enqueue until the call returns, .wait from
    then until the copy has arrived.
    Error: the share of parts of 1 MiB that arrive otherwise than they were sent.
    Unsupported: both with pageable memory, whose copies keep the host busy; peer with one GPU.
    """
    pairs = _buffers(device, direction, size, host_memory)
    free = host_memory != "pageable"
    launches = [lambda to=to, sent=sent: to.copy_(sent, non_blocking=free) for to, sent in pairs]

    def call() -> None:
        if len(launches) == 1:
            launches[0]()
        else:
            device.launch_concurrently(launches)

    def check() -> float:
        contents = [_Bytes(size) for _ in pairs]
        for content, (_, sent) in zip(contents, pairs, strict=True):
            content.write(sent)
        call()
        device.synchronise()
        return largest_error(*(content.differing(to, device) for content, (to, _) in zip(contents, pairs, strict=True)))

    moved = float(size) * (2 if direction in ("both", "device_to_device") else 1)
    return Workload(
        run=call,
        bytes=moved,
        check=check,
        tolerance=0.0,
        graph=free and direction != "peer",
        beside=[
            Workload(
                phases=[("enqueue", call), ("wait", device.synchronise)],
                metric="request_time",
                clock="host",
                bytes=moved,
            )
        ],
    )


def _buffers(
    device: Device, direction: Direction, size: int, host_memory: HostMemory
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(target, source) of each copy."""
    import torch

    if (host_memory == "none") != (direction in ("device_to_device", "peer")):
        raise Unsupported(f"{direction} has {'no' if host_memory != 'none' else 'some'} host memory, not {host_memory}")
    if direction == "both" and host_memory == "pageable":
        raise Unsupported("the host itself copies pageable memory, one way at a time")

    def on(name: str) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=name)

    def host() -> torch.Tensor:
        return device.pin(on("cpu")) if host_memory == "pinned" else on("cpu")

    here = on(device.name)
    if direction == "host_to_device":
        return [(here, host())]
    if direction == "device_to_host":
        return [(host(), here)]
    if direction == "both":
        return [(here, host()), (host(), on(device.name))]
    if direction == "device_to_device":
        return [(on(device.name), here)]
    others = device.peers(device.name)
    if not others:
        raise Unsupported(f"{device.name} is the only GPU")
    return [(on(others[0]), here)]


class _Bytes:
    """Random content of a buffer: every part is cut from one random block, at a place of its own.

    So no part holds what another does, and little has to be drawn.
    """

    def __init__(self, size: int) -> None:
        import torch

        part = min(size, PART)
        self._block = torch.randint(0, 256, (2 * part,), dtype=torch.uint8)
        self._places = torch.randint(0, part + 1, (-(-size // part),)).tolist()

    def _parts(self, buffer: torch.Tensor, block: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each part of the buffer, and what belongs there."""
        parts = buffer.split(PART)
        return [(part, block[place : place + len(part)]) for part, place in zip(parts, self._places, strict=True)]

    def write(self, buffer: torch.Tensor) -> None:
        for part, content in self._parts(buffer, self._block.to(buffer.device)):
            part.copy_(content)

    def differing(self, buffer: torch.Tensor, device: Device) -> float:
        """Share of the buffer's parts that hold something else; `device` compares them, faster than the host can."""
        import torch

        parts = self._parts(buffer, self._block.to(device.name))
        return sum(not torch.equal(part.to(device.name), content) for part, content in parts) / len(parts)
