"""What is shown of a request to a GPU and back is what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from report.render.figures import keep
from report.render.measurements import Exhibit
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import on_cpu, to_gpu

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Callable[..., dict[str, list[Exhibit]]]) -> Show:
    return lambda *nodes: shown(*nodes).get("offload", [])


def requests(node: SyntheticNode, gpu: bool = True) -> SyntheticNode:
    """Two operations over the size; the GPU overtakes in products alone."""
    for m in (16, 1024, 2**16, 2**20, 2**22, 2**24):
        there = 2e-6 + 4 * m / 5e10
        shape = {"op": "elementwise", "m": m, "n": 1, "k": 1, "spread": 0.01}
        for threads in (1, 2):
            on_cpu(node, 1e-6 + m * 1e-11 / threads, threads=threads, **shape)
        if gpu:
            to_gpu(node, 20e-6 + 2.1 * there, (there, 3e-6, there), **shape)
            to_gpu(node, 8e-6 + 2 * there, launch="graph", **shape)
            to_gpu(node, 25e-6 + 8 * there, host_memory="pageable", **shape)
    for n in (64, 256, 1000):
        shape = {"op": "gemm", "m": n, "n": n, "k": n, "spread": 0.01}
        for threads in (1, 2):
            on_cpu(node, 1e-6 + 2e-11 * n**3 / threads, threads=threads, **shape)
        if gpu:
            there, compute = 2e-6 + 8 * n**2 / 5e10, 4e-6 + 5e-14 * n**3
            to_gpu(node, 25e-6 + 1.5 * there + compute, (there, compute, there / 2), **shape)
    return node


def test_a_requests_parts_and_where_the_gpu_overtakes(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    parts, times = show(requests(synthetic("node-a", gpus=1)))
    assert parts.drawing is not None
    assert times.drawing is not None
    bars = {group["title"]: group["rows"] for group in parts.drawing.shows["groups"]}
    assert [row["label"] for row in bars["matrix product"]] == ["n = 64", "n = 256", "n = 1,000"]
    assert len(bars["sigmoid of each number"]) == 4
    assert bars["sigmoid of each number"][0]["label"] == "128 B"
    for rows in bars.values():
        for row in rows:
            assert sum(row["shares"]) == pytest.approx(1)
    assert bars["sigmoid of each number"][0]["shares"][0] > 0.6  # launching and waiting
    assert parts.reading[0].startswith("On cuda:0, the quickest request takes 2")

    panels = {panel["title"]: panel for panel in times.drawing.shows["panels"]}
    assert {one["label"] for one in panels["sigmoid of each number"]["series"]} == {
        "GPU, pinned", "GPU, pinned, one graph", "GPU, pageable", "CPU, one core", "CPU, all cores",
    }  # fmt: skip
    assert panels["sigmoid of each number"]["marks"] == []
    (mark,) = panels["matrix product"]["marks"]
    assert (mark["low"], mark["high"]) == (12 * 64**2, 12 * 256**2)
    never, from_there = times.reading
    assert never.startswith("On cuda:0, sigmoid of each number, from pinned memory: ")
    assert "with all its cores, the CPU is ahead at every size measured." in never
    assert "matrix product, from pinned memory: from 287 [49, 786] kB on, there and back, the GPU answers" in from_there
    for exhibit in (parts, times):
        assert exhibit.drawing is not None
        assert keep(exhibit.drawing, tmp_path, None)


def test_without_a_gpu_the_cpus_times_stand_alone(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    (times,) = show(requests(synthetic("node-a"), gpu=False))
    assert times.reading == []
    assert times.drawing is not None
    labels = {one["label"] for panel in times.drawing.shows["panels"] for one in panel["series"]}
    assert labels == {"CPU, one core", "CPU, all cores"}
    assert keep(times.drawing, tmp_path, None)


def test_parts_that_were_not_measured_are_not_drawn(show: Show, synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    to_gpu(node, 1e-3)
    (times,) = show(node)
    assert times.drawing is not None
    assert times.drawing.name.startswith("offload-1")
