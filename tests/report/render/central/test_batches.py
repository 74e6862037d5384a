"""Curves over the size of the batch: the best at each size, rings where they level off, and what still rises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.render.central.batches import FIGURE, MOST_MODELS
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import step

NOISE: dict[str, Any] = {"spread": 0.01}


def trained(node: SyntheticNode, model: str, rates: dict[int, float], **more: Any) -> SyntheticNode:
    for batch, rate in rates.items():
        step(node, rate, batch, model, **NOISE, **more)
    return node


def answered(node: SyntheticNode, model: str, rates: dict[int, float], **more: Any) -> SyntheticNode:
    for batch, rate in rates.items():
        node.point("inference", batch / rate, params={"model": model, "batch": batch}, **NOISE, **more)
    return node


def lines(shown: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (panel["title"], line["told"][0].split(",")[0]): line
        for panel in shown.drawing.shows["panels"]
        for line in panel["lines"]
    }


def test_a_curve_is_the_best_at_each_batch_and_its_ring_where_it_levels_off(
    figure_of: Any, synthetic: Factory, tmp_path: Path
) -> None:
    node = trained(synthetic(), "mlp", {1: 10, 8: 50, 64: 200, 512: 205})
    trained(node, "mlp", {1: 9, 8: 45, 64: 180, 512: 190}, threads=2)
    trained(node, "mlp", {8: 100, 512: 900}, dtype="bfloat16")
    trained(node, "mlp", {1: 1, 8: 2, 64: 4000, 512: 4001}, backend="scalar")
    answered(node, "mlp", {1: 100, 32: 300})
    trained(node, "cnn", {32: 10})
    shown = figure_of(FIGURE, node)
    found = lines(shown)
    assert set(found) == {("mlp", "mlp training"), ("mlp", "mlp answering")}, "one batch makes no curve"
    line = found["mlp", "mlp training"]
    assert line["xs"] == [1, 8, 64, 512]
    assert line["y"] == pytest.approx([10, 50, 200, 205], rel=0.05), "of what has most batches the fastest"
    assert all(low < y < high for low, y, high in zip(line["low"], line["y"], line["high"], strict=True))
    assert line["ring"] == 2
    assert all(told.endswith("(torch, float32, 1 thread)") for told in line["told"]), "what is joined is alike"
    assert found["mlp", "mlp answering"]["ring"] is None, "it rises to its end"
    assert "With 512 samples at a time in place of 1, mlp trains 20" in shown.title
    text = " ".join(shown.reading)
    assert "1 of 2 curves surely has nine tenths" in text and "mlp training from 64" in text
    assert "(mlp answering, at the least batch 9" in text or "(mlp answering, at the least batch 10" in text
    table = {row[0]: row for row in shown.table.rows}
    assert table["mlp training"][6] == "batch 64"
    assert keep(shown.drawing, tmp_path, None)
    drawn = (tmp_path / "central-batches.svg").read_text()
    assert 'id="join.batch' in drawn


def test_where_every_curve_rises_or_is_too_noisy_the_sentence_says_so(figure_of: Any, synthetic: Factory) -> None:
    node = trained(synthetic(), "mlp", {1: 10, 8: 50})
    for batch, rate in {1: 50.0, 8: 49.0}.items():
        step(node, rate, batch, "cnn", spread=0.3)
    shown = figure_of(FIGURE, node)
    assert "None of 2 curves is known to level off" in " ".join(shown.reading)
    assert [line["ring"] for line in lines(shown).values()] == [None, None]


def test_machines_have_a_colour_and_works_a_mark(figure_of: Any, synthetic: Factory) -> None:
    node = trained(synthetic(gpus=1), "mlp", {1: 10, 64: 20})
    trained(node, "mlp", {1: 5, 64: 300}, device="cuda:0")
    answered(node, "mlp", {1: 5, 64: 300}, device="cuda:0")
    shown = figure_of(FIGURE, node)
    (panel,) = shown.drawing.shows["panels"]
    looks = {tuple(line["look"]) for line in panel["lines"]}
    assert len(looks) == 3 and len({colour for colour, _ in looks}) == 2
    assert [entry["label"] for entry in shown.drawing.shows["legend"]] == [
        "Synthetic, 2 cores", "Synthetic GPU", "training", "answering",
    ]  # fmt: skip
    assert "Synthetic GPU" in shown.title


def test_the_models_with_the_most_points_are_shown(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    node = synthetic()
    for place in range(MOST_MODELS):
        trained(node, f"model-{place}", {1: 10, 8: 50, 64: 51})
    trained(node, "last", {1: 10, 8: 50})
    shown = figure_of(FIGURE, node)
    titles = [panel["title"] for panel in shown.drawing.shows["panels"]]
    assert titles == [f"model-{place}" for place in range(MOST_MODELS)]
    assert "and others" in " ".join(shown.reading)
    assert keep(shown.drawing, tmp_path, None)


def test_it_names_claims_that_run_along_the_batch(figure_of: Any, synthetic: Factory) -> None:
    verdicts = [
        {"id": "G10", "verdict": "depends", "quantity": "training.speedup",
         "parts": [{"quantity": "training.speedup", "options": {"along": "batch"}}]},
        {"id": "G09", "verdict": "depends", "quantity": "training.speedup",
         "parts": [{"quantity": "training.speedup", "options": {}}]},
    ]  # fmt: skip
    shown = figure_of(FIGURE, trained(synthetic(), "mlp", {1: 10, 8: 50}), document={"verdicts": verdicts})
    assert shown.claims == ["G10"]


def test_without_two_sizes_of_a_batch_nothing_is_shown(figure_of: Any, synthetic: Factory) -> None:
    assert figure_of(FIGURE, trained(synthetic(), "mlp", {8: 50})) is None
    assert figure_of(FIGURE, synthetic("node-b").clock()) is None
