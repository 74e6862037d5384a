"""The CPU: all cores of the node, through PyTorch, oneDNN, NumPy's BLAS and own kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import islice
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from experiments import hardware
from experiments.devices.base import Device, in_turn
from experiments.work import Dtype, Unsupported, Work

if TYPE_CHECKING:
    import torch


class CpuDevice(Device):
    """The cores that this process may run on."""

    kind = "cpu"

    def __init__(self, name: str = "cpu") -> None:
        super().__init__(name)
        self._limits: Any = None

    @classmethod
    def detect(cls) -> tuple[list[str], str]:
        return ["cpu"], ""

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
        torch.set_num_threads(threads)
        # Kept: the limit ends when the object does. Covers NumPy's BLAS, which torch does not.
        self._limits = threadpool_limits(limits=threads, user_api="blas")

    def free_bytes(self) -> int:
        import psutil

        return int(psutil.virtual_memory().available)

    @cached_property
    def overhead_s(self) -> float:
        """Median time of reading the clock twice, in seconds."""
        gaps = []
        for _ in range(2001):
            start = perf_counter_ns()
            gaps.append(perf_counter_ns() - start)
        return max(median(gaps), 1) * 1e-9

    def time(self, work: Work, calls: int) -> list[float]:
        if work.phases:
            spent = [0] * len(work.phases)
            for _ in range(calls):
                stamp = perf_counter_ns()
                for index, (_, phase) in enumerate(work.phases):
                    phase()
                    before, stamp = stamp, perf_counter_ns()
                    spent[index] += stamp - before
            return [total * 1e-9 / calls for total in spent]
        todo = islice(in_turn(work), calls)
        start = perf_counter_ns()
        for call in todo:
            call()
        return [(perf_counter_ns() - start) * 1e-9 / calls]

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        import torch

        if dtype is Dtype.TF32:
            raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
        if backend == "torch":
            out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
            return lambda: torch.mm(a, b, out=out)
        if backend == "onednn":
            return _onednn(a, b)
        if backend == "numpy":
            return _numpy(a, b, dtype)
        raise self.unsupported(backend)


def _onednn(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """oneDNN's inner product, which picks the core's widest instructions on any vendor's CPU."""
    import torch

    if a.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise Unsupported(f"oneDNN has no {str(a.dtype).removeprefix('torch.')} product")
    if not torch.backends.mkldnn.is_available():
        raise Unsupported("this build of torch has no oneDNN")
    weight = b.t().contiguous()
    try:
        linear = torch.ops.mkldnn._linear_pointwise
        linear(a[:1], weight, None, "none", [], "")
    except (AttributeError, RuntimeError) as missing:
        raise Unsupported(f"oneDNN: {str(missing).splitlines()[0]}") from None
    return lambda: linear(a, weight, None, "none", [], "")


def _numpy(a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
    import numpy as np
    import torch

    if dtype not in (Dtype.FLOAT32, Dtype.FLOAT64):
        raise Unsupported(f"NumPy's BLAS has no {dtype} product")
    left, right = a.numpy(), b.numpy()
    out = np.empty((a.shape[0], b.shape[1]), dtype=left.dtype)
    wrapped = torch.from_numpy(out)

    def product() -> torch.Tensor:
        np.matmul(left, right, out=out)
        return wrapped

    return product
