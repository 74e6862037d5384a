"""The hierarchy of bandwidths: each level where the machine's own sizes put it, and published figures apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from contract.files import read_json
from report.judging.reference_comparison import compare
from report.render.central.chosen import accelerators, nodes
from report.render.central.hierarchy import FIGURE
from report.render.figures import keep
from report.render.measurements.base import views
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import MIB, link

KIB = 2**10
CACHES = {
    "L1d": {"bytes": 96 * KIB, "instances": 2},
    "L1i": {"bytes": 64 * KIB, "instances": 2},
    "L2": {"bytes": 2 * MIB, "instances": 2},
    "L3": {"bytes": 32 * MIB, "instances": 1},
}


def told_of(node: SyntheticNode, caches: dict[str, Any]) -> SyntheticNode:
    """The node, whose system tells of these caches."""
    record = node.record()
    record["hardware"]["cpu"]["caches"] = caches
    node.record = lambda: record  # type: ignore[method-assign]
    return node


def passes(node: SyntheticNode, rates: dict[int, float], **more: Any) -> SyntheticNode:
    """Triad at these footprints, at so many bytes a second."""
    more = {"backend": "llvm", "dtype": "float64", "spread": 0.01, **more}
    for footprint, rate in rates.items():
        node.point(
            "bandwidth", footprint / rate, params={"op": "triad", "footprint": footprint}, bytes=footprint, **more
        )
    return node


def processor(synthetic: Factory, name: str = "node-a", **more: Any) -> SyntheticNode:
    node = told_of(synthetic(name, **more), CACHES)
    one = {24 * KIB: 5e11, 90 * KIB: 3e11, 384 * KIB: 2e11, 6 * MIB: 1e11, 256 * MIB: 5e10}
    passes(node, one)
    return passes(node, {size: 1.5 * rate for size, rate in one.items()}, threads=2)


def rows(shown: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(group["title"], row["label"]): row for group in shown.drawing.shows["groups"] for row in group["rows"]}


def estimates(row: dict[str, Any], who: str) -> list[float]:
    return [mark["estimate"] for mark in row["marks"] if mark["who"] == who]


def test_each_level_is_where_the_systems_sizes_put_it(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, processor(synthetic))
    found = rows(shown)
    assert [label for _, label in found] == ["L1d", "L2", "L3", "memory"]
    by_label = {label: row for (_, label), row in found.items()}
    for label, rate in (("L1d", 5e11), ("L2", 2e11), ("L3", 1e11), ("memory", 5e10)):
        assert estimates(by_label[label], "one core") == pytest.approx([rate], rel=0.05)
    # Both cores have two level 1 caches: 90 KiB fit them, and 24 KiB fit them as well.
    assert estimates(by_label["L2"], "all cores") == pytest.approx([3e11], rel=0.05)
    assert all(mark["low"] < mark["estimate"] < mark["high"] for row in found.values() for mark in row["marks"])
    assert "No interval" not in shown.drawing.caption
    assert "arrays of 384 KiB; 1 of 2 sizes that lie there agree" in by_label["L2"]["marks"][0]["words"]
    assert shown.title.startswith("The first cache gives one core of")
    assert re.search(r" (9\.[89]|10\.[01])\d? \[", shown.title)
    assert "from L1d and" in shown.reading[0] and "from memory" in shown.reading[0]
    assert {row[1] for row in shown.table.rows} == {"L1d", "L2", "L3", "memory"}
    assert keep(shown.drawing, tmp_path, None)
    assert (tmp_path / "central-hierarchy.svg").read_text().count("<title>") == 8


def test_a_cache_that_no_array_fits_has_no_row(figure_of: Any, synthetic: Factory) -> None:
    node = passes(told_of(synthetic(), CACHES), {6 * MIB: 1e11, 256 * MIB: 5e10})
    assert [label for _, label in rows(figure_of(FIGURE, node))] == ["L3", "memory"]


def test_caches_that_nobody_tells_of_are_not_made_up(figure_of: Any, synthetic: Factory) -> None:
    node = passes(told_of(synthetic(), {}), {24 * KIB: 5e11, 256 * MIB: 5e10})
    shown = figure_of(FIGURE, node)
    assert [label for _, label in rows(shown)] == ["memory"]
    assert shown.title == "How many bytes a second caches, memory and links move"


def with_card(synthetic: Factory, name: str = "Synthetic GPU") -> SyntheticNode:
    node = told_of(link(synthetic), CACHES)
    node.devices[1] |= {"l2_bytes": 50 * MIB, "name": name}
    passes(node, {256 * MIB: 5e10})
    return passes(node, {24 * MIB: 6e12, 8192 * MIB: 3e12}, device="cuda:0", backend="cupy")


def test_a_gpus_levels_stand_on_the_same_axis(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, with_card(synthetic))
    found = rows(shown)
    card = {label: estimates(row, "GPU") for (title, label), row in found.items() if title == "Synthetic GPU"}
    assert list(card) == ["L2", "memory", "from the host", "to the host"]
    for label, rate in (("L2", 6e12), ("memory", 3e12), ("from the host", 49.9e9), ("to the host", 39.9e9)):
        assert card[label] == pytest.approx([rate], rel=0.05)
    assert re.match(r"The memory of Synthetic GPU moves (59|60)\.\d \[", shown.title)
    assert shown.title.endswith("times what the link to its host does")
    assert keep(shown.drawing, tmp_path, None)


def test_published_figures_stand_beside_the_device_that_they_are_of(
    figure_of: Any, synthetic: Factory, tmp_path: Path
) -> None:
    node = with_card(synthetic, "NVIDIA H100 80GB HBM3")
    figure_of(FIGURE, node)
    data = views(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json"))[0].data
    pairs = compare(data)
    shown = figure_of(FIGURE, node, document={"verdicts": [], "triangulation": pairs})
    found = rows(shown)
    rated = next(figure for pair in pairs if pair["id"] == "gpu-memory-rated" for figure in pair["figures"]
                 if figure["device"] == "h100-sxm")  # fmt: skip
    memory = next(row for (title, label), row in found.items() if title.startswith("NVIDIA") and label == "memory")
    assert estimates(memory, "published") == [rated["value"]]
    assert [mark["hollow"] for mark in memory["marks"]] == [False, True]
    apart = found["Published of machines that were not measured here", "Memory bandwidth of GPUs, as rated"]
    assert rated["value"] not in estimates(apart, "published") and len(apart["marks"]) > 3
    assert "published figures are stated without one" in shown.drawing.caption
    assert all("No GPU has been measured" not in line for line in shown.reading)
    assert any(row[2] == "published" and "H100" in row[0] for row in shown.table.rows)
    assert keep(shown.drawing, tmp_path, None)


def test_without_a_gpu_published_ones_are_no_measurement(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    node = processor(synthetic)
    figure_of(FIGURE, node)
    data = views(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json"))[0].data
    shown = figure_of(FIGURE, node, document={"verdicts": [], "triangulation": compare(data)})
    assert any(line.startswith("No GPU has been measured") for line in shown.reading)
    assert shown.drawing.shows["legend"][-1] == {"label": "published", "look": ["#59636e", "D"], "hollow": True}


def test_nothing_measured_shows_nothing(figure_of: Any, synthetic: Factory) -> None:
    assert figure_of(FIGURE, synthetic().clock()) is None


def test_of_many_nodes_those_with_gpus_and_unlike_ones_are_shown(
    figure_of: Any, synthetic: Factory, tmp_path: Path
) -> None:
    fleet = [processor(synthetic, f"node-{letter}") for letter in "abcde"]
    other = processor(synthetic, "node-z", gpus=2)
    passes(other, {8192 * MIB: 3e12}, device="cuda:0", backend="cupy")
    passes(other, {8192 * MIB: 3e12}, device="cuda:1", backend="cupy")
    shown = figure_of(FIGURE, *fleet, other)
    given = views(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json"))
    assert accelerators(next(view for view in given if view.node == "node-z")) == ["cuda:0"], "two of one name"
    assert "node-z" in [view.node for view in nodes(given)] and len(nodes(given)) == 4
    assert "2 further nodes stand in" in shown.drawing.caption
