"""Rounds on demand: how often cases are decided, and wrongly, if undecided ones are measured in more rounds.

Looks are fixed round counts. A case is decided at the first look at which its interval is clear of the threshold,
and stays decided; at later looks, only the other cases are judged again, from all their rounds. Each look has its own
chance to err, so a look needs a higher level than a single judgement (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.looks import LOOKS
from report import statistics
from report.statistics import DECIDING, LOOK_LEVEL, Floats
from studies.calibration.coverage import estimate_rounds, round_medians
from studies.calibration.rates import rate
from studies.calibration.simulated_machines import Machines, Noise

_MACHINES = Machines(1_000, 40, 0)
# Largest simulated distance from the truth to the threshold, in median spreads between rounds.
_FARTHEST = 6.0


@dataclass(frozen=True)
class Scheme:
    """Round counts at which to judge cases, and the interval level by which to judge them."""

    looks: tuple[int, ...]
    level: float = DECIDING


# Three looks at 99.4% err to a given side with a chance up to 0.9%.
SCHEMES = (*(Scheme((rounds,)) for rounds in LOOKS), Scheme(LOOKS, LOOK_LEVEL))


def judge_at_looks(medians: Floats, distances: Floats, scheme: Scheme) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Judge each case at each look until it is decided.

    medians: the rounds' medians with the true time 1, shape (nodes, 1, points, rounds). distances: from the threshold
    to the truth, as differences between logarithms, shape (nodes, points). Returns each case's side (1 above the
    threshold, -1 below it, 0 undecided) and the rounds it took, both with shape (nodes, points).
    """
    sides = np.zeros(distances.shape, dtype=np.intp)
    rounds = np.zeros(distances.shape, dtype=np.intp)
    for look in scheme.looks:
        points, _ = estimate_rounds(statistics.log_estimates, medians[..., :look])
        half = statistics.half_width(points.se, points.df, scheme.level).reshape(distances.shape)
        above = distances + np.log(points.estimate).reshape(distances.shape)
        undecided = sides == 0
        rounds[undecided] = look
        sides = np.where(undecided & (np.abs(above) >= half), np.sign(above).astype(np.intp), sides)
    return sides, rounds


def look_rows(noise: Noise, seed: Sequence[int], nodes: int = _MACHINES.nodes) -> list[dict[str, Any]]:
    """Return a table row for each scheme.

    above, below: how often a case is decided whose truth lies on the threshold. decided, rounds: how many cases are
    decided and in how many rounds on average, if their distances to the threshold are spread evenly up to _FARTHEST.
    """
    random = np.random.default_rng(seed)
    machines = replace(_MACHINES, nodes=nodes, rounds=max(SCHEMES[-1].looks))
    medians = round_medians(noise, machines, random)
    sizes = np.full(nodes, machines.points)
    spread = random.uniform(-_FARTHEST, _FARTHEST, (nodes, machines.points)) * noise.between
    rows = []
    for scheme in SCHEMES:
        at, _ = judge_at_looks(medians, np.zeros_like(spread), scheme)
        sides, rounds = judge_at_looks(medians, spread, scheme)
        rows.append({
            "looks": list(scheme.looks), "level": scheme.level, "noise": noise.describe(), "trials": int(sizes.sum()),
            "above": rate((at > 0).sum(axis=1), sizes), "below": rate((at < 0).sum(axis=1), sizes),
            "decided": rate((sides != 0).sum(axis=1), sizes), "rounds": float(rounds.mean()),
        })  # fmt: skip
    return rows
