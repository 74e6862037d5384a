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
    convergence,
    equivalence,
    gemm,
    generation,
    inference,
    ladder,
    latency,
    libraries,
    models,
    numerics,
    offload,
    orchestration,
    parallelism,
    roofline,
    scaling,
    sequential,
    serving,
    several_devices,
    sustained,
    tabular,
    time_to_train,
    training,
    training_ladder,
    transfer,
    with_libraries,
    without_cuda,
)
from report.render.measurements.base import Exhibit, Family, Section, Table, View, left_out_points, views

FAMILIES: tuple[Family, ...] = (
    ladder.FAMILY,
    training_ladder.FAMILY,
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
    models.FAMILY,
    roofline.FAMILY,
    training.FAMILY,
    convergence.FAMILY,
    equivalence.FAMILY,
    time_to_train.FAMILY,
    orchestration.FAMILY,
    several_devices.FAMILY,
    serving.FAMILY,
    inference.FAMILY,
    generation.FAMILY,
    with_libraries.FAMILY,
    tabular.FAMILY,
    without_cuda.FAMILY,
    numerics.FAMILY,
)


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
