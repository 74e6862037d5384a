"""The CPU as one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from experiments import backends, hardware, memory_limit
from experiments.devices.base import Device, do_nothing
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch


class CpuDevice(Device):
    """The CPU cores on which the system lets this process run (its affinity)."""

    kind = "cpu"

    def __init__(self, name: str = "cpu") -> None:
        super().__init__(name)
        self._limits: Any = None
        self._threads = 1

    @classmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        return ["cpu"], []

    def describe(self) -> dict[str, Any]:
        cpu = hardware.cpu()
        return {"id": "cpu", "kind": "cpu", "name": cpu["model"], "memory_bytes": hardware.memory_bytes()}

    @property
    def last_level_cache_bytes(self) -> int:
        return hardware.last_level_cache_bytes()

    def set_threads(self, threads: int) -> None:
        import torch
        from threadpoolctl import threadpool_limits

        if threads == 0:
            return
        self._threads = threads
        torch.set_num_threads(threads)
        # This call also limits NumPy's BLAS, which torch's call does not.
        self._limits = threadpool_limits(limits=threads, user_api="blas")

    def free_bytes(self) -> int:
        return memory_limit.available_bytes()

    @cached_property
    def overhead_s(self) -> float:
        """Median time between two clock readings, in seconds."""
        gaps = []
        for _ in range(2001):
            start = perf_counter_ns()
            gaps.append(perf_counter_ns() - start)
        return max(median(gaps), 1) * 1e-9

    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        return self.time_on_host(launches, meanwhile)

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        if dtype is Dtype.TF32:
            raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
        return super().torch_dtype(dtype)

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        if dtype in (Dtype.FLOAT8, Dtype.INT8):
            raise Unsupported(f"no CPU library of this study multiplies in {dtype}")
        library = backends.get_backend(backend)
        if library is None:
            raise self.unsupported_backend(backend)
        return library.matmul(a, b, dtype, self._threads)
