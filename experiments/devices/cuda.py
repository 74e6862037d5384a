"""NVIDIA and AMD GPUs through PyTorch's CUDA interface, timed by the device's own events."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments import hardware
from experiments.devices.base import Device
from experiments.work import Dtype, Unsupported

if TYPE_CHECKING:
    import torch


class CudaDevice(Device):
    """One GPU. Kernels run asynchronously: its clock is the events', not the host's."""

    kind = "gpu"

    def __init__(self, name: str) -> None:
        import torch

        super().__init__(name)
        self._torch = torch
        self._streams: list[Any] = []
        torch.cuda.set_device(name)

    @classmethod
    def detect(cls) -> tuple[list[str], str]:
        import torch

        if torch.cuda.is_available():
            return [f"cuda:{index}" for index in range(torch.cuda.device_count())], ""
        if torch.version.cuda is None and torch.version.hip is None:
            built = f"torch {torch.__version__} was built without CUDA"
        else:
            built = f"torch {torch.__version__} sees no usable GPU"
        return [], f"cuda: {built}; NVML: {hardware.nvml_status()}"

    def describe(self) -> dict[str, Any]:
        about = self._torch.cuda.get_device_properties(self.name)
        return {
            "id": self.name,
            "kind": "gpu",
            "name": about.name,
            "memory_bytes": int(about.total_memory),
            "multiprocessors": int(about.multi_processor_count),
            "compute_capability": f"{about.major}.{about.minor}",
            "l2_bytes": self.last_level_cache_bytes,
        }

    @property
    def last_level_cache_bytes(self) -> int:
        return int(getattr(self._torch.cuda.get_device_properties(self.name), "L2_cache_size", 0))

    def set_threads(self, threads: int) -> None:
        """The host's threads only launch; they are left alone."""

    def free_bytes(self) -> int:
        # What the libraries keep for their next allocation is free for the next point.
        self._torch.cuda.empty_cache()
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        return int(self._torch.cuda.mem_get_info(self.name)[0])

    @cached_property
    def overhead_s(self) -> float:
        """Median time between two events with nothing between them, in seconds."""
        return max(median(self.between([lambda: None])[0] for _ in range(50)), 1e-7)

    def between(self, launches: Sequence[Callable[[], object]]) -> list[float]:
        cuda = self._torch.cuda
        events = [cuda.Event(enable_timing=True) for _ in range(len(launches) + 1)]
        cuda.synchronize()
        events[0].record()
        for launch, event in zip(launches, events[1:], strict=True):
            launch()
            event.record()
        cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairwise(events)]

    def synchronise(self) -> None:
        self._torch.cuda.synchronize()

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        cuda = self._torch.cuda
        # Libraries set themselves up at the first call, which a graph may not hold.
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        captured = cuda.CUDAGraph()
        try:
            with cuda.stream(aside):
                for call in calls:
                    call()
            cuda.current_stream().wait_stream(aside)
            with cuda.graph(captured):
                for call in calls:
                    call()
        except RuntimeError as refusal:
            raise Unsupported(f"cannot be captured in a graph: {str(refusal).splitlines()[0]}") from None
        replay: Callable[[], object] = captured.replay
        return replay

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        cuda = self._torch.cuda
        self._streams += [cuda.Stream() for _ in range(len(calls) - len(self._streams))]
        here = cuda.current_stream()
        for call, stream in zip(calls, self._streams, strict=False):
            stream.wait_stream(here)
            with cuda.stream(stream):
                call()
        for stream in self._streams[: len(calls)]:
            here.wait_stream(stream)

    def pinned(self, data: torch.Tensor) -> torch.Tensor:
        return data.pin_memory()

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        torch = self._torch
        if backend != "torch":
            raise self.unsupported(backend)
        if dtype is Dtype.TF32 and torch.cuda.get_device_capability(self.name) < (8, 0):
            raise Unsupported("TF32 needs compute capability 8.0")
        if dtype is Dtype.TF32 and torch.version.hip is not None:
            raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
        # A process-wide switch: one point is measured at a time, and each sets it.
        torch.backends.cuda.matmul.allow_tf32 = dtype is Dtype.TF32
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=self.name)
        return lambda: torch.mm(a, b, out=out)
