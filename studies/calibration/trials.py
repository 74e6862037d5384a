"""Puts questions to simulated machines by the engine's own path, and counts what it answers.

samples -> summarise -> Data -> Cases -> decide. Nothing of the engine is repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from report.data.dataset import Dataset
from report.data.nodes import Nodes
from report.data.summary import summarise
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.rules import decide
from report.model import Threshold
from studies.calibration.machines import EXPERIMENT, Floats, Machines, Noise, disturbance, samples
from studies.calibration.questions import QUESTIONS, Question

ANSWERS = ["supported", "challenged", "depends", "undecided"]
_OF_CELL = {"supports": "supported", "challenges": "challenged", "undecided": "undecided"}
# How far from the threshold it is asked again, in median widths of the drawn interval.
WIDTHS = (1, 2, 5)
# Points are simulated so many at a time, which bounds the memory.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Setting:
    """One row of the table. nodes: how many independent nodes are simulated."""

    noise: Noise
    rounds: int
    points: int
    nodes: int
    asked: str = "one"

    @property
    def question(self) -> Question:
        return QUESTIONS[self.asked]


def row(setting: Setting, seed: Sequence[int]) -> dict[str, Any]:
    """Simulate a setting, its question with the truth on the threshold and so many widths off it: a row of the table.

    width: median one of the drawn interval (relative; of the exponent for a trend); None if there is none.
    """
    question, random = setting.question, np.random.default_rng(seed)
    found: list[tuple[pd.DataFrame, Floats]] = []
    for machines in _portions(setting):
        cases = _cases(setting, machines, random)
        found.append(_ask(question, cases, 0.0))
    at, widths = pd.concat([counts for counts, _ in found]), np.concatenate([widths for _, widths in found])
    width = float(np.nanmedian(widths)) if np.isfinite(widths).any() else None
    # Of the last portion: shares of what is decided rightly need no such number of trials.
    off = {many: _ask(question, cases, 1.0 if width is None else many * width)[0] for many in WIDTHS if question.far}
    return {
        "question": question.says,
        "noise": setting.noise.describe(),
        "rounds": setting.rounds,
        "points": setting.points,
        "trials": int(at.to_numpy().sum()),
        "nodes": setting.nodes,
        "width": width,
        **{answer: _share(at, answer) for answer in ANSWERS},
        "right": [{"widths": many, **_share(counts, "supported")} for many, counts in off.items()],
    }


def _portions(setting: Setting) -> Iterator[Machines]:
    question, left = setting.question, setting.nodes
    most = max(1, _AT_ONCE // (setting.points * len(question.devices)))
    while left > 0:
        yield Machines(min(most, left), setting.points, setting.rounds, question.devices)
        left -= most


def _cases(setting: Setting, machines: Machines, random: np.random.Generator) -> Estimates:
    truth = np.broadcast_to(setting.question.truth(machines), (len(machines.devices), machines.points))
    values = truth[..., None, None] * disturbance(setting.noise, machines, random)
    data = Dataset(Nodes([], []), {}, summarise(samples(values, machines)))
    return setting.question.cases(data.summary(EXPERIMENT))


def _ask(question: Question, cases: Estimates, off: float) -> tuple[pd.DataFrame, Floats]:
    """How many trials of each node came out as each of ANSWERS, and the widths of the intervals that were compared."""
    places: Any = cases.frame.groupby("node", sort=True).indices
    sets = [cases.at(places[node]) for node in sorted(places)] if question.whole else [cases]
    nodes: list[str] = []
    answers: list[str] = []
    widths: list[Floats] = []
    # The boundary is words for people, and takes longer than the deciding.
    threshold = Threshold.of(question.threshold(off))
    part = Part(question.says, "", question.rule, threshold, "", options=dict(question.options))
    with patch("report.judging.rules.find_boundary", return_value=None):
        for one in sets:
            ruling = decide(part, one, "s")
            frame = ruling.estimates.frame
            low, high = frame["low"].to_numpy(float), frame["high"].to_numpy(float)
            widths.append(high - low if question.rule == "trend" else np.log(high / low))
            nodes += frame["node"].tolist()[: 1 if question.whole else None]
            answers += [ruling.outcome] if question.whole else [_OF_CELL[side] for side in ruling.sides]
    counts = pd.crosstab(np.array(nodes), np.array(answers))
    return counts.reindex(index=sorted(places), columns=ANSWERS, fill_value=0), np.concatenate(widths)


def _share(counts: pd.DataFrame, answer: str) -> dict[str, float]:
    """Share of the trials with this answer and its 95% interval (Wilson). counts: of each answer, by node.

    Trials of one node are not independent of each other: the interval is for as many independent trials as would make
    the spread that is seen between nodes.
    """
    hits, sizes = counts[answer].to_numpy(float), counts.sum(axis=1).to_numpy(float)
    trials, nodes = sizes.sum(), len(sizes)
    share = hits.sum() / trials
    effective = trials
    if 0 < share < 1:
        between = np.sum((hits - share * sizes) ** 2) / trials**2 * nodes / (nodes - 1)
        effective = min(trials, share * (1 - share) / between)
    around = binomtest(round(share * effective), max(1, round(effective))).proportion_ci(0.95, method="wilson")
    return {"share": float(share), "low": float(min(around.low, share)), "high": float(max(around.high, share))}
