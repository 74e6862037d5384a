"""Inputs and expected results for the kernels, identical on every device.

The references share no code with the kernels: they use Python integers, the permutation behind the table, and the
`csv` module.

A chase follows one cycle over all lines in a chain's part of the table, in random order and with one entry per line:
prefetchers cannot guess it, and no line repeats before all others were visited. Its time per step, by footprint, is
lmbench's latency ladder (McVoy & Staelin, USENIX 1996), the latency that programs see. This latency includes the page
table walk if the footprint exceeds the memory that the core's TLBs cover. The table uses huge pages, to let the TLBs
cover more.
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
# Data word for predictable branches: four branches one way, then four the other way.
PATTERN = 0x0F0F0F0F
HUGE_PAGE = 2 << 20
# Number of fields per text record: a few, as in usual tables.
FIELDS = 8


@dataclass(frozen=True)
class Task(ABC):
    """Input for `chains` chains of one kernel. table: NumPy array that every step may read."""

    chains: int
    table: Any

    @abstractmethod
    def starts(self, random: np.random.Generator) -> Any:
        """Draw a valid start for each chain: shape (chains,), uint64."""

    @abstractmethod
    def expected_ends(self, starts: Any, steps: int) -> Any:
        """Return the expected ends for chains from `starts` (all or some): same shape, uint64."""


class Chain(Task):
    """Starts are any 32-bit numbers except 0, because 0 would stay 0."""

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
    """Starts are entry indices within each chain's own part of the table.

    order: (chains, lines), each part's lines in walk order. words: entries per line.
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
    """A start is the first value; its low bits select the first data word.

    Neighbouring chains begin at neighbouring words.
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
    """A start is a record's first byte; an end holds the completed fields (upper half) and records (lower half).

    records: record offsets from which a walk stays within the table.
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
            fields, records = fields - 1, records - 1  # the last field and record are incomplete
        return fields << 32 | records


def make_task(
    kernel: str, data: str, footprint: int, chains: int, steps: int, line: int, random: np.random.Generator
) -> Task:
    """Return the task for one point.

    footprint: table bytes for all chains together. steps: length of the longest walk from a fresh start. line: the
    device's cache line in bytes. Raises Unsupported for data or footprints that the kernel does not support.
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
    """Return Python's standard library as CSV bytes, with the offset of each record's start and of the last one's end.

    Spaces in the source separate the fields. Indentation therefore gives empty fields; commas, quotation marks and line
    ends give quoted fields.
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
    """Return the offset at which each text record begins, and the offset at which the last record ends."""
    return frozenset(text_table()[1].tolist())
