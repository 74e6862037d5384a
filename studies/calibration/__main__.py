"""Measure how often the verdict engine errs on simulated machines with a known truth, for the published table.

python -m studies.calibration --out data/calibration.json

Simulated samples pass through the engine's own functions (summarise, Dataset, Estimates, decide). The study counts
right and wrong answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from contract.arguments import Parser, parse_path
from contract.errors import run_command
from contract.files import write_json
from report.data.dataset import Dataset
from report.data.node_reader import Nodes
from report.data.summary import summarise
from report.estimates import Estimates
from report.judging.claim_files import Part
from report.judging.rules import apply_rule
from report.outcomes import Threshold
from report.statistics import DECIDING, LEVEL, Floats
from studies.calibration.simulated_machines import (
    EXPERIMENT,
    SAMPLES_PER_ROUND,
    Machines,
    Noise,
    make_samples,
    noise_factors,
    point_sizes,
)

ANSWERS = ["supported", "challenged", "depends", "undecided"]
_OUTCOMES = {"supports": "supported", "challenges": "challenged", "undecided": "undecided"}
# Simulated distances from the true value to the threshold, in addition to distance 0. The unit is the median width of
# the interval that the report draws.
WIDTHS = (1, 2, 5)
# Maximum number of points to simulate at a time, to limit memory use.
_BATCH_POINTS = 10_000
GPU = "cuda:0"
_SPEEDUP, _CROSSOVER_SIZE = 10.0, 16.0


@dataclass(frozen=True)
class Question:
    """Question that the engine answers for each simulated node.

    truth: returns the true times in s, in a shape that broadcasts to (devices, points). threshold: returns the
    threshold at a distance from the true value, on the side where the truth supports the claim. The distance is a
    difference between logarithms, or between exponents for a trend. per_node: true if a trial is a node with all its
    points, false if each estimate that is compared with the threshold is a trial. shifts: false if the only simulated
    distance is 0.
    """

    says: str
    rule: str
    threshold: Callable[[float], Any] = lambda off: float(np.exp(-off))
    options: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu",)
    truth: Callable[[Machines], Floats] = lambda machines: np.ones(1)
    cases: Callable[[Estimates], Estimates] = lambda cases: cases
    per_node: bool = False
    shifts: bool = True


def _four_above(machines: Machines) -> Floats:
    """Return true times: twice the threshold for four points, and the threshold itself for all other points."""
    return np.where(np.arange(machines.points) < 4, 2.0, 1.0)


def _crossing_times(machines: Machines) -> Floats:
    """Return the true times for a CPU and a GPU.

    The GPU's time is constant. The CPU's time grows by a seventh when the size doubles, and equals the GPU's time at
    size 16.
    """
    return np.stack([(point_sizes(machines) / _CROSSOVER_SIZE) ** 0.2, np.ones(machines.points)])


_TWO = {"over": "device", "of": "cpu", "to": GPU}

_HALF = {"share": 0.5, "of": "size"}
QUESTIONS = {
    "one": Question("one point, at least", "at_least"),
    "at most": Question("one point, at most", "at_most", lambda off: float(np.exp(off))),
    "within": Question("one point, within two ends", "within", lambda off: [float(np.exp(-off)), 1e3]),
    "ratio": Question(
        "one ratio of two devices, at least",
        "ratio",
        lambda off: _SPEEDUP * float(np.exp(-off)),
        _TWO,
        ("cpu", GPU),
        lambda machines: np.array([[_SPEEDUP], [1.0]]),
    ),
    "trend": Question(
        "exponent of a trend, at least", "trend", lambda off: 1 - off, {"along": "size"}, truth=point_sizes
    ),
    "crossover": Question(
        "crossover of two devices, at most",
        "crossover",
        lambda off: _CROSSOVER_SIZE,
        {**_TWO, "along": "size", "compare": "at_most"},
        ("cpu", GPU),
        _crossing_times,
        shifts=False,
    ),
    "every": Question("every point, at least", "at_least", per_node=True),
    "exists": Question("some point, at least", "exists", per_node=True),
    "half": Question(
        "half of the points, at least", "for_share_of", options=_HALF, truth=_four_above, per_node=True
    ),
    "best": Question(
        "the best of equal points, at least", "at_least", cases=lambda cases: cases.best_per_group(by=["node"])
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Simulation for one row of the table.

    rounds: number per point. points: number per device. nodes: number of independent nodes.
    """

    noise: Noise
    rounds: int
    points: int
    nodes: int
    question_name: str = "one"

    @property
    def question(self) -> Question:
        return QUESTIONS[self.question_name]


SEED = 20260
USUAL = Noise(unequal=3)
EVERYTHING = Noise(unequal=3, heavy=True, shared=0.25, outliers=0.05, disturbed=0.02, drift=0.02)

SETTINGS = (
    # These settings vary the round, point and node counts.
    Setting(USUAL, 1, 10, 100),
    Setting(USUAL, 2, 10, 4_000),
    Setting(USUAL, 3, 40, 1_000),
    Setting(USUAL, 5, 40, 1_000),
    Setting(USUAL, 8, 40, 1_000),
    Setting(USUAL, 3, 10, 4_000),
    Setting(USUAL, 5, 10, 4_000),
    Setting(USUAL, 3, 2, 16_000),
    Setting(USUAL, 5, 2, 16_000),
    Setting(USUAL, 3, 1, 30_000),
    # These settings vary the noise.
    Setting(Noise(0.005, 0.003), 3, 40, 1_000),
    Setting(Noise(0.1, 0.03, unequal=5), 3, 40, 1_000),
    Setting(Noise(unequal=3, heavy=True), 3, 40, 1_000),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 4_000),
    Setting(Noise(unequal=3, outliers=0.05), 5, 10, 4_000),
    Setting(Noise(unequal=3, disturbed=0.05), 3, 40, 1_000),
    Setting(Noise(unequal=3, disturbed=0.05), 5, 10, 4_000),
    Setting(Noise(unequal=3, drift=0.05), 3, 10, 4_000),
    Setting(Noise(unequal=3, shared=0.25), 3, 40, 2_000),
    Setting(Noise(unequal=3, shared=0.5), 3, 40, 3_000),
    Setting(Noise(unequal=3, shared=0.5), 5, 10, 4_000),
    Setting(Noise(unequal=3, shared=0.8), 3, 40, 3_000),
    Setting(Noise(unequal=3, shared=0.8), 5, 10, 4_000),
    Setting(EVERYTHING, 3, 40, 2_000),
    Setting(EVERYTHING, 5, 10, 4_000),
    # These settings vary the verdict rule.
    Setting(USUAL, 5, 10, 4_000, "at most"),
    Setting(USUAL, 5, 10, 4_000, "within"),
    Setting(USUAL, 5, 10, 2_000, "ratio"),
    Setting(EVERYTHING, 5, 10, 2_000, "ratio"),
    *(Setting(USUAL, 5, 10, 10_000, name) for name in ("trend", "crossover", "every", "exists", "half", "best")),
)


def simulate_setting(setting: Setting, seed: Sequence[int]) -> dict[str, Any]:
    """Simulate a setting; return a table row with each answer's frequency.

    The threshold is first equal to the true value, and then at the distances WIDTHS from it. The row's `width` is the
    median width of the interval that the report draws: a difference between logarithms, or between exponents for a
    trend. It is None if there are no intervals.
    """
    question, random = setting.question, np.random.default_rng(seed)
    batches: list[tuple[pd.DataFrame, Floats]] = []
    for machines in _split_nodes(setting):
        cases = _simulate_cases(setting, machines, random)
        batches.append(_count_answers(question, cases, 0.0))
    at, widths = pd.concat([counts for counts, _ in batches]), np.concatenate([widths for _, widths in batches])
    width = float(np.nanmedian(widths)) if np.isfinite(widths).any() else None
    # Count only the last batch of nodes: the rate of right answers can be estimated from fewer trials than error rates.
    off = {
        many: _count_answers(question, cases, 1.0 if width is None else many * width)[0]
        for many in WIDTHS
        if question.shifts
    }
    return {
        "question": question.says,
        "noise": setting.noise.describe(),
        "rounds": setting.rounds,
        "points": setting.points,
        "trials": int(at.to_numpy().sum()),
        "nodes": setting.nodes,
        "width": width,
        **{answer: _answer_share(at, answer) for answer in ANSWERS},
        "right": [{"widths": many, **_answer_share(counts, "supported")} for many, counts in off.items()],
    }


def _split_nodes(setting: Setting) -> Iterator[Machines]:
    question, left = setting.question, setting.nodes
    most = max(1, _BATCH_POINTS // (setting.points * len(question.devices)))
    while left > 0:
        yield Machines(min(most, left), setting.points, setting.rounds, question.devices)
        left -= most


def _simulate_cases(setting: Setting, machines: Machines, random: np.random.Generator) -> Estimates:
    truth = np.broadcast_to(setting.question.truth(machines), (len(machines.devices), machines.points))
    values = truth[..., None, None] * noise_factors(setting.noise, machines, random)
    data = Dataset(Nodes([], []), {}, summarise(make_samples(values, machines)))
    return setting.question.cases(data.summary(EXPERIMENT))


def _count_answers(question: Question, cases: Estimates, off: float) -> tuple[pd.DataFrame, Floats]:
    """Count the trials by node and answer; return this table and the widths of the cases' intervals.

    off: shift from the true value to the threshold.
    """
    places: Any = cases.frame.groupby("node", sort=True).indices
    sets = [cases.take(places[node]) for node in sorted(places)] if question.per_node else [cases]
    nodes: list[str] = []
    answers: list[str] = []
    widths: list[Floats] = []
    # Do not search for the boundary between supporting and challenging cases: the search takes longer than the
    # decision, and only the verdict's sentence needs the boundary.
    threshold = Threshold.from_json(question.threshold(off))
    part = Part(question.says, "", question.rule, threshold, "", options=dict(question.options))
    with patch("report.judging.rules.find_boundary", return_value=None):
        for node_cases in sets:
            ruling = apply_rule(part, node_cases, "s")
            frame = ruling.estimates.frame
            low, high = frame["low"].to_numpy(float), frame["high"].to_numpy(float)
            widths.append(high - low if question.rule == "trend" else np.log(high / low))
            nodes += frame["node"].tolist()[: 1 if question.per_node else None]
            answers += [ruling.outcome] if question.per_node else [_OUTCOMES[side] for side in ruling.sides]
    counts = pd.crosstab(np.array(nodes), np.array(answers))
    return counts.reindex(index=sorted(places), columns=ANSWERS, fill_value=0), np.concatenate(widths)


def _answer_share(counts: pd.DataFrame, answer: str) -> dict[str, float]:
    """Return the fraction of trials with this answer, and its 95% interval (Wilson).

    counts: number of trials by node and answer. Trials on the same node are not independent. Therefore the interval is
    computed for as many independent trials as would lead to the observed spread between nodes.
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


def calibration_table(settings: Sequence[Setting] = SETTINGS, seed: int = SEED) -> dict[str, Any]:
    """Return the calibration table, which depends only on the engine, the settings and the seed."""
    rows = []
    for place, setting in enumerate(settings):
        began = time.monotonic()
        rows.append(simulate_setting(setting, [seed, place]))
        setting_text = "{question}; {noise}; {rounds} rounds, {points} points:".format(**rows[-1])
        shares = "  ".join(f"{answer} {rows[-1][answer]['share']:.2%}" for answer in ANSWERS)
        print(f"{setting_text} {shares}  ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return {
        "origin": "synthetic",
        "level": DECIDING,
        "drawn": LEVEL,
        "seed": seed,
        "samples_per_round": SAMPLES_PER_ROUND,
        "rows": rows,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate all settings, and write the table of error rates. Raises OSError."""
    parser = Parser(prog="python -m studies.calibration", description=__doc__)
    parser.add_argument("--out", required=True, type=parse_path, metavar="FILE")
    write_json(parser.parse_args(argv).out, calibration_table())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
