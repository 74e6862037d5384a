"""Sequential work, in which every step needs the result of the step before; all devices compute the same integers.

A *chain* is one sequence of steps. A kernel computes a chain's end from the chain's start and the number of steps. The
module `tasks` defines the input of each kernel, and computes the expected result in another way. The modules
`cpu_kernels` and `cuda_kernels` implement the kernels for the two kinds of devices.

chain     a step is x = (x ^ x >> 16) * m in 32 bits, a round of a hash function: arithmetic that has no closed form
chase     a step is x = table[x]: a walk through memory in an unpredictable order
branches  a step is x = x + word or x = x ^ word, depending on the next bit of the data word
states    a step is one byte of comma-separated values: the state of the parser determines the meaning of the byte
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

# The multiplier m of the kernel `chain`. It is odd, so a step maps different values to different values, and chains
# with different starts have different ends.
MULTIPLIER = 0x45D9F3B5
# Number of steps for which the kernel `branches` uses one data word. Every walk takes a multiple of BITS steps.
BITS = 32


class Chains(ABC):
    """Independent chains for one kernel on one device; each kind of device has a subclass.

    Starts and ends are 64-bit unsigned integers, whose meaning depends on the kernel.
    """

    backend: ClassVar[str]

    @abstractmethod
    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        """Set up `chains` chains over `table`, a NumPy array. Raises Unsupported if a library is missing."""

    @classmethod
    @abstractmethod
    def max_chains(cls, device: str, threads: int) -> int:
        """Return the number of chains that can advance at once: `threads` on a CPU, as many as fit on a GPU."""

    @classmethod
    @abstractmethod
    def line_bytes(cls) -> int:
        """Return the cache line size in bytes."""

    @classmethod
    @abstractmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        """Return the number of steps per `walk`: they take milliseconds, so the cost of the call is negligible."""

    @abstractmethod
    def set_starts(self, starts: Any) -> None:
        """Set the chains' starts, a NumPy array of uint64 with the shape (chains,)."""

    @abstractmethod
    def walk(self, steps: int) -> None:
        """Advance every chain by `steps` steps, a multiple of BITS. A GPU may still run when the method returns."""

    @abstractmethod
    def continue_from_ends(self) -> None:
        """Let the next `walk` begin at the chains' ends."""

    @abstractmethod
    def ends(self) -> Any:
        """Return the chains' ends, a NumPy array of uint64 with the shape (chains,)."""


def chains_class(kind: str) -> type[Chains]:
    """Return the class for the device kind cpu or gpu."""
    if kind == "cpu":
        from experiments.kernels.sequential.cpu_kernels import CpuChains

        return CpuChains
    from experiments.kernels.sequential.cuda_kernels import CudaChains

    return CudaChains
