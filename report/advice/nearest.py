"""Published outcomes nearest to a job: the same kind, on hardware and with a model as like as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from report.advice.jobs import Situation
from report.advice.outcomes import Outcome


def nearest_outcomes(situation: Situation, outcomes: Sequence[Outcome], number: int = 2) -> list[Outcome]:
    """Return the outcomes nearest to a job: same kind, like hardware and model size, from different sources.

    The distance adds the log ratios in bandwidth, FLOP/s and parameters; another hardware class adds as much as a
    factor 10, another kind of model as much as a factor 100.
    """

    def distance(outcome: Outcome) -> float:
        other = outcome.situation
        names = ("bandwidth", "flops", "devices", "parameters")
        pairs = [(situation.inputs.get(name, 1.0), other.inputs.get(name, 1.0)) for name in names]
        apart = sum(abs(math.log(mine / theirs)) for mine, theirs in pairs if mine > 0 and theirs > 0)
        apart += 0.0 if other.hardware_class == situation.hardware_class else math.log(10)
        return apart + (0.0 if _model_kind(other) == _model_kind(situation) else math.log(100))

    same = sorted((each for each in outcomes if each.situation.job.kind == situation.job.kind), key=distance)
    nearest: list[Outcome] = []
    for each in same:
        if all(each.source != other.source for other in nearest):
            nearest.append(each)
    return nearest[:number]


def _model_kind(situation: Situation) -> str:
    return situation.model.kind if situation.model else ""
