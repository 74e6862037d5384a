"""Puts questions to simulated machines by the engine's own path, and counts what it answers.

samples -> summarise -> Data -> Cases -> decide. Nothing of the engine is repeated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import binomtest

from report.data.dataset import Dataset
from report.data.nodes import Nodes
from report.data.summary import summarise
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.rules import decide
from report.model import Threshold
from studies.calibration.machines import EXPERIMENT, Machines, Noise, disturbance, samples
from studies.calibration.questions import QUESTIONS, Question

ANSWERS = ("supported", "challenged", "depends", "undecided")
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


@dataclass
class Counts:
    """Answers per node: one entry per node, of how many trials of it came out as each of ANSWERS."""

    of_node: list[Counter[str]] = field(default_factory=list)

    @property
    def trials(self) -> int:
        return sum(one.total() for one in self.of_node)

    def share(self, answer: str) -> dict[str, float]:
        """Share of the trials with this answer and its 95% interval (Wilson).

        Trials of one node are not independent of each other: the interval is for as many independent trials as would
        make the spread that is seen between nodes.
        """
        hits = np.array([one[answer] for one in self.of_node], float)
        sizes = np.array([one.total() for one in self.of_node], float)
        trials, nodes = sizes.sum(), len(sizes)
        share = hits.sum() / trials
        effective = trials
        if 0 < share < 1:
            between = np.sum((hits - share * sizes) ** 2) / trials**2 * nodes / (nodes - 1)
            effective = min(trials, share * (1 - share) / between)
        around = binomtest(round(share * effective), max(1, round(effective))).proportion_ci(0.95, method="wilson")
        return {"share": float(share), "low": float(min(around.low, share)), "high": float(max(around.high, share))}


@dataclass(frozen=True)
class Seen:
    """What a setting's trials gave. width: median one of the drawn interval (relative; of the exponent for a trend)."""

    at: Counts
    off: dict[int, Counts]
    width: float


def run(setting: Setting, seed: Sequence[int]) -> Seen:
    """Simulate a setting: its question with the truth on the threshold, and so many widths off it."""
    at, off = Counts(), {many: Counts() for many in WIDTHS if setting.question.far}
    widths: list[float] = []
    random = np.random.default_rng(seed)
    for machines in _portions(setting):
        cases = _cases(setting, machines, random)
        counts, compared = _ask(setting.question, cases, 0.0)
        at.of_node += counts
        widths += compared
    # Of the last portion: shares of what is decided rightly need no such number of trials.
    width = float(np.nanmedian(widths)) if np.isfinite(widths).any() else np.nan
    for many, found in off.items():
        found.of_node += _ask(setting.question, cases, many * width if np.isfinite(width) else 1.0)[0]
    return Seen(at, off, width)


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


def _ask(question: Question, cases: Estimates, off: float) -> tuple[list[Counter[str]], list[float]]:
    """Answers per node, and the widths of the intervals that were compared."""
    places: Any = cases.frame.groupby("node", sort=True).indices
    sets = [cases.at(places[node]) for node in sorted(places)] if question.whole else [cases]
    answers: dict[str, Counter[str]] = {str(node): Counter() for node in sorted(places)}
    widths: list[float] = []
    # The boundary is words for people, and takes longer than the deciding.
    threshold = Threshold.of(question.threshold(off))
    part = Part(question.says, "", question.rule, threshold, "", options=dict(question.options))
    with patch("report.judging.rules.find_boundary", return_value=None):
        for one in sets:
            ruling = decide(part, one, "s")
            frame = ruling.estimates.frame
            low, high = frame["low"].to_numpy(float), frame["high"].to_numpy(float)
            widths += (high - low if question.rule == "trend" else np.log(high / low)).tolist()
            if question.whole:
                answers[str(frame["node"].iloc[0])][ruling.outcome] += 1
            else:
                for node, outcome in zip(frame["node"], ruling.sides, strict=True):
                    answers[str(node)][_OF_CELL[outcome]] += 1
    return list(answers.values()), widths
