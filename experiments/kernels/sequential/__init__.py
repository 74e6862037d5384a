"""Sequential work, in which every step needs the result of the step before; all devices compute the same integers.

A *chain* is one sequence of steps. A kernel maps a chain's start and a step count to the chain's end; `tasks` defines
the input and, independently, the expected result for each kernel; `cpu_kernels` and `cuda_kernels` implement the
kernels, once per device kind.

chain     x = (x ^ x >> 16) * m in 32 bits, a hash round: arithmetic only, no closed form
chase     x = table[x]: a walk through memory in an unpredictable order
branches  x + word or x ^ word, by the word's next bit: one branch per step
states    a parser for comma-separated values: its state determines the meaning of a byte
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

# The multiplier is odd, which makes a round a bijection, so two chains never meet.
MULTIPLIER = 0x45D9F3B5
# Number of branches per data word; every walk takes a multiple of this many steps.
BITS = 32


class Chains(ABC):
    """Independent chains for one kernel on one device; add a device by subclassing.

    Starts and ends are 64-bit unsigned integers, interpreted by the kernel.
    """

    backend: ClassVar[str]

    @abstractmethod
    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        """Set up `chains` chains over `table`, a NumPy array. Raises Unsupported if a library is missing."""

    @classmethod
    @abstractmethod
    def max_chains(cls, device: str, threads: int) -> int:
        """Return the number of chains that the device, or `threads` of its threads, can advance at once."""

    @classmethod
    @abstractmethod
    def line_bytes(cls) -> int:
        """Return the cache line size in bytes."""

    @classmethod
    @abstractmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        """Return the steps per call: milliseconds of work, to hide the start-up cost."""

    @abstractmethod
    def set_starts(self, starts: Any) -> None:
        """Set the chains' starts: shape (chains,), uint64, NumPy."""

    @abstractmethod
    def walk(self, steps: int) -> None:
        """Advance every chain by `steps` steps, a multiple of BITS; a GPU may still be running on return."""

    @abstractmethod
    def continue_from_ends(self) -> None:
        """Continue the chains from their ends."""

    @abstractmethod
    def ends(self) -> Any:
        """Return the chains' ends: shape (chains,), uint64, NumPy."""


def chains_class(kind: str) -> type[Chains]:
    """Return the class for a device kind: cpu, gpu."""
    if kind == "cpu":
        from experiments.kernels.sequential.cpu_kernels import CpuChains

        return CpuChains
    from experiments.kernels.sequential.cuda_kernels import CudaChains

    return CudaChains
