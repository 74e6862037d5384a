"""Sessions: how often intervals err if a machine differs from session to session, with and without that spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from report import statistics
from report.statistics import Floats
from studies.calibration.coverage import round_medians
from studies.calibration.rates import rate
from studies.calibration.simulated_machines import Machines, Noise

# Rounds of all points in the first session, and of the anchors alone in the second.
FIRST, SECOND = 3, 2
_MACHINES = Machines(500, 40, FIRST + SECOND)


@dataclass(frozen=True)
class SessionSetting:
    """Sessions of a simulated machine.

    spread: ratio of the spread between sessions to the median spread between rounds. common: fraction of the sessions'
    variance that all points have in common. anchors: number of points, out of 40, that the second session measures.
    """

    noise: Noise
    spread: float
    common: float
    anchors: int


def session_row(setting: SessionSetting, seed: Sequence[int], nodes: int = _MACHINES.nodes) -> dict[str, Any]:
    """Return a table row: how often intervals lie above and below the truth, and their median width.

    without: intervals as if all rounds came from one session. included: intervals that include the spread between
    sessions, as the anchors show it.
    """
    random, machines = np.random.default_rng(seed), replace(_MACHINES, nodes=nodes)
    y = np.log(round_medians(setting.noise, machines, random))[:, 0] + _session_effects(setting, machines, random)
    in_both = np.arange(machines.points) < setting.anchors
    measured = np.broadcast_to(in_both[:, None] | (np.arange(FIRST + SECOND) < FIRST), y.shape)
    n = measured.sum(axis=-1).ravel()
    session = np.broadcast_to(np.where(np.arange(FIRST + SECOND) < FIRST, 1, 2), y.shape)[measured]
    group = np.repeat(np.arange(nodes), machines.points)
    values = np.exp(y[measured])
    trials = np.full(nodes, machines.points)
    row: dict[str, Any] = {
        "noise": setting.noise.describe(), "spread": setting.spread, "common": setting.common,
        "anchors": setting.anchors, "points": machines.points, "trials": int(trials.sum()),
    }  # fmt: skip
    for name, sessions in (("without", None), ("included", session)):
        points = statistics.log_estimates(values, n, group, sessions)
        low, high = (end.reshape(nodes, -1) for end in (points.low, points.high))
        row[name] = {
            "above": rate((low > 1).sum(axis=1), trials),
            "below": rate((high < 1).sum(axis=1), trials),
            "width": float(np.median(np.log(high / low))),
        }
    return row


def _session_effects(setting: SessionSetting, machines: Machines, random: np.random.Generator) -> Floats:
    """Draw the sessions' effects on logarithms, shape (nodes, points, rounds)."""
    own = random.normal(size=(machines.nodes, machines.points, 2))
    common = random.normal(size=(machines.nodes, 1, 2))
    effects = np.sqrt(1 - setting.common) * own + np.sqrt(setting.common) * common
    return np.repeat(setting.spread * setting.noise.between * effects, [FIRST, SECOND], axis=-1)
