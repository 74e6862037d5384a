"""The libraries of products: each computes, says what it lacks, and uses the kernels it was told to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from experiments import backends
from experiments.backends import cblas, openblas
from experiments.kernels import compile
from experiments.work import Dtype, Unsupported

ON_ONE_THREAD = [(backend, dtype) for backend in backends.BACKENDS for dtype in (Dtype.FLOAT32, Dtype.FLOAT64)]


@pytest.mark.parametrize(("backend", "dtype"), ON_ONE_THREAD, ids=lambda value: getattr(value, "name", str(value)))
def test_a_library_multiplies_or_says_why_not(backend: backends.Backend, dtype: Dtype) -> None:
    a, b = (torch.randn(shape, dtype=getattr(torch, dtype.value)) for shape in ((5, 33), (33, 17)))
    try:
        product = backend.matmul(a, b, dtype, 1)
    except Unsupported as lack:
        assert str(lack)
        # What this machine surely has must not hide behind a reason.
        assert (backend.name, dtype) not in {("torch", dtype), ("numpy", dtype), ("python", Dtype.FLOAT64)}
        assert backend.name not in {"scalar", "simd"}
        return
    for _ in range(2):
        torch.testing.assert_close(product(), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["python", "scalar", "simd"])
def test_plain_loops_run_on_one_thread(name: str) -> None:
    a = torch.randn(4, 4, dtype=torch.float64)
    library = backends.get(name)
    assert library is not None
    with pytest.raises(Unsupported, match="one thread"):
        library.matmul(a, a, Dtype.FLOAT64, 2)


def test_only_the_vector_loop_uses_vectors() -> None:
    """Where LLVM may not reorder additions, it must not: the scalar rung would be no scalar rung."""
    import numpy as np

    from experiments.backends.loops import compiled, dots

    a = np.ones(64, np.float32)
    found = {}
    for how in ("scalar", "simd"):
        loop = compiled(dots, how)
        loop(a, a, np.zeros(64, np.float32), 8, 8, 8, np.float32(0))
        assembly = next(iter(loop.inspect_asm().values()))  # type: ignore[attr-defined]
        found[how] = "mulps" in assembly or "fmadd231ps" in assembly or "fmla" in assembly
    assert found == {"scalar": False, "simd": True}


@pytest.mark.skipif(not openblas.core_type(), reason="NumPy's BLAS is not OpenBLAS here")
@pytest.mark.skipif(compile.vector_bytes() < 32, reason="the core type is one of x86")
def test_openblas_takes_the_kernels_that_it_is_told_to() -> None:
    """In a process of its own, as OpenBLAS chooses once."""
    code = (
        "import torch; from experiments.backends import get, openblas; from experiments.work import Dtype\n"
        "a = torch.randn(8, 8); get('openblas-haswell').matmul(a, a, Dtype.FLOAT32, 1); print(openblas.core_type())"
    )
    told = os.environ | backends.environment("openblas-haswell")
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Haswell"


def test_another_core_type_than_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openblas, "core_type", lambda: "Prescott")
    library = backends.get("openblas-haswell")
    assert library is not None
    a = torch.randn(4, 4)
    with pytest.raises(Unsupported, match="no Haswell kernels for this CPU: it took Prescott"):
        library.matmul(a, a, Dtype.FLOAT32, 1)


def test_a_library_that_does_not_load_is_no_crash(tmp_path: object) -> None:
    broken = f"{tmp_path}/libbroken.so"
    with open(broken, "wb") as file:  # noqa: PTH123 - a path as a linker has it
        file.write(b"no library")
    a = torch.randn(4, 4)
    with pytest.raises(Unsupported, match="does not load"):
        cblas.Cblas("broken", (broken,)).matmul(a, a, Dtype.FLOAT32, 1)
    with pytest.raises(Unsupported, match="not installed"):
        cblas.Cblas("none", ("no-such-blas",)).matmul(a, a, Dtype.FLOAT32, 1)


def test_groups_stand_for_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert backends.expand("openblas-*") == [f"openblas-{core.lower()}" for core in openblas.CORE_TYPES_ARM]
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert "openblas-skylakex" in backends.expand("openblas-*")
    monkeypatch.setattr(cblas.Cblas, "path", lambda self: "here" if self.name == "blis" else "")
    assert backends.expand("other-blas") == ["blis"]
    assert backends.expand("torch") == ["torch"]
