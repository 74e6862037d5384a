"""Device of kind gpu that computes on the CPU, to test the calls from experiments to GPUs.

The device has torch's name for the CPU, so that its tensors and models live on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch

from experiments.devices.base import Device, do_nothing
from experiments.workload import Dtype


class SecondCpu(Device):
    """CPU posing as a GPU: launches are synchronous and timed by the host clock.

    waits: number of calls to `synchronise`.
    """

    kind = "gpu"
    overhead_s = 1e-7
    last_level_cache_bytes = 1 << 16

    def __init__(self, name: str = "cpu") -> None:
        super().__init__(name)
        self.waits = 0

    @classmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        return ["cpu"], []

    def describe(self) -> dict[str, Any]:
        return {"id": self.name, "kind": self.kind, "name": "second CPU", "memory_bytes": self.free_bytes()}

    def set_threads(self, threads: int) -> None:
        """Do nothing, as GPUs do: host threads only launch their work."""

    def free_bytes(self) -> int:
        return int(psutil.virtual_memory().available)

    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        return self.time_on_host(launches, meanwhile)

    def synchronise(self) -> None:
        self.waits += 1

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """Return a function that runs all calls. Run it once, because GPUs also run calls before a capture."""

        def replay() -> None:
            for call in calls:
                call()

        replay()
        return replay

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        if backend != "torch":
            raise self.unsupported_backend(backend)
        if dtype is Dtype.INT8:
            return lambda: torch._int_mm(a, b)
        if dtype is Dtype.FLOAT8:
            return lambda: (a.float() @ b.float()).bfloat16()
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        return lambda: torch.mm(a, b, out=out)
