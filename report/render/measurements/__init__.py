"""What was measured, family by family: figures, tables and sentences from the summary and the quantities.

A new family is one module with a FAMILY; its place in the report is after those of ORDER, or where ORDER names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report.render.measurements.base import Exhibit, Family, Section, Table, View, left_out_points, views

# The order of the report; families of other modules come after them, by their modules' names.
ORDER = (
    "ladder",
    "training_ladder",
    "libraries",
    "gemm",
    "scaling",
    "content",
    "bandwidth",
    "transfer",
    "offload",
    "latency",
    "sequential",
    "parallelism",
    "sustained",
    "models",
    "roofline",
    "training",
    "convergence",
    "equivalence",
    "time_to_train",
    "orchestration",
    "several_devices",
    "serving",
    "inference",
    "generation",
    "with_libraries",
    "tabular",
    "without_cuda",
    "numerics",
)


def _families() -> Iterator[Family]:
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        family = getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None)
        if family is not None:
            yield family


FAMILIES: tuple[Family, ...] = tuple(_families())


def sections(
    data: Path, nodes: Sequence[Mapping[str, Any]], wanted: Sequence[str] = (), given: Sequence[View] | None = None
) -> list[Section]:
    """Every family (or of these keys) that has something to show, node by node.

    `data`: what `report gather` wrote. given: the views of its nodes, where they are at hand. Raises StudyError.
    """
    given = views(data, nodes) if given is None else given
    made = [
        Section(one.key, one.title, [shown.finished() for view in given for shown in one.show(view)])
        for one in FAMILIES
        if not wanted or one.key in wanted
    ]
    return [section for section in made if section.exhibits]


__all__ = ["FAMILIES", "Exhibit", "Family", "Section", "Table", "left_out_points", "sections", "views"]
