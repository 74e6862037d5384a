"""What the measuring core asks of a device. A new backend is one subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from experiments.work import Dtype, Unsupported, Work

if TYPE_CHECKING:
    import torch

Kind = Literal["cpu", "gpu"]


class Device(ABC):
    """One processor with its memory.

    The tensors that it makes are PyTorch's: CUDA, ROCm, MPS and XPU share that interface.
    """

    kind: Kind

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    @abstractmethod
    def detect(cls) -> tuple[list[str], str]:
        """Names of the devices of this kind, and, if there are none, why."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Entry of the node record: id, kind, name, memory_bytes."""

    @property
    @abstractmethod
    def last_level_cache_bytes(self) -> int:
        """Size of the cache that stands before the device's memory."""

    @abstractmethod
    def set_threads(self, threads: int) -> None:
        """Let host libraries use this many threads; 0 leaves them alone."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that can be allocated now."""

    @abstractmethod
    def time(self, work: Work, calls: int) -> list[float]:
        """Seconds of one call, averaged over `calls` in a row; where the work has phases, of each of them."""

    @property
    @abstractmethod
    def overhead_s(self) -> float:
        """What it costs to read the clock twice around a sample."""

    def normal(self, shape: tuple[int, ...], dtype: Dtype) -> torch.Tensor:
        """Random normal data: zeros and ones draw less power and run faster than real data."""
        import torch

        draw = torch.float64 if dtype is Dtype.FLOAT64 else torch.float32
        data = torch.randn(shape, dtype=draw, device=self.name)
        return data.to(self.torch_dtype(dtype))

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        """The format in which elements lie in memory."""
        import torch

        found: torch.dtype = getattr(torch, "float32" if dtype is Dtype.TF32 else dtype.value)
        return found

    @abstractmethod
    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        """A callable that computes a @ b into its own output, by the library `backend`.

        Raises Unsupported if the backend or the format is not available here.
        """

    def unsupported(self, backend: str) -> Unsupported:
        """The outcome for a backend that this kind of device does not have."""
        return Unsupported(f"backend {backend} does not run on {self.name}")
