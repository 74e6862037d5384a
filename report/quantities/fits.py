"""Few numbers fitted to many kernels: robust least squares of the logarithms of predicted over measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from report.quantities.kernels import Floats, Kernels

NUMBERS = ("peak", "bandwidth", "launch", "cache")
# Past this logarithm of predicted over measured, a kernel pulls ever less at the numbers.
TOLERATED = 0.25
# Logarithms of the numbers lie between these.
_BOUNDS = np.array([[-7.0, -7.0, -23.0, 0.0], [1.0, 1.0, 0.0, 5.0]])
# Where the larger of two times changes places the loss has a kink, at which steps may stop: rounded off at first.
# Each stage with the tolerance at which it stops: the first one finds no more than where to begin.
_STAGES = ((16.0, 1e-8), (math.inf, 1e-15))


def fit(kernels: Kernels, free: Sequence[str], starts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The numbers `free` that predict kernels best, under Cauchy's loss; of peak and bandwidth, what is not free is 1.

    starts: of all that is free; from each of them, and of what comes of it the best in the median miss.
    """
    at = [NUMBERS.index(name) for name in free]

    # The derivatives are asked for where the misses have just been.
    @lru_cache(maxsize=1)
    def misses(x: tuple[float, ...], sharpness: float) -> tuple[Floats, Floats]:
        # No launch takes no time unless that is fitted: its logarithm is far below any.
        every = np.array([0.0, 0.0, -np.inf, 0.0])
        every[at] = x
        values, slopes = _misses(kernels, every, sharpness)
        return values, slopes[:, at]

    found = []
    for start in starts:
        x = np.log([start[name] for name in free])
        for sharpness, stop in _STAGES:
            # Copies: what it is given, it works in.
            x = least_squares(
                lambda x, sharpness: misses(tuple(x), sharpness)[0].copy(), x,
                lambda x, sharpness: misses(tuple(x), sharpness)[1].copy(),
                bounds=_BOUNDS[:, at], loss="cauchy", f_scale=TOLERATED, args=(sharpness,),
                xtol=stop, ftol=stop, gtol=stop,
            ).x  # fmt: skip
        found.append(x)
    best = min(found, key=lambda x: float(np.median(np.abs(misses(tuple(x), math.inf)[0]))))
    return {"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, np.exp(best).tolist(), strict=True))}


def _misses(kernels: Kernels, x: Floats, sharpness: float) -> tuple[Floats, Floats]:
    """Logarithm of predicted over measured of each kernel at the logarithms x of NUMBERS, and its derivatives.

    sharpness: the power of the mean that stands for the larger of an operator's two times.
    """
    peak, bandwidth, _, cache = np.exp(-x)
    slower = 1 + kernels.cached * (cache - 1)
    arithmetic = kernels.flop * (peak / kernels.peak)[:, None]
    memory = kernels.bytes * (slower * bandwidth / kernels.bandwidth)[:, None]
    larger = np.maximum(arithmetic, memory)
    # To that power, the smaller one over the larger; the larger one's share of the slope.
    ratio = np.divide(np.minimum(arithmetic, memory), larger, out=np.zeros_like(larger), where=larger > 0) ** sharpness
    spent_by, lead = larger * (1 + ratio) ** (1 / sharpness), 1 / (1 + ratio)
    of_memory = np.where(memory > arithmetic, lead, 1 - lead)
    computing, moving = (spent_by * (1 - of_memory)).sum(axis=1), (spent_by * of_memory).sum(axis=1)
    launching = kernels.launches * np.exp(x[2])
    spent = computing + moving + launching
    by_cache = moving * (1 - (1 - kernels.cached) / slower)
    return np.log(spent / kernels.seconds), np.array([-computing, -moving, launching, -by_cache]).T / spent[:, None]
