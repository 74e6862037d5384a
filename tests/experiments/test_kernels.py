"""CPU kernels compute right results with the intended instructions; unavailable libraries give a reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import backends
from experiments.backends import cblas, openblas
from experiments.backends.loop_products import compile_loop, dot_products
from experiments.kernels import bfloat16_dot, dependent_chain, fma, llvm_compile, stream
from experiments.kernels.sequential import BITS, cpu_kernels, tasks
from experiments.workload import Dtype, Unsupported
from tests.experiments.point_runs import build_work, check_error, observe, passes_check

FLOATS = [Dtype.FLOAT32, Dtype.FLOAT64]


def test_dependent_chain_is_not_folded() -> None:
    _, assembly = llvm_compile.compile_ir(dependent_chain.chain_ir(64))
    operations = re.findall(r"^\s+(xor[ql]?|add[ql]?|eor)\s+%?\w+, %?\w+", assembly, re.MULTILINE)
    assert len(operations) >= 64


x86 = pytest.mark.skipif(llvm_compile.vector_bytes() < 32, reason="the instruction names are for x86")
no_fma = pytest.mark.skipif(not llvm_compile.has_fma(), reason="this CPU has no fused multiply-add")
no_dot = pytest.mark.skipif(bool(bfloat16_dot.unsupported_reason()), reason=bfloat16_dot.unsupported_reason())
LINES = {dtype: llvm_compile.vector_bytes() // dtype.itemsize for dtype in FLOATS}


@pytest.mark.parametrize(
    ("ir", "operation", "each"),
    [
        *(pytest.param(lambda kind=dtype: fma.fma_ir(kind, LINES[kind]), r"\b(vfn?m\w+|fmla|fmadd)\b", 1, marks=no_fma)
          for dtype in FLOATS),
        pytest.param(bfloat16_dot.dot_ir, "vdpbf16ps", 2, marks=no_dot),
    ],
)  # fmt: skip
def test_peak_kernels_are_multiply_adds_on_registers(ir: Callable[[], str], operation: str, each: int) -> None:
    _, assembly = llvm_compile.compile_ir(ir())
    loop = re.split(r"\n\s+(?:j[a-z]+|b\.[a-z]+|cbnz)\s", assembly[assembly.index("LBB0_1:") :], maxsplit=1)[0]
    assert len([line for line in loop.splitlines() if re.search(operation, line)]) == each * fma.ACCUMULATORS
    # All accumulators stay in registers, so no instruction in the loop stores to memory.
    assert not re.search(r"vmov\w+\s+%[xyz]mm\d+, .*\(", loop)


@pytest.mark.parametrize("loops", [1, 2, 999])
@pytest.mark.parametrize(
    ("make", "dtype", "per_loop"),
    [
        *(pytest.param(lambda dtype=dtype: fma.fma(dtype, LINES[dtype], threads=2), dtype, LINES[dtype], marks=no_fma)
          for dtype in FLOATS),
        pytest.param(lambda: bfloat16_dot.dot(threads=2), Dtype.FLOAT32, 2 * 32, marks=no_dot),
    ],
)  # fmt: skip
def test_peak_kernels_compute_right_results(make: Callable[[], Any], dtype: Dtype, per_loop: int, loops: int) -> None:
    run, flop_per_loop = make()
    assert run(loops) <= 4 * dtype.unit_roundoff
    assert flop_per_loop == fma.ACCUMULATORS * per_loop * 2


@x86
@pytest.mark.parametrize("nontemporal", [False, True])
def test_non_temporal_kernels_use_non_temporal_stores(nontemporal: bool) -> None:
    lanes = llvm_compile.vector_bytes() // 8
    _, assembly = llvm_compile.compile_ir(stream.stream_ir("triad", Dtype.FLOAT64, lanes, nontemporal=nontemporal))
    assert bool(re.search(r"\bvmovnt", assembly)) == nontemporal


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("nontemporal", [False, True])
@pytest.mark.parametrize("op", stream.STREAM_ARRAYS)
def test_stream_computes_and_touches_the_counted_elements(
    op: str, nontemporal: bool, threads: int, dtype: Dtype
) -> None:
    c, a, b = (llvm_compile.aligned_array(5000, dtype) for _ in range(3))
    for array, values in zip((c, a, b), np.random.default_rng(5).normal(size=(3, 5000)), strict=True):
        array[:] = values
    before = c.copy()
    used = [c, a, b] if stream.STREAM_ARRAYS[op] == 3 else [c, a]
    stream.stream(op, dtype, used, threads, nontemporal)(2)
    touched = stream.stream_elements(5000, dtype, threads)
    exact = {"copy": a, "scale": 3 * a, "add": a + b, "triad": a + 3 * b}[op]
    np.testing.assert_allclose(c[:touched], exact[:touched], rtol=4 * dtype.unit_roundoff, atol=1e-6)
    np.testing.assert_array_equal(c[touched:], before[touched:])
    assert 5000 - touched < 4 * (64 // dtype.itemsize) * threads


# Each entry is a kernel, the kind of its data, and the size of the data in bytes, which is small but not trivial.
KINDS = [
    ("chain", "random", 4),
    ("chase", "random", 3 * 64 * 40),
    ("branches", "predictable", 256),
    ("branches", "random", 256),
    ("states", "text", 100_000),
]
LONGEST = BITS * 400


@pytest.mark.parametrize(("kernel", "data", "footprint"), KINDS)
@given(blocks=st.integers(0, LONGEST // BITS), chains=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_chains_end_at_the_reference(
    kernel: str, data: str, footprint: int, blocks: int, chains: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    task = tasks.make_task(kernel, data, footprint, chains, LONGEST, 64, random)
    walkers = cpu_kernels.CpuChains("cpu", kernel, task.table, chains)
    starts = task.starts(random)
    walkers.set_starts(starts)
    walkers.walk(BITS * blocks)
    np.testing.assert_array_equal(walkers.ends(), task.expected_ends(starts, BITS * blocks))
    if kernel == "chase":
        walkers.continue_from_ends()
        walkers.walk(BITS)
        np.testing.assert_array_equal(walkers.ends(), task.expected_ends(starts, BITS * (blocks + 1)))


@given(lines=st.integers(2, 60), chains=st.integers(1, 4), line=st.sampled_from([64, 128]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_each_chase_visits_every_line_in_its_part_once(lines: int, chains: int, line: int, seed: int) -> None:
    task = tasks.make_task("chase", "random", lines * chains * line, chains, 0, line, np.random.default_rng(seed))
    assert task.table.nbytes == lines * chains * line
    assert task.table.ctypes.data % line == 0
    for chain, start in enumerate(task.starts(np.random.default_rng(seed))):
        position, visited = int(start), []
        for _ in range(lines):
            visited.append(position * 4 // line)
            position = int(task.table[position])
        assert position == start
        assert sorted(visited) == list(range(chain * lines, (chain + 1) * lines))


SMALL = {"chain": ("random", 4), "states": ("text", 1 << 21)}


@pytest.mark.parametrize("kernel", list(cpu_kernels.KERNELS))
def test_check_detects_kernels_that_skip_steps(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    walk = cpu_kernels.KERNELS[kernel]

    def skip_steps(table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
        # Skip one step in most kernels. In `branches`, skip as many steps as a data word has bits. In `states`, skip so
        # many steps (characters) that a record is missed.
        walk(table, starts, ends, which, steps - {"branches": BITS, "states": 500}.get(kernel, 1))

    data, footprint = SMALL.get(kernel, ("random", 1 << 14))
    for chains, threads in (("one", 1), ("full", 2)):
        params: dict[str, Any] = {"kernel": kernel, "data": data, "chains": chains, "threads": threads}
        work = build_work("sequential", **params, footprint=footprint * (threads if kernel == "chase" else 1))
        assert passes_check(work)
        assert observe(work) == {"chains_in_flight": float(threads)}
        assert work.per == cpu_kernels.CpuChains.steps(kernel, threads, footprint)
    monkeypatch.setitem(cpu_kernels.KERNELS, kernel, skip_steps)
    assert check_error(build_work("sequential", kernel=kernel, data=data, footprint=footprint)) == 1.0


def test_chase_continues_but_other_kernels_restart_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    walk = cpu_kernels.CpuChains.walk
    monkeypatch.setattr(
        cpu_kernels.CpuChains, "walk", lambda self, _: starts.append(int(self._starts[0])) or walk(self, BITS)
    )
    for kernel, data, footprint, distinct in (("chase", "random", 1 << 16, 3), ("states", "text", 1 << 21, 1)):
        work = build_work("sequential", kernel=kernel, data=data, footprint=footprint)
        starts.clear()
        for _ in range(3):
            work.calls[0]()
        assert len(set(starts)) == distinct, kernel


# The tests below read the machine code that LLVM makes.


def compiled_loops(kernel: str) -> list[list[str]]:
    """Return the instructions in each innermost kernel loop, for all compiled argument types."""
    table = np.zeros(64, dtype=np.uint8 if kernel == "states" else np.uint32)
    cpu_kernels.CpuChains("cpu", kernel, table, 1).walk(0)  # compile the kernel
    return [
        loop for assembly in cpu_kernels.KERNELS[kernel].inspect_asm().values() for loop in innermost_loops(assembly)
    ]


def innermost_loops(assembly: str) -> list[list[str]]:
    """Return the innermost loops in the first function: a loop is from a label to the last jump back to the label."""
    lines = [line.strip() for line in assembly.split("retq", 1)[0].splitlines()]
    code = [line for line in lines if line and not line.startswith(("#", ".p2align", ".cfi"))]
    labels = {line[:-1]: number for number, line in enumerate(code) if line.endswith(":")}
    ends: dict[int, int] = {}
    for number, line in enumerate(code):
        jump = re.match(r"j[a-z]+\s+(\S+)", line)
        if jump and labels.get(jump[1], number) < number:
            ends[labels[jump[1]]] = number
    inner = [(a, b) for a, b in ends.items() if not any(a < c and d < b for c, d in ends.items())]
    assert inner
    return [[line for line in code[a : b + 1] if not line.endswith(":")] for a, b in inner]


def count_matches(pattern: str, loop: list[str]) -> int:
    return sum(bool(re.match(pattern, line)) for line in loop)


@x86
@pytest.mark.parametrize(("kernel", "decisions"), [("chain", 0), ("chase", 0), ("branches", 2), ("states", 7)])
def test_loops_are_neither_vectorized_nor_branchless(kernel: str, decisions: int) -> None:
    """The machine code keeps a jump for each decision in the source."""
    inner = compiled_loops(kernel)
    for loop in inner:
        assert count_matches(r"cmov|set[a-z]+\b|sbb|prefetch|.*%[xyz]mm", loop) == 0, loop
    assert max(count_matches(r"j(?!mp)", loop) for loop in inner) >= decisions


ON_ONE_THREAD = [(backend, dtype) for backend in backends.BACKENDS for dtype in (Dtype.FLOAT32, Dtype.FLOAT64)]


@pytest.mark.parametrize(("backend", "dtype"), ON_ONE_THREAD, ids=lambda value: getattr(value, "name", str(value)))
def test_each_library_multiplies_or_gives_a_reason(backend: backends.Backend, dtype: Dtype) -> None:
    a, b = (torch.randn(shape, dtype=getattr(torch, dtype.value)) for shape in ((5, 33), (33, 17)))
    try:
        product = backend.matmul(a, b, dtype, 1)
    except Unsupported as lack:
        assert str(lack)
        # Every machine has these backends, so none of them may be unsupported.
        assert (backend.name, dtype) not in {("torch", dtype), ("numpy", dtype), ("python", Dtype.FLOAT64)}
        assert backend.name not in {"scalar", "simd"}
        return
    for _ in range(2):
        torch.testing.assert_close(product(), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("how", "vectors"), [("scalar", False), ("simd", True)])
def test_only_the_simd_loop_uses_vectors(how: str, vectors: bool) -> None:
    """The scalar loop uses no vectors, because LLVM may not reorder its additions."""
    a, loop = np.ones(64, np.float32), compile_loop(dot_products, how)
    loop(a, a, np.zeros(64, np.float32), 8, 8, 8, np.float32(0))
    assembly = next(iter(loop.inspect_asm().values()))  # type: ignore[attr-defined]
    assert any(word in assembly for word in ("mulps", "fmadd231ps", "fmla")) is vectors


@pytest.mark.skipif(not openblas.core_type(), reason="NumPy's BLAS is not OpenBLAS here")
@x86
def test_openblas_uses_the_requested_kernels() -> None:
    """The product runs in a new process, because OpenBLAS chooses its kernels when it is loaded."""
    code = (
        "import torch; from experiments.backends import get_backend, openblas; from experiments.workload import Dtype\n"
        "a = torch.randn(8, 8); get_backend('openblas-haswell').matmul(a, a, Dtype.FLOAT32, 1)\n"
        "print(openblas.core_type())"
    )
    environment = os.environ | backends.environment("openblas-haswell")
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "Haswell"


def test_another_core_type_than_requested_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openblas, "core_type", lambda: "Prescott")
    with pytest.raises(Unsupported, match="no Haswell kernels for this CPU: it took Prescott"):
        build_work("gemm", backend="openblas-haswell")


def test_library_that_fails_to_load_is_unsupported(tmp_path: Path) -> None:
    (tmp_path / "libbroken.so").write_bytes(b"no library")
    for library, why in ((str(tmp_path / "libbroken.so"), "does not load"), ("no-such-blas", "not installed")):
        with pytest.raises(Unsupported, match=why):
            cblas.Cblas("broken", (library,)).matmul(torch.randn(4, 4), torch.randn(4, 4), Dtype.FLOAT32, 1)


def test_backend_groups_expand_to_available_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert backends.expand_group("openblas-*") == [f"openblas-{core.lower()}" for core in openblas.CORE_TYPES_ARM]
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert "openblas-skylakex" in backends.expand_group("openblas-*")
    monkeypatch.setattr(cblas.Cblas, "path", lambda self: "here" if self.name == "blis" else "")
    assert backends.expand_group("other-blas") == ["blis"]
    assert backends.expand_group("torch") == ["torch"]
