"""Scaling over ranks and foreseen memory are drawn and told from the data; all of it is made up."""

from __future__ import annotations

from typing import Any

import pytest

from report.render.dots import draw
from tests.report.quantities.builders import counted, peak, ranks


@pytest.fixture
def show(shown: Any) -> Any:
    """What a synthetic node's ranks and peaks of memory show."""
    return lambda *nodes: shown(*nodes).get("several-devices", [])


@pytest.mark.parametrize(("device", "where"), [("cpu", "1 thread"), ("cuda:0", "float32")])
def test_ranks_are_drawn_with_what_each_keeps_and_what_their_talk_costs(
    show: Any, synthetic: Any, device: str, where: str
) -> None:
    node = synthetic("node-a", gpus=1)
    for number, rate, talk in ((1, 100, None), (2, 180, 0.1), (4, 300, 0.3)):
        ranks(node, number, rate, talk, device=device)
    (exhibit,) = show(node)
    assert exhibit.drawing
    draw(exhibit.drawing.shows)
    (group,) = exhibit.drawing.shows["groups"]
    assert where in group["title"]
    assert group["title"].endswith("gloo")
    two, four = group["rows"]
    assert (two["label"], four["label"]) == ("2 ranks", "4 ranks")
    assert [one["estimate"] for one in two["marks"]] == [pytest.approx(0.9, rel=0.02), pytest.approx(0.1, rel=0.02)]
    assert [one["hollow"] for one in two["marks"]] == [False, True]
    assert all(one["low"] < one["estimate"] < one["high"] for one in two["marks"])
    assert two["told"].startswith(("18", "17"))
    reading = " ".join(exhibit.reading)
    assert "of the rate that one alone has" in reading
    assert "of a step" in reading


def test_foreseen_memory_is_drawn_against_the_measured_peak(show: Any, synthetic: Any) -> None:
    node = counted(synthetic("node-a"), "gpt2", parameters=1e6, activation_bytes=1e5)
    peak(node, "gpt2", 1, 1.25 * (16e6 + 1e5), spread=0.002)
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7), spread=0.002)
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7), spread=0.002, dtype="bfloat16")
    (exhibit,) = show(node)
    assert exhibit.drawing
    draw(exhibit.drawing.shows)
    (group,) = exhibit.drawing.shows["groups"]
    first, second = group["rows"]
    assert (group["title"], first["label"], second["label"]) == ("gpt2", "batch 1", "batch 100")
    assert first["told"].startswith("−20% of 20")
    assert second["told"].startswith("+1")
    assert "(gpt2, batch 1) to +" in exhibit.reading[0]


def test_without_such_points_there_is_no_section(show: Any, synthetic: Any) -> None:
    assert show(synthetic("node-a").clock()) == []
