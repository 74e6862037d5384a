"""The peers of the measuring core: loops and clocks of their own around a compiled triad and bare BLAS calls.

Run by `studies.bench.truth` as a child; protocol as `experiments.worker`'s: one JSON object a line, both ways.
What is shared with the project is where the operands lie (the same allocators: pages and alignment decide
rates), and that products go through several operands in turn; what times and calls them is not.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

SCALAR = 3.0
# Shares and lengths of the peer's own loop.
WARM_SHARE = 1 / 3
LEAST_TIMED = 3
# A triad this long hides what it takes to start threads and read the clock.
LEAST_LOOP_S = 5e-3

Timed = Callable[[], float]


def flags(vector_bytes: int) -> list[str]:
    """Options for the compiler: as wide vectors as the project's kernel, else gcc halves them on some cores."""
    wide = ["-mprefer-vector-width=512"] if vector_bytes == 64 else []
    return ["-O3", "-march=native", "-fopenmp", *wide]


def compiled(folder: Path, vector_bytes: int) -> tuple[str, str]:
    """(shared library, what made it) of stream.c; ('', the fallback) where no C compiler with OpenMP is found."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    library = folder / "stream.so"
    if compiler:
        source = Path(__file__).with_name("stream.c")
        order = [compiler, *flags(vector_bytes), "-shared", "-fPIC", "-o", str(library), str(source)]
        if subprocess.run(order, capture_output=True, check=False).returncode == 0:
            about = subprocess.run(
                [compiler, "-dumpfullversion"], capture_output=True, encoding="utf-8", errors="replace", check=False
            )
            return str(library), " ".join([Path(compiler).name, about.stdout.strip(), *flags(vector_bytes)])
    return "", "numba, parallel (no C compiler with OpenMP was found)"


def triad(library: str, footprint: int, threads: int) -> tuple[Timed, float]:
    """(seconds of one pass when called, bytes of a pass)."""
    import numpy as np

    from experiments.kernels.compile import aligned
    from experiments.work import Dtype

    elements = footprint // 3 // 8 // threads * threads
    c, a, b = (aligned(elements, Dtype.FLOAT64) for _ in range(3))
    random = np.random.default_rng()
    for array in (c, a, b):
        block = random.standard_normal(1_000_003)
        for start in range(0, elements, len(block)):
            array[start : start + len(block)] = block[: elements - start]
    once = _compiled_triad(library, c, a, b, threads) if library else _numba_triad(c, a, b, threads)
    first = once(1)
    if not np.allclose(c, a + SCALAR * b, rtol=1e-12, atol=1e-12):
        raise RuntimeError("the peer's triad is wrong")
    passes = max(1, round(LEAST_LOOP_S / min(first, once(1))))
    return (lambda: once(passes)), 3.0 * 8 * elements


def _compiled_triad(library: str, c: Any, a: Any, b: Any, threads: int) -> Callable[[int], float]:
    function = ctypes.CDLL(library).triad
    function.restype = ctypes.c_double
    function.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_double, ctypes.c_long, ctypes.c_long, ctypes.c_int]
    return lambda passes: float(function(c.ctypes.data, a.ctypes.data, b.ctypes.data, SCALAR, len(c), passes, threads))


def _numba_triad(c: Any, a: Any, b: Any, threads: int) -> Callable[[int], float]:
    import numba

    numba.set_num_threads(threads)

    @numba.njit(parallel=True, fastmath=True)
    def loop(c: Any, a: Any, b: Any, passes: int, threads: int) -> None:
        each = len(c) // threads
        for thread in numba.prange(threads):
            part = slice(thread * each, (thread + 1) * each)
            mine, left, right = c[part], a[part], b[part]
            for _ in range(passes):
                for i in range(each):
                    mine[i] = left[i] + SCALAR * right[i]

    loop(c, a, b, 1, threads)

    def once(passes: int) -> float:
        begun = time.monotonic_ns()
        loop(c, a, b, passes, threads)
        return (time.monotonic_ns() - begun) * 1e-9 / passes

    return once


def gemm(library: str, n: int, dtype: str, threads: int) -> tuple[Timed, float]:
    """(seconds of one product when called, FLOP of a product)."""
    import torch

    from experiments import hardware
    from experiments.suite.gemm import MOST_COPIES

    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    bytes_ = 3 * n * n * kind.itemsize
    copies = min(MOST_COPIES, 1 + 2 * hardware.last_level_cache_bytes() // bytes_)
    a, b = torch.randn(n, n, dtype=kind), torch.randn(n, n, dtype=kind)
    pairs = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copies - 1)]
    prepare = {"numpy": _openblas, "torch": _mkl, "onednn": _onednn}[library]
    calls = [prepare(left, right, threads) for left, right in pairs]
    rows = a[:8].double() @ b.double()
    # Every call once: the pages of results are there before anything is timed.
    first, *_others = [call() for call in calls]
    error = torch.linalg.norm(first[:8].double() - rows) / torch.linalg.norm(rows)
    if not error < 1e-4:
        raise RuntimeError(f"the peer's product is wrong: relative error {error:.2g}")
    # The libraries get bare addresses: the operands are kept alive beside the calls.
    turn = cycle(list(zip(calls, pairs, strict=True)))

    def once() -> float:
        call, _operands = next(turn)
        begun = time.monotonic_ns()
        call()
        return (time.monotonic_ns() - begun) * 1e-9

    return once, 2.0 * n**3


def _openblas(a: Any, b: Any, threads: int) -> Callable[[], Any]:
    """cblas_?gemm of the OpenBLAS that came with NumPy: row-major, nothing transposed."""
    import numpy as np
    import torch
    from threadpoolctl import threadpool_info

    found = [pool["filepath"] for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    if not found:
        raise RuntimeError("NumPy's BLAS is not OpenBLAS here")
    # SciPy brings one of its own.
    library = ctypes.CDLL(next((path for path in found if "numpy" in path), found[0]))
    letter = "d" if a.dtype == torch.float64 else "s"
    function, whole = _symbol(
        library, [(f"scipy_cblas_{letter}gemm64_", ctypes.c_int64), (f"cblas_{letter}gemm", ctypes.c_int)]
    )
    limit, _ = _symbol(
        library,
        [("scipy_openblas_set_num_threads64_", ctypes.c_int), ("openblas_set_num_threads", ctypes.c_int)],
    )
    limit(ctypes.c_int(threads))
    real = ctypes.c_double if letter == "d" else ctypes.c_float
    function.restype = None
    function.argtypes = [*[ctypes.c_int] * 3, *[whole] * 3, real, *[ctypes.c_void_p, whole] * 2, real,
                         ctypes.c_void_p, whole]  # fmt: skip
    n, out = len(a), np.empty(a.shape, dtype=str(a.dtype).removeprefix("torch."))
    row_major, plain = 101, 111
    places = (a.data_ptr(), n, b.data_ptr(), n)
    result, place = torch.from_numpy(out), out.ctypes.data

    def product() -> Any:
        function(row_major, plain, plain, n, n, n, 1.0, *places, 0.0, place, n)
        return result

    return product


def _symbol(library: Any, names: list[tuple[str, Any]]) -> tuple[Any, Any]:
    for name, kind in names:
        if hasattr(library, name):
            return getattr(library, name), kind
    raise RuntimeError(f"no {names[0][0]} in NumPy's BLAS")


def mkl_symbol() -> Any:
    """The library of torch whose MKL can be called from outside, or None."""
    import torch

    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    return library if hasattr(library, "sgemm_") and hasattr(library, "mkl_set_num_threads_local") else None


def _mkl(a: Any, b: Any, threads: int) -> Callable[[], Any]:
    """MKL's Fortran ?gemm, as exported by torch's library; torch.mm where it is not.

    Fortran's matrices are column-major: C = A B by rows is C' = B' A' by columns.
    """
    import torch

    out = torch.empty_like(a)
    library = mkl_symbol()
    if library is None:
        return lambda: torch.mm(a, b, out=out)
    function = library.dgemm_ if a.dtype == torch.float64 else library.sgemm_
    real = ctypes.c_double if a.dtype == torch.float64 else ctypes.c_float
    one, zero, n, plain = real(1.0), real(0.0), ctypes.c_int(len(a)), ctypes.c_char(b"N")
    size, n_ = ctypes.byref(n), ctypes.byref(plain)
    scalars = ctypes.byref(one), ctypes.byref(zero)
    places = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, out)]

    def product() -> Any:
        function(n_, n_, size, size, size, scalars[0], places[0], size, places[1], size, scalars[1], places[2], size)
        return out

    return product


def _onednn(a: Any, b: Any, threads: int) -> Callable[[], Any]:
    import torch

    linear, weight = torch.ops.mkldnn._linear_pointwise, b.t().contiguous()
    return lambda: linear(a, weight, None, "none", [], "")


def timed(once: Timed, seconds: float) -> list[float]:
    """Times of `once` over `seconds`, after a third of them to warm up; at least LEAST_TIMED."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds * WARM_SHARE:
        once()
    times: list[float] = []
    while len(times) < LEAST_TIMED or time.monotonic() - begun < seconds:
        times.append(once())
    return times


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """{rate: per second, samples} of an order {kind, threads, seconds, …}, or {reason} if there is no such peer."""
    try:
        return _measured(order)
    except (RuntimeError, OSError, AttributeError) as lack:
        return {"reason": (str(lack).splitlines() or [type(lack).__name__])[0]}


def _measured(order: dict[str, Any]) -> dict[str, Any]:
    if order["kind"] == "triad":
        once, amount = triad(order["library"], order["footprint"], order["threads"])
    else:
        once, amount = gemm(order["library"], order["n"], order["dtype"], order["threads"])
    times = timed(once, order["seconds"])
    return {"rate": amount / median(times), "samples": len(times)}


def serve() -> None:
    """Read orders from standard input until it closes; answer each on standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
