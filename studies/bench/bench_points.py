"""Points that `studies.bench` takes from the study's experiments, and the calls that the core times for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from experiments import hardware
from experiments.registry import convert_params, get_experiment

LIBRARIES = {"numpy": "OpenBLAS", "torch": "MKL", "onednn": "oneDNN"}
# This list keeps the device and the workload from the last `build_call` alive. Kernels use pointers to the workload's
# arrays, and the thread limit ends when the device is deleted.
_referenced: list[object] = []


@dataclass(frozen=True)
class Case:
    """Point with its label.

    group: name for points with the same kind of bare loop, whose variances `core_over_bare` shrinks towards each other;
    empty for a point without a bare loop.
    """

    label: str
    group: str
    experiment: str
    params: dict[str, Any]


def bench_cases() -> list[Case]:
    """List the benchmark's points.

    A chain of dependent operations and a multiply-add kernel run on one thread. Triads and matrix products run on one
    thread and on all threads.
    """
    fma = {"kernel": "fma", "dtype": "float32", "backend": "llvm", "threads": 1, "loops": 1_000_000}
    listed_cases = [
        Case("chain", "", "clock", {"backend": "llvm", "threads": 1, "chain": 20_000_000}),
        Case("fma float32", "", "peak", fma),
    ]
    level = hardware.cpu().get("caches", {}).get("L2", {"bytes": 2**20, "instances": 1})
    for threads in sorted({1, hardware.usable_cores()}):
        on = "1 thread" if threads == 1 else f"{threads} threads"
        in_cache = level["bytes"] // level["instances"] // 2 * threads
        for where, footprint in (("in L2", in_cache), ("in memory", 8 * hardware.last_level_cache_bytes())):
            params = {"op": "triad", "footprint": footprint, "dtype": "float64", "backend": "llvm", "threads": threads}
            listed_cases.append(Case(f"triad {where}, {on}", "triad", "bandwidth", params))
        for library, name in LIBRARIES.items():
            for dtype in ("float32", "float64")[: 1 if library == "onednn" else 2]:
                for n in (1000, 2048):
                    params = {"m": n, "n": n, "k": n, "dtype": dtype, "backend": library, "threads": threads}
                    listed_cases.append(Case(f"{name} {dtype} {n}, {on}", f"gemm {name}", "gemm", params))
    return listed_cases


def build_call(label: str) -> tuple[Callable[[], object], int]:
    """Return the function to time for a point, and its thread count.

    The function is valid until `build_call` is called again. Each call uses the next set of operands, as in the
    measuring core.
    """
    from experiments.devices.cpu import CpuDevice

    case = next(case for case in bench_cases() if case.label == label)
    device, threads = CpuDevice(), int(case.params["threads"])
    if case.experiment == "gemm":
        device.set_threads(threads)
    wanted = get_experiment(case.experiment)
    work = wanted.function(device, **convert_params(wanted, case.params))
    _referenced[:] = [device, work]
    turn = cycle(work.calls)
    return (work.calls[0] if len(work.calls) == 1 else lambda: next(turn)()), threads
