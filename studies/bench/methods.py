"""One run of the A/A points by each method, in processes of its own: what it reports and what it cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from experiments import environment, hardware
from experiments.jobs import Point
from experiments.plan import job
from experiments.registry import get
from experiments.rounds import Round, round_seed
from experiments.sweep import Sweep
from studies.bench.points import Case
from studies.bench.pytest_points import LABELS

ROOT = Path(__file__).parents[2]
WORKER = (sys.executable, "-u", "-m", "studies.bench.worker")

# Per point: what the method reports, and `wall_s`, `measured_s`.
Points = dict[str, dict[str, Any]]
# Per point that was not measured: the outcome and its reason.
Refusals = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Limits:
    """The preset's limits of a point: see experiments.sweep."""

    target: float
    point_s: float
    round_s: float
    max_samples: int


def study_round(chosen: Sequence[Case], limits: Limits, run: int, number: int) -> tuple[Points, Refusals]:
    """One round of the study itself: a process per experiment, as its workflow starts them.

    Per point: median, flagged (share of samples that the core flagged).
    """
    found: Points = {}
    refused: Refusals = {}
    by_experiment: dict[str, list[Case]] = defaultdict(list)
    for case in chosen:
        by_experiment[case.experiment].append(case)
    for name, group in by_experiment.items():
        sweep = Sweep(get(name), blocks=[{"cases": [case.params for case in group]}], place="bench", **vars(limits))
        chosen_job = job(sweep, {"id": "cpu", "kind": "cpu"}, hardware.usable_cores())
        measured = Round(chosen_job, number, round_seed(run, name, "cpu", number), command=WORKER)
        begun = time.perf_counter()
        measured.run()
        wall = time.perf_counter() - begun
        for case in group:
            columns = Point.of(name, case.params).columns
            rows = [row for row in measured.rows if all(row[key] == value for key, value in columns.items())]
            if not rows or rows[0]["status"] != "ok":
                refused[case.label] = (rows[0]["status"], rows[0]["reason"]) if rows else ("failed", "no answer")
                continue
            found[case.label] = {
                "median": median(row["value"] for row in rows),
                "flagged": mean(bool(row["flags"]) for row in rows),
                "wall_s": wall / len(group),
                "measured_s": (measured.warmup_s + measured.timed_s) / len(group),
            }
    return found, refused


def torch_run(method: str, labels: Sequence[str], scratch: Path) -> Points:
    """torch.utils.benchmark at its defaults: median, iqr, n of the points, all in one process."""
    out = scratch / f"{method}.json"
    wall = _child(["-m", "studies.bench.torch_points", method, str(out), *labels])
    found: Points = read_json(out)
    # What starting the process cost is shared by its points.
    start = (wall - sum(point["wall_s"] for point in found.values())) / len(found)
    return {label: {**point, "wall_s": point["wall_s"] + start} for label, point in found.items()}


def pytest_run(labels: Sequence[str], scratch: Path) -> Points:
    """pytest-benchmark at its defaults: mean, stdev, n of the points, all in one process."""
    out = scratch / "pytest-benchmark.json"
    file = str(Path(__file__).with_name("pytest_points.py"))
    words = ["-m", "pytest", file, f"--benchmark-json={out}", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    wall = _child(words, {LABELS: json.dumps(list(labels))})
    found = {}
    for bench in read_json(out)["benchmarks"]:
        told = bench["stats"]
        found[bench["params"]["label"]] = {
            "mean": told["mean"],
            "stdev": told["stddev"],
            "n": told["rounds"],
            "measured_s": told["total"] * told["iterations"],
            "wall_s": wall / len(labels),
        }
    return found


def pyperf_run(label: str, scratch: Path, options: Sequence[str]) -> Points:
    """pyperf on one point (at its defaults without options): mean, stdev, n; and the means of its processes."""
    import pyperf

    out = scratch / "pyperf.json"
    out.unlink(missing_ok=True)
    wall = _child(["-m", "studies.bench.pyperf_point", label, f"--output={out}", "--quiet", *options])
    bench = pyperf.Benchmark.load(str(out))
    values = bench.get_values()
    spent = sum(
        sum(loops * value for loops, value in run.warmups) + sum(run.values) * run.get_total_loops()
        for run in bench.get_runs()
    )
    told = {
        "mean": bench.mean(),
        "stdev": bench.stdev() if len(values) > 1 else 0.0,
        "n": len(values),
        "processes": [mean(run.values) for run in bench.get_runs() if run.values],
        "measured_s": spent,
        "wall_s": wall,
    }
    return {label: told}


def process_spread(point: dict[str, Any]) -> tuple[float, float, int]:
    """Mean, standard deviation and number of the means of pyperf's processes."""
    means = point["processes"]
    return mean(means), stdev(means) if len(means) > 1 else 0.0, len(means)


def _child(words: Sequence[str], extra: dict[str, str] | None = None) -> float:
    """Run Python with these words from the project's root; its wall time in seconds.

    The environment is what the study's measuring processes get. Raises StudyError
    with the last lines of what it said if it fails.
    """
    variables = {**environment.clean(), "PYTHONPATH": os.pathsep.join([str(ROOT)]), **(extra or {})}
    begun = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    wall = time.perf_counter() - begun
    if ended.returncode:
        said = " | ".join((ended.stderr.strip() or ended.stdout.strip()).splitlines()[-4:])
        raise StudyError(f"bench: python {' '.join(words[:3])} ended with {ended.returncode}: {said or 'no message'}")
    return wall
