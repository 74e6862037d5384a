"""Sequential work, in which every step needs the previous result; all devices compute the same integers.

A *chain* is one sequence of steps. A kernel computes a chain's end from its start and the step count. The module
`tasks` defines each kernel's input, and computes the expected result in another way. The modules `cpu_kernels` and
`cuda_kernels` implement the kernels for the two device kinds.

chain     a step is x = (x ^ x >> 16) * m in 32 bits, a round of a hash function: arithmetic without a closed form
chase     a step is x = table[x]: a walk through memory in an unpredictable order
branches  a step is x = x + word or x = x ^ word, depending on the data word's next bit
states    a step is one byte of comma-separated values: the parser's state determines its meaning
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

# The multiplier m in the kernel `chain`. It is odd, so a step maps different values to different values, and chains
# with different starts have different ends.
MULTIPLIER = 0x45D9F3B5
# Steps for which the kernel `branches` uses one data word. Every walk takes a multiple of BITS steps.
BITS = 32


class Chains(ABC):
    """Independent chains for one kernel on one device; each device kind has a subclass.

    Starts and ends are 64-bit unsigned integers, whose meaning depends on the kernel.
    """

    backend: ClassVar[str]

    @abstractmethod
    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        """Set up `chains` chains over `table`, a NumPy array. Raises Unsupported if a library is missing."""

    @classmethod
    @abstractmethod
    def max_chains(cls, device: str, threads: int) -> int:
        """Count the chains that can advance at once: `threads` on a CPU, as many as fit on a GPU."""

    @classmethod
    @abstractmethod
    def line_bytes(cls) -> int:
        """Return the cache line size in bytes."""

    @classmethod
    @abstractmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        """Return the number of steps per `walk`: they take milliseconds, to make the call overhead negligible."""

    @abstractmethod
    def set_starts(self, starts: Any) -> None:
        """Set the chains' starts, a uint64 NumPy array with the shape (chains,)."""

    @abstractmethod
    def walk(self, steps: int) -> None:
        """Advance every chain by `steps` steps, a multiple of BITS. A GPU may still run when the method returns."""

    @abstractmethod
    def continue_from_ends(self) -> None:
        """Let the next `walk` begin at the chains' ends."""

    @abstractmethod
    def ends(self) -> Any:
        """Return the chains' ends, a uint64 NumPy array with the shape (chains,)."""


def chains_class(kind: str) -> type[Chains]:
    """Return the class for the device kind cpu or gpu."""
    if kind == "cpu":
        from experiments.kernels.sequential.cpu_kernels import CpuChains

        return CpuChains
    from experiments.kernels.sequential.cuda_kernels import CudaChains

    return CudaChains
