"""How often the engine errs on machines whose truth is known: the published table.

python -m studies.calibration --out data/calibration.json

Questions are put to simulated machines by the engine's own path, and its answers are counted: samples -> summarise ->
Dataset -> Estimates -> decide. Nothing of the engine is repeated here.
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
    disturbance,
    samples,
    sizes,
)

ANSWERS = ["supported", "challenged", "depends", "undecided"]
_OF_SIDE = {"supports": "supported", "challenges": "challenged", "undecided": "undecided"}
# How far from the threshold it is asked again, in median widths of the drawn interval.
WIDTHS = (1, 2, 5)
# Points are simulated so many at a time, which bounds the memory.
_AT_ONCE = 10_000
GPU = "cuda:0"
_SPEEDUP, _FROM = 10.0, 16.0


@dataclass(frozen=True)
class Question:
    """A question that is put to each node.

    truth: true times in s, of shape (devices, points) or what broadcasts to it. threshold: where the truth lies, moved
    by an argument to where the truth supports the claim by so much (in logarithms; in exponents for a trend). whole:
    one trial is a node with all its points; else every compared case is one. far: whether it can be asked from afar.
    """

    says: str
    rule: str
    threshold: Callable[[float], Any] = lambda off: float(np.exp(-off))
    options: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu",)
    truth: Callable[[Machines], Floats] = lambda machines: np.ones(1)
    cases: Callable[[Estimates], Estimates] = lambda cases: cases
    whole: bool = False
    far: bool = True


def _four_above(machines: Machines) -> Floats:
    """Four of the points twice as high as the threshold."""
    return np.where(np.arange(machines.points) < 4, 2.0, 1.0)


def _crossing(machines: Machines) -> Floats:
    """The processor's times overtake the accelerator's at size 16, by a seventh with each doubling."""
    return np.stack([(sizes(machines) / _FROM) ** 0.2, np.ones(machines.points)])


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
        "exponent of a trend, at least", "trend", lambda off: 1 - off, {"along": "size"}, truth=sizes
    ),
    "crossover": Question(
        "crossover of two devices, at most",
        "crossover",
        lambda off: _FROM,
        {**_TWO, "along": "size", "compare": "at_most"},
        ("cpu", GPU),
        _crossing,
        far=False,
    ),
    "every": Question("every point, at least", "at_least", whole=True),
    "exists": Question("some point, at least", "exists", whole=True),
    "half": Question(
        "half of the points, at least", "for_share_of", options=_HALF, truth=_four_above, whole=True
    ),
    "best": Question(
        "the best of equal points, at least", "at_least", cases=lambda cases: cases.best_per_group(by=["node"])
    ),
}  # fmt: skip


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


SEED = 20260
USUAL = Noise(unequal=3)
EVERYTHING = Noise(unequal=3, heavy=True, shared=0.25, outliers=0.05, disturbed=0.02, drift=0.02)

SETTINGS = (
    # Few rounds.
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
    # Kinds of noise.
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
    # Rules.
    Setting(USUAL, 5, 10, 4_000, "at most"),
    Setting(USUAL, 5, 10, 4_000, "within"),
    Setting(USUAL, 5, 10, 2_000, "ratio"),
    Setting(EVERYTHING, 5, 10, 2_000, "ratio"),
    *(Setting(USUAL, 5, 10, 10_000, asked) for asked in ("trend", "crossover", "every", "exists", "half", "best")),
)


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
    sets = [cases.take(places[node]) for node in sorted(places)] if question.whole else [cases]
    nodes: list[str] = []
    answers: list[str] = []
    widths: list[Floats] = []
    # The boundary is words for people, and takes longer than the deciding.
    threshold = Threshold.from_json(question.threshold(off))
    part = Part(question.says, "", question.rule, threshold, "", options=dict(question.options))
    with patch("report.judging.rules.find_boundary", return_value=None):
        for one in sets:
            ruling = apply_rule(part, one, "s")
            frame = ruling.estimates.frame
            low, high = frame["low"].to_numpy(float), frame["high"].to_numpy(float)
            widths.append(high - low if question.rule == "trend" else np.log(high / low))
            nodes += frame["node"].tolist()[: 1 if question.whole else None]
            answers += [ruling.outcome] if question.whole else [_OF_SIDE[side] for side in ruling.sides]
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


def table(settings: Sequence[Setting] = SETTINGS, seed: int = SEED) -> dict[str, Any]:
    """The table of calibration; the same for the same engine, settings and seed."""
    rows = []
    for place, setting in enumerate(settings):
        began = time.monotonic()
        rows.append(row(setting, [seed, place]))
        told = "{question}; {noise}; {rounds} rounds, {points} points:".format(**rows[-1])
        shares = "  ".join(f"{answer} {rows[-1][answer]['share']:.2%}" for answer in ANSWERS)
        print(f"{told} {shares}  ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return {
        "origin": "synthetic",
        "level": DECIDING,
        "drawn": LEVEL,
        "seed": seed,
        "samples_per_round": SAMPLES_PER_ROUND,
        "rows": rows,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and write the table. Raises OSError."""
    parser = Parser(prog="python -m studies.calibration", description=__doc__)
    parser.add_argument("--out", required=True, type=parse_path, metavar="FILE")
    write_json(parser.parse_args(argv).out, table())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
