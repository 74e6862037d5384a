"""A stand-in for torch in device tests, with GPUs from any maker and a clock that tests advance."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.devices import accelerator

H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", total_memory=85 * 10**9, major=9, minor=0, multi_processor_count=132,
    L2_cache_size=50 << 20,
)  # fmt: skip
P100 = SimpleNamespace(name="Tesla P100", total_memory=16 * 10**9, major=6, minor=0, multi_processor_count=56)
MI300X = SimpleNamespace(
    name="AMD Instinct MI300X", total_memory=206 * 10**9, major=9, minor=4, multi_processor_count=304,
    L2_cache_size=4 << 20, gcnArchName="gfx942:sramecc+:xnack-",
)  # fmt: skip
ARC = SimpleNamespace(
    name="Intel(R) Arc(TM) A770", total_memory=16 * 10**9, driver_version="1.6.3", gpu_subslice_count=32, has_fp64=False
)


class Stream:
    """A stream that records the streams it waited for."""

    def __init__(self) -> None:
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited_for.append(other)


class Event:
    """An event whose time can be read only after a wait."""

    def __init__(self, torch: Torch) -> None:
        self.torch, self.at = torch, -1.0

    def record(self) -> None:
        self.at = self.torch.queued

    def elapsed_time(self, later: Event) -> float:
        assert self.torch.now >= later.at, "read before the device was there"
        return later.at - self.at


class Graph:
    """A graph that holds the total time launched during its capture."""

    def __init__(self, torch: Torch) -> None:
        self.torch, self.milliseconds = torch, 0.0

    def replay(self) -> None:
        self.torch.queued += self.milliseconds


class Torch:
    """Stand-in for torch on a machine with `devices`. The build is for a version of cuda, hip or xpu, or for mps.

    Launches run in order, and a wait moves `now` to the end of the last launch. `warning` is issued when devices are
    counted, and `allocation_error` is raised when memory is allocated.
    """

    __version__ = "2.11.0"
    float64 = "float64"

    def __init__(
        self,
        *devices: Any,
        cuda: str | None = None,
        hip: str | None = None,
        xpu: str | None = None,
        mps: bool = False,
        architectures: Sequence[str] = (),
        warning: str = "",
        allocation_error: Exception | None = None,
    ) -> None:
        self.devices, self.architectures = devices, architectures
        self.warning, self.allocation_error = warning, allocation_error
        self.now = self.queued = 0.0
        self.waits, self.here = 0, Stream()
        self.opened: list[str] = []
        self.capturing: list[Graph] = []
        self.version = SimpleNamespace(cuda=cuda, hip=hip, xpu=xpu)
        self.cuda = self.xpu = self.mps = self
        self.backends = SimpleNamespace(
            mps=SimpleNamespace(is_built=lambda: mps, is_available=lambda: bool(mps and devices)),
            cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)),
        )

    def launch(self, milliseconds: float) -> None:
        """Add device time, as a kernel launch does."""
        if self.capturing:
            self.capturing[-1].milliseconds += milliseconds
        else:
            self.queued += milliseconds

    def is_available(self) -> bool:
        if self.warning:
            warnings.warn(self.warning, stacklevel=1)
        return bool(self.devices)

    def device_count(self) -> int:
        return len(self.devices)

    def get_device_properties(self, which: Any) -> Any:
        return self.devices[which if isinstance(which, int) else int(which.partition(":")[2])]

    def get_device_name(self, index: int) -> str:
        return str(self.devices[index].name)

    def get_device_capability(self, which: Any) -> tuple[int, int]:
        about = self.get_device_properties(which)
        if isinstance(about, Exception):
            raise about
        return about.major, about.minor

    def get_arch_list(self) -> list[str]:
        return list(self.architectures)

    def set_device(self, name: str) -> None:
        self.opened.append(name)

    def ones(self, count: int, device: str) -> Any:
        if self.allocation_error:
            raise self.allocation_error
        return SimpleNamespace(sum=lambda: float(count))

    def empty(self, *shape: int, **_: Any) -> Any:
        return shape

    def mm(self, a: Any, b: Any, out: Any) -> Any:
        return out

    def empty_cache(self) -> None: ...

    def mem_get_info(self, name: str) -> tuple[int, int]:
        total = self.get_device_properties(name).total_memory
        return total // 2, total

    def memory_reserved(self, name: str) -> int:
        return 10**9

    def recommended_max_memory(self) -> int:
        return 12 * 10**9

    def driver_allocated_memory(self) -> int:
        return 11 * 10**9

    def synchronize(self) -> None:
        if self.capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA")
        self.waits += 1
        self.now = self.queued

    def Event(self, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)

    def Stream(self) -> Stream:  # noqa: N802
        return Stream()

    def CUDAGraph(self) -> Graph:  # noqa: N802
        return Graph(self)

    def current_stream(self) -> Stream:
        return self.here

    def set_stream(self, stream: Stream) -> None:
        self.here = stream

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.here = self.here, stream
        try:
            yield
        finally:
            self.here = before

    @contextmanager
    def graph(self, graph: Graph) -> Iterator[None]:
        before, self.here = self.here, Stream()
        self.capturing.append(graph)
        try:
            yield
        finally:
            self.capturing.pop()
        # As in torch, an error leaves the capture's stream current.
        self.here = before


def install(monkeypatch: pytest.MonkeyPatch, torch: Torch) -> Torch:
    """Make the device modules load this stand-in in place of torch."""
    monkeypatch.setattr(accelerator, "load_torch", lambda: (torch, ""))
    return torch
