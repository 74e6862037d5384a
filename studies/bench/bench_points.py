"""Points of the study's own experiments that `studies.bench` measures, and the calls that the core would time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from experiments import hardware
from experiments.registry import convert_params, get_experiment

LIBRARIES = {"numpy": "OpenBLAS", "torch": "MKL", "onednn": "oneDNN"}
# Of the point built last: kernels know their arrays by address alone, and a device's limit on
# the libraries' threads ends when it does.
_held: list[object] = []


@dataclass(frozen=True)
class Case:
    """A point by its label. group: points that moderate each other in `truth`; "" of a point without a bare loop."""

    label: str
    group: str
    experiment: str
    params: dict[str, Any]


def cases() -> list[Case]:
    """A chain, multiply-adds, triads in a cache and in memory, products by each library; on one thread and on all."""
    fma = {"kernel": "fma", "dtype": "float32", "backend": "llvm", "threads": 1, "loops": 1_000_000}
    found = [
        Case("chain", "", "clock", {"backend": "llvm", "threads": 1, "chain": 20_000_000}),
        Case("fma float32", "", "peak", fma),
    ]
    level = hardware.cpu().get("caches", {}).get("L2", {"bytes": 2**20, "instances": 1})
    for threads in sorted({1, hardware.usable_cores()}):
        on = "1 thread" if threads == 1 else f"{threads} threads"
        in_cache = level["bytes"] // level["instances"] // 2 * threads
        for where, footprint in (("in L2", in_cache), ("in memory", 8 * hardware.last_level_cache_bytes())):
            params = {"op": "triad", "footprint": footprint, "dtype": "float64", "backend": "llvm", "threads": threads}
            found.append(Case(f"triad {where}, {on}", "triad", "bandwidth", params))
        for library, name in LIBRARIES.items():
            for dtype in ("float32", "float64")[: 1 if library == "onednn" else 2]:
                for n in (1000, 2048):
                    params = {"m": n, "n": n, "k": n, "dtype": dtype, "backend": library, "threads": threads}
                    found.append(Case(f"{name} {dtype} {n}, {on}", f"gemm {name}", "gemm", params))
    return found


def build(label: str) -> tuple[Callable[[], object], int]:
    """(the call that the core would time, its threads), good until the next `build`.

    Work over several operands goes on to the next one with each call, as in the core.
    """
    from experiments.devices.cpu import CpuDevice

    case = next(case for case in cases() if case.label == label)
    device, threads = CpuDevice(), int(case.params["threads"])
    if case.experiment == "gemm":
        device.set_threads(threads)
    wanted = get_experiment(case.experiment)
    work = wanted.function(device, **convert_params(wanted, case.params))
    _held[:] = [device, work]
    turn = cycle(work.calls)
    return (work.calls[0] if len(work.calls) == 1 else lambda: next(turn)()), threads
