"""Copies to, from and within a GPU: time and rate by size, direction and kind of host memory.

Each side has one buffer, reused for every copy, as in NVIDIA's nvbandwidth. On most hosts, the link to the GPU accesses
host buffers through the CPU's caches. A small buffer stays in the caches; a copy of a larger buffer also goes through
host memory. A host buffer lies on the NUMA node of the core that first touched it: if the GPU is attached to another
node, a copy also crosses the link between the two nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Threads, Unsupported, Workload, largest_error

if TYPE_CHECKING:
    import torch

# Number of bytes to write, and to compare, at a time in a check.
PART = 1 << 20

Direction = Literal["host_to_device", "device_to_host", "both", "device_to_device", "peer"]
HostMemory = Literal["pinned", "pageable", "none"]


def memory(size: int, direction: str, **_: Any) -> float:
    """Return the bytes in device buffers; the host needs as many."""
    return float(size) * (2 if direction in ("both", "device_to_device") else 1)


def extra_s(size: int, **_: Any) -> float:
    """Estimate the seconds to draw random data, to lock host memory, and to compare the copied data."""
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
    """Copy `size` bytes and wait for arrival; `both` copies one buffer each way at the same time.

    direction: device_to_device stays within the device's memory; peer goes to another GPU, by the driver's choice of
        path (NVLink, PCIe, host memory). For these two directions, host_memory is none.
    host_memory: pinned memory is locked, so the device copies by itself while the host continues; pageable memory
        passes through a driver buffer.
    Bytes: the bytes that arrive. Within a device, each byte counts twice, as its memory reads and writes the byte.

    time: consecutive copies launched by PyTorch, timed by events. graph_time: short copies in a graph, which time the
        link without the host. request_time: latency of a single copy; .enqueue lasts until the call returns, .wait from
        then until the copy has arrived.
    Error: the share of 1 MiB parts that arrive altered.
    Unsupported: direction `both` with pageable memory, whose copies occupy the host; direction `peer` with one GPU.
    """
    pairs = _make_buffers(device, direction, size, host_memory)
    free = host_memory != "pageable"
    launches = [lambda to=to, sent=sent: to.copy_(sent, non_blocking=free) for to, sent in pairs]

    def call() -> None:
        if len(launches) == 1:
            launches[0]()
        else:
            device.launch_concurrently(launches)

    def check() -> float:
        contents = [_RandomContent(size) for _ in pairs]
        for content, (_, sent) in zip(contents, pairs, strict=True):
            content.write(sent)
        call()
        device.synchronise()
        return largest_error(
            *(content.differing_share(to, device) for content, (to, _) in zip(contents, pairs, strict=True))
        )

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


def _make_buffers(
    device: Device, direction: Direction, size: int, host_memory: HostMemory
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (target, source) for each copy."""
    import torch

    if (host_memory == "none") != (direction in ("device_to_device", "peer")):
        takes = "pinned or pageable" if host_memory == "none" else "none"
        raise Unsupported(f"{direction} takes host memory {takes}, not {host_memory}")
    if direction == "both" and host_memory == "pageable":
        raise Unsupported("the host itself copies pageable memory, one way at a time")

    def empty_buffer(name: str) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=name)

    def host_buffer() -> torch.Tensor:
        return device.pin(empty_buffer("cpu")) if host_memory == "pinned" else empty_buffer("cpu")

    device_buffer = empty_buffer(device.name)
    if direction == "host_to_device":
        return [(device_buffer, host_buffer())]
    if direction == "device_to_host":
        return [(host_buffer(), device_buffer)]
    if direction == "both":
        return [(device_buffer, host_buffer()), (host_buffer(), empty_buffer(device.name))]
    if direction == "device_to_device":
        return [(empty_buffer(device.name), device_buffer)]
    peers = device.peers(device.name)
    if not peers:
        raise Unsupported(f"{device.name} is the only GPU")
    return [(empty_buffer(peers[0]), device_buffer)]


class _RandomContent:
    """Random buffer content: each part of PART bytes is cut from one random block at an offset of its own.

    The offsets make the parts differ, although only one short block is drawn.
    """

    def __init__(self, size: int) -> None:
        import torch

        part = min(size, PART)
        self._block = torch.randint(0, 256, (2 * part,), dtype=torch.uint8)
        self._places = torch.randint(0, part + 1, (-(-size // part),)).tolist()

    def _parts(self, buffer: torch.Tensor, block: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Pair each part of the buffer with its expected content."""
        parts = buffer.split(PART)
        return [(part, block[offset : offset + len(part)]) for part, offset in zip(parts, self._places, strict=True)]

    def write(self, buffer: torch.Tensor) -> None:
        for part, content in self._parts(buffer, self._block.to(buffer.device)):
            part.copy_(content)

    def differing_share(self, buffer: torch.Tensor, device: Device) -> float:
        """Return the share of parts with other content; `device` compares them, because the host would be slower."""
        import torch

        parts = self._parts(buffer, self._block.to(device.name))
        return sum(not torch.equal(part.to(device.name), content) for part, content in parts) / len(parts)
