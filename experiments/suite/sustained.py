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

# Number of products per graph. They take some milliseconds, so the gap between two graph launches hardly matters.
IN_A_GRAPH = 1000
IDLE_S = 0.05


def memory(load: Load, extent: int, dtype: str, backend: str, **_: Any) -> float:
    """Return the bytes that `gemm` estimates for products, and `bandwidth` for a triad; 0 for the other loads."""
    if load == "products":
        return gemm.memory(extent, extent, extent, dtype)
    return bandwidth.memory(extent, backend) if load == "triad" else 0.0


def extra_s(point_s: float, **_: Any) -> float:
    """Return a share of point_s: the plan allows only a part of it for sampling, but this experiment uses all of it."""
    return 0.4 * point_s


@experiment("sustained", memory=memory, extra_s=extra_s, lasting=True)
def sustained_load(
    device: Device,
    load: Load,
    extent: Footprint,
    dtype: Dtype,
    backend: Literal["torch", "onednn", "numpy", "llvm", "llvm-nt", "cupy"],
    threads: Threads,
) -> Workload:
    """Repeat the same work for the point's whole time, without a warm-up.

    products: square matrices with `extent` rows, as in `gemm`. triad: arrays that take `extent` bytes, as in
        `bandwidth`. one_block: products so small that they occupy one or two multiprocessors; a graph runs them one
        after the other without the host. idle: no work, with the device held open; the power of every other load
        includes this power.
    Unsupported: one_block on devices without graphs.
    """
    if load == "products":
        work = gemm.gemm(device, extent, extent, extent, dtype, backend, threads)
    elif load == "triad":
        if backend == "onednn" or backend == "numpy":
            raise device.unsupported_backend(backend)
        work = bandwidth.bandwidth(device, "triad", extent, dtype, backend, threads)
    elif load == "one_block":
        work = _one_block_workload(device, extent, dtype, backend)
    else:
        work = Workload(run=lambda: time.sleep(IDLE_S), clock="host")
    return replace(work, lasting=True, graph=False, beside=())


def _one_block_workload(device: Device, extent: int, dtype: Dtype, backend: str) -> Workload:
    a, b = device.random_normal((extent, extent), dtype), device.random_normal((extent, extent), dtype)
    product = device.matmul(backend, a, b, dtype)
    results: list[torch.Tensor] = []

    def call() -> None:
        # Some libraries allocate a new result in each call. Keep the last call's result for the check: every replay of
        # the graph overwrites it.
        results[:] = [product()]

    replay = device.graph([call] * IN_A_GRAPH)

    def check() -> float:
        """Check the graph itself, on fresh operands."""
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
