"""`doctor`: what on this machine will spoil results, why, and how to mend it. It changes nothing itself."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

from contract.errors import StudyError
from experiments import hardware, topology
from experiments.doctor import cuda, libraries, machine, plan, processor
from experiments.doctor.finding import Finding, Level, for_programs, note, told

ROOT = Path("/")


def examine(device: str | None = None, results: Path = Path("results"), root: Path = ROOT) -> list[Finding]:
    """Every check that this system has an answer to, of all devices or of one; the CPU feeds any GPU.

    Takes a few seconds, one of them to watch what others do. Raises StudyError for a device of another form.
    """
    if device is not None and not re.fullmatch(r"cpu|mps|(cuda|xpu):\d+", device):
        raise StudyError(f"--device {device}: not a device. Devices are named cpu, cuda:0, cuda:1, …, xpu:0, mps")
    # Before libraries are loaded, which keeps cores busy.
    found = machine.examine(root, results)
    found += [*_processor(root), plan.predictions(results), plan.loads(results)]
    simd = hardware.cpu().get("simd", [])
    found += libraries.examine(simd)
    if device is None or device.startswith("cuda"):
        found += cuda.examine(root, device)
    elif device != "cpu":
        found.append(note(device, "not NVIDIA's", "Its state is neither checked nor recorded."))
    if platform.system() != "Linux":
        found.append(
            note(
                "system",
                platform.system(),
                "It does not show clock, quotas, pressure or heat as Linux does: those checks are left out.",
            )
        )
    return [finding for finding in found if finding is not None]


def _processor(root: Path) -> list[Finding | None]:
    from experiments.devices.cpu import CpuDevice

    about, allowed = hardware.cpu(), topology.allowed_cpus()
    return [
        processor.described(about.get("unknown", [])),
        processor.governor(root),
        processor.boost(root),
        processor.heat(root),
        processor.smt(root),
        processor.quota(root),
        processor.affinity(allowed, os.cpu_count() or 1, root),
        processor.kinds_of_cores(root, allowed),
        processor.isolated(root, allowed),
        processor.numa(root),
        processor.virtual(about.get("virtual")),
        processor.clock_source(root),
        processor.clock_cost(CpuDevice().overhead_s, _step_s()),
        processor.perf(root),
    ]


def _step_s() -> float:
    """The smallest step of the clock that can be seen, in seconds."""
    steps = []
    for _ in range(200):
        start = time.perf_counter_ns()
        while (now := time.perf_counter_ns()) == start:
            pass
        steps.append(now - start)
    return min(steps) * 1e-9


__all__ = ["Finding", "Level", "examine", "for_programs", "told"]
