"""Clock of one CPU core under load: operations per second of a chain with one operation per cycle.

The system's counters (cpufreq, /proc/cpuinfo) are nominal or absent in virtual machines. A chain of dependent
one-cycle operations counts cycles anywhere.
"""

from __future__ import annotations

from typing import Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Threads, Workload


@experiment("clock", fits=("cpu",))
def clock(device: Device, backend: Literal["llvm"], threads: Threads, chain: int) -> Workload:
    """Run `chain` dependent operations, rounded up to a multiple of the operations in the kernel's loop."""
    from experiments.kernels import dependent_chain as chains

    kernel, per_loop = chains.chain()
    loops = -(-chain // per_loop)
    expected = chains.chain_value(50)
    return Workload(
        run=lambda: kernel(loops),
        metric="clock",
        rate=float(loops * per_loop),
        rate_unit="Hz",
        check=lambda: 0.0 if kernel(50) == expected else 1.0,
        tolerance=0.0,
    )
