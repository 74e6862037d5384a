"""Peak rate of fused multiply-adds: the upper bound for every product.

`fma` uses the core's widest vectors, `scalar_fma` one number at a time. For bfloat16, `fma` uses an instruction that
adds the dot product of two pairs to each float32 number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Unsupported, Workload


@experiment("peak", fits=("cpu",))
def peak(
    device: Device,
    kernel: Literal["fma", "scalar_fma"],
    dtype: Dtype,
    backend: Literal["llvm"],
    threads: Threads,
    loops: int,
) -> Workload:
    """Run `loops` rounds over independent accumulators that never leave the registers."""
    from experiments.kernels.bfloat16_dot import dot
    from experiments.kernels.fma import fma
    from experiments.kernels.llvm_compile import vector_bytes

    if kernel == "fma" and dtype is Dtype.BFLOAT16:
        run, per_loop = dot(threads)
        return _peak_workload(run, per_loop, loops, Dtype.FLOAT32)
    if dtype not in (Dtype.FLOAT32, Dtype.FLOAT64):
        raise Unsupported(f"no {dtype} kernel for the peak rate")
    lanes = vector_bytes() // dtype.itemsize if kernel == "fma" else 1
    run, per_loop = fma(dtype, lanes, threads)
    return _peak_workload(run, per_loop, loops, dtype)


def _peak_workload(run: Callable[[int], float], per_loop: int, loops: int, dtype: Dtype) -> Workload:
    return Workload(
        run=lambda: run(loops),
        flop=2.0 * per_loop * loops,
        check=lambda: run(1001),
        tolerance=4 * dtype.unit_roundoff,
    )
