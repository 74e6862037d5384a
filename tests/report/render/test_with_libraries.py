"""Gains of a vendor's libraries are drawn layer by layer, and said from the data."""

from __future__ import annotations

from typing import Any

import pytest

from report.render.dots import draw
from report.render.measurements import Exhibit
from tests.report.quantities.builders import layer


@pytest.fixture
def show(shown: Any) -> Any:
    """What a synthetic node's layers and libraries show."""
    return lambda *nodes: shown(*nodes).get("with-libraries", [])


def groups(exhibit: Exhibit) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows by group and label."""
    assert exhibit.drawing
    draw(exhibit.drawing.shows)
    return {one["title"]: {row["label"]: row for row in one["rows"]} for one in exhibit.drawing.shows["groups"]}


def test_gains_are_drawn_against_none_and_counted(show: Any, synthetic: Any) -> None:
    exhibits = show(switched(synthetic))
    on_cpu, on_gpu, products = exhibits
    assert "faster, interval and all, in 1 of 1 cases" in on_cpu.reading[0]
    drawn = groups(on_gpu)
    assert list(drawn) == ["Convolution, float32", "Convolution, tf32", "LSTM, float32", "Product, float32"]
    row = drawn["Convolution, float32"]["conv4-3x3, batch 32"]
    assert row["told"] == "×6.00 / ×12.0"  # as it comes, and after a search
    assert [one["hollow"] for one in row["marks"]] == [False, True]
    reading = " ".join(on_gpu.reading)
    assert "faster, interval and all, in 3 of 4 cases, and slower in 1" in reading
    assert "0.900" in reading and "(256-cells, batch 32, float32)" in reading
    assert "makes the library 2.00" in reading
    assert list(groups(products)["1024x1024, batch 1,024"]) == [
        "naive kernel, float32", "tiled kernel, float32", "library, float32", "library, tf32",
    ]  # fmt: skip
    reading = " ".join(products.reading)
    assert "matrix units make a product of float32 numbers 5.00" in reading
    assert "the naive kernel reaches 5.00% and the tiled kernel reaches 12.5% of the library's rate" in reading
    assert "partial sums" not in reading


def test_a_gain_that_is_none_is_said(show: Any, synthetic: Any) -> None:
    node = synthetic("node-a")
    for variant in ("library", "native"):
        layer(node, 1e-3, variant, device="cpu", spread=0.02)
    (exhibit,) = show(node)
    assert "in 0 of 1 cases" in exhibit.reading[0]


@pytest.mark.parametrize(
    ("toolkit", "told"), [(0.0, "all came with Python packages"), (1.0, "in part from the system")]
)
def test_what_is_installed_is_said_once(show: Any, synthetic: Any, toolkit: float, told: str) -> None:
    (exhibit,) = show(installed(synthetic, toolkit))
    origin, coverage = exhibit.reading
    assert told in origin
    assert "the driver came from the system" in origin
    assert "Of 3,000 operators" in coverage
    assert "for the CPU of 1,200 and for CUDA of 1,500;" in coverage
    assert "of the 2,000 with a public name, for the CPU of 1,000 and for CUDA of 1,000" in coverage


def test_without_such_points_there_is_no_section(show: Any, synthetic: Any) -> None:
    assert show(synthetic("node-a").clock()) == []
