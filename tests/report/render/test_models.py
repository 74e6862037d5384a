"""The models are shown once, from what was counted; the recurrence where a GPU has trained it."""

from __future__ import annotations

from typing import Any

import pytest

from report.render.measurements import Exhibit

COUNTS: dict[str, dict[str, tuple[float, str]]] = {
    name: {
        "parameters": (weights, "1"), "length": (length, "1"), "forward_flop": (flop, "FLOP"),
        "step_flop": (3 * flop, "FLOP"), "activation_bytes": (kept, "B"), "levels": (levels, "1"),
        "span": (span, "1"), "width": (width, "1"), "median_width": (median, "1"),
    }
    for name, weights, length, flop, kept, levels, span, width, median in (
        ("mlp", 301_066, 1, 6e5, 4400, 5, 29, 262_144, 5120),
        ("lstm-32", 1_183_744, 32, 7e7, 2e5, 449, 969, 8.9e6, 512),
        ("lstm-128", 1_183_744, 128, 2.8e8, 8e5, 1793, 3849, 3.4e7, 512),
        ("gpt-1m", 1_073_536, 128, 3e8, 5.5e6, 73, 402, 8.4e6, 65_536),
    )
}  # fmt: skip


@pytest.fixture
def show(shown: Any) -> Any:
    """Gathers synthetic nodes and gives what the family shows of them."""
    return lambda *nodes: shown(*nodes).get("models", [])


def count(node: Any) -> Any:
    for model, values in COUNTS.items():
        for metric, (value, unit) in values.items():
            node.point("models", float(value), params={"model": model}, backend="", dtype="", metric=metric, unit=unit,
                       rounds=1, samples=1, spread=0.0)  # fmt: skip
    return node


def drawn(exhibit: Exhibit) -> dict[str, list[float]]:
    """The estimates of each row of a dot plot by its label."""
    assert exhibit.drawing
    rows = exhibit.drawing.shows["groups"][0]["rows"]
    return {row["label"]: [mark["estimate"] for mark in row["marks"]] for row in rows}


def test_levels_and_widths_are_drawn_by_model(show, synthetic) -> None:
    levels, widths = show(count(synthetic()))
    assert drawn(levels) == {"mlp": [5, 29], "gpt-1m": [73, 402], "lstm-32": [449, 969], "lstm-128": [1793, 3849]}
    assert drawn(widths)["lstm-32"] == [512, 8.9e6]
    for exhibit in (levels, widths):
        assert exhibit.drawing.draw(exhibit.drawing.shows)


def test_the_text_says_what_the_data_say(show, synthetic) -> None:
    levels, widths = show(count(synthetic()))
    said = " ".join(levels.reading)
    assert "5 in mlp and 1,793 in lstm-128" in said
    assert "29 and 3,849 levels" in said
    assert "449 levels for 32 steps, 1,793 for 128" in said
    assert "512 in lstm-32 and 65,536 in gpt-1m" in widths.reading[0]


def test_the_table_has_every_model_by_size(show, synthetic) -> None:
    table = show(count(synthetic()))[0].table
    assert [row[0] for row in table.rows] == ["mlp", "gpt-1m", "lstm-128", "lstm-32"]
    assert table.rows[0][1:5] == ["301,066", "600 kFLOP", "1.80 MFLOP", "–"]
    assert len(table.head) == len(table.rows[0]) == len(table.align)


def test_the_models_are_told_once_for_all_nodes(show, synthetic) -> None:
    shown = show(synthetic("node-a").clock(), count(synthetic("node-b")), count(synthetic("node-c")))
    assert len(shown) == 2


def test_a_node_that_has_not_counted_shows_nothing(show, synthetic) -> None:
    assert show(synthetic().clock()) == []


def test_the_recurrence_is_drawn_where_a_gpu_has_trained_it(show, synthetic) -> None:
    node = synthetic(gpus=1)
    for model, gain in (("lstm-128", 2.0), ("gpt-1m", 20.0)):
        for device, seconds in (("cpu", 1.0), ("cuda:0", 1.0 / gain)):
            params = {"model": model, "batch": 16}
            times = {"time": seconds, **{f"time.{phase}": seconds / 3 for phase in ("forward", "backward", "update")}}
            node.point("training", times, device=device, params=params, flop=1e9, spread=1e-4)
    exhibit = show(node)[-1]
    assert drawn(exhibit)["lstm-128, batch 16"] == pytest.approx([0.1], rel=0.01)
    assert "lstm-128, batch 16, float32" in exhibit.reading[0]
    assert exhibit.drawing.draw(exhibit.drawing.shows)
