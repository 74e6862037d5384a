"""The atlas: who leads at which sizes, where that turns, and what nobody has measured."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from report.render.central import atlas
from report.render.central.atlas import FIGURE
from report.render.central.races import Race
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode
from tests.report.render.test_measured_work import requests


def rows(shown: Any) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for panel in shown.drawing.shows["panels"] for row in panel["rows"]}


def table(node: SyntheticNode, op: str, seconds: dict[int, float], **more: Any) -> None:
    for count, value in seconds.items():
        params = {"op": op, "rows": count, "transfers": more.get("transfers", "none")}
        rest = {key: one for key, one in more.items() if key != "transfers"}
        node.point("tabular", value, params=params, dtype="", spread=0.01, **rest)


def test_it_turns_where_the_sizes_on_both_sides_are_sure(figure_of: Any, synthetic: Factory, tmp_path: Path) -> None:
    shown = figure_of(FIGURE, requests(synthetic("node-a", gpus=1)))
    found = rows(shown)
    assert set(found) == {"sigmoid of each number", "matrix product"}
    assert found["sigmoid of each number"]["told"] == "CPU throughout"
    assert set(found["sigmoid of each number"]["sides"]) == {-1}
    product = found["matrix product"]
    assert product["sides"] == [-1, 1, 1]
    assert product["turn"][1:] == [12 * 64**2, 12 * 256**2]
    assert product["turn"][1] < product["turn"][0] < product["turn"][2]
    assert product["told"] == "GPU past 49.2 kB–786 kB"
    assert "times" not in product["words"][0] and "GPU ×" in product["words"][0] and "[" in product["words"][0]
    assert shown.title == "Of 2 kinds of work, the CPU wins 1 throughout and 1 turns with the size"
    text = " ".join(shown.reading)
    assert "matrix product (between 49.2 kB and 786 kB)" in text
    assert "training steps" in text and "one answer" in text, "what was not measured is named"
    assert "matrix product: GPU past 49.2 kB–786 kB, ×" in shown.drawing.alt and "at 12.0 MB" in shown.drawing.alt
    assert keep(shown.drawing, tmp_path, None)
    drawn = (tmp_path / "central-atlas.svg").read_text()
    assert drawn.count("<title>") == 6 + 3 + 1


def test_without_a_gpu_all_cores_race_one_and_nothing_is_made_up(
    figure_of: Any, synthetic: Factory, tmp_path: Path
) -> None:
    node = requests(synthetic(), gpu=False)
    table(node, "filter", {1000: 1e-6, 100_000: 1e-4, 10_000_000: 1e-2}, backend="numpy")
    table(node, "filter", {1000: 1e-5, 100_000: 1e-4, 10_000_000: 1e-3}, backend="polars", threads=2)
    shown = figure_of(FIGURE, node)
    found = rows(shown)
    assert found["filter"]["told"] == "all cores past 1,000–10 million"
    assert found["filter"]["sides"] == [-1, 0, 1]
    assert found["matrix product"]["sides"][-1] == 1
    assert found["sigmoid of each number"]["told"].startswith("all cores from ")
    assert shown.title.startswith("No GPU to win against yet; all cores of ")
    assert any(line.startswith("No GPU has been measured") for line in shown.reading)
    assert not any("GPU" in text for row in found.values() for text in (row["told"], *row["words"]))
    assert keep(shown.drawing, tmp_path, None)


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=6))
def test_who_leads_throughout_leads_everywhere(sides: list[int]) -> None:
    sizes = tuple(float(10**place) for place in range(len(sides)))
    decided = [place for place, side in enumerate(sides) if side]
    flip = next((pair for pair in pairwise(decided) if sides[pair[0]] != sides[pair[1]]), None)
    turn = (sizes[flip[0]], sizes[flip[0]], sizes[flip[1]]) if flip else None
    one = Race("rows", "sort", "node", "cpu", sizes, tuple(sides), ("×1",) * len(sides), turn)
    told = atlas._outcome(one, atlas._GPU)
    assert ("throughout" in told) == (len(set(sides)) == 1 and sides[0] != 0 and len(sides) > 1)
    assert ("past" in told) == (flip is not None)
    assert (told == "too close to call") == (set(sides) == {0})
    if " from " in told:
        start = sizes[decided[0]]
        assert all(side == (1 if told.startswith("GPU") else -1) for size, side in zip(sizes, sides, strict=True)
                   if size >= start)  # fmt: skip
