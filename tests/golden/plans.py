"""Predictions from each preset's plan for a machine with one GPU: times and memory, summed over a job's points."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import Mock, patch

from experiments import hardware
from experiments.jobs import Job
from experiments.plan import H100, full_plan
from experiments.sweep import PRESETS, read_preset

CPU = {"id": "cpu", "kind": "cpu", "name": "a CPU"}
GPU = {"id": "cuda:0", "kind": "gpu", "maker": "NVIDIA", "name": "NVIDIA H100 80GB HBM3", **H100}
CORES, CACHE_BYTES = 16, 32 << 20


def plans() -> dict[str, Any]:
    """Return the sums by preset and job."""
    machine = {"usable_cores": Mock(return_value=CORES), "last_level_cache_bytes": Mock(return_value=CACHE_BYTES)}
    with patch.multiple(hardware, **machine):
        return {
            path.stem: {
                job.name: sums(job) for job in full_plan(read_preset(path.stem), path.stem, [CPU, GPU], CORES).jobs
            }
            for path in sorted(PRESETS.glob("*.yaml"))
        }


def sums(job: Job) -> dict[str, float]:
    """Return a job's point count, its start and hang limits, and sums over its points.

    The sums are the budgets in seconds, the predicted seconds, the seconds per call (0 if unknown), and the memory in
    bytes. A point counts even if its program is not installed, so that the sums are the same on every machine.
    """
    totals = {
        name: math.fsum(getattr(point, name) or 0.0 for point in job.points)
        for name in ("point_s", "predicted_s", "call_s", "memory")
    }
    return {"points": len(job.points), "start_s": job.start_s, "hang_s": job.hang_s, **totals}
