"""The waterfall of a small request: lanes that add up to what was measured, and nothing told apart that is not sure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from report.render.central.requests import QUICKEST, REST
from report.render.central.waterfall import FIGURE
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import on_cpu, to_gpu
from tests.report.render.test_offload import requests


def lanes(shown: Any, group: int = 0) -> dict[str, dict[str, Any]]:
    return {lane["label"]: lane for lane in shown.drawing.shows["groups"][group]["lanes"]}


def spans(lane: dict[str, Any]) -> list[tuple[float, float]]:
    return [(part["start"], part["start"] + part["length"]) for part in lane["parts"]]


def asked(synthetic: Factory, cpu: float) -> SyntheticNode:
    """A request to two layers that takes a GPU 100 µs, of which it is busy for 30."""
    node = synthetic(gpus=1)
    layers = {"op": "mlp", "m": 1, "n": 1024, "k": 1024, "spread": 0.01}
    to_gpu(node, 100e-6, (8e-6, 12e-6, 10e-6), **layers)
    for threads in (1, 2):
        on_cpu(node, cpu * (3 - threads), threads=threads, **layers)
    to_gpu(node, 200e-6, (8e-6, 12e-6, 10e-6), **{**layers, "m": 64})
    return node


def test_a_request_is_split_by_host_and_gpu_beside_the_cpu(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, asked(synthetic, 20e-6))
    (group,) = shown.drawing.shows["groups"]
    assert group["title"] == "Synthetic GPU: two layers of a network, batch 1 (8.19 kB there and back)"
    found = lanes(shown)
    assert list(found) == ["host", "GPU", "CPU, all cores", "CPU, one core"]
    host, card = spans(found["host"]), spans(found["GPU"])
    assert host[0][0] == 0 and host[-1][1] == pytest.approx(100e-6, rel=0.03)
    assert all(one[1] == pytest.approx(two[0]) for lane in (host, card) for one, two in pairwise(lane))
    assert [end - start for start, end in card] == pytest.approx([8e-6, 12e-6, 10e-6], rel=0.05)
    assert card[-1][1] == pytest.approx(found["host"]["mark"]["estimate"]), "the last copy ends the request"
    assert spans(found["CPU, all cores"])[0][1] == pytest.approx(20e-6, rel=0.05)
    mark = found["host"]["mark"]
    assert mark["low"] < mark["estimate"] < mark["high"]
    assert shown.title.startswith("Synthetic GPU computes for 1") and "that a small request takes" in shown.title
    assert shown.reading[0].startswith("The CPU alone is done before Synthetic GPU: ")
    assert "No interval is drawn at the parts of a lane" in shown.drawing.caption
    assert "GPU, copying back: 10" in shown.drawing.alt or "GPU, copying back: 9" in shown.drawing.alt
    assert [row[3] for row in shown.table.rows if row[2] == "host"][-1] == "the whole"
    assert keep(shown.drawing, tmp_path, None)
    drawn = (tmp_path / "central-waterfall.svg").read_text()
    assert drawn.count('id="bar.') == 4 + 3 + 1 + 1 and drawn.count("<title>") == 9 + 3


@pytest.mark.parametrize(
    ("cpu", "said"),
    [(500e-6, "Synthetic GPU is done before the CPU alone would be"), (100e-6, "cannot be told apart")],
)
def test_who_is_done_first_is_said_as_far_as_it_is_sure(
    figure_of: Any, synthetic: Factory, cpu: float, said: str
) -> None:
    assert said in figure_of(FIGURE, asked(synthetic, cpu)).reading[0]


def test_without_layers_the_smallest_product_is_asked(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, requests(synthetic("node-a", gpus=1)))
    (group,) = shown.drawing.shows["groups"]
    assert group["title"].endswith("matrix product (49.2 kB there and back)")
    assert keep(shown.drawing, tmp_path, None)


def answered(node: SyntheticNode, model: str, seconds: dict[str, float], **more: Any) -> SyntheticNode:
    for backend, value in seconds.items():
        params = {"model": model, "batch": 1}
        node.point("inference", value, params=params, backend=backend, threads=2, **{"spread": 0.01, **more})
    return node


def test_without_a_gpu_what_pytorch_adds_is_told_apart(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    node = answered(synthetic(), "mlp", {"torch": 50e-6, "onnx": 16e-6, "inductor": 60e-6})
    answered(node, "cnn", {"torch": 120e-6, "onnx": 119e-6})
    answered(node, "vit", {"torch": 2e-3, "onnx": 1e-3})
    answered(node, "alone", {"torch": 10e-6})
    shown = figure_of(FIGURE, node)
    groups = shown.drawing.shows["groups"]
    assert [group["title"] for group in groups] == ["mlp: one answer on 2 threads", "cnn: one answer on 2 threads"]
    torch = lanes(shown)["PyTorch"]
    assert [part["kind"] for part in torch["parts"]] == [QUICKEST, REST]
    assert torch["parts"][1]["length"] == pytest.approx(34e-6, rel=0.05)
    assert spans(torch)[-1][1] == pytest.approx(torch["mark"]["estimate"])
    assert "ONNX Runtime" in lanes(shown)
    assert len(lanes(shown, 1)["PyTorch"]["parts"]) == 1, "what is not sure is not told apart"
    assert shown.title.startswith("One answer of mlp takes PyTorch ") and "ONNX Runtime does without 3" in shown.title
    assert "mlp 34" in shown.reading[0] or "mlp 33" in shown.reading[0]
    assert "cnn" not in shown.reading[0]
    assert "No GPU was asked" in shown.reading[1]
    assert keep(shown.drawing, tmp_path, None)


def test_no_other_library_no_split(figure_of: Any, synthetic: Factory) -> None:
    assert figure_of(FIGURE, answered(synthetic(), "mlp", {"torch": 5e-5})) is None


def test_a_single_round_has_no_interval_and_splits_nothing(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, answered(synthetic(), "mlp", {"torch": 5e-5, "onnx": 1e-5}, rounds=1))
    assert shown.title == "How long the answer of a small model takes on a CPU, library by library"
    assert "No interval is drawn at all" in shown.drawing.caption
    assert keep(shown.drawing, tmp_path, None)
