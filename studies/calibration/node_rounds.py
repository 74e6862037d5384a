"""Noise between rounds: a few robust figures, to compare simulated machines to published nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from report.data.node_reader import Nodes, read_nodes
from report.data.summary import GROUP, SERIES
from report.statistics import Floats, mean_round_correlation
from studies.calibration.simulated_machines import NODE_NOISES, Machines, Noise, noise_factors

# Rounds for each point: the published nodes have this many, and their later rounds are left out.
ROUNDS = 3
_NODES = 200
_POINTS = 40
# A round is slow if it takes longer than the point's fastest round by more than this factor.
_SLOW = 1.2


def node_logs(samples: pd.DataFrame) -> list[Floats]:
    """Return logarithms of the first ROUNDS rounds' median times, one array with shape (points, ROUNDS) per group.

    samples: samples from one or several nodes. Points with fewer rounds, and groups with one point, are left out.
    """
    times = samples[(samples["status"] == "ok") & (samples["unit"] == "s") & (samples["value"] > 0)]
    medians = times.groupby([*SERIES, "round"], observed=True)["value"].median()
    logs = np.log(medians).groupby(SERIES, observed=True).filter(lambda rounds: len(rounds) >= ROUNDS)
    first = logs[logs.groupby(SERIES, observed=True).cumcount() < ROUNDS]
    blocks = (rounds.to_numpy().reshape(-1, ROUNDS) for _, rounds in first.groupby(GROUP, observed=True))
    return [block for block in blocks if len(block) > 1]


def simulated_logs(noise: Noise, seed: Sequence[int]) -> list[Floats]:
    """Return `node_logs` for simulated machines."""
    factors = noise_factors(noise, Machines(_NODES, _POINTS, ROUNDS), np.random.default_rng(seed))
    return list(np.log(np.median(factors, axis=-1))[:, 0])


def noise_figures(blocks: Iterable[Floats]) -> dict[str, Any]:
    """Describe the noise between rounds.

    blocks: times' logarithms by group, each with shape (points, ROUNDS). points: their number. spread: standard
    deviation over rounds, the median over points. unevenness: the logarithmic spreads' standard deviation over points.
    late: fraction of points whose slowest round lies farther from the middle round than the fastest does; one half if
    noise is symmetric. slow: fraction of slow rounds. correlation: mean correlation between points' rounds.
    """
    blocks = list(blocks)
    logs = np.concatenate(blocks)
    spreads = logs.std(axis=1, ddof=1)
    ordered = np.sort(logs, axis=1)
    weights = [len(block) for block in blocks]
    correlations = [
        mean_round_correlation(block.ravel(), np.full(len(block), ROUNDS), np.arange(len(block))) for block in blocks
    ]
    return {
        "points": len(logs),
        "spread": float(np.median(spreads)),
        "unevenness": float(np.std(np.log(spreads[spreads > 0]))),
        "late": float(np.mean(ordered[:, 2] - ordered[:, 1] > ordered[:, 1] - ordered[:, 0])),
        "slow": float(np.mean(logs - ordered[:, :1] > np.log(_SLOW))),
        "correlation": float(np.average(correlations, weights=weights)),
    }


def noise_rows(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Return the figures for each node in a folder that has enough rounds, and for the simulated noises.

    Raises StudyError if a node is faulty.
    """
    nodes = read_nodes([folder])
    rows = []
    for node in nodes.nodes:
        blocks = node_logs(Nodes([node], []).samples())
        if blocks:
            rows.append({"of": node.id, "origin": "measured", **noise_figures(blocks)})
    simulated = (
        {"of": noise.name, "origin": "synthetic", **noise_figures(simulated_logs(noise, [seed, place]))}
        for place, noise in enumerate(NODE_NOISES)
    )
    return [*rows, *simulated]
