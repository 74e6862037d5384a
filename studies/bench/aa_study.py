"""The A/A study: equal things measured again and again, in whole runs of this study and of `torch.utils.benchmark`.

The two take turns: a round of the study, torch, the other rounds, then the next run. The study's rounds thus lie
minutes apart, as in its workflow. `python -m studies.bench.aa_study` is the process in which torch measures.
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
from studies.bench.bench_points import Case, build
from studies.bench.core_over_bare import LEVEL, child, tell

TARGET_HALF_WIDTH = 0.01
# Methods, by their keys in a run of the raw data.
STUDY, TORCH = "study", "blocked_autorange"
NAMES = {STUDY: "this study", TORCH: "torch blocked_autorange"}
# Of a normal distribution: the interquartile range over the standard deviation, and the standard error of a median over
# that of a mean.
IQR_PER_SIGMA, MEDIAN_PER_MEAN = 1.349, math.sqrt(math.pi / 2)

# Results of one method, by the label of the point.
Points = dict[str, dict[str, Any]]


def measure(cases: Sequence[Case], limits: dict[str, Any], runs: int, rounds: int) -> dict[str, Any]:
    """{points, left_out, experiments, runs: [{study: [Points of a round], blocked_autorange: Points}]}.

    limits: target, point_s, round_s, max_samples of a preset. Raises StudyError if nothing could be measured.
    """
    found: list[dict[str, Any]] = []
    for run in range(1, runs + 1):
        mine: list[Points] = []
        for round_ in range(1, rounds + 1):
            tell(f"A/A run {run} of {runs}, round {round_} of {rounds}")
            mine.append(study_round(cases, limits, run, round_))
            if round_ == 1:
                theirs = torch_run([*mine[0]])
        found.append({STUDY: mine, TORCH: theirs})
    # One round has no spread.
    whole = [
        case.label
        for case in cases
        if all(case.label in run[TORCH] and sum(case.label in each for each in run[STUDY]) > 1 for run in found)
    ]
    if not whole:
        raise StudyError("bench: no point could be measured twice in each run")
    return {
        "points": whole,
        "left_out": {case.label: "fewer than two rounds in a run" for case in cases if case.label not in whole},
        "experiments": {case.label: case.experiment for case in cases},
        "runs": found,
    }


def study_round(cases: Sequence[Case], limits: dict[str, Any], run: int, number: int) -> Points:
    """{median, flagged, wall_s} of the points of one round; a process for each experiment, as in the workflow.

    flagged: share of samples that the core flagged.
    """
    found: Points = {}
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
                found[case.label] = {
                    "median": median(row["value"] for row in rows),
                    "flagged": mean(bool(row["flags"]) for row in rows),
                    "wall_s": wall / len(chosen),
                }
    return found


def torch_run(labels: Sequence[str]) -> Points:
    """{median, iqr, n, wall_s} of the points by torch's Timer, in a process of its own. Raises ChildError."""
    begun = time.perf_counter()
    process = child("studies.bench.aa_study")
    process.send({"labels": labels})
    found: Points = process.answer(None)
    process.stop()
    # Points share the time in which the process started.
    start = (time.perf_counter() - begun - sum(point["wall_s"] for point in found.values())) / len(found)
    return {label: {**point, "wall_s": point["wall_s"] + start} for label, point in found.items()}


def time_by_torch(label: str) -> dict[str, Any]:
    """{median, iqr, n, wall_s} of a point by Timer.blocked_autorange at its defaults."""
    from torch.utils.benchmark import Timer

    begun = time.perf_counter()
    call, threads = build(label)
    # Timer runs on one thread unless told.
    seen = Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange()
    del call
    gc.collect()
    return {"median": seen.median, "iqr": seen.iqr, "n": len(seen.times), "wall_s": time.perf_counter() - begun}


def estimates(raw: dict[str, Any], method: str, run: dict[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Log of the time of each point in one run, its standard error (nan if unknown) and degrees of freedom: (points,).

    Of the study as in the report: points of one experiment moderate each other. Of torch as of independent normal
    values.
    """
    labels = raw["points"]
    if method == STUDY:
        names = [raw["experiments"][label] for label in labels]
        rounds = [[each[label]["median"] for each in run[STUDY] if label in each] for label in labels]
        told = statistics.estimate_on_log_scale(rounds, np.unique(names, return_inverse=True)[1])
        return np.log(told.estimate), told.se, told.df
    middle, iqr, n = (np.array([run[TORCH][label][key] for label in labels], float) for key in ("median", "iqr", "n"))
    se = np.where(n > 1, MEDIAN_PER_MEAN * iqr / IQR_PER_SIGMA / middle / np.sqrt(n), np.nan)
    return np.log(middle), se, n - 1


@dataclass(frozen=True)
class Coverage:
    """How often the intervals of ratios of equal things contained 1.

    pairs: ratios with an interval; unknown: those without one. share, low, high: of `pairs`, with its binomial 95%
    interval (Clopper and Pearson). half: median half-width, relative. factor: by which all intervals would have to be
    scaled for 95% of them to contain 1.
    """

    pairs: int
    unknown: int
    share: float
    low: float
    high: float
    half: float
    factor: float


def coverage(logs: Floats, halves: Floats) -> Coverage:
    """Coverage of ratios whose true value is 1: logs of the ratios and half-widths (nan if unknown), of one shape."""
    known = np.isfinite(halves)
    apart, half = np.abs(logs[known]), halves[known]
    pairs, unknown = len(half), int(np.sum(~known))
    if not pairs:
        return Coverage(0, unknown, math.nan, 0.0, 1.0, math.nan, math.nan)
    covered = int(np.sum(apart <= half))
    low, high = binomtest(covered, pairs).proportion_ci(LEVEL, method="exact")
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(apart == 0, 0.0, apart / half)
    # The smallest factor that does it for this set: no interpolation between pairs.
    factor = float(np.quantile(needed, LEVEL, method="inverted_cdf"))
    return Coverage(pairs, unknown, covered / pairs, float(low), float(high), float(np.median(half)), factor)


def share_against_band(found: Coverage, band: tuple[float, float]) -> str:
    """A share of covered intervals against its target; a miss says whether chance may explain it."""
    if not found.pairs:
        return "missed: no intervals"
    if band[0] <= found.share <= band[1]:
        return "met"
    side = "below" if found.share < band[0] else "above"
    apart = found.high < band[0] or found.low > band[1]
    return f"missed: {side} {band[0]:.0%}–{band[1]:.0%}" + ("" if apart else ", within what chance does")


def row(raw: dict[str, Any], method: str) -> tuple[Coverage, float, float]:
    """A method's coverage over every two runs at every point; medians over points and runs of its seconds.

    The first seconds are those of one run; the second ones those until ±1%, with intervals that cover 95%. A method
    that repeats whole runs and averages them narrows its interval with the root of their number: they are those of one
    run times (half-width / 1%)², at least of one run.
    """
    told = [estimates(raw, method, run) for run in raw["runs"]]
    pairs = list(combinations(told, 2))
    halves = [statistics.half_width(*statistics.combine(a[1], a[2], b[1], b[2]), LEVEL) for a, b in pairs]
    found = coverage(np.concatenate([a[0] - b[0] for a, b in pairs]), np.concatenate(halves))
    parts = [[run[TORCH]] if method == TORCH else run[STUDY] for run in raw["runs"]]
    walls = np.array(
        [[sum(each[label]["wall_s"] for each in run if label in each) for label in raw["points"]] for run in parts]
    )
    half = np.array([statistics.half_width(se, df, LEVEL) for _, se, df in told]) * found.factor
    honest = walls * np.maximum(1.0, (half / TARGET_HALF_WIDTH) ** 2)
    return found, float(np.median(walls)), float(np.nanmedian(honest))


def flagged(raw: dict[str, Any]) -> float:
    """Share of the study's samples that its core flagged as disturbed."""
    rounds = [each for run in raw["runs"] for each in run[STUDY]]
    return mean(each[label]["flagged"] for each in rounds for label in raw["points"] if label in each)


if __name__ == "__main__":
    asked, answer = read_order()
    answer({label: time_by_torch(label) for label in asked["labels"]})
