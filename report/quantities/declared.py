"""Declaring a quantity in two lines: what it is and needs, and the sentence about one of its estimates.

on_gpu = partial(declare, experiments=["transfer"], device="gpu")

@on_gpu("transfer.rate", "B/s", ("direction", "size", "host_memory"))
@says("On {node}, copies ({labels}) move {value}")
def transfer_rate(data: Dataset) -> Estimates:
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity

Compute = Callable[[Dataset], Estimates]
Stated = tuple[Compute, str]


def says(sentence: str) -> Callable[[Compute], Stated]:
    """The sentence about one estimate, with {value}, {node} and {labels}; stands between `declare` and the function."""
    return lambda compute: (compute, sentence)


def declare(
    name: str,
    unit: str,
    labels: tuple[str, ...] = (),
    *,
    experiments: Sequence[str] = (),
    device: str = "any",
    **more: Any,
) -> Callable[[Stated], Compute]:
    """Register a quantity (see `quantity`, which also takes what is in `more`)."""

    def register(stated: Stated) -> Compute:
        compute, sentence = stated
        needs = {"experiments": list(experiments), "device": device}
        return quantity(name, unit=unit, says=sentence, needs=needs, labels=labels, **more)(compute)

    return register
