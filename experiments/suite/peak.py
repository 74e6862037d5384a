"""Peak rate of fused multiply-adds: the ceiling under which every product runs.

`fma` uses the widest vectors that the core has, `scalar_fma` one number at a time.
"""

from __future__ import annotations

from typing import Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.work import Dtype, Threads, Unsupported, Work


@experiment("peak", fits=("cpu",))
def peak(
    device: Device,
    kernel: Literal["fma", "scalar_fma"],
    dtype: Dtype,
    backend: Literal["llvm"],
    threads: Threads,
    loops: int,
) -> Work:
    """`loops` rounds over independent accumulators that never leave the registers."""
    from experiments import kernels

    if dtype not in (Dtype.FLOAT32, Dtype.FLOAT64):
        raise Unsupported(f"no {dtype} kernel for the peak rate")
    lanes = kernels.vector_bytes() // dtype.itemsize if kernel == "fma" else 1
    run, per_loop = kernels.fma(dtype, lanes, threads)
    return Work(
        run=lambda: run(loops),
        flop=2.0 * per_loop * loops,
        check=lambda: run(1001),
        tolerance=4 * dtype.unit_roundoff,
    )
