"""Questions whose right answer is known: cases, a rule and a threshold on which the truth lies exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from report.estimates import Estimates
from studies.calibration.machines import Floats, Machines, sizes

GPU = "cuda:0"
_SPEEDUP, _FROM = 10.0, 16.0


@dataclass(frozen=True)
class Question:
    """What is asked of each node.

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
    "best": Question("the best of equal points, at least", "at_least", cases=lambda cases: cases.best(by=["node"])),
}  # fmt: skip
