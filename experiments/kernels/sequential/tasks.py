"""Inputs and expected results for the kernels, which are the same on every device.

The expected results share no code with the kernels: they come from Python integers, the permutation used to make the
table, and the `csv` module.

The kernel `chase` visits all cache lines in a chain's table section in random order, and reads one entry per line.
Prefetchers cannot guess the order, and the kernel visits all other lines before it returns to a line. The time per
step, plotted against table size, is lmbench's memory latency curve (McVoy & Staelin, USENIX 1996), the latency that
programs see. It includes the page table walk if the table exceeds the memory that the core's TLBs cover. The table uses
huge pages to let the TLBs cover more memory.
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
# Data word for predictable branches: four steps take one branch arm, and the next four the other.
PATTERN = 0x0F0F0F0F
HUGE_PAGE = 2 << 20
# Fields per text record, a small number as in usual tables.
FIELDS = 8


@dataclass(frozen=True)
class Task(ABC):
    """Input for `chains` chains in one kernel; `table` is the NumPy array that the kernel reads."""

    chains: int
    table: Any

    @abstractmethod
    def starts(self, random: np.random.Generator) -> Any:
        """Draw a valid start for each chain, as a uint64 array with the shape (chains,)."""

    @abstractmethod
    def expected_ends(self, starts: Any, steps: int) -> Any:
        """Compute the expected ends for chains with these starts, as uint64 in the same shape.

        starts: the starts for all chains, or for some only.
        """


class Chain(Task):
    """Input for the kernel `chain`. Starts are random 32-bit numbers except 0, because 0 would stay 0."""

    def starts(self, random: np.random.Generator) -> Any:
        return random.integers(1, 1 << 32, self.chains, dtype=np.uint64)

    def expected_ends(self, starts: Any, steps: int) -> Any:
        def hash_steps(x: int) -> int:
            for _ in range(steps):
                x = (x ^ x >> 16) * MULTIPLIER % (1 << 32)
            return x

        return np.array([hash_steps(int(x)) for x in starts], dtype=np.uint64)


@dataclass(frozen=True)
class Chase(Task):
    """Input for the kernel `chase`. A start is the index of an entry in the chain's own table section.

    order: line numbers in the order of each chain's walk, shape (chains, lines). words: table entries per cache line.
    """

    order: Any
    words: int

    def starts(self, random: np.random.Generator) -> Any:
        which = np.arange(self.chains)
        return self._entry(which, random.integers(self.order.shape[1], size=self.chains))

    def expected_ends(self, starts: Any, steps: int) -> Any:
        lines = self.order.shape[1]
        which, line = np.divmod(np.asarray(starts).astype(np.int64) // self.words, lines)
        rank = [np.flatnonzero(self.order[c] == x)[0] for c, x in zip(which, line, strict=True)]
        return self._entry(which, (np.array(rank) + steps) % lines)

    def _entry(self, which: Any, rank: Any) -> Any:
        line = which * self.order.shape[1] + self.order[which, rank]
        return (line * self.words).astype(np.uint64)


class Branches(Task):
    """Input for the kernel `branches`. A start is a chain's first value, whose low bits select the first data word.

    Consecutive chains have consecutive starts, so they begin at neighbouring words.
    """

    def starts(self, random: np.random.Generator) -> Any:
        return np.arange(self.chains, dtype=np.uint64) + random.integers(1 << 31, dtype=np.uint64)

    def expected_ends(self, starts: Any, steps: int) -> Any:
        return np.array([self._end(int(start), steps) for start in starts], dtype=np.uint64)

    def _end(self, x: int, steps: int) -> int:
        for index in range(x, x + steps // BITS):
            word = int(self.table[index % len(self.table)])
            for bit in range(BITS):
                left = word >> bit
                x = (x + left) % (1 << 32) if left % 2 else x ^ left
        return x


@dataclass(frozen=True)
class States(Task):
    """Input for the kernel `states`. A start is the offset of a record's first byte.

    An end's upper 32 bits count the completed fields, the lower 32 bits the completed records.
    records: offsets of all records that are far enough from the table's end for a walk to start there.
    """

    records: Any

    def starts(self, random: np.random.Generator) -> Any:
        return random.choice(self.records, self.chains).astype(np.uint64)

    def expected_ends(self, starts: Any, steps: int) -> Any:
        return np.array([self._end(int(start), steps) for start in starts], dtype=np.uint64)

    def _end(self, start: int, steps: int) -> int:
        passage = bytes(self.table[start : start + steps]).decode("latin-1")
        rows = [len(row) for row in csv.reader(io.StringIO(passage, newline=""))]
        fields, records = sum(rows), len(rows)
        if start + steps not in record_boundaries():
            fields, records = fields - 1, records - 1  # the walk ended within a field and a record
        return fields << 32 | records


def make_task(
    kernel: str, data: str, footprint: int, chains: int, steps: int, line: int, random: np.random.Generator
) -> Task:
    """Return the input for a kernel.

    data: one of the kinds in DATA[kernel]. footprint: table size in bytes, for all chains together. steps: largest
    number of steps that a chain takes from its start (only for the kernel `states`). line: the device's cache line size
    in bytes. Raises Unsupported for data or footprints that the kernel does not support.
    """
    if data not in DATA[kernel]:
        raise Unsupported(f"the kernel {kernel} works on {' or '.join(DATA[kernel])} data, not on {data}")
    if kernel == "chase":
        return _make_chase(footprint, chains, line, random)
    if kernel == "branches":
        return _make_branches(data, footprint, chains, random)
    if kernel == "states":
        return _make_states(footprint, chains, steps)
    if footprint != 4:
        raise Unsupported("the footprint of the kernel chain is 4: its one number of 32 bits")
    return Chain(chains, np.zeros(1, dtype=np.uint32))


def _make_chase(footprint: int, chains: int, line: int, random: np.random.Generator) -> Chase:
    lines, words = footprint // chains // line, line // 4
    if lines < 2:
        raise Unsupported(f"a footprint of {footprint} bytes is too small for {chains} chains")
    if chains * lines * words > 1 << 32:
        raise Unsupported("a footprint of more than 16 GiB has more entries than an index of 32 bits tells apart")
    order = np.tile(np.arange(lines, dtype=np.uint32), (chains, 1))
    random.permuted(order, axis=1, out=order)
    table = _huge_pages(chains * lines * line).view(np.uint32).reshape(chains, lines, words)
    first = np.arange(chains, dtype=np.uint32)[:, None] * np.uint32(lines)
    np.put_along_axis(table[:, :, 0], order, (np.roll(order, -1, axis=1) + first) * np.uint32(words), axis=1)
    return Chase(chains, table.reshape(-1), order, words)


def _huge_pages(length: int) -> Any:
    """Return `length` zero bytes, in huge pages if the system provides them."""
    memory = mmap.mmap(-1, -(-length // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + length]


def _make_branches(data: str, footprint: int, chains: int, random: np.random.Generator) -> Branches:
    words = footprint // 4
    if footprint % 4 or words & (words - 1) or not words:
        raise Unsupported(f"the footprint of the kernel branches is a power of two from 4 on, not {footprint}")
    if data == "predictable":
        return Branches(chains, np.full(words, PATTERN, dtype=np.uint32))
    return Branches(chains, random.integers(1 << 32, size=words, dtype=np.uint32))


def _make_states(footprint: int, chains: int, steps: int) -> States:
    table, boundaries = text_table()
    if not steps < footprint <= len(table):
        raise Unsupported(f"footprint must be over {steps} and up to {len(table)} bytes, not {footprint}")
    return States(chains, table[:footprint], boundaries[boundaries <= footprint - steps])


@cache
def text_table() -> tuple[Any, Any]:
    """Return (Python's standard library as CSV bytes, offsets at which a record begins and where the last record ends).

    The source is split into fields at the spaces. Indentation therefore gives empty fields, and fields that contain
    commas, quotation marks or line ends are quoted.
    """
    words = text_bytes().decode("latin-1").split(" ")
    lines = []
    for start in range(0, len(words), FIELDS):
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerow(words[start : start + FIELDS])
        lines.append(written.getvalue().encode("latin-1"))
    return np.frombuffer(b"".join(lines), dtype=np.uint8), np.cumsum([0, *map(len, lines)])


@cache
def record_boundaries() -> frozenset[int]:
    """Return the offsets from `text_table` as a set."""
    return frozenset(text_table()[1].tolist())
