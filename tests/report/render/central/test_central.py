"""The section of central figures: on the page, in every figure its own words, and each at home in any size."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from report.render.central import FIGURES, central
from report.render.central.base import MOST_MACHINES, Central, fastest
from report.render.central.labels import Places, _overlap
from report.render.measurements import views
from report.render.strokes import parse

# Of a file by itself; the page holds it shorter.
MOST_BYTES = 60_000


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.key))
def test_what_was_not_measured_has_no_figure(figure_of: Any, synthetic: Any, figure: Central) -> None:
    node = synthetic().clock().gemm(20.0, threads=2)
    # A single batch, and steps of no base, make no curve and no ladder.
    node.point("training", 0.1, params={"model": "mlp", "batch": 8}, threads=2, backend="onednn", flop=1e6)
    assert figure_of(figure, node) is None


@pytest.fixture(scope="module")
def made(data: Path, make_document: Any) -> dict[str, Any]:
    document = make_document()
    return central(views(data, document["nodes"]), document)


def test_the_page_holds_every_figure_with_its_text_and_links_to_cards(report: Path, made: dict[str, Any]) -> None:
    source = (report / "index.qmd").read_text(encoding="utf-8")
    section = source.partition("{#central}")[2].partition("\n## ")[0]
    assert made["figures"]
    assert f"in {made['count']} {made['noun']} {{#central}}" in source
    for figure in made["figures"]:
        assert f"{{#central-{figure['key']} .central-figure}}" in section
        assert f"figures/central-{figure['key']}.svg" in section
        for claim in figure["claims"]:
            assert f"[{claim['id']}](#{claim['id']})" in section
    anchors = set(re.findall(r"\(#(\w\d\d)\)", section))
    assert anchors and all(f"{{#{anchor} .claim" in source for anchor in anchors)


def test_a_figure_is_small_and_its_strokes_are_of_declared_kinds(report: Path, made: dict[str, Any]) -> None:
    for figure in made["figures"]:
        path = report / "figures" / f"{figure['drawing'].name}.svg"
        assert path.stat().st_size < MOST_BYTES, figure["key"]
        groups = [group.get("id", "") for group in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}g")]
        assert any(parse(group) for group in groups)
        assert "<title>" in path.read_text(encoding="utf-8"), f"{figure['key']}: no mark tells its value"


def test_labels_lie_within_the_panel_and_on_nothing() -> None:
    places = Places(2.0, 1.0, 0.05, 0.12)
    places.keep_off([0.5, 0.6, 1.9], [0.5, 0.5, 0.5])
    marks = list(places.taken)
    found = [places.beside(x, 0.5, "a label") for x in (0.5, 0.6, 1.9)]
    assert all(found)
    boxes = places.taken[len(marks) :]
    assert len(boxes) == len(found)
    for number, box in enumerate(boxes):
        assert box[0] >= 0 and box[1] >= 0 and box[2] <= 2.0 and box[3] <= 1.0
        assert not any(_overlap(box, other) for other in [*marks, *boxes[:number]])
    assert places.beside(1.0, 0.5, "far too long for a panel that is as narrow as this one") is None


def seen(node: str, label: str, card: str = "") -> Any:
    devices = [{"id": "cpu", "name": "a processor"}, *([{"id": "cuda:0", "name": card}] if card else [])]
    return SimpleNamespace(node=node, make=label, record={"devices": devices})


def test_of_equal_cards_the_fastest_is_shown_and_both_kinds_of_devices_are_there() -> None:
    views = [seen(f"node-{place}", f"host {place}", "H100" if place < 2 else "") for place in range(MOST_MACHINES + 2)]
    rank = {(view.node, "cpu"): float(place) for place, view in enumerate(views)}
    rank |= {("node-0", "cuda:0"): 0.1, ("node-1", "cuda:0"): 0.2}
    kept = fastest(views, rank)
    assert len(kept) == MOST_MACHINES
    assert kept[-1] == ("node-1", "cuda:0"), "slower than every processor, and shown"
    assert ("node-0", "cuda:0") not in kept
