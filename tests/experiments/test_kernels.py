"""The own kernels compute what they say, by the instructions that they exist for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.kernels import chain, compile, dot, fma, stream
from experiments.work import Dtype

FLOATS = [Dtype.FLOAT32, Dtype.FLOAT64]


@given(st.integers(min_value=1, max_value=200))
@settings(deadline=None)
def test_the_chain_returns_what_python_computes(rounds: int) -> None:
    kernel, length = chain.chain()
    assert kernel(rounds) == chain.chain_value(rounds, length)


def test_the_chain_is_not_folded() -> None:
    _, assembly = compile.compile_ir(chain.chain_ir(64))
    operations = re.findall(r"^\s+(xor[ql]?|add[ql]?|eor)\s+%?\w+, %?\w+", assembly, re.MULTILINE)
    assert len(operations) >= 64


@pytest.mark.skipif(not compile.has_fma(), reason="this CPU has no fused multiply-add")
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_peak_kernel_is_made_of_fused_multiply_adds_on_registers(dtype: Dtype) -> None:
    lanes = compile.vector_bytes() // dtype.itemsize
    _, assembly = compile.compile_ir(fma.fma_ir(dtype, lanes))
    loop = re.split(r"\n\s+(?:j[a-z]+|b\.[a-z]+|cbnz)\s", assembly[assembly.index("LBB0_1:") :], maxsplit=1)[0]
    fused = [line for line in loop.splitlines() if re.search(r"\b(vfn?m\w+|fmla|fmadd)\b", line)]
    assert len(fused) == fma.ACCUMULATORS
    # No accumulator is spilt: nothing in the loop stores to memory.
    assert not re.search(r"vmov\w+\s+%[xyz]mm\d+, .*\(", loop)


@pytest.mark.skipif(not compile.has_fma(), reason="this CPU has no fused multiply-add")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loops", [1, 2, 999])
def test_the_peak_kernel_computes(dtype: Dtype, loops: int) -> None:
    run, per_loop = fma.fma(dtype, compile.vector_bytes() // dtype.itemsize, threads=2)
    assert run(loops) <= 4 * dtype.unit_roundoff
    assert per_loop == fma.ACCUMULATORS * compile.vector_bytes() // dtype.itemsize * 2


@pytest.mark.skipif(bool(dot.supported()), reason=dot.supported())
@pytest.mark.parametrize("loops", [1, 2, 999, 100_000])
def test_the_bfloat16_kernel_computes(loops: int) -> None:
    run, per_loop = dot.dot(threads=2)
    assert run(loops) <= 4 * Dtype.FLOAT32.unit_roundoff
    assert per_loop == 2 * fma.ACCUMULATORS * 32 * 2


@pytest.mark.skipif(bool(dot.supported()), reason=dot.supported())
def test_the_bfloat16_kernel_is_made_of_dot_products_on_registers() -> None:
    _, assembly = compile.compile_ir(dot.dot_ir())
    loop = re.split(r"\n\s+j[a-z]+\s", assembly[assembly.index("LBB0_1:") :], maxsplit=1)[0]
    assert loop.count("vdpbf16ps") == 2 * fma.ACCUMULATORS
    assert not re.search(r"vmov\w+\s+%[xyz]mm\d+, .*\(", loop)


@pytest.mark.skipif(compile.vector_bytes() < 32, reason="the names of the instructions are those of x86")
@pytest.mark.parametrize("nontemporal", [False, True])
def test_non_temporal_stores_are_what_their_name_says(nontemporal: bool) -> None:
    lanes = compile.vector_bytes() // 8
    _, assembly = compile.compile_ir(stream.stream_ir("triad", Dtype.FLOAT64, lanes, nontemporal=nontemporal))
    assert bool(re.search(r"\bvmovnt", assembly)) == nontemporal


def arrays(length: int, dtype: Dtype) -> list[Any]:
    chance = np.random.default_rng(5)
    made = [compile.aligned(length, dtype) for _ in range(3)]
    for array in made:
        array[:] = chance.normal(size=length)
    return made


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("nontemporal", [False, True])
@pytest.mark.parametrize("op", stream.STREAM_ARRAYS)
def test_stream_computes_and_touches_what_it_counts(op: str, nontemporal: bool, threads: int, dtype: Dtype) -> None:
    c, a, b = arrays(5000, dtype)
    before = c.copy()
    used = [c, a, b] if stream.STREAM_ARRAYS[op] == 3 else [c, a]
    stream.stream(op, dtype, used, threads, nontemporal)(2)
    touched = stream.stream_elements(5000, dtype, threads)
    exact = {"copy": a, "scale": 3 * a, "add": a + b, "triad": a + 3 * b}[op]
    np.testing.assert_allclose(c[:touched], exact[:touched], rtol=4 * dtype.unit_roundoff, atol=1e-6)
    np.testing.assert_array_equal(c[touched:], before[touched:])
    assert 5000 - touched < 4 * (64 // dtype.itemsize) * threads


def test_arrays_start_on_a_cache_line() -> None:
    assert all(compile.aligned(n, Dtype.FLOAT32).ctypes.data % 64 == 0 for n in (1, 17, 1000))
