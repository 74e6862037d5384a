"""Sequential and branching work: the time of one step where each step needs the last one's result.

One chain of steps shows what a CPU core or a GPU thread does alone; as many as the
device holds, what it does in all. `experiments.kernels.sequential` describes the
kernels, and `tasks` there what a chase's latency includes.
"""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Footprint, Threads, Unsupported, Workload

# Chains whose end is checked, at most: the reference takes its time.
MOST_CHECKED = 64
# Steps of a chase's check, at most: a whole tour where that is short; it also leaves the caches as a tour does.
LONGEST_TOUR = 1 << 20


def memory(kernel: str, footprint: int, **_: Any) -> float:
    """The table; for a chase also the permutation that it is made from, and its copies."""
    return 1.5 * footprint if kernel == "chase" else float(footprint)


def extra_s(kernel: str, footprint: int, threads: int, **_: Any) -> float:
    """Compiling the kernel, and following it once in Python for the check. A GPU's data are drawn by its host."""
    return 0.15 if threads else 0.3 + memory(kernel, footprint) / 1e9


@experiment("sequential", memory=memory, extra_s=extra_s)
def sequential(
    device: Device,
    kernel: Literal["chain", "chase", "branches", "states"],
    chains: Literal["one", "full"],
    footprint: Footprint,
    data: Literal["predictable", "random", "text"],
    backend: Literal["numba", "cupy"],
    threads: Threads,
) -> Workload:
    """Some steps of every chain; the value is the time of one of them.

    chains: one, on one CPU core or one GPU thread; full, one on each of `threads`
    cores, or as many as the GPU holds at once. footprint: bytes that all chains read
    together: the permutation (chase), the data (branches, states); 4 for chain.
    Error: the share of the checked chains that end elsewhere than the reference.
    """
    import numpy as np

    from experiments.kernels.sequential import BITS, definition, tasks

    define = definition(device.kind)
    if backend != define.backend:
        raise device.unsupported(backend)
    if chains == "one" and threads > 1:
        raise Unsupported(f"one chain runs on one thread, not on {threads}")
    count = 1 if chains == "one" else define.most(device.name, threads)
    steps, line = define.steps(kernel, count, footprint), define.line_bytes()
    random = np.random.default_rng()
    task = tasks.make(kernel, data, footprint, count, steps, line, random)
    walkers = define(device.name, kernel, task.table, count)

    def rest() -> None:
        """A chase goes on where it stopped; the others do the same steps in every call and round, on every device."""
        if kernel == "chase":
            walkers.go_on()
        else:
            walkers.place(task.starts(np.random.default_rng(0)))

    def check() -> float:
        starts = task.starts(random)
        tour = min(footprint // count // line, LONGEST_TOUR) if kernel == "chase" else 0
        length = BITS * (tour // BITS + int(random.integers(30, 100)))
        walkers.place(starts)
        walkers.walk(length)
        some = random.permutation(count)[:MOST_CHECKED]
        wrong = walkers.ends()[some] != task.expected(starts[some], length)
        rest()
        return float(np.mean(wrong))

    def call() -> None:
        walkers.walk(steps)
        if kernel == "chase":
            walkers.go_on()

    return Workload(
        run=call,
        metric="step_time",
        per=float(steps),
        check=check,
        tolerance=0.0,
        observe=lambda: {"chains_in_flight": (float(count), "1")},
    )
