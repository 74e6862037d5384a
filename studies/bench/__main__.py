"""`python -m studies.bench`: measure the measuring core, and write bench.json and bench.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

from contract.arguments import path
from contract.errors import StudyError, run_command
from contract.files import read_json, write_json, write_text
from contract.node import utc
from experiments.lock import node_lock
from experiments.sweep import read_preset
from studies.bench import aa, page, points, truth

# Load of the whole machine above which nothing is measured, and for how long it is watched.
BUSY_PERCENT = 20.0
WATCHED_S = 5
ANYWAY = "BENCH_ANYWAY"
PRESET = "quick"
RUNS, REPETITIONS = 4, 8
# The points of `--quick`: every path once.
QUICK = ("triad in L2, 1 thread", "OpenBLAS float32 1000, 1 thread")
# Seconds to wait for another measurement of this machine to end.
PATIENCE_S = 30


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Raises StudyError if the machine is busy."""
    parser = argparse.ArgumentParser(prog="python -m studies.bench", description=__doc__)
    parser.add_argument("--out", type=path, default=Path("docs"), help="folder for bench.json and bench.md")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute, into a scratch folder")
    parser.add_argument("--draw", action="store_true", help="measure nothing: write the page of the data in --out")
    given = parser.parse_args(argv)
    out = given.out
    if given.quick and out == Path("docs"):
        # The figures of a smoke run may not take the place of those of a real one.
        out = Path(tempfile.mkdtemp(prefix="bench-"))
    if not given.draw:
        idle()
        with nullcontext() if given.quick else node_lock(PATIENCE_S):
            data = _measured(given.quick)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "bench.json", data)
    write_text(out / "bench.md", page.text(read_json(out / "bench.json")))
    print(out / "bench.md")
    return 0


def idle(load: Callable[[float], float] = psutil.cpu_percent) -> None:
    """Raise StudyError if the machine is busy, unless BENCH_ANYWAY=1. load: percent of all cores over some seconds."""
    if os.environ.get(ANYWAY) == "1":
        return
    seen = sorted(load(1.0) for _ in range(WATCHED_S))
    typical = seen[len(seen) // 2]
    if typical > BUSY_PERCENT:
        raise StudyError(
            f"bench: this machine is busy: others take {typical:.0f}% of it, and results would be worthless. "
            f"Wait until it is idle, or set {ANYWAY}=1 to measure all the same."
        )


def _measured(quick: bool) -> dict[str, Any]:
    preset = read_preset(PRESET)
    limits = {key: preset[key] for key in ("target", "point_s", "round_s", "max_samples")}
    limits["point_s"] = 0.1 if quick else limits["point_s"]
    policy = {"target": limits["target"], "budget_s": limits["point_s"], "max_samples": limits["max_samples"]}
    chosen = [case for case in points.cases() if not quick or case.label in QUICK]
    runs, rounds, repetitions = (2, 2, 2) if quick else (RUNS, preset["rounds"], REPETITIONS)
    started = utc()
    seen = truth.measure([case for case in chosen if case.group], policy, repetitions)
    compared = aa.measure(chosen, limits, runs, rounds)
    # In a process that lets libraries choose their kernels, as those that measured.
    probe = [sys.executable, "-m", "experiments", "probe"]
    machine = subprocess.run(probe, stdout=subprocess.PIPE, cwd=truth.ROOT, encoding="utf-8", check=True).stdout
    return {
        "schema": 2,
        "smoke": quick,
        "anyway": os.environ.get(ANYWAY) == "1",
        "started_utc": started,
        "ended_utc": utc(),
        "machine": json.loads(machine),
        "preset": {"name": PRESET, "rounds": rounds, **limits},
        "truth": seen,
        "aa": compared,
    }


if __name__ == "__main__":
    sys.exit(run_command(main))
