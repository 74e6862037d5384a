"""What the study sees in place of this machine: a server with an H100, whose clock runs faster."""

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
# What has no answer by then hangs: seconds of this machine's clock, not to be mistaken for a busy machine.
LEAST_HANG_S = 4.0
# Seconds until a process that measures is ready: Python's own start is real, and would seem to take minutes.
START_S = {"cpu": 3.0, "gpu": 7.0}
COMMAND = (sys.executable, "-u", "-m", "tests.workflow.standin.worker")


def faster() -> float:
    """How many times as fast time passes."""
    return 30.0


class Time:
    """The module `time`, whose performance counter runs faster."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def perf_counter(self) -> float:
        return time.perf_counter() * faster()


class Played:
    """A device as the parents of measuring processes know it."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, "cpu" if name == "cpu" else "gpu"

    def describe(self) -> dict[str, Any]:
        """As `experiments.devices` has it."""
        if self.kind == "cpu":
            return {"id": "cpu", "kind": "cpu", "name": MODEL, "memory_bytes": MEMORY}
        return {
            "id": self.name, "kind": "gpu", "name": CARD, "maker": "NVIDIA", "memory_bytes": GPU_MEMORY,
            "multiprocessors": 132, "compute_capability": "9.0", "l2_bytes": 52_428_800,
            "last_level_cache_bytes": 52_428_800, "runtime": "CUDA 13.0", "driver": DRIVER,
        }  # fmt: skip


def hardware(module: Any) -> None:
    """What is read from the system."""
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
    module.instance = lambda: os.environ.get("STANDIN_HOST", "")


def nvml(module: Any) -> None:
    """Answers of the NVIDIA driver."""
    card = {
        "name": CARD, "memory_bytes": GPU_MEMORY, "power_limit_w": 700.0, "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 2619, "pcie_generation": 5, "pcie_width": 16,
    }  # fmt: skip
    module.gpus = lambda: [dict(card)]
    module.refusal = lambda: ""
    module.status = lambda: f"driver {DRIVER}, 1 GPU(s)"


def devices(module: Any) -> None:
    """The CPU and a GPU; neither can be worked on, which is left to `worker`."""

    def detect(kinds: object = None) -> tuple[list[Played], list[str]]:
        return [Played("cpu"), Played("cuda:0")], ["torch was built without MPS, ROCm, XPU"]

    def usable(found: Sequence[Played]) -> tuple[list[Played], list[str]]:
        return list(found), []

    module.detect, module.usable, module.find = detect, usable, lambda name, kinds=None: Played(name)


def jobs(module: Any) -> None:
    """Points hang after as many seconds of the clock that runs faster, and no fewer than a busy machine needs."""
    limit_s = module.Job.limit_s
    module.Job.limit_s = lambda job, point: max(LEAST_HANG_S, limit_s(job, point) / faster())


def workers(module: Any) -> None:
    """How long a process takes to be ready is known."""
    module.start_s = lambda device, *_, **__: START_S[Played(device).kind]


def environment(module: Any) -> None:
    """Measuring processes also get the stand-in's own variables."""
    clean = module.clean

    def with_own() -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_")}
        return {**clean(), **own}

    module.clean = with_own


def rounds(module: Any) -> None:
    """Measured by `worker`, by a clock that runs faster; every row says that it was made up."""
    begin, run, table = module.Round.__init__, module.Round.run, module.table

    def played(self: Any, *words: Any, **named: Any) -> None:
        begin(self, *words, **{"command": COMMAND, **named})

    def told(self: Any) -> None:
        os.environ["STANDIN_ROUND"] = str(self.number)
        run(self)

    def made_up(measured: Any, node: str, run: str) -> Any:
        for row in measured.rows:
            row["origin"] = "synthetic"
        return table(measured, node, run)

    module.Round.__init__, module.Round.run, module.table = played, told, made_up
    module.time = Time()


def probe(module: Any) -> None:
    """A record that says that it was made up."""
    fingerprint = module.fingerprint
    module.fingerprint = lambda options, before=None: {**fingerprint(options, before), "origin": "synthetic"}


def cli(module: Any) -> None:
    """How long a round took is told by the clock that runs faster."""
    module.time = Time()


def lock(module: ModuleType) -> None:
    """The lock is that of the machine which is played."""
    module.PLACE = Path(os.environ.get("STANDIN_PLACE", module.PLACE))  # type: ignore[attr-defined]
