"""Few numbers fitted to many kernels, for many rounds at once: Levenberg and Marquardt's method, side by side.

Each problem is the robust least squares of one round: the logarithms of predicted over measured under Cauchy's loss,
over the logarithms of the numbers, within bounds. SciPy's `least_squares` solves one in milliseconds, most of them
spent between its steps; a thousand nodes pose fifteen thousand. The steps are the same for all of them here, with
derivatives that are exact; what has converged leaves. `tests/report/test_fits.py` holds both against each other.
Source: Marquardt 1963, J. SIAM 11(2):431; the weights of the loss are Triggs et al. 2000, Bundle adjustment, section
4.3, as SciPy has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from report.quantities.kernels import Bools, Floats, Kernels

Ints = NDArray[np.intp]

NUMBERS = ("peak", "bandwidth", "launch", "cache")
# Past this logarithm of predicted over measured, a kernel pulls ever less at the numbers.
TOLERATED = 0.25
# Logarithms of the numbers lie between these.
_LOW, _HIGH = np.array([-7.0, -7.0, -23.0, 0.0]), np.array([1.0, 1.0, 0.0, 5.0])
_STEPS = 200
# Where the larger of two times changes places the loss has a kink, at which steps may stop: rounded off at first.
_SHARPNESS = (16.0, math.inf)
# Of the first step: a longer one may leave the nearest valley.
_DAMPING = 1.0
# What a step must promise, of the cost, to be worth it: less is lost in rounding.
_STILL = 1e-15
# Kernels fitted at once, times the numbers of starts: what fits memory.
_AT_ONCE = 100_000


@dataclass(frozen=True)
class _Problems:
    """Kernels of many problems one after another, and their operators one after another.

    problem: of each kernel; kernel: of each operator, both ascending. arithmetic_s, memory_s: of operators at the
    whole of both ceilings. launches, cached, seconds: of kernels.
    """

    n: int
    problem: Ints
    launches: Floats
    cached: Floats
    seconds: Floats
    kernel: Ints
    arithmetic_s: Floats
    memory_s: Floats

    @classmethod
    def of(cls, kernels: Sequence[Kernels]) -> _Problems:
        several = {name: np.concatenate([getattr(one, name) for one in kernels])
                   for name in ("launches", "cached", "seconds")}  # fmt: skip
        sizes = [len(one.seconds) for one in kernels]
        starts = np.cumsum([0, *sizes[:-1]])
        found = []
        for one, start in zip(kernels, starts.tolist(), strict=True):
            row, column = np.nonzero((one.flop > 0) | (one.bytes > 0))
            found.append((row + start, one.flop[row, column] / one.peak[row], one.bytes[row, column] / one.bandwidth))
        kernel, arithmetic, memory = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return cls(len(kernels), np.repeat(np.arange(len(kernels)), sizes), **several, kernel=kernel,
                   arithmetic_s=arithmetic, memory_s=memory)  # fmt: skip

    def only(self, wanted: Bools) -> _Problems:
        """Some of the problems."""
        kernels = wanted[self.problem]
        operators = kernels[self.kernel]
        number, place = np.cumsum(wanted) - 1, np.cumsum(kernels) - 1
        of_kernel = {name: getattr(self, name)[kernels] for name in ("launches", "cached", "seconds")}
        return _Problems(
            int(wanted.sum()), number[self.problem[kernels]], **of_kernel, kernel=place[self.kernel[operators]],
            arithmetic_s=self.arithmetic_s[operators], memory_s=self.memory_s[operators],
        )  # fmt: skip

    def misses(self, x: Floats, sharpness: float = math.inf) -> tuple[Floats, Floats]:
        """Logarithm of predicted over measured of each kernel at x, of shape (problems, 4), and its derivatives.

        sharpness: the power of the mean that stands for the larger of an operator's two times.
        """
        peak, bandwidth, launch, cache = np.exp(-x).T
        slower = 1 + self.cached * (cache[self.problem] - 1)
        arithmetic = self.arithmetic_s * peak[self.problem][self.kernel]
        memory = self.memory_s * (bandwidth[self.problem] * slower)[self.kernel]
        larger, n = np.maximum(arithmetic, memory), len(self.seconds)
        # To that power, the smaller one over the larger; the larger one's share of the slope.
        ratio = (np.minimum(arithmetic, memory) / larger) ** sharpness if sharpness < math.inf else 0.0
        spent_by, lead = larger * (1 + ratio) ** (1 / sharpness), 1 / (1 + ratio)
        of_memory = np.where(memory > arithmetic, lead, 1 - lead)
        computing = np.bincount(self.kernel, spent_by * (1 - of_memory), n)
        moving = np.bincount(self.kernel, spent_by * of_memory, n)
        launching = self.launches / launch[self.problem]
        spent = computing + moving + launching
        by_cache = moving * (1 - (1 - self.cached) / slower)
        return np.log(spent / self.seconds), np.array([-computing, -moving, launching, -by_cache]).T / spent[:, None]

    def cost(self, misses: Floats) -> Floats:
        """Cauchy's loss of each problem, of shape (problems,)."""
        return np.asarray(np.bincount(self.problem, np.log1p((misses / TOLERATED) ** 2), self.n), float)


def fits(
    kernels: Sequence[Kernels], free: Sequence[str], starts: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """For each of many sets of kernels the numbers `free` that foretell them best; shares that are not free are 1.

    starts: of all of NUMBERS; from each of them, and of what comes of it the best in the median miss.
    """
    size = max(1, max((one.flop.size for one in kernels), default=1))
    step = max(1, _AT_ONCE // size)
    blocks = [kernels[first : first + step] for first in range(0, len(kernels), step)]
    return [found for block in blocks for found in _of_block(block, free, starts)]


def _of_block(
    kernels: Sequence[Kernels], free: Sequence[str], starts: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    problems = _Problems.of(kernels)
    moving = np.array([name in free for name in NUMBERS])
    # No launch is free: its logarithm is far below any.
    fixed = np.where(moving, np.nan, [0.0, 0.0, -np.inf, 0.0])
    best, middle = np.empty((problems.n, 4)), np.full(problems.n, np.inf)
    for start in starts:
        x = np.where(moving, np.log([start[name] for name in NUMBERS]), fixed)
        found = np.tile(x, (problems.n, 1))
        for sharpness in _SHARPNESS:
            found = _solved(problems, found, moving, sharpness)
        missed = np.abs(problems.misses(found)[0])
        median = np.array([np.median(part) for part in np.split(missed, np.flatnonzero(np.diff(problems.problem)) + 1)])
        better = median < middle
        best[better], middle[better] = found[better], median[better]
    return [{name: value for name, value in zip(NUMBERS, row, strict=True) if name in free or name in NUMBERS[:2]}
            for row in np.exp(best).tolist()]  # fmt: skip


def _solved(problems: _Problems, x: Floats, moving: Bools, sharpness: float) -> Floats:
    """The logarithms that cost least, near x; both of shape (problems, 4)."""
    done, at = x.copy(), np.arange(len(x))
    damping = np.full(len(x), _DAMPING)
    misses, slopes = problems.misses(x, sharpness)
    cost = problems.cost(misses)
    for _ in range(_STEPS):
        step, promised = _step(problems, x, misses, slopes, damping, moving)
        moved, of_moved = problems.misses(x + step, sharpness)
        lower = problems.cost(moved)
        better = lower < cost
        still = promised < _STILL * cost
        x = np.where(better[:, None], x + step, x)
        cost = np.where(better, lower, cost)
        chosen = better[problems.problem]
        misses, slopes = np.where(chosen, moved, misses), np.where(chosen[:, None], of_moved, slopes)
        damping = np.where(better, np.maximum(damping / 5, 1e-12), damping * 4)
        done[at] = x
        if still.all():
            break
        if still.any():
            going = ~still
            kernels = going[problems.problem]
            problems, x, cost, damping, at = problems.only(going), x[going], cost[going], damping[going], at[going]
            misses, slopes = misses[kernels], slopes[kernels]
    return done


def _step(
    problems: _Problems, x: Floats, misses: Floats, slopes: Floats, damping: Floats, moving: Bools
) -> tuple[Floats, Floats]:
    """A damped step of each problem towards a lower cost, no further than the bounds, and how much lower at most."""
    z = (misses / TOLERATED) ** 2
    pull, bend = 1 / (1 + z), np.maximum((1 - z) / (1 + z) ** 2, 1e-10)
    n = len(NUMBERS)
    gradient, curve = np.empty((problems.n, n)), np.empty((problems.n, n, n))
    for i in range(n):
        gradient[:, i] = np.bincount(problems.problem, pull * misses * slopes[:, i], problems.n)
        for j in range(i + 1):
            of_both = np.bincount(problems.problem, bend * slopes[:, i] * slopes[:, j], problems.n)
            curve[:, i, j] = curve[:, j, i] = of_both
    # What may not move, or only out of bounds, stays where it is.
    free = moving & ~((x <= _LOW) & (gradient > 0)) & ~((x >= _HIGH) & (gradient < 0))
    gradient = np.where(free, gradient, 0.0)
    curve *= free[:, :, None] & free[:, None, :]
    diagonal = np.arange(n)
    own = curve[:, diagonal, diagonal]
    curve[:, diagonal, diagonal] = np.where(free, own + damping[:, None] * np.maximum(own, 1e-8), 1.0)
    step = -np.linalg.solve(curve, gradient[:, :, None])[:, :, 0]
    promised = -2 / TOLERATED**2 * (gradient * step).sum(axis=1)
    return np.where(free, np.clip(x + step, _LOW, _HIGH) - x, 0.0), promised
