"""Steps of a noisy staircase: where a curve rises from one plateau to the next.

Meant for the latency of memory against the footprint of a chase, both on log
scales: flat while the footprint fits a cache, then a rise, which is a jump where
the cache forgets the oldest line first and spreads over an octave or two where it
forgets some line or shares its room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# What a plateau wobbles by, in logarithms: placement of pages and conflicts in sets, not timing.
WOBBLE = 0.04
# Plateaus lie this far apart at least (half as much again: a drift by TLBs is less), and are this wide (an octave).
LEAST_RISE = np.log(1.5)
LEAST_WIDTH = np.log(2.0)
# In units of squared deviations: what it costs to open a plateau, to leave a point on a rise,
# and at most to have a point on a plateau that is off it.
OPENING, ON_A_RISE, OFF = 4.0, 4.0, 9.0


@dataclass(frozen=True)
class Plateau:
    """Points `first` to `last` of the curve lie on one level, the median of theirs."""

    first: int
    last: int
    level: float


@dataclass(frozen=True)
class Step:
    """The end of a plateau: the curve passes the middle between it and the next from `low` to `high` along x."""

    level: float
    low: float
    high: float


def steps(x: ArrayLike, y: ArrayLike, se: ArrayLike | None = None) -> list[Step]:
    """The steps of a curve, lowest first; none if it is flat.

    x, y: shape (points,), positive, x ascending. se: standard errors of log y; nan
    where unknown. A step is where y passes the geometric mean of two plateaus, so
    that it does not matter how early a rise sets in; a last plateau that the curve
    leaves without reaching another gives none.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    found = plateaus(np.log(x), np.log(y), se)
    made = []
    for here, following in pairwise(found):
        middle = (here.level + following.level) / 2
        # The last point below the middle: one stray point on the rise does not end a level.
        below = np.flatnonzero(np.log(y[here.last : following.first]) < middle)
        at = here.last + (int(below[-1]) if len(below) else 0)
        made.append(Step(float(np.exp(here.level)), float(x[at]), float(x[at + 1])))
    return made


def plateaus(x: Floats, y: Floats, se: ArrayLike | None = None) -> list[Plateau]:
    """Plateaus of a rising curve, from logarithms of both axes; the points between two of them are on a rise.

    Of all ways to lay plateaus over the curve, each LEAST_RISE above the one before
    and LEAST_WIDTH wide, the cheapest: by dynamic programming over their last points,
    as in optimal partitioning (Jackson et al. 2005, IEEE Signal Process. Lett. 12:105),
    with a cost that is capped for single points (Fearnhead & Rigaill 2019, J. Am. Stat.
    Assoc. 114:169), so that a disturbed one neither ends a plateau nor makes one.
    """
    spread = np.hypot(WOBBLE, np.nan_to_num(np.zeros(len(y)) if se is None else np.asarray(se, float)))
    laid = _candidates(x, y, spread)
    lasts, levels = (np.array([getattr(here, name) for here, _ in laid]) for name in ("last", "level"))
    total, before = np.zeros(len(laid)), np.full(len(laid), -1)
    for k, (here, cost) in enumerate(laid):
        # Without a plateau before it, all points before are on a rise.
        total[k] = here.first * ON_A_RISE
        possible = np.flatnonzero((lasts[:k] < here.first) & (here.level - levels[:k] >= LEAST_RISE))
        if len(possible):
            reached = total[possible] + (here.first - lasts[possible] - 1) * ON_A_RISE
            if reached.min() < total[k]:
                total[k], before[k] = reached.min(), possible[reached.argmin()]
        total[k] += cost + OPENING
    chosen: list[Plateau] = []
    at = int(np.argmin(total + (len(y) - 1 - lasts) * ON_A_RISE)) if laid else -1
    while at >= 0:
        chosen.append(laid[at][0])
        at = int(before[at])
    return chosen[::-1]


def _candidates(x: Floats, y: Floats, spread: Floats) -> Sequence[tuple[Plateau, float]]:
    """Every run of points that is wide enough, by its last point, and what it costs to call it a plateau."""
    made = []
    for last in range(len(y)):
        for first in range(last):
            if x[last] - x[first] >= LEAST_WIDTH - 1e-9:
                level = float(np.median(y[first : last + 1]))
                off = ((y[first : last + 1] - level) / spread[first : last + 1]) ** 2
                made.append((Plateau(first, last, level), float(np.minimum(off, OFF).sum())))
    return made
