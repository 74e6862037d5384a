"""What the study asks of a library of matrix products on the CPU. A new one is one subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.workload import Dtype

if TYPE_CHECKING:
    import torch


class Backend(ABC):
    """One library, with one choice of its kernels.

    environment: variables that make this choice. Libraries read them as they are
    loaded, so the measuring process is started with them.
    """

    def __init__(self, name: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.environment = environment or {}

    @abstractmethod
    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        """A callable that computes a @ b into its own output with `threads` threads.

        Raises Unsupported, with the reason, if the library is not installed, has no
        such product, or cannot run its kernels on this CPU.
        """
