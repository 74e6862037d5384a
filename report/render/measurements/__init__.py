"""What was measured, family by family: figures, tables and sentences from the summary and the quantities.

A new family is one module with a FAMILY, listed in FAMILIES in the order of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report.render.measurements import (
    bandwidth,
    content,
    gemm,
    ladder,
    latency,
    libraries,
    numerics,
    offload,
    parallelism,
    scaling,
    sequential,
    sustained,
    tabular,
    training,
    transfer,
    with_libraries,
    without_cuda,
)
from report.render.measurements.base import Exhibit, Family, Section, Table, left_out_points, views

FAMILIES: tuple[Family, ...] = (
    ladder.FAMILY,
    libraries.FAMILY,
    gemm.FAMILY,
    scaling.FAMILY,
    content.FAMILY,
    bandwidth.FAMILY,
    transfer.FAMILY,
    offload.FAMILY,
    latency.FAMILY,
    sequential.FAMILY,
    parallelism.FAMILY,
    sustained.FAMILY,
    training.FAMILY,
    with_libraries.FAMILY,
    tabular.FAMILY,
    without_cuda.FAMILY,
    numerics.FAMILY,
)


def sections(data: Path, nodes: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Every family that has something to show, node by node. `data`: what `report gather` wrote. Raises StudyError."""
    given = views(data, nodes)
    made = [
        Section(one.key, one.title, [shown.finished() for view in given for shown in one.show(view)])
        for one in FAMILIES
    ]
    return [section for section in made if section.exhibits]


__all__ = ["FAMILIES", "Exhibit", "Family", "Section", "Table", "left_out_points", "sections"]
