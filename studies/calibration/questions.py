"""Questions for the verdict engine, whose right answers are known, and how often the engine answers them wrongly.

Simulated samples pass through the engine's own functions (summarise, Dataset, Estimates, and the rules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from report.data.dataset import Dataset
from report.data.node_reader import Nodes
from report.data.summary import summarise
from report.estimates import Estimates
from report.formatting import format_count
from report.judging.claim_files import Part
from report.judging.rules import deciding_ends, interval_sides, rule_outcome, transform
from report.outcomes import Threshold
from report.statistics import Floats
from studies.calibration.rates import rate
from studies.calibration.simulated_machines import (
    EXPERIMENT,
    Machines,
    Noise,
    make_samples,
    noise_factors,
    point_sizes,
    share_of_time,
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
# True share of time, and the metric and unit by which the engine knows shares.
SHARE = 0.3
_SHARE_METRIC = "time_share", "1"
# Distance to the threshold, in half-widths, at which every case is decided; and the largest distance to it if cases are
# spread around it.
_FAR, _SPREAD = 10.0, 2.0

Distances = Callable[[Machines, np.random.Generator], Floats]


@dataclass(frozen=True)
class Question:
    """Question that the engine answers for each simulated node.

    truth: returns the true times in s, in a shape that broadcasts to (devices, points). threshold: returns the
    threshold at a distance from the true value, on the side where the truth supports the claim. The distance is a
    difference on the scale of `scale`: between logarithms, log odds for a share of time, or exponents for a trend.
    distances: returns the distances from the threshold to the points' true values in half-widths of a point's interval,
    on the log scale, in a shape that broadcasts to (nodes, points). per_node: true if a trial is a node with all its
    points, false if each estimate that is compared with the threshold is a trial. shifts: false if the only simulated
    distance is 0. share_of_time: true if the points are shares of time, to which `devices` contribute the two parts.
    listed: true if the units are a chosen list. wrong: the answers that are wrong at the distance 0.
    """

    says: str
    rule: str
    threshold: Callable[[float], Any] = lambda off: float(np.exp(-off))
    options: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu",)
    truth: Callable[[Machines], Floats] = lambda machines: np.ones(1)
    distances: Distances | None = None
    cases: Callable[[Estimates], Estimates] = lambda cases: cases
    scale: Callable[[Floats], Floats] = np.log
    per_node: bool = False
    shifts: bool = True
    share_of_time: bool = False
    listed: bool = False
    wrong: tuple[str, ...] = ("supported", "challenged")


def _four_above(machines: Machines) -> Floats:
    """Return true times: twice the threshold for four points, and the threshold itself for all other points."""
    return np.where(np.arange(machines.points) < 4, 2.0, 1.0)


def _crossing_times(machines: Machines) -> Floats:
    """Return the true times for a CPU and a GPU.

    The GPU's time is constant. The CPU's time grows by a seventh when the size doubles, and equals the GPU's time at
    size 16.
    """
    return np.stack([(point_sizes(machines) / _CROSSOVER_SIZE) ** 0.2, np.ones(machines.points)])


def _some_far_above(share: float, rest: float) -> Distances:
    """Put this fraction of points far above the threshold, and all others at one distance to it."""

    def distances(machines: Machines, random: np.random.Generator) -> Floats:
        return np.where(np.arange(machines.points) < share * machines.points, _FAR, rest)

    return distances


def _listed_units(units: int, reaching: int, near: bool) -> Distances:
    """Let this many units reach the threshold.

    near: the larger side lies right at the threshold, and the smaller side far away. Otherwise all distances are spread
    evenly up to _SPREAD.
    """

    def distances(machines: Machines, random: np.random.Generator) -> Floats:
        signs = np.where(np.repeat(np.arange(units) < reaching, machines.points // units), 1.0, -1.0)
        if near:
            return np.where(signs == (1 if 2 * reaching >= units else -1), 0.0, _FAR * signs)
        return signs * random.uniform(0, _SPREAD, (machines.nodes, machines.points))

    return distances


def _point_numbers(cases: Estimates) -> Any:
    return np.round(np.log2(cases.numbers("size").to_numpy())).astype(int)


def _list_question(units: int, cases: int, reaching: int, near: bool) -> tuple[int, Question]:
    """Return the number of points to simulate, and the question if half the listed units reach the threshold."""
    enough = 2 * reaching >= units
    side = "those lie just above it" if enough else "the others lie just below it"
    where = side if near else f"all lie within {_SPREAD:g} half-widths of it"
    return units * cases, Question(
        f"half of a chosen list of {units} units with {format_count(cases, 'point')} each, of which {reaching} reach "
        f"the threshold; {where}",
        "for_share_of",
        options={"share": 0.5, "of": "unit"},
        distances=_listed_units(units, reaching, near),
        cases=lambda estimates: estimates.label(unit=_point_numbers(estimates) // cases),
        per_node=True,
        shifts=False,
        listed=True,
        wrong=("challenged",) if enough else ("supported",),
    )


_TWO = {"over": "device", "of": "cpu", "to": GPU}

_HALF = {"share": 0.5, "of": "size"}
# Chosen lists whose true count is just short of one half or just reaches it, each with its number of points.
LISTS = {
    f"{'near' if near else 'spread'} list {units} {cases} {reaching}": _list_question(units, cases, reaching, near)
    for units, enough in ((13, 7), (34, 17))
    for reaching in (enough - 1, enough)
    for cases, near in ((1, False), (3, False), (1, True))
}
BELOW = {
    f"{quantifier} {distance}": Question(
        f"{quantifier} {points}, 6 of 10 far above, the others {distance:g} half-widths below",
        "at_least",
        options={"quantifier": quantifier},
        distances=_some_far_above(0.6, -distance),
        per_node=True,
        shifts=False,
        wrong=wrong,
    )
    for distance in (0.25, 0.5)
    for quantifier, points, wrong in (
        ("most", "points", ("challenged",)), ("every", "point", ("supported", "challenged")),
    )
}  # fmt: skip
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
    "share of time": Question(
        "one share of time, at least",
        "at_least",
        lambda off: float(special.expit(special.logit(SHARE) - off)),
        devices=("cpu", GPU),
        truth=lambda machines: np.array([[SHARE], [1 - SHARE]]),
        scale=special.logit,
        share_of_time=True,
    ),
    "trend": Question(
        "exponent of a trend, at least",
        "trend",
        lambda off: 1 - off,
        {"along": "size"},
        truth=point_sizes,
        scale=np.asarray,
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
    **BELOW,
    "most, half at": Question(
        "most points, half of them far above, half at the threshold",
        "at_least",
        distances=_some_far_above(0.5, 0.0),
        per_node=True,
        shifts=False,
        wrong=("challenged", "depends"),
    ),
    **{name: question for name, (_, question) in LISTS.items()},
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


def simulate_setting(setting: Setting, seed: Sequence[int]) -> dict[str, Any]:
    """Simulate a setting; return a table row with each answer's frequency.

    The threshold is first equal to the true value, and then at the distances WIDTHS from it. The row's `width` is the
    median width of the interval that the report draws, on the question's scale. It is None if there are no intervals.
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
        "key": setting.question_name,
        "question": question.says,
        "many": question.per_node,
        "noise": setting.noise.describe(),
        "session": setting.noise.session,
        "rounds": setting.rounds,
        "points": setting.points,
        "trials": int(at.to_numpy().sum()),
        "nodes": setting.nodes,
        "width": width,
        **{answer: _answer_rate(at, answer) for answer in ANSWERS},
        "wrong": list(question.wrong),
        "right": [{"widths": many, **_answer_rate(counts, "supported")} for many, counts in off.items()],
    }


def _split_nodes(setting: Setting) -> Iterator[Machines]:
    question, left = setting.question, setting.nodes
    most = max(1, _BATCH_POINTS // (setting.points * len(question.devices)))
    while left > 0:
        yield Machines(min(most, left), setting.points, setting.rounds, question.devices)
        left -= most


def _simulate_cases(setting: Setting, machines: Machines, random: np.random.Generator) -> Estimates:
    question = setting.question
    truth = np.broadcast_to(question.truth(machines), (len(machines.devices), machines.points))
    values = truth[..., None, None] * noise_factors(setting.noise, machines, random)
    if question.share_of_time:
        samples = make_samples(share_of_time(values), replace(machines, devices=("cpu",)), *_SHARE_METRIC)
    else:
        samples = make_samples(values, machines)
    cases = Dataset(Nodes([], []), {}, summarise(samples)).summary(EXPERIMENT, *samples["metric"].iloc[:1])
    if question.distances:
        half_width = float(np.median(np.log(cases.numbers("high") / cases.numbers("low")))) / 2
        distances = np.broadcast_to(question.distances(machines, random), (machines.nodes, machines.points))
        nodes = cases["node"].astype(str).str.rpartition("-")[2].astype(int).to_numpy()
        factors = np.exp(half_width * distances[nodes, _point_numbers(cases)])
        cases = cases.scaled_by(pd.Series(factors))
    return question.cases(cases)


def _count_answers(question: Question, cases: Estimates, off: float) -> tuple[pd.DataFrame, Floats]:
    """Count the trials by node and answer; return this table and the widths of the cases' intervals.

    off: shift from the true value to the threshold.
    """
    listed = "the simulation chose them" if question.listed else ""
    threshold = Threshold.from_json(question.threshold(off))
    part = Part(question.says, "", question.rule, threshold, "", options=dict(question.options), cases_why=listed)
    compared = transform(part, cases, "s")
    names = compared.estimates["node"].to_numpy(object)
    if question.per_node:
        nodes, answers = zip(
            *((name, str(rule_outcome(part, cases.take(at), "s"))) for (name,), at in cases.positions("node")),
            strict=True,
        )
    else:
        # Each estimate is judged alone, so that no others are its majority.
        sides = interval_sides(*deciding_ends(part, compared.estimates), threshold, part.compare)
        nodes = tuple(names)
        answers = tuple(_OUTCOMES[own or side] for own, side in zip(compared.settled, sides, strict=True))
    low, high = (question.scale(compared.estimates.numbers(end).to_numpy()) for end in ("low", "high"))
    counts = pd.crosstab(np.array(nodes, object), np.array(answers, object))
    return counts.reindex(index=np.unique(cases["node"].to_numpy(object)), columns=ANSWERS, fill_value=0), high - low


def _answer_rate(counts: pd.DataFrame, answer: str) -> dict[str, float]:
    """Return how frequent an answer is. counts: trials by node and answer."""
    return rate(counts[answer], counts.sum(axis=1))
