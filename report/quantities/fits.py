"""Few numbers fitted to many kernels: robust least squares of the logarithms of predicted over measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from report.quantities.kernels import Floats, Kernels

NUMBERS = ("peak", "bandwidth", "launch", "cache")
# Past this logarithm of predicted over measured, a kernel pulls ever less at the numbers.
TOLERATED = 0.25
# Logarithms of the numbers lie between these.
_BOUNDS = np.array([[-7.0, -7.0, -23.0, 0.0], [1.0, 1.0, 0.0, 5.0]])
# Where the larger of two times changes places the loss has a kink, at which steps may stop: rounded off in the search
# for where to begin. Each with the tolerance at which it stops.
_SEARCH, _END = (16.0, 1e-6), (math.inf, 1e-12)


def fit(
    rounds: Sequence[Kernels], free: Sequence[str], starts: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """The numbers `free` that predict the kernels of each round best, under Cauchy's loss.

    rounds: the same kernels in each. starts: of all that is free; from each of them the medians over rounds are fitted,
    and each round from what comes of it the best in the median miss. Of peak and bandwidth, what is not free is 1.
    """
    middle = replace(
        rounds[0],
        seconds=np.median([one.seconds for one in rounds], axis=0),
        peak=np.median([one.peak for one in rounds], axis=0),
        bandwidth=float(np.median([one.bandwidth for one in rounds])),
    )
    at = [NUMBERS.index(name) for name in free]
    found = [_descend(middle, at, np.log([start[name] for name in free]), *_SEARCH) for start in starts]
    best = min(found, key=lambda x: float(np.median(np.abs(_misses(middle, _every(x, at), math.inf)[0]))))
    fitted = [np.exp(_descend(one, at, best, *_END)).tolist() for one in rounds]
    return [{"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, numbers, strict=True))} for numbers in fitted]


def _descend(kernels: Kernels, at: list[int], x: Floats, sharpness: float, stop: float) -> Floats:
    """The logarithms of the numbers at these places of NUMBERS that predict kernels best, looked for from x on."""

    # The derivatives are asked for where the misses have just been.
    @lru_cache(maxsize=1)
    def misses(x: tuple[float, ...]) -> tuple[Floats, Floats]:
        values, slopes = _misses(kernels, _every(x, at), sharpness)
        return values, slopes[:, at]

    # Copies: what it is given, it works in.
    found: Floats = least_squares(
        lambda x: misses(tuple(x))[0].copy(), x, lambda x: misses(tuple(x))[1].copy(),
        bounds=_BOUNDS[:, at], loss="cauchy", f_scale=TOLERATED, xtol=stop, ftol=stop, gtol=stop,
    ).x  # fmt: skip
    return found


def _every(x: Sequence[float] | Floats, at: list[int]) -> Floats:
    """The logarithms of all NUMBERS, of which x are those at some places."""
    # No launch takes no time unless that is fitted: its logarithm is far below any.
    every = np.array([0.0, 0.0, -np.inf, 0.0])
    every[at] = x
    return every


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
