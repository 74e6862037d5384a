"""`python -m studies.bench`: measure, then write bench.json, and from it bench.md, bench.svg and bench.png."""

from __future__ import annotations

import argparse
import importlib.metadata
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
from contract.files import read_json, write_json
from contract.node import utc
from experiments.lock import node_lock
from experiments.sweep import read_preset
from studies.bench import aa, points, truth
from studies.bench.methods import ROOT, Limits

# Load of the whole machine above which nothing is measured, and for how long it is watched.
BUSY_PERCENT = 20.0
WATCHED_S = 5
ANYWAY = "BENCH_ANYWAY"
PRESET = "quick"
RUNS, REPETITIONS = 4, 8
PEERS = ("pyperf", "pytest-benchmark", "torch", "numpy", "scipy", "llvmlite")
# What `--quick` measures: enough to run every path once.
QUICK_TRUTH = ("triad in L2, 1 thread", "OpenBLAS float32 1000, 1 thread", "MKL float32 1000, 1 thread")
QUICK_POINTS = ("chain", "triad in a second-level cache", "gemm numpy float32 1000", "sort", "add")
# Seconds to wait for another measurement of this machine to end.
PATIENCE_S = 30


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Raises StudyError if the machine is busy or a peer is missing."""
    parser = argparse.ArgumentParser(prog="python -m studies.bench", description=__doc__)
    parser.add_argument("--out", type=path, default=Path("docs"), help="folder for bench.json, .md, .svg and .png")
    parser.add_argument("--quick", action="store_true", help="a smoke run of two minutes, into a scratch folder")
    parser.add_argument("--draw", action="store_true", help="measure nothing: write the page of the data in --out")
    arguments = parser.parse_args(argv)
    if arguments.draw:
        return _draw(arguments.out, read_json(arguments.out / "bench.json"))
    out = arguments.out
    if arguments.quick and out == Path("docs"):
        # The figures of a smoke run are worth nothing: they may not take the place of those of a real one.
        out = Path(tempfile.mkdtemp(prefix="bench-"))
    os.chdir(ROOT)
    versions = _versions()
    idle()
    # Figures that are worth nothing need no machine to themselves.
    with nullcontext() if arguments.quick else node_lock(PATIENCE_S):
        data = _measured(arguments.quick, versions)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "bench.json", data)
    return _draw(out, data)


def _draw(out: Path, data: dict[str, Any]) -> int:
    from studies.bench import draw, page

    page.write(out, data)
    draw.write(out, data)
    print(out / "bench.md")
    return 0


def _versions() -> dict[str, str]:
    """Versions of the peers. Raises StudyError if one is not installed."""
    try:
        return {name: importlib.metadata.version(name) for name in PEERS}
    except importlib.metadata.PackageNotFoundError as missing:
        raise StudyError(
            f"bench: {missing.name} is not installed. `make bench` installs it (the project's extra `bench`)."
        ) from None


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


def _measured(quick: bool, versions: dict[str, str]) -> dict[str, Any]:
    points.register()
    preset = read_preset(PRESET)
    limits = Limits(
        target=preset["target"],
        point_s=0.1 if quick else preset["point_s"],
        round_s=preset["round_s"],
        max_samples=preset["max_samples"],
    )
    cases = [case for case in points.cases() if not quick or case.label in QUICK_POINTS]
    plan = aa.Plan(
        runs=2 if quick else RUNS,
        rounds=2 if quick else preset["rounds"],
        limits=limits,
        cases=cases,
        pyperf_options=("--processes=2", "--values=2") if quick else (),
    )
    started = utc()
    seen = truth.measure(limits, 2 if quick else REPETITIONS, QUICK_TRUTH if quick else ())
    compared = aa.measure(plan)
    return {
        "schema": 1,
        "smoke": quick,
        "anyway": os.environ.get(ANYWAY) == "1",
        "started_utc": started,
        "ended_utc": utc(),
        "machine": machine(),
        "versions": versions,
        "preset": {"name": PRESET, "rounds": plan.rounds, **vars(limits)},
        "truth": seen,
        "aa": compared,
    }


def machine() -> Any:
    """The machine's record, made in a process that lets libraries choose their kernels, as those that measured."""
    told = subprocess.run(
        [sys.executable, "-m", "experiments", "probe"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=True,
    )
    return json.loads(told.stdout)


if __name__ == "__main__":
    sys.exit(run_command(main))
