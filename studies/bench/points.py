"""What every method measures in the A/A study: the study's own experiments, and everyday calls.

Each point is a `Work` as the measuring core takes it; the peers time the very same callables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any, Literal

from experiments import hardware
from experiments.devices import Device
from experiments.registry import experiment, get, typed
from experiments.work import Threads, Work

# Sizes of the everyday calls: well inside a core's caches.
SORTED, MAPPED, ADDED, FACTOR = 100_000, 100_000, 10_000, 64
# Of the point built last: kernels know their arrays by address alone, and a device's limit on
# the libraries' threads ends when it does.
_held: list[object] = []


@dataclass(frozen=True)
class Case:
    """A point by its label. cheap: a process that measures it starts in a fraction of a second (no torch)."""

    label: str
    experiment: str
    params: dict[str, Any]
    cheap: bool = False


def cache_footprint(threads: int) -> int:
    """Bytes that lie in second-level caches whatever their pages: half of one for each thread."""
    level = hardware.cpu().get("caches", {}).get("L2", {"bytes": 2**20, "instances": 1})
    return level["bytes"] // level["instances"] // 2 * threads


def memory_footprint() -> int:
    """Bytes of which no cache keeps a part worth mentioning: eight times the last-level cache."""
    return 8 * hardware.last_level_cache_bytes()


def cases() -> list[Case]:
    """All points of the A/A study on this machine."""
    every = hardware.usable_cores()

    def triad(label: str, footprint: int, threads: int, cheap: bool) -> Case:
        where = {"op": "triad", "footprint": footprint, "dtype": "float64", "backend": "llvm", "threads": threads}
        return Case(f"triad {label}", "bandwidth", where, cheap)

    def gemm(backend: str, dtype: str, n: int, threads: int) -> Case:
        label = f"gemm {backend} {dtype} {n}" + (", all threads" if threads > 1 else "")
        return Case(label, "gemm", {"m": n, "n": n, "k": n, "dtype": dtype, "backend": backend, "threads": threads})

    def call(name: str) -> Case:
        return Case(name, "everyday", {"call": name, "backend": "numpy", "threads": 1}, cheap=True)

    fma = {"kernel": "fma", "dtype": "float32", "backend": "llvm", "threads": 1, "loops": 1_000_000}
    found = [
        Case("chain", "clock", {"backend": "llvm", "threads": 1, "chain": 20_000_000}, cheap=True),
        Case("fma float32", "peak", fma),
        triad("in a first-level cache", 24576, 1, cheap=False),
        triad("in a second-level cache", cache_footprint(1), 1, cheap=True),
        triad("in memory", memory_footprint(), 1, cheap=True),
        triad("in memory, all threads", memory_footprint(), every, cheap=False),
        gemm("torch", "float32", 512, 1),
        gemm("torch", "float32", 1000, 1),
        gemm("torch", "float32", 1000, every),
        gemm("onednn", "float32", 1000, 1),
        gemm("numpy", "float32", 1000, 1),
        gemm("numpy", "float64", 512, 1),
        gemm("numpy", "float32", 1000, every),
        *(call(name) for name in ("sort", "exp", "add", "small product", "loop")),
    ]
    # On one core, all threads are one.
    return list({case.label: case for case in found}.values())


def everyday(
    device: Device,
    call: Literal["sort", "exp", "add", "small product", "loop"],
    backend: Literal["numpy"],
    threads: Threads,
) -> Work:
    """What NumPy and Python programs do all the time; not part of the study, so not in its suite."""
    import numpy as np

    random = np.random.default_rng()
    unsorted, x = random.standard_normal(SORTED), random.standard_normal(MAPPED)
    a, b, out = random.standard_normal(ADDED), random.standard_normal(ADDED), np.empty(ADDED)
    left, right = random.standard_normal((FACTOR, FACTOR)), random.standard_normal((FACTOR, FACTOR))
    product, mapped, numbers = np.empty((FACTOR, FACTOR)), np.empty(MAPPED), [float(value) for value in a]

    def total() -> float:
        found = 0.0
        for number in numbers:
            found += number * number
        return found

    calls: dict[str, Callable[[], object]] = {
        "sort": lambda: np.sort(unsorted),
        "exp": lambda: np.exp(x, out=mapped),
        "add": lambda: np.add(a, b, out=out),
        "small product": lambda: np.matmul(left, right, out=product),
        "loop": total,
    }
    return Work(run=calls[call])


@cache
def register() -> None:
    """Make `everyday` an experiment of this process."""
    experiment("everyday", fits=("cpu",))(everyday)


def build(label: str) -> tuple[Callable[[], object], int]:
    """(the call that the core would time, its threads), for a peer in this process; good until the next `build`.

    Work over several operands goes on to the next one with each call, as in the core.
    """
    from experiments.devices.cpu import CpuDevice

    register()
    case = next(case for case in cases() if case.label == label)
    device, threads = CpuDevice(), int(case.params["threads"])
    if case.experiment == "gemm":
        device.set_threads(threads)
    wanted = get(case.experiment)
    work = wanted.function(device, **typed(wanted, case.params))
    _held[:] = [device, work]
    if len(work.calls) == 1:
        return work.calls[0], threads
    turn = cycle(work.calls)
    return (lambda: next(turn)()), threads
