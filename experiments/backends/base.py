"""Interface to a CPU library for matrix products; subclass `Backend` to add a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.workload import Dtype

if TYPE_CHECKING:
    import torch


class Backend(ABC):
    """A library with one choice of kernels.

    environment: environment variables that make this choice. A library reads the variables when it is loaded, so the
    measuring process starts with them.
    """

    def __init__(self, name: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.environment = environment or {}

    @abstractmethod
    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        """Return a callable that computes a @ b into its own output with `threads` threads.

        Raises Unsupported, with the reason, if the library is not installed, has no such product, or cannot run its
        kernels on this CPU.
        """
