"""How often intervals contain the truth, and how wide they are, for points, ratios and shares of time.

`report.statistics` computes the intervals from simulated rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from report import statistics
from report.statistics import DECIDING, Floats, PointEstimates
from studies.calibration.questions import GPU, SHARE
from studies.calibration.rates import rate
from studies.calibration.simulated_machines import Machines, Noise, noise_factors, share_of_time

LEVELS = (0.95, DECIDING)
# Enough nodes to simulate 40,000 intervals.
_MACHINES = Machines(1_000, 40, 0, ("cpu", GPU))


@dataclass(frozen=True)
class Intervals:
    """Estimates and their truth, on the scale that their standard errors have.

    estimate, se, df: shape (nodes, points). inverse: converts interval ends to the scale on which to give widths.
    """

    estimate: Floats
    se: Floats
    df: Floats
    truth: float = 0.0
    inverse: Callable[[Floats], Floats] = np.asarray


def round_medians(noise: Noise, machines: Machines, random: np.random.Generator) -> Floats:
    """Simulate rounds whose true time is 1; return their medians, shape (nodes, devices, points, rounds)."""
    medians: Floats = np.median(noise_factors(noise, machines, random), axis=-1)
    return medians


def estimate_rounds(
    estimate: Callable[[Floats, Any, Any], PointEstimates], medians: Floats
) -> tuple[PointEstimates, tuple[int, ...]]:
    """Estimate each point from its rounds, moderated by the points on its node and device; return also their shape.

    medians: shape (nodes, devices, points, rounds).
    """
    nodes, devices, points, rounds = medians.shape
    count = nodes * devices * points
    group = np.repeat(np.arange(nodes * devices), points)
    return estimate(medians.ravel(), np.full(count, rounds), group), (nodes, devices, points)


def _quantities(medians: Floats) -> Iterator[tuple[str, Intervals]]:
    """Yield each quantity's intervals. medians: shape (nodes, 2, points, rounds)."""
    times, shape = estimate_rounds(statistics.log_estimates, medians)
    logs, se, df = (array.reshape(shape) for array in (np.log(times.estimate), times.se, times.df))
    yield "point", Intervals(logs[:, 0], se[:, 0], df[:, 0])
    both = statistics.combine(se[:, 0], df[:, 0], se[:, 1], df[:, 1])
    yield "ratio of two devices", Intervals(logs[:, 0] - logs[:, 1], *both)
    shares = share_of_time(medians * np.array([SHARE, 1 - SHARE])[:, None, None])
    for quantity, estimate, to_scale, inverse in (
        ("share of time, by its log odds", statistics.logit_estimates, special.logit, special.expit),
        ("share of time, on the linear scale", _linear_estimates, np.asarray, lambda ends: np.clip(ends, 0, 1)),
    ):
        points, shape = estimate_rounds(estimate, shares)
        middle, se, df = (array.reshape(shape)[:, 0] for array in (to_scale(points.estimate), points.se, points.df))
        yield quantity, Intervals(middle, se, df, float(to_scale(SHARE)), inverse)


def _linear_estimates(values: Floats, n: Any, group: Any) -> PointEstimates:
    return statistics.linear_estimates(values, n, np.zeros(len(n), dtype=bool), np.ones(len(n), dtype=bool))


def coverage_rows(noise: Noise, rounds: int, seed: Sequence[int], nodes: int = _MACHINES.nodes) -> list[dict[str, Any]]:
    """Return a table row for each quantity: how often its intervals contain the truth, and how wide they are.

    width: the median width at each level: a difference between logarithms, or between shares. Points, ratios and shares
    rest on the same simulated rounds.
    """
    machines = replace(_MACHINES, nodes=nodes, rounds=rounds)
    rows = []
    for quantity, intervals in _quantities(round_medians(noise, machines, np.random.default_rng(seed))):
        covered = []
        for level in LEVELS:
            half = statistics.half_width(intervals.se, intervals.df, level)
            hits = (np.abs(intervals.estimate - intervals.truth) <= half).sum(axis=1)
            low, high = (intervals.inverse(intervals.estimate + sign * half) for sign in (-1, 1))
            width = float(np.median(high - low))
            covered.append({"level": level, "width": width, **rate(hits, np.full(nodes, machines.points))})
        rows.append({
            "quantity": quantity, "noise": noise.describe(), "rounds": rounds, "points": machines.points,
            "intervals": nodes * machines.points, "covered": covered,
        })  # fmt: skip
    return rows
