"""What the kernels work on, and what must come out: the same for every device.

The references share nothing with the kernels: Python's integers, the permutation
that the table was made from, and the `csv` module.

A chase goes through one cycle over all lines of a chain's part of the table, in
random order and with one entry a line: no prefetcher guesses it, and no line is met
twice before all others were. Its time per step, by footprint, is the latency ladder
of lmbench (McVoy & Staelin, USENIX 1996). It is the latency that programs see: where
a footprint exceeds what the core's TLBs cover, the walk through the page tables is
part of it. The table asks for huge pages, which put that point further out.
"""

from __future__ import annotations

import csv
import io
import mmap
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from experiments.kernels.sequential import BITS, MULTIPLIER
from experiments.models.real_data import text_bytes
from experiments.workload import Unsupported

DATA = {"chain": ("random",), "chase": ("random",), "branches": ("predictable", "random"), "states": ("text",)}
# Four times one way, four times the other.
PATTERN = 0x0F0F0F0F
HUGE_PAGE = 2 << 20
# Fields of a record of the text: a few, as tables have.
FIELDS = 8


@dataclass(frozen=True)
class Task(ABC):
    """The input of `chains` chains of one kernel. table: NumPy array that every step may read."""

    chains: int
    table: Any

    @abstractmethod
    def starts(self, random: np.random.Generator) -> Any:
        """Where each chain may begin, drawn from `random`: shape (chains,), uint64."""

    @abstractmethod
    def expected(self, starts: Any, steps: int) -> Any:
        """Where chains that begin at `starts` (some of them, or all) must end: same shape, uint64."""


class Chain(Task):
    """A start is any 32-bit number but 0, which stays 0."""

    def starts(self, random: np.random.Generator) -> Any:
        return random.integers(1, 1 << 32, self.chains, dtype=np.uint64)

    def expected(self, starts: Any, steps: int) -> Any:
        def hashed(x: int) -> int:
            for _ in range(steps):
                x = (x ^ x >> 16) * MULTIPLIER % (1 << 32)
            return x

        return np.array([hashed(int(x)) for x in starts], dtype=np.uint64)


@dataclass(frozen=True)
class Chase(Task):
    """A start is the index of an entry, in the chain's own part of the table.

    order: (chains, lines) lines of each part in the order of the walk. words: entries from one line to the next.
    """

    order: Any
    words: int

    def starts(self, random: np.random.Generator) -> Any:
        which = np.arange(self.chains)
        return self._entry(which, random.integers(self.order.shape[1], size=self.chains))

    def expected(self, starts: Any, steps: int) -> Any:
        lines = self.order.shape[1]
        which, line = np.divmod(np.asarray(starts).astype(np.int64) // self.words, lines)
        rank = [np.flatnonzero(self.order[c] == x)[0] for c, x in zip(which, line, strict=True)]
        return self._entry(which, (np.array(rank) + steps) % lines)

    def _entry(self, which: Any, rank: Any) -> Any:
        line = which * self.order.shape[1] + self.order[which, rank]
        return (line * self.words).astype(np.uint64)


class Branches(Task):
    """A start is the first value, and its low bits say at which word of the data to begin.

    Neighbouring chains begin at neighbouring words.
    """

    def starts(self, random: np.random.Generator) -> Any:
        return np.arange(self.chains, dtype=np.uint64) + random.integers(1 << 31, dtype=np.uint64)

    def expected(self, starts: Any, steps: int) -> Any:
        return np.array([self._end(int(start), steps) for start in starts], dtype=np.uint64)

    def _end(self, x: int, steps: int) -> int:
        for place in range(x, x + steps // BITS):
            word = int(self.table[place % len(self.table)])
            for bit in range(BITS):
                left = word >> bit
                x = (x + left) % (1 << 32) if left % 2 else x ^ left
        return x


@dataclass(frozen=True)
class States(Task):
    """A start is a record's first byte; an end the number of completed fields (upper half) and records (lower half).

    records: where records begin from which a walk stays within the table.
    """

    records: Any

    def starts(self, random: np.random.Generator) -> Any:
        return random.choice(self.records, self.chains).astype(np.uint64)

    def expected(self, starts: Any, steps: int) -> Any:
        return np.array([self._end(int(start), steps) for start in starts], dtype=np.uint64)

    def _end(self, start: int, steps: int) -> int:
        passage = bytes(self.table[start : start + steps]).decode("latin-1")
        rows = [len(row) for row in csv.reader(io.StringIO(passage, newline=""))]
        fields, records = sum(rows), len(rows)
        if start + steps not in boundaries_of_text():
            fields, records = fields - 1, records - 1  # the last field and record were cut off
        return fields << 32 | records


def make(
    kernel: str, data: str, footprint: int, chains: int, steps: int, line: int, random: np.random.Generator
) -> Task:
    """The task of a point.

    footprint: bytes of the table, for all chains together. steps: the most that a walk
    takes from a fresh start. line: bytes of the device's cache line.
    Raises Unsupported for data that the kernel has not, or a footprint that it cannot have.
    """
    if data not in DATA[kernel]:
        raise Unsupported(f"the kernel {kernel} works on {' or '.join(DATA[kernel])} data, not on {data}")
    if kernel == "chase":
        return _chase(footprint, chains, line, random)
    if kernel == "branches":
        return _branches(data, footprint, chains, random)
    if kernel == "states":
        return _states(footprint, chains, steps)
    if footprint != 4:
        raise Unsupported("the footprint of the kernel chain is 4: its one number of 32 bits")
    return Chain(chains, np.zeros(1, dtype=np.uint32))


def _chase(footprint: int, chains: int, line: int, random: np.random.Generator) -> Chase:
    lines, words = footprint // chains // line, line // 4
    if lines < 2:
        raise Unsupported(f"a footprint of {footprint} bytes is too small for {chains} chains")
    if chains * lines * words > 1 << 32:
        raise Unsupported("a footprint of more than 16 GiB has more entries than an index of 32 bits tells apart")
    order = np.tile(np.arange(lines, dtype=np.uint32), (chains, 1))
    random.permuted(order, axis=1, out=order)
    table = _pages(chains * lines * line).view(np.uint32).reshape(chains, lines, words)
    first = np.arange(chains, dtype=np.uint32)[:, None] * np.uint32(lines)
    np.put_along_axis(table[:, :, 0], order, (np.roll(order, -1, axis=1) + first) * np.uint32(words), axis=1)
    return Chase(chains, table.reshape(-1), order, words)


def _pages(length: int) -> Any:
    """`length` zero bytes in huge pages, as far as the system has some to give."""
    memory = mmap.mmap(-1, -(-length // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + length]


def _branches(data: str, footprint: int, chains: int, random: np.random.Generator) -> Branches:
    words = footprint // 4
    if footprint % 4 or words & (words - 1) or not words:
        raise Unsupported(f"the footprint of the kernel branches is a power of two from 4 on, not {footprint}")
    if data == "predictable":
        return Branches(chains, np.full(words, PATTERN, dtype=np.uint32))
    return Branches(chains, random.integers(1 << 32, size=words, dtype=np.uint32))


def _states(footprint: int, chains: int, steps: int) -> States:
    table, boundaries = table_of_text()
    if not steps < footprint <= len(table):
        raise Unsupported(f"a walk of {steps} bytes in a text of {len(table)} has no footprint of {footprint} bytes")
    return States(chains, table[:footprint], boundaries[boundaries <= footprint - steps])


@cache
def table_of_text() -> tuple[Any, Any]:
    """Python's standard library as comma-separated values: its bytes, and where records begin and the last one ends.

    A field is what stands between two spaces of the source: indentation gives empty
    fields; commas, quotation marks and line ends give quoted ones.
    """
    words = text_bytes().decode("latin-1").split(" ")
    lines = []
    for start in range(0, len(words), FIELDS):
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerow(words[start : start + FIELDS])
        lines.append(written.getvalue().encode("latin-1"))
    return np.frombuffer(b"".join(lines), dtype=np.uint8), np.cumsum([0, *map(len, lines)])


@cache
def boundaries_of_text() -> frozenset[int]:
    """Where a record of the text begins or the last one ends."""
    return frozenset(table_of_text()[1].tolist())
