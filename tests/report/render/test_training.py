"""The ladder of training and the models side by side show what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.quantities.training_ladder import BASE
from report.render.figures import keep
from report.render.measurements import Exhibit
from report.render.measurements.training_ladder import MOST_DRAWN
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import COUNTED, host, step, with_gpu

Show = Callable[..., dict[str, list[Exhibit]]]


@pytest.fixture
def show(shown: Any) -> Show:
    return shown


def test_the_ladder_names_its_base_and_shows_absolute_rates(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    node = with_gpu(synthetic)
    step(node, 5.0, model="cnn", spread=0.01)
    step(node, 8.0, model="cnn", threads=2, spread=0.01)
    step(node, 6.0, model="cnn", dtype="bfloat16", spread=0.01)
    (exhibit,) = show(node)["training-ladder"]
    assert exhibit.drawing is not None and exhibit.table is not None
    groups = exhibit.drawing.shows["groups"]
    assert [group["title"] for group in groups] == ["mlp, batch 32", "cnn, batch 32"], "most rungs first"
    told = {row["label"]: row for row in groups[0]["rows"]}
    assert told[BASE]["strong"] and told[BASE]["told"] == "10.0/s  ×1.0"
    assert told["GPU, at its best"]["told"] == "3,000/s  ×300"
    lone = groups[1]["rows"][2]["marks"][0]
    assert lone["low"] < lone["estimate"] < lone["high"]
    assert lone["estimate"] == pytest.approx(1.6, rel=0.05)
    assert "3 rounds" in exhibit.table.caption and "one core with PyTorch as it comes" in exhibit.table.caption
    first = exhibit.table.rows[0]
    assert [*first[:3], first[4]] == ["mlp, batch 32", BASE, "torch, float32", "base"]
    assert first[3].startswith("10.0") and first[3].endswith("samples/s")
    text = " ".join(exhibit.reading)
    assert "All cores at their best train from 1.6" in text and "(cnn) to 6.0" in text
    assert "The GPU at its best trains 300" in text
    assert "The GPU at its best trains 50.0" in text
    assert keep(exhibit.drawing, tmp_path, None)


def test_the_fastest_cpu_of_all_nodes_is_told_beside_the_gpus_own_host(show: Show, synthetic: Factory) -> None:
    exhibits = show(with_gpu(synthetic), host(synthetic, "node-b", gain=5.0))["training-ladder"]
    text = " ".join(line for exhibit in exhibits for line in exhibit.reading)
    assert "times (mlp) as fast as the fastest CPU of all nodes" in text
    assert len({exhibit.drawing.name for exhibit in exhibits if exhibit.drawing}) == 2


def test_a_model_is_shown_at_the_batch_with_the_most_rungs(show: Show, synthetic: Factory) -> None:
    node = host(synthetic)
    step(node, 99, batch=512)
    step(node, 99, batch=512, threads=2)
    (exhibit,) = show(node)["training-ladder"]
    assert exhibit.drawing is not None
    assert [group["title"] for group in exhibit.drawing.shows["groups"]] == ["mlp, batch 32"]


def test_more_models_than_can_be_drawn_are_in_the_table(show: Show, synthetic: Factory) -> None:
    node = host(synthetic)
    for place in range(MOST_DRAWN + 1):
        for threads in (1, 2):
            step(node, (10.0 + place) * threads, model=f"model-{place}", threads=threads)
            step(node, (20.0 + place) * threads, model=f"model-{place}", threads=threads, backend="onednn")
    (exhibit,) = show(node)["training-ladder"]
    assert exhibit.drawing is not None and exhibit.table is not None
    assert len(exhibit.drawing.shows["groups"]) == MOST_DRAWN
    assert "2 more models in the table" in exhibit.drawing.caption
    assert len({row[0] for row in exhibit.table.rows}) == MOST_DRAWN + 2


def test_without_a_base_there_is_no_ladder(show: Show, synthetic: Factory) -> None:
    node = synthetic("node-a")
    for threads in (1, 2):
        step(node, 10.0 * threads, threads=threads, backend="onednn")
    assert "training-ladder" not in show(node)


def phased(node: SyntheticNode, model: str, batch: int, seconds: float, **more: Any) -> None:
    shares = {"": 1.0, ".forward": 0.3, ".backward": 0.6, ".update": 0.1}
    metrics = {f"time{phase}": share * seconds for phase, share in shares.items()}
    node.point("training", metrics, params={"model": model, "batch": batch}, flop=1e9, **{"spread": 0.005, **more})


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_models_stand_side_by_side_on_every_device(show: Show, synthetic: Factory, tmp_path: Path, device: str) -> None:
    node = synthetic("node-a", gpus=1).peak(4e9, threads=2, spread=0).gemm(1e12 / 6e9, device="cuda:0", spread=0)
    about: dict[str, Any] = {"threads": 2, "device": device}
    for batch in (32, 256):
        phased(node, "mlp", batch, 0.5, **about)
    phased(node, "lstm-128", 16, 2.0, **about)
    params = {"model": "lstm-128", "batch": 16}
    node.point("training", 5e8, params=params, metric="peak_memory", unit="B", spread=0, **about)
    node.point("training", 32.0, params=params, metric=COUNTED, unit="J", spread=0, **about)
    rate, _, models = show(node)["training"]
    assert rate.drawing is not None
    assert [panel["title"] for panel in rate.drawing.shows["panels"]] == ["mlp"], "one batch makes no curve"
    assert models.drawing is not None and models.table is not None
    (group,) = models.drawing.shows["groups"]
    assert {row["label"]: row["told"].split(",")[0] for row in group["rows"]} == {
        "lstm-128": "batch 16", "mlp": "batch 256"
    }  # fmt: skip
    assert group["rows"][0]["shares"] == pytest.approx([0.3, 0.6, 0.1], rel=0.05)
    told = {row[0]: row[1:] for row in models.table.rows}
    assert told["lstm-128, batch 16"][-2] == "500 MB"
    assert told["lstm-128, batch 16"][-1].startswith("2.0")
    assert told["mlp, batch 256"][-1] == "–"
    assert "(lstm-128) to" in models.reading[0] and "(mlp)" in models.reading[0]
    assert keep(models.drawing, tmp_path, None)
