"""Work in which every step needs the last one's result: the same integers on every device.

A *chain* is one such sequence of steps. A kernel is a function from a chain's start
and a number of steps to its end; `tasks` says what each kernel works on and,
independently, what must come out; `cpu` and `cuda` define the kernels, once per device.

chain     x = (x ^ x >> 16) * m in 32 bits, a hash's round: arithmetic alone, no closed form
chase     x = table[x]: a walk through memory in an order that nothing can guess
branches  x + word or x ^ word, as the word's next bit says: one branch a step
states    a parser of comma-separated values: where it stands decides what a byte means
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

# Odd, so that a round is a bijection: no two chains ever meet.
MULTIPLIER = 0x45D9F3B5
# Branches that one word of the data decides; walks are whole words long.
BITS = 32


class Chains(ABC):
    """Independent chains of one kernel on one device. A new device is one subclass.

    A start and an end are 64-bit unsigned integers; what they mean is the kernel's.
    """

    backend: ClassVar[str]

    @abstractmethod
    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        """`chains` chains over `table`, a NumPy array. Raises Unsupported if a library is missing."""

    @classmethod
    @abstractmethod
    def most(cls, device: str, threads: int) -> int:
        """As many chains as the device, or so many of its threads, work on at once."""

    @classmethod
    @abstractmethod
    def line_bytes(cls) -> int:
        """Bytes of a cache line."""

    @classmethod
    @abstractmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        """Steps of one call: milliseconds of them, so that starting it does not show."""

    @abstractmethod
    def place(self, starts: Any) -> None:
        """Let the chains begin at `starts`: shape (chains,), uint64, NumPy."""

    @abstractmethod
    def walk(self, steps: int) -> None:
        """Every chain does `steps` steps, a multiple of BITS, from its start; a GPU may still be at it on return."""

    @abstractmethod
    def go_on(self) -> None:
        """Let the chains begin where they ended."""

    @abstractmethod
    def ends(self) -> Any:
        """Where the chains ended: shape (chains,), uint64, NumPy."""


def definition(kind: str) -> type[Chains]:
    """The definition for a kind of device: cpu, gpu."""
    if kind == "cpu":
        from experiments.kernels.sequential.cpu_kernels import CpuChains

        return CpuChains
    from experiments.kernels.sequential.cuda_kernels import CudaChains

    return CudaChains
