"""Bare timing loops around a compiled triad and around library calls, to compare with the measuring core.

`studies.bench.core_over_bare` runs this module as a child process. Like `experiments.worker`, this module reads and
writes one JSON object per line. Operands are allocated as in the measuring core, because memory pages and alignment
affect the rates. Successive products use different operands, as in the core. The code to call and time the kernels is
independent of the core.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from experiments.children import answer_sender

SCALAR = 3.0
WARM_SHARE = 1 / 3
LEAST_TIMED = 3
# Minimum seconds for a timed loop. Shorter loops would need much of their time to start threads and read the clock.
LEAST_LOOP_S = 5e-3

# Function to run the work, which returns the seconds per pass.
TimedCall = Callable[[], float]


def compile_triad(folder: Path, vector_bytes: int) -> tuple[str, str]:
    """Compile stream.c; return the path of the shared library, and the compiler with its options.

    Without a C compiler or OpenMP, returns "" and the reason.
    """
    compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
    # Use vectors as wide as in the project's kernel. On some processors, gcc's default is half this width.
    wide = ["-mprefer-vector-width=512"] if vector_bytes == 64 else []
    order = [compiler, "-O3", "-march=native", "-fopenmp", *wide]
    library, source = folder / "stream.so", Path(__file__).with_name("stream.c")
    try:
        compilation = subprocess.run(
            [*order, "-shared", "-fPIC", "-o", str(library), str(source)], capture_output=True, check=False
        )
        version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return "", "no C compiler was found"
    if compilation.returncode:
        return "", f"{compiler} has no OpenMP"
    return str(library), " ".join([Path(compiler).name, version.strip(), *order[1:]])


def make_triad(library: str, footprint: int, threads: int) -> tuple[TimedCall, float]:
    """Return a function to time the triad, in seconds per pass, and the bytes per pass."""
    from experiments.kernels.llvm_compile import aligned_array
    from experiments.workload import Dtype

    elements = footprint // 3 // 8 // threads * threads
    c, a, b = (aligned_array(elements, Dtype.FLOAT64) for _ in range(3))
    for array in (c, a, b):
        array[:] = np.resize(np.random.default_rng().standard_normal(1_000_003), elements)
    function = ctypes.CDLL(library).triad
    function.restype = ctypes.c_double
    function.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_double, ctypes.c_long, ctypes.c_long, ctypes.c_int]

    def once(passes: int) -> float:
        return float(function(c.ctypes.data, a.ctypes.data, b.ctypes.data, SCALAR, elements, passes, threads))

    first = once(1)
    if not np.allclose(c, a + SCALAR * b, rtol=1e-12, atol=1e-12):
        raise RuntimeError("the peer's triad is wrong")
    passes = max(1, round(LEAST_LOOP_S / min(first, once(1))))
    return (lambda: once(passes)), 3.0 * 8 * elements


def make_gemm(library: str, n: int, dtype: str, threads: int) -> tuple[TimedCall, float]:
    """Return a function to time one matrix product, in seconds, and the FLOP per product."""
    import torch
    from threadpoolctl import threadpool_limits

    from experiments import hardware
    from experiments.suite.gemm import MOST_COPIES

    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
    kind = getattr(torch, dtype)
    copies = min(MOST_COPIES, 1 + 2 * hardware.last_level_cache_bytes() // (3 * n * n * kind.itemsize))

    def call() -> Callable[[], Any]:
        left, right, out = a.clone(), b.clone(), torch.empty_like(a)
        if library == "numpy":
            x, y, z = left.numpy(), right.numpy(), out.numpy()
            return lambda: torch.from_numpy(np.matmul(x, y, out=z))
        if library == "torch":
            return lambda: torch.mm(left, right, out=out)
        linear, weight = torch.ops.mkldnn._linear_pointwise, right.t().contiguous()
        return lambda: linear(left, weight, None, "none", [], "")

    a, b = torch.randn(n, n, dtype=kind), torch.randn(n, n, dtype=kind)
    calls = [call() for _ in range(copies)]
    rows = a[:8].double() @ b.double()
    # Call each function once before timing, so that the memory pages for the results are allocated.
    first, *_others = [call() for call in calls]
    error = torch.linalg.norm(first[:8].double() - rows) / torch.linalg.norm(rows)
    if not error < 1e-4:
        raise RuntimeError(f"the peer's product is wrong: relative error {error:.2g}")
    turn = cycle(calls)

    def once() -> float:
        product = next(turn)
        begun = time.monotonic_ns()
        product()
        return (time.monotonic_ns() - begun) * 1e-9

    return once, 2.0 * n**3


def time_calls(once: TimedCall, seconds: float) -> list[float]:
    """Call `once` repeatedly for `seconds`, and return the times that it returns after the warm-up.

    The warm-up is the first third of `seconds`. At least LEAST_TIMED times are returned, even if this takes longer.
    """
    begun = time.monotonic()
    while time.monotonic() - begun < seconds * WARM_SHARE:
        once()
    times: list[float] = []
    while len(times) < LEAST_TIMED or time.monotonic() - begun < seconds:
        times.append(once())
    return times


def run_order(order: dict[str, Any]) -> dict[str, Any]:
    """Measure a point's rate with its bare loop.

    order: dict with the keys experiment, params, library (path to the compiled triad) and seconds (for the timed calls
    and their warm-up). Returns {rate: FLOP or bytes per second}, or {reason: text} if the loop fails.
    """
    params = order["params"]
    try:
        if order["experiment"] == "bandwidth":
            once, amount = make_triad(order["library"], params["footprint"], params["threads"])
        else:
            once, amount = make_gemm(params["backend"], params["n"], params["dtype"], params["threads"])
        return {"rate": amount / median(time_calls(once, order["seconds"]))}
    except (RuntimeError, OSError, AttributeError) as lack:
        return {"reason": (str(lack).splitlines() or [type(lack).__name__])[0]}


def serve() -> None:
    """Read orders from standard input until it closes, and write the answers to standard output."""
    tell = answer_sender()
    for line in sys.stdin:
        tell(run_order(json.loads(line)))


if __name__ == "__main__":
    serve()
