"""A/A study: measure the same points in several runs, with this project and with `torch.utils.benchmark`.

In each run, the project (called `study` below) measures one round, then torch measures, then the project measures its
other rounds. Its rounds are thus minutes apart, as in its workflow. Torch measures in the process
`python -m studies.bench.aa_study`.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.stats import binomtest

from contract.errors import StudyError
from experiments import hardware
from experiments.children import read_order
from experiments.jobs import Point
from experiments.plan import plan_job
from experiments.registry import get_experiment
from experiments.rounds import Round, round_seed
from experiments.sweep import Sweep
from report import statistics
from report.statistics import Floats
from studies.bench.bench_points import Case, build_call
from studies.bench.core_over_bare import LEVEL, print_progress, start_child

TARGET_HALF_WIDTH = 0.01
# Keys for the two methods in the raw data.
STUDY, TORCH = "study", "blocked_autorange"
NAMES = {STUDY: "this study", TORCH: "torch blocked_autorange"}
# Ratios for a normal distribution.
# IQR_PER_SIGMA: ratio of interquartile range to standard deviation.
# MEDIAN_PER_MEAN: ratio of the median's standard error to the mean's standard error, in large samples.
IQR_PER_SIGMA, MEDIAN_PER_MEAN = 1.349, math.sqrt(math.pi / 2)

# One method's results, by point label.
Points = dict[str, dict[str, Any]]


def measure(cases: Sequence[Case], limits: dict[str, Any], runs: int, rounds: int) -> dict[str, Any]:
    """Measure the points with this study and with torch in several runs.

    limits: a preset's values for target, point_s, round_s and max_samples. Returns a dict with the keys points
    (labels), left_out (reasons by label), experiments (names by label) and runs. Each run is a dict {"study": a list
    with each round's Points, "blocked_autorange": Points}. Raises StudyError if no point was measured in at least two
    rounds of every run.
    """
    results: list[dict[str, Any]] = []
    for run in range(1, runs + 1):
        study_rounds: list[Points] = []
        for round_ in range(1, rounds + 1):
            print_progress(f"A/A run {run} of {runs}, round {round_} of {rounds}")
            study_rounds.append(run_study_round(cases, limits, run, round_))
            if round_ == 1:
                torch_points = run_torch([*study_rounds[0]])
        results.append({STUDY: study_rounds, TORCH: torch_points})
    # It takes two or more rounds to estimate a spread.
    complete = [
        case.label
        for case in cases
        if all(case.label in run[TORCH] and sum(case.label in each for each in run[STUDY]) > 1 for run in results)
    ]
    if not complete:
        raise StudyError("bench: no point could be measured twice in each run")
    return {
        "points": complete,
        "left_out": {case.label: "fewer than two rounds in a run" for case in cases if case.label not in complete},
        "experiments": {case.label: case.experiment for case in cases},
        "runs": results,
    }


def run_study_round(cases: Sequence[Case], limits: dict[str, Any], run: int, number: int) -> Points:
    """Measure one round with this study; return {median, flagged, wall_s} for each point.

    As in the workflow, each experiment has its own process. flagged: fraction of samples with flags. wall_s: the
    process's seconds per point.
    """
    points: Points = {}
    for name, group in groupby(sorted(cases, key=lambda case: case.experiment), key=lambda case: case.experiment):
        chosen = list(group)
        sweep = Sweep(
            get_experiment(name), blocks=[{"cases": [case.params for case in chosen]}], place="bench", **limits
        )
        measured = Round(
            plan_job(sweep, {"id": "cpu", "kind": "cpu"}, hardware.usable_cores()),
            number,
            round_seed(run, name, "cpu", number),
        )
        begun = time.perf_counter()
        measured.run()
        wall = time.perf_counter() - begun
        for case in chosen:
            columns = Point.from_params(name, case.params).columns
            rows = [row for row in measured.rows if all(row[key] == value for key, value in columns.items())]
            if rows and rows[0]["status"] == "ok":
                points[case.label] = {
                    "median": median(row["value"] for row in rows),
                    "flagged": mean(bool(row["flags"]) for row in rows),
                    "wall_s": wall / len(chosen),
                }
    return points


def run_torch(labels: Sequence[str]) -> Points:
    """Measure the points with torch's Timer in a new process; return each point's result from `time_with_torch`.

    The result's wall_s includes an equal part of the time to start the process. Raises ChildError.
    """
    begun = time.perf_counter()
    process = start_child("studies.bench.aa_study")
    process.send({"labels": labels})
    points: Points = process.answer(None)
    process.stop()
    # Divide the time to start the process equally among the points.
    start = (time.perf_counter() - begun - sum(point["wall_s"] for point in points.values())) / len(points)
    return {label: {**point, "wall_s": point["wall_s"] + start} for label, point in points.items()}


def time_with_torch(label: str) -> dict[str, Any]:
    """Time a point with Timer.blocked_autorange at its defaults; return {median, iqr, n, wall_s}.

    iqr: interquartile range. n: number of times. wall_s: seconds for the point, including preparation.
    """
    from torch.utils.benchmark import Timer

    begun = time.perf_counter()
    call, threads = build_call(label)
    # Without num_threads, Timer would use one thread.
    seen = Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange()
    del call
    gc.collect()
    return {"median": seen.median, "iqr": seen.iqr, "n": len(seen.times), "wall_s": time.perf_counter() - begun}


def estimate_run(raw: dict[str, Any], method: str, run: dict[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Return one run's log times, their standard errors (nan if unknown) and degrees of freedom.

    Each array has the shape (points,). The study's values are computed as in the report: each point's variance is
    shrunk towards those of the experiment's other points (see `report.statistics`). Torch's values are computed as if
    its samples were independent and normally distributed.
    """
    labels = raw["points"]
    if method == STUDY:
        names = [raw["experiments"][label] for label in labels]
        rounds = [[each[label]["median"] for each in run[STUDY] if label in each] for label in labels]
        estimates = statistics.estimate_on_log_scale(rounds, np.unique(names, return_inverse=True)[1])
        return np.log(estimates.estimate), estimates.se, estimates.df
    middle, iqr, n = (np.array([run[TORCH][label][key] for label in labels], float) for key in ("median", "iqr", "n"))
    se = np.where(n > 1, MEDIAN_PER_MEAN * iqr / IQR_PER_SIGMA / middle / np.sqrt(n), np.nan)
    return np.log(middle), se, n - 1


@dataclass(frozen=True)
class Coverage:
    """Coverage: how often the interval for a ratio contains its true value, which is 1 in an A/A study.

    pairs, unknown: number of ratios with and without an interval. share: fraction of intervals that contain 1. low,
    high: 95% binomial interval for `share` (Clopper and Pearson). half: median relative half-width. factor: number to
    multiply all half-widths by, to make 95% of the intervals contain 1.
    """

    pairs: int
    unknown: int
    share: float
    low: float
    high: float
    half: float
    factor: float


def coverage(logs: Floats, halves: Floats) -> Coverage:
    """Return the coverage for the intervals logs ± halves.

    logs: logarithms of ratios; their true value is 0. halves: half-widths, nan if unknown.
    """
    known = np.isfinite(halves)
    apart, half = np.abs(logs[known]), halves[known]
    pairs, unknown = len(half), int(np.sum(~known))
    if not pairs:
        return Coverage(0, unknown, math.nan, 0.0, 1.0, math.nan, math.nan)
    covered = int(np.sum(apart <= half))
    low, high = binomtest(covered, pairs).proportion_ci(LEVEL, method="exact")
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(apart == 0, 0.0, apart / half)
    # Take the smallest sufficient value in `needed`. An interpolated value could be too small.
    factor = float(np.quantile(needed, LEVEL, method="inverted_cdf"))
    return Coverage(pairs, unknown, covered / pairs, float(low), float(high), float(np.median(half)), factor)


def coverage_outcome(result: Coverage, band: tuple[float, float]) -> str:
    """Compare a coverage with its target range. If it is outside the range, tell if chance may explain this."""
    if not result.pairs:
        return "missed: no intervals"
    if band[0] <= result.share <= band[1]:
        return "met"
    side = "below" if result.share < band[0] else "above"
    apart = result.high < band[0] or result.low > band[1]
    return f"missed: {side} {band[0]:.0%}–{band[1]:.0%}" + ("" if apart else ", within what chance does")


def method_row(raw: dict[str, Any], method: str) -> tuple[Coverage, float, float]:
    """Return a method's coverage over all run pairs, its seconds for one run, and its seconds to reach ±1%.

    The seconds are medians over points and runs. Averaging over n runs divides the half-width by √n. Therefore it takes
    one run's seconds times (half-width / 1%)² to reach ±1%, but at least one run's seconds. The half-width is first
    multiplied by Coverage.factor, to make 95% of the intervals contain 1. A factor below 1 is not used: few pairs
    cannot show that intervals are too wide.
    """
    estimates = [estimate_run(raw, method, run) for run in raw["runs"]]
    pairs = list(combinations(estimates, 2))
    halves = [statistics.half_width(*statistics.combine(a[1], a[2], b[1], b[2]), LEVEL) for a, b in pairs]
    covered = coverage(np.concatenate([a[0] - b[0] for a, b in pairs]), np.concatenate(halves))
    parts = [[run[TORCH]] if method == TORCH else run[STUDY] for run in raw["runs"]]
    walls = np.array(
        [[sum(each[label]["wall_s"] for each in run if label in each) for label in raw["points"]] for run in parts]
    )
    half = np.array([statistics.half_width(se, df, LEVEL) for _, se, df in estimates]) * max(1.0, covered.factor)
    honest = walls * np.maximum(1.0, (half / TARGET_HALF_WIDTH) ** 2)
    return covered, float(np.median(walls)), float(np.nanmedian(honest))


def flagged_share(raw: dict[str, Any]) -> float:
    """Return the fraction of the study's samples with flags, averaged over points and rounds."""
    rounds = [each for run in raw["runs"] for each in run[STUDY]]
    return mean(each[label]["flagged"] for each in rounds for label in raw["points"] if label in each)


if __name__ == "__main__":
    order, answer = read_order()
    answer({label: time_with_torch(label) for label in order["labels"]})
