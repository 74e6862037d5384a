"""Event rates in simulations, with intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest


def rate(hits: ArrayLike, trials: ArrayLike) -> dict[str, float]:
    """Return the fraction of trials with an event, and its 95% interval (Wilson).

    hits, trials: numbers by node, shape (nodes,). Trials on the same node are not independent. Therefore the interval
    is computed for as many independent trials as would lead to the observed spread between nodes.
    """
    hits, sizes = np.asarray(hits, float), np.asarray(trials, float)
    total, nodes = sizes.sum(), len(sizes)
    share = hits.sum() / total
    effective = total
    if 0 < share < 1 and nodes > 1:
        between = np.sum((hits - share * sizes) ** 2) / total**2 * nodes / (nodes - 1)
        effective = min(total, share * (1 - share) / between) if between else total
    around = binomtest(round(share * effective), max(1, round(effective))).proportion_ci(0.95, method="wilson")
    return {"share": float(share), "low": float(min(around.low, share)), "high": float(max(around.high, share))}
