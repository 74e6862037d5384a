"""Loops with their data are drawn and told from the data; all of it is made up."""

from __future__ import annotations

from typing import Any

import pytest

from report.render.dots import draw
from tests.report.quantities.builders import loops


@pytest.fixture
def show(shown: Any) -> Any:
    """What a synthetic node's loops show."""
    return lambda *nodes: shown(*nodes).get("orchestration", [])


def test_waits_are_drawn_by_source_and_workers(show: Any, synthetic: Any) -> None:
    (exhibit,) = show(loops(synthetic("node-a")))
    assert exhibit.drawing
    draw(exhibit.drawing.shows)
    (group,) = exhibit.drawing.shows["groups"]
    assert group["title"] == "resnet, batch 32, float32, 1 thread"
    assert [row["label"] for row in group["rows"]] == [
        "already on the device", "encoded, 0 workers", "encoded, 2 workers", "encoded, 4 workers",
    ]  # fmt: skip
    waits = [row["marks"][0]["estimate"] for row in group["rows"]]
    assert waits == [pytest.approx(1e-4, rel=0.05), *(pytest.approx(x, rel=0.02) for x in (1 / 2, 1 / 6, 1 / 5))]
    assert group["rows"][0]["told"].startswith("under 0.1% of ")
    assert group["rows"][1]["told"].startswith("50% of 20")
    reading = " ".join(exhibit.reading)
    assert "waiting for the next batch takes 17% (resnet, batch 32, float32, 1 thread; encoded, 2 workers)" in reading
    assert "Encoded samples cost 17% (resnet, batch 32, float32, 1 thread, 2 workers) of the loop's time" in reading
    assert "One process prepares an encoded sample for resnet in 100" in reading


def test_an_idle_gpu_is_drawn_by_batch(show: Any, synthetic: Any) -> None:
    node = loops(synthetic("node-a", gpus=1), "cuda:0")
    for batch, kernels in ((8, 0.2e-3), (512, 0.95e-3)):
        params = {"model": "mlp", "batch": batch}
        node.point("training", {"time": 1e-3, "kernel_time": kernels}, device="cuda:0", params=params, spread=0.002)
    waits, idle = show(node)
    assert waits.reading[0].startswith("On cuda:0, of a training loop's time")
    assert "encoded samples cost 20%" in " ".join(waits.reading)
    assert idle.drawing
    draw(idle.drawing.shows)
    (group,) = idle.drawing.shows["groups"]
    assert [row["label"] for row in group["rows"]] == ["batch 8, float32", "batch 512, float32"]
    assert group["rows"][0]["told"] == "80%"
    assert "the GPU has nothing to do for 5" in idle.reading[0]
    assert "to 80% (mlp, batch 8, float32, torch) of a training step" in idle.reading[0]


def test_without_such_points_there_is_no_section(show: Any, synthetic: Any) -> None:
    assert show(synthetic("node-a").clock()) == []
