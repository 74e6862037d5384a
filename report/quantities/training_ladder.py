"""The ladder of training: the same step from one core as PyTorch comes to a GPU at its best, model by model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import most_threads
from report.quantities.ladder import LOOPS
from report.quantities.training import samples_per_second

# From the bottom to the top. What is not named may be any: the fastest that was measured. whole: all cores.
RUNGS: tuple[tuple[str, Mapping[str, Any], bool], ...] = (
    ("one core, as it comes", {"device": "cpu", "threads": 1, "backend": "torch", "dtype": "float32"}, False),
    ("one core, at its best", {"device": "cpu", "threads": 1}, False),
    ("all cores, as it comes", {"device": "cpu", "backend": "torch", "dtype": "float32"}, True),
    ("all cores, best library", {"device": "cpu", "dtype": "float32"}, True),
    ("all cores, at their best", {"device": "cpu"}, True),
    ("GPU, float32", {"device": "gpu", "dtype": "float32"}, False),
    ("GPU, at its best", {"device": "gpu"}, False),
)
BASE, ALONE, DEFAULT, LIBRARY, WHOLE, EQUAL, TOP = (name for name, *_ in RUNGS)
_training = partial(quantity, labels=("model", "batch", "rung", "place"), experiments=["training"])


@_training("training.ladder", "samples/s")
@says("On {node}, training ({labels}) runs at {value}")
def ladder(data: Dataset) -> Estimates:
    """Samples per second of every model and batch on each rung, plain loops left out.

    `place` counts the rungs from the bottom; `detail` names the library and the format, which are
    the fastest measured where the rung leaves them open. All cores: the most threads measured on
    that node, and more than one.
    """
    rates = samples_per_second(data)
    rates = rates.at(~rates["backend"].isin(LOOPS))
    on_all = most_threads(rates.at(rates["threads"] > 1))
    steps = [
        (on_all if whole else rates)
        .only(**wanted)
        .best(["node", "device", "model", "batch"], of=["backend", "dtype"])
        .label(rung=rung, place=place)
        for place, (rung, wanted, whole) in enumerate(RUNGS, start=1)
    ]
    return concat(steps)
