"""Load without a pause: rate, clock, temperature, power and the driver's utilisation over time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.suite import bandwidth, gemm
from experiments.workload import Dtype, Footprint, Threads, Workload, relative_error

if TYPE_CHECKING:
    import torch

Load = Literal["products", "triad", "one_block", "idle"]

# Small products in one graph: some milliseconds of kernels, so that starting it leaves no gap between them.
IN_A_GRAPH = 1000
IDLE_S = 0.05


def memory(load: Load, extent: int, dtype: str, backend: str, **_: Any) -> float:
    """That of the experiment whose work it is; next to nothing for the others."""
    if load == "products":
        return gemm.memory(extent, extent, extent, dtype)
    return bandwidth.memory(extent, backend) if load == "triad" else 0.0


def extra_s(point_s: float, **_: Any) -> float:
    """It lasts as long as it may, whatever others take of their seconds."""
    return 0.4 * point_s


@experiment("sustained", memory=memory, extra_s=extra_s, lasting=True)
def sustained(
    device: Device,
    load: Load,
    extent: Footprint,
    dtype: Dtype,
    backend: Literal["torch", "onednn", "numpy", "llvm", "llvm-nt", "cupy"],
    threads: Threads,
) -> Workload:
    """The same work over and over for as long as the point has, without a warm-up before.

    products: of square matrices of `extent` rows, as `gemm` does them. triad: over arrays of
    `extent` bytes, as `bandwidth` does it. one_block: products of matrices so small that one
    or two multiprocessors work and the others wait, one after the other without the host.
    idle: nothing, with the device held open; what it then draws is part of the power of all others.
    Unsupported: one_block where the device has no graphs.
    """
    if load == "products":
        work = gemm.gemm(device, extent, extent, extent, dtype, backend, threads)
    elif load == "triad":
        if backend == "onednn" or backend == "numpy":
            raise device.unsupported(backend)
        work = bandwidth.bandwidth(device, "triad", extent, dtype, backend, threads)
    elif load == "one_block":
        work = _one_block(device, extent, dtype, backend)
    else:
        work = Workload(run=lambda: time.sleep(IDLE_S), clock="host")
    return replace(work, lasting=True, graph=False, beside=())


def _one_block(device: Device, extent: int, dtype: Dtype, backend: str) -> Workload:
    a, b = device.random_normal((extent, extent), dtype), device.random_normal((extent, extent), dtype)
    product = device.matmul(backend, a, b, dtype)
    results: list[torch.Tensor] = []

    def call() -> None:
        # Some libraries make a new result each time; the last one is where the graph writes.
        results[:] = [product()]

    replay = device.graph([call] * IN_A_GRAPH)

    def check() -> float:
        """Of the graph itself, on fresh operands."""
        for operand in (a, b):
            operand.copy_(device.random_normal((extent, extent), dtype))
        replay()
        return relative_error(device.to_float64(results[0]), device.to_float64(a) @ device.to_float64(b))

    return Workload(
        run=replay,
        flop=2.0 * extent**3 * IN_A_GRAPH,
        check=check,
        tolerance=dtype.matmul_tolerance(extent),
    )
