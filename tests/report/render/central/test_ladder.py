"""The ladder of speed-ups shows what the nodes were built to have, each rung over its own node's one core."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from report.quantities.training_ladder import BASE, LIBRARY, TOP, WHOLE
from report.render.central.base import MOST_MACHINES
from report.render.central.ladder import FIGURE, MOST_MODELS
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import host, step, with_gpu


def noisy(synthetic: Factory, name: str = "node-a", gpus: int = 0, gain: float = 1.0) -> SyntheticNode:
    """A node whose rounds differ: 10 samples/s on one core, 18 on two, 27 by the best library, 60 at its best."""
    node = synthetic(name, gpus=gpus)
    for model in ("mlp", "gpt"):
        about: dict[str, Any] = {"model": model, "spread": 0.001}
        step(node, 10 * gain, **about)
        step(node, 18 * gain, threads=2, **about)
        step(node, 27 * gain, threads=2, backend="onednn", **about)
        step(node, (60 if model == "gpt" else 40) * gain, threads=2, dtype="bfloat16", backend="inductor", **about)
    return node


def rows(shown: Any) -> dict[str, dict[str, Any]]:
    """Rows by their group and label."""
    groups = shown.drawing.shows["groups"]
    return {f"{group['title']}|{row['label']}": row for group in groups for row in group["rows"]}


def test_without_a_gpu_its_rungs_are_places_that_wait(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, noisy(synthetic))
    assert shown.title.startswith("Before there is any GPU, gpt trains 5.9")
    assert shown.title.endswith("on all cores at their best as on one core with PyTorch as it comes")
    found = rows(shown)
    waiting = [label for label, row in found.items() if row.get("waits")]
    assert waiting == ["|GPU, float32", "|GPU, at its best"]
    assert all("cells" not in found[label] for label in waiting), "nothing that was not measured has a mark"
    base = found[f"|{BASE}"]
    assert [cell["marks"][0]["estimate"] for cell in base["cells"]] == [1.0, 1.0]
    assert base["cells"][0]["told"].endswith("/s"), "the base tells its absolute rate"
    whole = found[f"|{WHOLE}"]["cells"][0]
    assert whole["marks"][0]["low"] < whole["marks"][0]["estimate"] < whole["marks"][0]["high"]
    assert whole["start"] == pytest.approx(found[f"|{LIBRARY}"]["cells"][0]["marks"][0]["estimate"])
    assert "awaiting hardware" in shown.drawing.alt
    assert "all cores, at their best: ×6.0" in shown.drawing.alt
    text = " ".join(shown.reading)
    assert re.search(r"more cores ×1\.8\d* \[.*library ×1\.[45]\d* \[.*format ×2\.2\d* \[", text)
    assert keep(shown.drawing, tmp_path, None)
    drawn = (tmp_path / "central-ladder.svg").read_text()
    assert "awaiting hardware" in drawn


def test_a_gpu_stands_over_one_core_and_over_all_cores_of_its_host(figure_of: Any, synthetic: Factory) -> None:
    node = noisy(synthetic, gpus=1)
    step(node, 900, device="cuda:0", spread=0.001)
    step(node, 3000, device="cuda:0", dtype="bfloat16", spread=0.001)
    shown = figure_of(FIGURE, node)
    assert shown.title.startswith("mlp trains 30") and "on Synthetic GPU as on one core" in shown.title
    found = rows(shown)
    gpt, mlp = found[f"|{TOP}"]["cells"]
    assert gpt == {"text": "not measured"}
    assert mlp["marks"][0]["estimate"] == pytest.approx(300, rel=0.05)
    assert mlp["start"] == pytest.approx(4, rel=0.05), "the line begins at all cores of its host at their best"
    assert found["|GPU, float32"]["cells"][1]["start"] == pytest.approx(2.7, rel=0.05), "in float32 at theirs"
    assert not any(row.get("waits") for row in found.values())
    assert "Over all cores of its host at their best a GPU gains 7" in shown.reading[1]
    told = {row[1]: row for row in shown.table.rows if row[0].startswith("mlp")}
    assert told[TOP][2] == "Synthetic GPU" and told[TOP][5].startswith("×30")
    assert told[BASE][5] == "base"


def test_of_several_nodes_each_rung_has_a_row_for_each_machine(figure_of: Any, synthetic: Factory) -> None:
    shown = figure_of(FIGURE, with_gpu(synthetic), host(synthetic, "node-b", gain=5.0))
    groups = {group["title"]: [row["label"] for row in group["rows"]] for group in shown.drawing.shows["groups"]}
    assert len(groups[WHOLE]) == 2 and len(set(groups[WHOLE])) == 2
    assert groups[TOP] == ["Synthetic GPU"]
    second = next(group for group in shown.drawing.shows["groups"] if group["title"] == WHOLE)["rows"][1]
    assert second["cells"][0]["marks"][0]["estimate"] == pytest.approx(6), "over one core of its own node"


def test_of_many_nodes_and_models_a_few_are_shown_and_the_rest_is_counted(figure_of: Any, synthetic: Factory) -> None:
    nodes = [noisy(synthetic, f"node-{place}", gain=1.0 + place) for place in range(MOST_MACHINES + 2)]
    for place in range(MOST_MODELS):
        for threads in (1, 2):
            step(nodes[0], 5.0 * threads, model=f"model-{place}", threads=threads)
    shown = figure_of(FIGURE, *nodes)
    whole = next(group for group in shown.drawing.shows["groups"] if group["title"] == WHOLE)
    assert len(whole["rows"]) == MOST_MACHINES
    assert "2 more nodes with fewer rungs" in shown.drawing.caption
    titles = [panel["title"] for panel in shown.drawing.shows["panels"]]
    assert len(titles) == MOST_MODELS and {"mlp", "gpt"} < set(titles)


def test_without_a_base_or_without_a_gain_there_is_no_ladder(figure_of: Any, synthetic: Factory) -> None:
    assert figure_of(FIGURE, step(synthetic(), 10.0, threads=2, backend="onednn")) is None
    assert figure_of(FIGURE, synthetic("node-b").clock()) is None


def test_it_names_the_claims_that_rest_on_speed_ups(figure_of: Any, synthetic: Factory) -> None:
    parts = [{"quantity": "training.speedup", "options": {}}]
    verdicts = [
        {"id": "G09", "verdict": "awaiting hardware", "quantity": "training.speedup", "parts": parts},
        {"id": "G28", "verdict": "undecided", "quantity": None, "parts": parts},
        {"id": "W15", "verdict": "challenged", "quantity": "gemm.mac_per_cycle_per_core", "parts": []},
    ]
    shown = figure_of(FIGURE, noisy(synthetic), document={"verdicts": verdicts})
    assert shown.claims == ["G09", "G28"]
