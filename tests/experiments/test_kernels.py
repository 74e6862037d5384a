"""The own kernels compute what they say, by the instructions that they exist for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import kernels
from experiments.work import Dtype

FLOATS = [Dtype.FLOAT32, Dtype.FLOAT64]


@given(st.integers(min_value=1, max_value=200))
@settings(deadline=None)
def test_the_chain_returns_what_python_computes(rounds: int) -> None:
    kernel, length = kernels.chain()
    assert kernel(rounds) == kernels.chain_value(rounds, length)


def test_the_chain_is_not_folded() -> None:
    _, assembly = kernels._compile(kernels.chain_ir(64))
    operations = re.findall(r"^\s+(xor[ql]?|add[ql]?|eor)\s+%?\w+, %?\w+", assembly, re.MULTILINE)
    assert len(operations) >= 64


@pytest.mark.skipif(not kernels.has_fma(), reason="this CPU has no fused multiply-add")
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_peak_kernel_is_made_of_fused_multiply_adds_on_registers(dtype: Dtype) -> None:
    lanes = kernels.vector_bytes() // dtype.itemsize
    _, assembly = kernels._compile(kernels.fma_ir(dtype, lanes))
    loop = re.split(r"\n\s+(?:j[a-z]+|b\.[a-z]+|cbnz)\s", assembly[assembly.index("LBB0_1:") :], maxsplit=1)[0]
    fused = [line for line in loop.splitlines() if re.search(r"\b(vfn?m\w+|fmla|fmadd)\b", line)]
    assert len(fused) == kernels.ACCUMULATORS
    # No accumulator is spilt: nothing in the loop stores to memory.
    assert not re.search(r"vmov\w+\s+%[xyz]mm\d+, .*\(", loop)


@pytest.mark.skipif(not kernels.has_fma(), reason="this CPU has no fused multiply-add")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loops", [1, 2, 999])
def test_the_peak_kernel_computes(dtype: Dtype, loops: int) -> None:
    run, per_loop = kernels.fma(dtype, kernels.vector_bytes() // dtype.itemsize, threads=2)
    assert run(loops) <= 4 * dtype.unit_roundoff
    assert per_loop == kernels.ACCUMULATORS * kernels.vector_bytes() // dtype.itemsize * 2


def arrays(length: int, dtype: Dtype) -> list[Any]:
    chance = np.random.default_rng(5)
    made = [kernels.aligned(length, dtype) for _ in range(3)]
    for array in made:
        array[:] = chance.normal(size=length)
    return made


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("op", kernels.STREAM_ARRAYS)
def test_stream_computes_and_touches_what_it_counts(op: str, threads: int, dtype: Dtype) -> None:
    c, a, b = arrays(5000, dtype)
    before = c.copy()
    used = [c, a, b] if kernels.STREAM_ARRAYS[op] == 3 else [c, a]
    kernels.stream(op, dtype, used, threads)(2)
    touched = kernels.stream_elements(5000, dtype, threads)
    exact = {"copy": a, "scale": 3 * a, "add": a + b, "triad": a + 3 * b}[op]
    np.testing.assert_allclose(c[:touched], exact[:touched], rtol=4 * dtype.unit_roundoff, atol=1e-6)
    np.testing.assert_array_equal(c[touched:], before[touched:])
    assert 5000 - touched < 4 * (64 // dtype.itemsize) * threads


def test_arrays_start_on_a_cache_line() -> None:
    assert all(kernels.aligned(n, Dtype.FLOAT32).ctypes.data % 64 == 0 for n in (1, 17, 1000))
