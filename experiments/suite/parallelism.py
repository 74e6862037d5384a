"""Parallelism: throughput by threads in flight, the cost of threads that part ways, and plain products by a library's.

`experiments.kernels.parallel` describes the kernels `chains` and `paths`,
`experiments.kernels.products` the products `naive` and `tiled`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.kernels import parallel
from experiments.kernels.products import product
from experiments.registry import experiment
from experiments.suite.gemm import copies
from experiments.work import Dtype, Threads, Unsupported, Work, largest, relative_error

if TYPE_CHECKING:
    import torch

Kernel = Literal["chains", "paths", "naive", "tiled", "library"]
Backend = Literal["cupy", "torch", "llvm", "llvm-scalar"]

# What runs each kernel on a GPU; on a CPU there are paths alone, by vectors (llvm) and one by one.
ON_GPU = {"chains": "cupy", "paths": "cupy", "naive": "cupy", "tiled": "cupy", "library": "torch"}
# Half a millisecond of one chain; some of all that a GPU holds.
STEPS = 1 << 18
TURNS = 256
# The reference of the chains rounds twice now and then: of a million it gets none to a few wrong.
FEW = 1e-3


def memory(in_flight: int, n: int, **_: Any) -> float:
    """Starts and ends of the chains and the reference's in float64; the products' operands, results and float64."""
    return 32.0 * in_flight + 2 * 12.0 * n * n + 24.0 * n * n


def flop(in_flight: int, n: int, **_: Any) -> float:
    """Multiplications and additions of one call of the chains, or of a product."""
    return 2.0 * STEPS * in_flight + 2.0 * n**3


@experiment("parallelism", memory=memory, flop=flop)
def parallelism(
    device: Device, kernel: Kernel, in_flight: int, paths: int, n: int, backend: Backend, threads: Threads
) -> Work:
    """One launch.

    in_flight: threads of the chains, spread over as many multiprocessors as possible; 0
    else: of paths there are as many as the device holds, of products one for each cell.
    paths: different arms in a group of 32 threads, a power of 2; 0 else.
    n: rows and columns of a product's matrices, in float32; 0 else.
    Work: chains and products count a multiply-add as 2 FLOP; paths are of integers.
    Error: the share of chains or elements that end elsewhere than the reference's; a product's relative error.
    Unsupported: on a CPU everything but paths, and on more than one core.
    """
    if kernel == "paths":
        return _paths(device, paths, backend, threads)
    if device.kind == "cpu" or backend != ON_GPU[kernel]:
        raise device.unsupported(backend)
    return _chains(device, in_flight) if kernel == "chains" else _product(device, kernel, n)


def _chains(device: Device, in_flight: int) -> Work:
    import torch

    if in_flight < 1:
        raise Unsupported("chains need a thread at least")
    run, (multiprocessors, each) = parallel.chains(device.name), parallel.room(device.name)
    c = float(torch.empty(1).uniform_(-1.99, -1.9))

    def fresh() -> torch.Tensor:
        # Chains that start further out leave for infinity.
        return torch.rand(in_flight, device=device.name) * 2 - 1

    def check() -> float:
        begin, steps = fresh(), int(torch.randint(300, 600, ()))
        end = torch.full_like(begin, torch.nan)
        run(begin, end, steps, c)
        wrong = end != parallel.after_steps(device.exact(begin), steps, c).float()
        return float(torch.nan) if end.isnan().any() else float(wrong.double().mean())

    starts = fresh()
    return Work(
        run=partial(run, starts, torch.empty_like(starts), STEPS, c),
        flop=flop(in_flight, 0),
        check=check,
        tolerance=FEW,
        observe=lambda: {"threads_held": (float(multiprocessors * each), "1")},
    )


def _paths(device: Device, paths: int, backend: str, threads: int) -> Work:
    import numpy as np
    import torch

    from experiments.kernels.paths import cpu_paths

    if paths not in (1, 2, 4, 8, 16, parallel.GROUP):
        raise Unsupported(f"a group of {parallel.GROUP} takes a power of 2 of different paths, not {paths}")
    if device.kind == "cpu":
        if backend not in ("llvm", "llvm-scalar"):
            raise device.unsupported(backend)
        if threads > 1:
            raise Unsupported(f"the paths on a CPU are those of one core, not of {threads}")
        run, elements = cpu_paths("masked" if backend == "llvm" else "branching"), parallel.CPU_ELEMENTS
    else:
        if backend != ON_GPU["paths"]:
            raise device.unsupported(backend)
        run, elements = parallel.cuda_paths(device.name), parallel.full(device.name)

    def fresh() -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.from_numpy(parallel.deal(np.random.default_rng())).to(device.name)
        return table, torch.randint(-(1 << 31), 1 << 31, (elements,), device=device.name).int()

    def check() -> float:
        table, begin = fresh()
        end, turns = torch.empty_like(begin), int(torch.randint(32, 64, ()))
        run(table, begin, end, turns, paths)
        right = parallel.after_turns(table, begin, turns, paths)
        return float((end != right.int()).double().mean())

    table, starts = fresh()
    return Work(
        run=partial(run, table, starts, torch.empty_like(starts), TURNS, paths),
        check=check,
        tolerance=0.0,
    )


def _product(device: Device, kernel: Literal["naive", "tiled", "library"], n: int) -> Work:
    import torch

    single, shape = Dtype.FLOAT32, (n, n)
    run = None if kernel == "library" else product(kernel, device.name)

    def multiply(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A call that gives a @ b, in memory of its own."""
        if run is None:
            return device.matmul("torch", a, b, single)
        out = torch.full(shape, torch.nan, device=device.name)

        def call() -> torch.Tensor:
            run(a, b, out)
            return out

        return call

    def check() -> float:
        a, b = device.normal(shape, single), device.normal(shape, single)
        c = device.exact(multiply(a, b)())
        a, b, x = device.exact(a), device.exact(b), device.exact(device.normal((n, 1), single))
        # Some rows entry by entry, and the whole by Freivalds' check.
        return largest(relative_error(c[:16], a[:16] @ b), relative_error(c @ x, a @ (b @ x)))

    a, b = device.normal(shape, single), device.normal(shape, single)
    traffic = 3 * n * n * single.itemsize
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copies(device, traffic) - 1)]
    return Work(
        run=[multiply(left, right) for left, right in operands],
        flop=flop(0, n),
        bytes=float(traffic),
        check=check,
        tolerance=single.matmul_tolerance(n),
        graph=True,
    )
