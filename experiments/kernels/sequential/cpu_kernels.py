"""The kernels on CPU cores: Python loops compiled by Numba, one thread per chain, without the interpreter lock."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types, uint32, uint64
from numba.extending import intrinsic

from experiments.kernels.llvm_compile import Team
from experiments.kernels.sequential import BITS, MULTIPLIER, Chains

_M = np.uint32(MULTIPLIER)
_START, _PLAIN, _QUOTED, _QUOTE = range(4)
_COMMA, _NEWLINE, _MARK = b',\n"'


def _opaque(_context: Any, value: types.Type) -> Any:
    """Return `value` unchanged, through an empty assembly block that the compiler may not remove or move up.

    In a branch, this block keeps LLVM from computing both arms and selecting a result by a conditional move, and from
    running several steps at once in a vector.
    """

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        return builder.call(ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=r,0", side_effect=True), arguments)

    return value(value), generate


opaque: Any = intrinsic(_opaque)


@njit(nogil=True)
def chain(_table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
    x = uint32(starts[which])
    for _ in range(steps):
        x = uint32((x ^ (x >> uint32(16))) * _M)
    ends[which] = x


@njit(nogil=True)
def chase(table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
    x = uint32(starts[which])
    for _ in range(steps):
        x = table[x]
    ends[which] = x


@njit(nogil=True)
def branches(table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
    x = first = uint32(starts[which])
    mask = uint32(len(table) - 1)
    for block in range(steps // BITS):
        word = table[(first + uint32(block)) & mask]
        for _ in range(BITS):
            if word & uint32(1):  # noqa: SIM108 - keep the branch
                x = opaque(uint32(x + word))
            else:
                x = opaque(uint32(x ^ word))
            word >>= uint32(1)
    ends[which] = x


@njit(nogil=True)
def states(table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
    first = starts[which]
    state, fields, records = _START, uint64(0), uint64(0)
    for step in range(steps):
        byte = table[first + uint64(step)]
        if state == _QUOTED:
            if byte == _MARK:
                state = opaque(_QUOTE)
        elif state == _QUOTE and byte == _MARK:
            state = opaque(_QUOTED)
        elif byte == _COMMA:
            fields += uint64(1)
            state = opaque(_START)
        elif byte == _NEWLINE:
            fields += uint64(1)
            records += uint64(1)
            state = opaque(_START)
        elif byte == _MARK and state == _START:
            state = opaque(_QUOTED)
        else:
            state = opaque(_PLAIN)
    ends[which] = fields << uint64(32) | records


KERNELS = {"chain": chain, "chase": chase, "branches": branches, "states": states}


class CpuChains(Chains):
    """Chains on CPU cores, with one chain per thread."""

    backend = "numba"

    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        self._kernel, self._table, self._chains = KERNELS[kernel], table, chains
        self._starts, self._ends = (np.zeros(chains, dtype=np.uint64) for _ in range(2))
        self._team = Team(chains)

    @classmethod
    def max_chains(cls, device: str, threads: int) -> int:
        return threads

    @classmethod
    def line_bytes(cls) -> int:
        """Return the size that the C library reports, but at least 64 bytes, the size on nearly every core."""
        names = getattr(os, "sysconf_names", {})
        return max(64, os.sysconf("SC_LEVEL1_DCACHE_LINESIZE") if "SC_LEVEL1_DCACHE_LINESIZE" in names else 0)

    @classmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        if kernel == "chase":
            return 1 << 20 if footprint // chains <= 1 << 20 else 1 << 18
        return {"chain": 1 << 22, "branches": 1 << 23, "states": 1 << 20}[kernel]

    def set_starts(self, starts: Any) -> None:
        self._starts[:] = starts

    def walk(self, steps: int) -> None:
        self._team.run(
            [partial(self._kernel, self._table, self._starts, self._ends, n, steps) for n in range(self._chains)]
        )

    def continue_from_ends(self) -> None:
        self._starts, self._ends = self._ends, self._starts

    def ends(self) -> Any:
        return self._ends.copy()
