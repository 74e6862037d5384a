"""Parallelism: throughput by the number of threads in flight, and the cost of divergent threads.

`experiments.kernels.gpu_threads` describes the kernels `chains` and `paths`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.kernels import gpu_threads
from experiments.registry import experiment
from experiments.workload import Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch

Kernel = Literal["chains", "paths"]
# CPUs run only `paths`: in vectors (llvm) or element by element (llvm-scalar).
Backend = Literal["cupy", "llvm", "llvm-scalar"]

# Number of steps per chain. They take half a millisecond for a single chain, and longer on a full GPU.
STEPS = 1 << 18
TURNS = 256
# Tolerated share of wrong chains. The reference itself is wrong for up to a few chains in a million, because it
# occasionally rounds twice.
FEW = 1e-3


def memory(in_flight: int, **_: Any) -> float:
    """Estimate the bytes for the chains' starts and ends, and for the float64 reference."""
    return 32.0 * in_flight


def flop(in_flight: int, **_: Any) -> float:
    return 2.0 * STEPS * in_flight


@experiment("parallelism", memory=memory, flop=flop)
def parallelism(
    device: Device, kernel: Kernel, in_flight: int, paths: int, backend: Backend, threads: Threads
) -> Workload:
    """Launch the kernel once.

    in_flight: number of threads that run chains, spread over as many multiprocessors as possible; 0 for paths, which
        fill the device.
    paths: number of different paths that a warp (32 threads; 32 elements on a CPU) takes at a branch, a power of 2; 0
        for chains.
    Work: a multiply-add in a chain counts as 2 FLOP; paths use integers.
    Error: the share of chains, or of elements in `paths`, whose final value differs from the reference.
    Unsupported: chains on a CPU, and paths on more than one CPU core.
    """
    if kernel == "paths":
        return _path_workload(device, paths, backend, threads)
    if device.kind == "cpu" or backend != "cupy":
        raise device.unsupported_backend(backend)
    return _chain_workload(device, in_flight)


def _chain_workload(device: Device, in_flight: int) -> Workload:
    import torch

    if in_flight < 1:
        raise Unsupported("chains need at least one thread in flight")
    run = gpu_threads.chains(device.name)
    c = float(torch.empty(1).uniform_(-1.99, -1.9))

    def draw_starts() -> torch.Tensor:
        # Start between -1 and 1, because chains that start too far from 0 diverge to infinity.
        return torch.rand(in_flight, device=device.name) * 2 - 1

    def check() -> float:
        begin, steps = draw_starts(), int(torch.randint(300, 600, ()))
        end = torch.full_like(begin, torch.nan)
        run(begin, end, steps, c)
        wrong = end != gpu_threads.chain_ends(device.to_float64(begin), steps, c).float()
        return float(torch.nan) if end.isnan().any() else float(wrong.double().mean())

    starts = draw_starts()
    return Workload(
        run=partial(run, starts, torch.empty_like(starts), STEPS, c),
        flop=flop(in_flight),
        check=check,
        tolerance=FEW,
    )


def _path_workload(device: Device, paths: int, backend: str, threads: int) -> Workload:
    import numpy as np
    import torch

    from experiments.kernels.cpu_divergence import cpu_paths

    if paths not in (1, 2, 4, 8, 16, gpu_threads.GROUP):
        raise Unsupported(f"paths must be a power of 2 up to {gpu_threads.GROUP}, not {paths}")
    if device.kind == "cpu":
        if backend not in ("llvm", "llvm-scalar"):
            raise device.unsupported_backend(backend)
        if threads > 1:
            raise Unsupported(f"paths on a CPU run on one core, not on {threads}")
        run, elements = cpu_paths("masked" if backend == "llvm" else "branching"), gpu_threads.CPU_ELEMENTS
    else:
        if backend != "cupy":
            raise device.unsupported_backend(backend)
        run, elements = gpu_threads.cuda_paths(device.name), gpu_threads.resident_threads(device.name)

    def draw_table_and_starts() -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.from_numpy(gpu_threads.make_arm_table(np.random.default_rng())).to(device.name)
        return table, torch.randint(-(1 << 31), 1 << 31, (elements,), device=device.name).int()

    def check() -> float:
        table, begin = draw_table_and_starts()
        end, turns = torch.empty_like(begin), int(torch.randint(32, 64, ()))
        run(table, begin, end, turns, paths)
        expected = gpu_threads.path_ends(table, begin, turns, paths)
        return float((end != expected.int()).double().mean())

    table, starts = draw_table_and_starts()
    return Workload(
        run=partial(run, table, starts, torch.empty_like(starts), TURNS, paths),
        check=check,
        tolerance=0.0,
    )
