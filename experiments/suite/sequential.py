"""Sequential and branching work: time per step if each step needs the result of the step before.

One chain shows the speed of a single CPU core or GPU thread; chains on every thread show the device's throughput.
`experiments.kernels.sequential` describes the kernels; `experiments.kernels.sequential.tasks` defines the latency that
a chase measures.
"""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Footprint, Threads, Unsupported, Workload

# Maximum number of chains to check, because the reference is slow.
MOST_CHECKED = 64
# Check at most this many steps in a tour. A tour visits every line in a chain's part of the table once. A tour that is
# not longer is checked completely, which also fills the caches as the timed tours do.
LONGEST_TOUR = 1 << 20


def memory(kernel: str, footprint: int, **_: Any) -> float:
    """Estimate the bytes for the table; for a chase, add the permutation that defines the table, and copies."""
    return 1.5 * footprint if kernel == "chase" else float(footprint)


def extra_s(kernel: str, footprint: int, threads: int, **_: Any) -> float:
    """Estimate the seconds to compile the kernel and to run the check in Python, and on a GPU also to draw data."""
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
    """Advance every chain by the same number of steps; the metric step_time is the time per step.

    chains: one, on one CPU core or one GPU thread; full, one on each of `threads` cores, or as many as the GPU holds at
        once.
    footprint: bytes that all chains read together: the permutation (chase), the data (branches, states); 4 for chain.
    Error: the share of checked chains whose final value differs from the reference.
    """
    import numpy as np

    from experiments.kernels.sequential import BITS, chains_class, tasks

    chains_type = chains_class(device.kind)
    if backend != chains_type.backend:
        raise device.unsupported_backend(backend)
    if chains == "one" and threads > 1:
        raise Unsupported(f"one chain runs on one thread, not on {threads}")
    count = 1 if chains == "one" else chains_type.max_chains(device.name, threads)
    steps, line = chains_type.steps(kernel, count, footprint), chains_type.line_bytes()
    random = np.random.default_rng()
    task = tasks.make_task(kernel, data, footprint, count, steps, line, random)
    walkers = chains_type(device.name, kernel, task.table, count)

    def reset() -> None:
        """Continue a chase where it stopped. Restart all other kernels, so that every call repeats the same steps."""
        if kernel == "chase":
            walkers.continue_from_ends()
        else:
            walkers.set_starts(task.starts(np.random.default_rng(0)))

    def check() -> float:
        starts = task.starts(random)
        tour = min(footprint // count // line, LONGEST_TOUR) if kernel == "chase" else 0
        length = BITS * (tour // BITS + int(random.integers(30, 100)))
        walkers.set_starts(starts)
        walkers.walk(length)
        checked = random.permutation(count)[:MOST_CHECKED]
        wrong = walkers.ends()[checked] != task.expected_ends(starts[checked], length)
        reset()
        return float(np.mean(wrong))

    def call() -> None:
        walkers.walk(steps)
        if kernel == "chase":
            walkers.continue_from_ends()

    return Workload(
        run=call,
        metric="step_time",
        per=float(steps),
        check=check,
        tolerance=0.0,
        observe=lambda: {"chains_in_flight": (float(count), "1")},
    )
