"""The roofline of each device holds all work whose operations and bytes are known, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.render.central.roofline import FIGURE
from report.render.figures import keep
from tests.report.conftest import Factory, SyntheticNode

PEAK, MOVED, CACHE = 1.6e11, 1e10, 2**25


def work(node: SyntheticNode, experiment: str, intensity: float, rate: float, **more: Any) -> None:
    """A piece of work at `rate` FLOP/s that does `intensity` FLOP for each byte."""
    node.point(experiment, 1e9 / rate, flop=1e9, bytes=1e9 / intensity, **more)


def machine(synthetic: Factory, name: str = "node-a", device: str = "cpu", factor: float = 1.0) -> SyntheticNode:
    node = synthetic(name, gpus=1, cache=CACHE)
    about: dict[str, Any] = {"device": device}
    work(node, "gemm", 300.0, PEAK * factor, params={"m": 4096, "n": 4096, "k": 4096}, **about)
    work(node, "gemm", 40.0, PEAK * factor / 2, params={"m": 512, "n": 512, "k": 512}, **about)
    work(node, "gemm", 40.0, PEAK * factor / 4, params={"m": 512, "n": 512, "k": 512}, backend="onednn", **about)
    far = 32 * CACHE
    node.point("bandwidth", far / MOVED / factor, backend="llvm", params={"op": "triad", "footprint": far}, bytes=far,
               **about)  # fmt: skip
    text = {"model": "gpt", "batch": 1, "context": 128, "phase": "decode"}
    work(node, "generation", 0.5, MOVED * factor / 4, params=text, **about)
    work(node, "roofline", 4.0, MOVED * factor, params={"model": "gpt", "batch": 8, "phase": "training"}, **about)
    work(node, "roofline", 64.0, PEAK * factor / 4, params={"model": "cnn", "batch": 8, "phase": "training"}, **about)
    # What is no work of its own, has no bytes, or comes from a plain loop.
    work(node, "content", 40.0, PEAK, params={"m": 512, "n": 512, "k": 512, "content": "zeros"}, **about)
    node.point("training", 1.0, params={"model": "gpt", "batch": 8}, flop=1e9, **about)
    work(node, "gemm", 40.0, 1e6, params={"m": 512, "n": 512, "k": 511}, backend="scalar", **about)
    return node


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_each_piece_of_work_stands_once_where_it_belongs(
    figure_of: Any, synthetic: Factory, tmp_path: Path, device: str
) -> None:
    shown = figure_of(FIGURE, machine(synthetic, device=device))
    (panel,) = shown.drawing.shows["panels"]
    told = [point["told"].split(":")[0] for point in panel["points"]]
    assert sorted(told) == [
        "Matrix products", "Matrix products", "Passes over memory", "Training steps", "Training steps", "Writing text",
    ]  # fmt: skip
    products = [point for point in panel["points"] if point["told"].startswith("Matrix")]
    assert [point["x"] for point in products] == [40, 300]
    assert products[0]["y"] == pytest.approx(PEAK / 2, rel=0.05), "of two libraries the faster"
    assert all(point["low"] < point["y"] < point["high"] for point in panel["points"])
    triad = next(point for point in panel["points"] if point["told"].startswith("Passes"))
    assert triad["y"] / triad["x"] == pytest.approx(MOVED, rel=0.05), "a pass lies on the slope that it measures"
    assert panel["roof"]["slope"] == pytest.approx(MOVED, rel=0.05)
    (level,) = panel["roof"]["levels"]
    assert level["y"] == pytest.approx(PEAK, rel=0.05)
    assert level["x"] == pytest.approx(PEAK / MOVED, rel=0.05)
    assert shown.title == (
        "Memory is the lower ceiling of writing text and passes over memory; arithmetic that of matrix products; "
        "training steps lie on both sides"
    )
    assert "held up by the memory of" in shown.reading[0]
    assert "the work of models reaches from 25" in shown.reading[1], "products are the ceiling itself"
    table = {row[1]: row for row in shown.table.rows}
    assert table["training steps"][2] == "2"
    assert table["matrix products"][7] == "100%"
    assert keep(shown.drawing, tmp_path, None)
    assert (tmp_path / "central-roofline.svg").stat().st_size < 40_000
