"""Patches that make the study see a server with an H100, and a clock that runs faster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

MODEL, CORES, CARD = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", 16, "NVIDIA H100 80GB HBM3"
MEMORY = 128 * 2**30
GPU_MEMORY = 85_520_809_984
DRIVER = "580.95.05"
SIMD = [
    "avx", "avx2", "avx512_bf16", "avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "f16c",
    "fma", "sse2", "sse4_2",
]  # fmt: skip
# Shortest timeout, in real seconds. With a shorter timeout, a measurement on a busy machine would count as hanging.
LEAST_HANG_S = 4.0
# Seconds to report as the start time of a measuring process. On the faster clock, Python's real start takes minutes.
START_S = {"cpu": 3.0, "gpu": 7.0}
COMMAND = (sys.executable, "-u", "-m", "tests.workflow.standin.worker")


def time_scale() -> float:
    """Return the factor by which time passes faster."""
    return 30.0


class Time:
    """Replacement for the module `time`, with a faster performance counter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def perf_counter(self) -> float:
        return time.perf_counter() * time_scale()


class StandInDevice:
    """Stand-in for a device in the processes that start measuring processes."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, "cpu" if name == "cpu" else "gpu"

    def describe(self) -> dict[str, Any]:
        """Describe the device as in `experiments.devices`."""
        if self.kind == "cpu":
            return {"id": "cpu", "kind": "cpu", "name": MODEL, "memory_bytes": MEMORY}
        return {
            "id": self.name, "kind": "gpu", "name": CARD, "maker": "NVIDIA", "memory_bytes": GPU_MEMORY,
            "multiprocessors": 132, "compute_capability": "9.0", "l2_bytes": 52_428_800,
            "last_level_cache_bytes": 52_428_800, "runtime": "CUDA 13.0", "driver": DRIVER,
        }  # fmt: skip


def hardware(module: Any) -> None:
    """Replace facts read from the system."""
    caches = {"L2": (2 * 2**20 * CORES, CORES), "L3": (64 * 2**20, 1)}
    cpu = {
        "model": MODEL, "vendor": "GenuineIntel", "family": "6",
        "model_number": "143", "architecture": "x86_64",
        "sockets": 1, "cores": CORES, "usable_cores": CORES, "threads_per_core": 2, "simd": SIMD,
        "matrix": ["avx512_bf16"], "virtual": True,
        "caches": {level: {"bytes": size, "instances": number} for level, (size, number) in caches.items()},
    }  # fmt: skip
    module.cpu = lambda: cpu
    module.usable_cores = lambda: CORES
    module.memory_bytes = lambda: MEMORY
    module.machine_instance = lambda: os.environ.get("STANDIN_HOST", "")


def nvml(module: Any) -> None:
    """Replace answers from the NVIDIA driver."""
    card = {
        "name": CARD, "memory_bytes": GPU_MEMORY, "power_limit_w": 700.0, "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 2619, "pcie_generation": 5, "pcie_width": 16,
    }  # fmt: skip
    module.nvidia_gpus = lambda: [dict(card)]
    module.refusal = lambda: ""
    module.status = lambda: f"driver {DRIVER}, 1 GPU(s)"


def devices(module: Any) -> None:
    """Replace the detected devices by a stand-in CPU and a stand-in GPU."""

    def detect(kinds: object = None) -> tuple[list[StandInDevice], list[str]]:
        return [StandInDevice("cpu"), StandInDevice("cuda:0")], ["torch was built without MPS, ROCm, XPU"]

    def open_devices(devices: Sequence[StandInDevice]) -> tuple[list[StandInDevice], list[str]]:
        return list(devices), []

    module.detect, module.open_devices = detect, open_devices
    module.find_device_class = lambda name, kinds=None: StandInDevice(name)


def jobs(module: Any) -> None:
    """Shorten the timeouts for the faster clock, but to no less than LEAST_HANG_S."""
    limit_s = module.Job.limit_s
    module.Job.limit_s = lambda job, point: max(LEAST_HANG_S, limit_s(job, point) / time_scale())


def worker_processes(module: Any) -> None:
    """Report the fixed START_S as the start time of a measuring process."""
    module.measure_start_s = lambda device, *_, **__: START_S[StandInDevice(device).kind]


def worker_environment(module: Any) -> None:
    """Pass STANDIN_* variables to measuring processes."""
    clean = module.clean_environment

    def add_standin_variables() -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_")}
        return {**clean(), **own}

    module.clean_environment = add_standin_variables


def rounds(module: Any) -> None:
    """Measure with `worker` and the faster clock; mark rows as synthetic."""
    begin, run, table = module.Round.__init__, module.Round.run, module.samples_table

    def start_with_standin(self: Any, *words: Any, **named: Any) -> None:
        begin(self, *words, **{"command": COMMAND, **named})

    def run_numbered(self: Any) -> None:
        os.environ["STANDIN_ROUND"] = str(self.number)
        run(self)

    def mark_synthetic(measured: Any, node: str, run: str) -> Any:
        for row in measured.rows:
            row["origin"] = "synthetic"
        return table(measured, node, run)

    module.Round.__init__, module.Round.run, module.samples_table = start_with_standin, run_numbered, mark_synthetic
    module.time = Time()


def fingerprint(module: Any) -> None:
    """Mark the record as synthetic."""
    real = module.fingerprint
    module.fingerprint = lambda options, before=None: {**real(options, before), "origin": "synthetic"}


def cli(module: Any) -> None:
    """Time rounds with the faster clock."""
    module.time = Time()


def lock(module: ModuleType) -> None:
    """Move the lock to the simulated machine's folder."""
    module.PLACE = Path(os.environ.get("STANDIN_PLACE", module.PLACE))  # type: ignore[attr-defined]
