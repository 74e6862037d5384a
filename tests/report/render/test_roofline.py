"""The roofline is shown from the data: ceilings and steps, time against the balance, and what numbers foretell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.render.figures import keep

PEAK, MOVED, CACHE = 1.6e11, 1e10, 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


@pytest.fixture
def show(shown: Any) -> Any:
    """Gathers synthetic nodes and gives what the family shows of them."""
    return lambda *nodes: shown(*nodes).get("roofline", [])


def ceilings(node: Any, device: str = "cpu", factor: float = 1.0) -> None:
    """The peak, as a product on a GPU, and passes over memory and within the last cache."""
    flop = 2.0 * 4096**3
    node.point("gemm", flop / PEAK / factor, device=device, params={"m": 4096, "n": 4096, "k": 4096}, flop=flop,
               bytes=12.0 * 4096**2)  # fmt: skip
    for op in ("copy", "add", "triad"):
        for footprint in (2**16, 2**18, 2**20, 16 * CACHE, 32 * CACHE):
            node.point("bandwidth", footprint / MOVED / factor, device=device, backend="llvm", dtype="float32",
                       params={"op": op, "footprint": footprint}, bytes=footprint)  # fmt: skip


def step(node: Any, model: str, phase: str, seconds: float, intensity: float, device: str = "cpu") -> None:
    """A step, three tenths of whose time goes into operators of 1/4 FLOP/B and the rest into those of `intensity`."""
    moved = 1e7
    params = {"model": model, "batch": 8, "phase": phase}
    node.point("roofline", seconds, device=device, params=params, flop=moved * intensity, bytes=moved)
    node.point("roofline", seconds * 0.9, metric="operator_time", device=device, params=params)
    told = {f"{measure}_below.{limit:g}_share": 0.3 if limit < intensity else 1.0
            for measure in ("time", "bytes", "flop") for limit in LIMITS}  # fmt: skip
    for name, share in {**told, "cached_bytes_share": 0.5}.items():
        node.point("roofline", {name: share}, device=device, params=params, spread=0 if share in (0, 1) else 0.01)
    node.point("roofline", 20.0, metric="kernels", unit="1", device=device, params=params)


def products(node: Any, device: str = "cpu", factor: float = 1.0) -> None:
    for n in (64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1152, 1280):
        flop = 2.0 * n**3
        node.point("gemm", flop / PEAK / factor / 0.8 + 1e-5, device=device, params={"m": n, "n": n, "k": n},
                   flop=flop, bytes=12.0 * n**2)  # fmt: skip


def machine(synthetic: Any, device: str = "cpu") -> Any:
    node = synthetic(gpus=0 if device == "cpu" else 1, cache=CACHE)
    ceilings(node, device)
    products(node, device)
    for model, phase, seconds, intensity in (
        ("gpt", "training", 5e-3, 64.0), ("cnn", "training", 4e-3, 32.0), ("gpt", "prefill", 3e-3, 64.0),
        ("gpt", "decode", 2e-3, 0.5),
    ):  # fmt: skip
        step(node, model, phase, seconds, intensity, device)
    return node


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_steps_stand_under_the_ceilings_that_were_measured(show, synthetic, tmp_path: Path, device: str) -> None:
    roof, bound, foretold, by_work = show(machine(synthetic, device))
    (panel,) = roof.drawing.shows["panels"]
    lines = {one["label"]: one for one in panel["series"]}
    assert set(lines) == {"training steps", "reading prompts", "generating text", "matrix products"}
    assert lines["training steps"]["xs"] == [32, 64]
    assert lines["training steps"]["y"] == pytest.approx([1e7 * 32 / 4e-3, 1e7 * 64 / 5e-3], rel=0.05)
    assert lines["training steps"]["low"][0] < lines["training steps"]["y"][0] < lines["training steps"]["high"][0]
    (guide,) = panel["guides"]
    assert guide["ys"][1:] == pytest.approx([PEAK, PEAK], rel=0.05)
    assert guide["ys"][0] / guide["xs"][0] == pytest.approx(MOVED, rel=0.05)
    assert panel["marks"][0]["x"] == pytest.approx(PEAK / MOVED, rel=0.1)
    reading = " ".join(roof.reading)
    assert "FLOP/B in float32" in reading
    assert roof.table
    assert len(roof.table.rows) == 4
    decode = next(row for row in roof.table.rows if "generating" in row[0])
    assert decode[-1] == "100% [100, 100]"
    groups = {group["title"]: group["rows"] for group in bound.drawing.shows["groups"]}
    assert list(groups) == ["training steps", "reading prompts", "generating text"]
    for row in groups["training steps"]:
        assert sum(row["shares"]) == pytest.approx(1)
        assert row["shares"][2] == pytest.approx(0.7, abs=0.05)
    assert groups["generating text"][0]["shares"][2] == pytest.approx(0)
    assert any("Generating text" in text or "generating text" in text for text in bound.reading)
    assert [row[0] for row in foretold.table.rows] == [
        "two, as measured", "two, fitted", "three: and a launch", "four: and a cache",
    ]  # fmt: skip
    assert [panel["title"] for panel in foretold.drawing.shows["panels"]] == ["two numbers", "four numbers"]
    assert "numbers" in foretold.reading[0]
    assert by_work.table.rows[0][0] == "products"
    for exhibit in (roof, bound, foretold):
        assert keep(exhibit.drawing, tmp_path, None)


def test_nothing_is_shown_without_steps_or_without_ceilings(show, synthetic) -> None:
    bare = synthetic()
    step(bare, "gpt", "training", 5e-3, 64.0)
    assert show(bare) == []
    assert show(synthetic("node-b").clock()) == []


def test_without_the_other_half_of_the_kernels_only_the_roofline_is_shown(show, synthetic) -> None:
    node = synthetic(cache=CACHE)
    node.peak(PEAK)
    node.point("bandwidth", 1.0, backend="llvm", dtype="float32", params={"op": "triad", "footprint": 16 * CACHE},
               bytes=MOVED)  # fmt: skip
    step(node, "gpt", "training", 5e-3, 64.0)
    roof, bound = show(node)
    assert roof.drawing.shows["panels"][0]["series"][0]["label"] == "training steps"
    assert bound.drawing
