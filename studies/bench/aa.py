"""The A/A study: the same points in several whole runs by every method; equal things measured again and again.

The methods take turns: round 1 of the study, a peer, some of pyperf's points, round 2, and so on, then the next
run of all. The study's rounds thus lie minutes apart, as its workflow has it; each peer runs as its users run it.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from contract.errors import StudyError
from studies.bench import methods
from studies.bench.intervals import (
    Coverage,
    Estimate,
    Ratio,
    coverage,
    of_mean,
    of_median,
    of_rounds,
    ratio,
    seconds_to,
)
from studies.bench.methods import Limits, Points
from studies.bench.points import Case

TARGET_HALF_WIDTH = 0.01
# Keys of the raw data; those of the peers with the names that readers know them by.
STUDY = "study"
NAMES = {
    STUDY: "this study",
    "pyperf": "pyperf, over values",
    "pyperf-processes": "pyperf, over processes",
    "blocked_autorange": "torch blocked_autorange",
    "adaptive_autorange": "torch adaptive_autorange",
    "pytest-benchmark": "pytest-benchmark",
}
# The same runs, read in another way.
READ_FROM = {"pyperf-processes": "pyperf"}

Run = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much is measured. cases: for all methods but pyperf, which gets the cheap ones."""

    runs: int
    rounds: int
    limits: Limits
    cases: Sequence[Case]
    pyperf_options: Sequence[str] = ()


def measure(plan: Plan) -> dict[str, Any]:
    """{points, cheap, left_out, experiments, runs: [{method: {label: what it reported}}]}.

    The study's entry in a run is a list over rounds.
    """
    cases = list(plan.cases)
    left_out: dict[str, str] = {}
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, plan.runs + 1):
            run, refused = _run(plan, cases, number, Path(folder))
            runs.append(run)
            left_out |= refused
            cases = [case for case in cases if case.label not in left_out]
    for case in cases:
        # A round that was lost costs its point that round, as in the report; one round has no spread.
        if any(sum(case.label in round_ for round_ in run[STUDY]) < 2 for run in runs):
            left_out[case.label] = "fewer than two rounds in a run"
    cases = [case for case in cases if case.label not in left_out]
    if not cases:
        raise StudyError(f"bench: no point could be measured: {left_out}")
    labels = [case.label for case in cases]
    cheap = [case.label for case in cases if case.cheap]
    experiments = {case.label: case.experiment for case in cases}
    return {"points": labels, "cheap": cheap, "left_out": left_out, "experiments": experiments, "runs": runs}


def _run(plan: Plan, cases: list[Case], number: int, folder: Path) -> tuple[Run, dict[str, str]]:
    """One run of every method."""
    run: Run = {STUDY: []}
    left_out: dict[str, str] = {}

    def study(round_: int) -> None:
        found, refused = methods.study_round(cases, plan.limits, number, round_)
        run[STUDY].append(found)
        # What this machine cannot do, no method is asked for; a budget is overrun by chance.
        left_out.update({label: reason for label, (status, reason) in refused.items() if status != "skipped"})

    def labels(cheap: bool = False) -> list[str]:
        return [case.label for case in cases if case.label not in left_out and (case.cheap or not cheap)]

    def torch(method: str) -> Callable[[], Points]:
        return lambda: methods.torch_run(method, labels(), folder)

    peers: list[tuple[str, Callable[[], Points]]] = [
        ("blocked_autorange", torch("blocked_autorange")),
        ("pytest-benchmark", lambda: methods.pytest_run(labels(), folder)),
        ("adaptive_autorange", torch("adaptive_autorange")),
    ]
    for round_ in range(1, plan.rounds + 1):
        tell(f"A/A run {number} of {plan.runs}, round {round_} of {plan.rounds}")
        study(round_)
        share = slice(round_ - 1, None, plan.rounds)
        for method, measured in peers[share]:
            begun = time.perf_counter()
            run[method] = measured()
            tell(f"{NAMES[method]}: {time.perf_counter() - begun:.0f} s")
        for label in labels(cheap=True)[share]:
            begun = time.perf_counter()
            run.setdefault("pyperf", {}).update(methods.pyperf_run(label, folder, plan.pyperf_options))
            tell(f"pyperf, {label}: {time.perf_counter() - begun:.0f} s")
    return run, left_out


def tell(line: str) -> None:
    """Progress, for the person who waits."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def estimates(raw: dict[str, Any], method: str, run: Run) -> dict[str, Estimate]:
    """Each point's estimate in one run, from what the method reports."""
    if method == STUDY:
        return _study_estimates(raw, run[STUDY])
    told = run.get(READ_FROM.get(method, method), {})
    reader: Callable[[dict[str, Any]], Estimate]
    if method == "pyperf-processes":
        reader = lambda point: of_mean(*methods.process_spread(point))  # noqa: E731
    elif method.endswith("autorange"):
        reader = lambda point: of_median(point["median"], point["iqr"], point["n"])  # noqa: E731
    else:
        reader = lambda point: of_mean(point["mean"], point["stdev"], point["n"])  # noqa: E731
    return {label: reader(told[label]) for label in raw["points"] if label in told}


def _study_estimates(raw: dict[str, Any], rounds: Sequence[Points]) -> dict[str, Estimate]:
    """As in the report: points of one experiment moderate each other's variance."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in raw["points"]:
        groups[raw["experiments"][label]].append(label)
    found: dict[str, Estimate] = {}
    for group in groups.values():
        told = of_rounds([[round_[label]["median"] for round_ in rounds if label in round_] for label in group])
        found |= dict(zip(group, told, strict=True))
    return found


def ratios(raw: dict[str, Any], method: str, labels: Sequence[str]) -> list[Ratio]:
    """The ratio of every two runs at every point."""
    runs = [estimates(raw, method, run) for run in raw["runs"]]
    return [
        ratio(first[label], second[label], moderated=method == STUDY)
        for first, second in combinations(runs, 2)
        for label in labels
        if label in first and label in second
    ]


@dataclass(frozen=True)
class Row:
    """One method in the tables, over one set of points."""

    method: str
    points: int
    coverage: Coverage
    seconds_a_point: float
    nominal_s: float
    honest_s: float
    duty: float


def rows(raw: dict[str, Any], labels: Sequence[str]) -> list[Row]:
    """The rows of the methods that measured all these points."""
    found = [row(raw, method, labels) for method in NAMES]
    return [each for each in found if each and each.points == len(labels)]


def row(raw: dict[str, Any], method: str, labels: Sequence[str]) -> Row | None:
    """The method's coverage, cost and duty over those of the points that it measured; None if it measured none.

    nominal_s, honest_s: median over points and runs of the seconds until the interval, as the method
    reports it or scaled to cover 95%, is within ±1% (`intervals.seconds_to`).
    """
    here = [label for label in labels if label in estimates(raw, method, raw["runs"][0])]
    if not here:
        return None
    found = coverage(ratios(raw, method, here))
    nominal, honest, walls, measured = [], [], [], []
    for run in raw["runs"]:
        told = estimates(raw, method, run)
        for label in here:
            wall, spent = _cost(run, method, label)
            walls.append(wall)
            measured.append(spent)
            half = told[label].half
            if math.isfinite(half):
                nominal.append(seconds_to(TARGET_HALF_WIDTH, half, wall))
                honest.append(seconds_to(TARGET_HALF_WIDTH, half * found.factor, wall))
    duty = sum(measured) / sum(walls)
    return Row(method, len(here), found, _median(walls), _median(nominal), _median(honest), duty)


def _median(values: list[float]) -> float:
    return median(values) if values else math.nan


def _cost(run: Run, method: str, label: str) -> tuple[float, float]:
    """Seconds of wall time and of measuring that a run spent on a point."""
    if method == STUDY:
        told = [round_[label] for round_ in run[STUDY] if label in round_]
    else:
        told = [run[READ_FROM.get(method, method)][label]]
    return sum(point["wall_s"] for point in told), sum(point["measured_s"] for point in told)


def flagged(raw: dict[str, Any]) -> float:
    """Share of the study's samples beside which its core saw a disturbance."""
    rounds = [round_ for run in raw["runs"] for round_ in run[STUDY]]
    shares = [round_[label]["flagged"] for round_ in rounds for label in raw["points"] if label in round_]
    return sum(shares) / len(shares)
