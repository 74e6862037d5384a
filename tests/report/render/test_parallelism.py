"""Parallelism is shown from the data: the threads it takes, what paths that part cost, and products side by side."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def show(shown: Any) -> Any:
    """Gathers a synthetic node and gives what the family shows of it."""
    return lambda *nodes: shown(*nodes).get("parallelism", [])


def point(node: Any, seconds: float, kernel: str, device: str = "cuda:0", backend: str = "cupy", **given: Any) -> None:
    params = {"kernel": kernel, **{name: given.pop(name, 0) for name in ("in_flight", "paths", "n")}}
    node.point("parallelism", seconds, device=device, backend=backend, dtype="", params=params, spread=1e-6, **given)


def chains(node: Any) -> None:
    """50,000 threads fill the chip, which holds 200,000."""
    for threads in (1, 1024, 16384, 65536, 262144):
        point(node, threads / min(threads, 50_000) * 1e-3, "chains", in_flight=threads, flop=1e6 * threads)
    point(node, 200_000.0, "chains", in_flight=1, metric="threads_held", unit="1")


def test_throughput_is_drawn_over_the_threads_and_where_it_is_full_is_said(show, synthetic) -> None:
    node = synthetic(gpus=1)
    chains(node)
    exhibit = show(node)[0]
    assert exhibit.drawing
    panel = exhibit.drawing.shows["panels"][0]
    assert panel["series"][0]["xs"] == [1, 1024, 16384, 65536, 262144]
    assert panel["series"][0]["y"][-1] == pytest.approx(5e13, rel=0.01)
    full, band = panel["marks"]
    assert full["x"] == pytest.approx(200_000, rel=0.01)
    assert (band["low"], band["high"]) == (16384, 65536)
    assert panel["guides"][0]["ys"][-1] == pytest.approx(5e13, rel=0.01)
    reading = " ".join(exhibit.reading)
    assert "50.0 TFLOP/s" in reading
    assert "[16,384, 65,536] threads in flight" in reading
    assert "up to 16,384 threads" in reading
    assert exhibit.drawing.draw(exhibit.drawing.shows)


def test_paths_that_part_are_told_for_both_devices(show, synthetic) -> None:
    node = synthetic(gpus=1)
    for paths, seconds in ((1, 1e-3), (32, 24e-3)):
        point(node, seconds, "paths", paths=paths)
        point(node, seconds / 2, "paths", "cpu", "llvm", paths=paths)
    (exhibit,) = show(node)
    assert exhibit.drawing
    lines = {one["label"]: one for one in exhibit.drawing.shows["panels"][0]["series"]}
    assert set(lines) == {"CPU", "cuda:0"}
    assert lines["cuda:0"]["xs"] == [1, 32]
    assert lines["cuda:0"]["y"] == pytest.approx([1, 24], rel=0.01)
    assert "24.0" in exhibit.reading[0]
    assert "32 different paths" in exhibit.reading[0]
    assert exhibit.drawing.draw(exhibit.drawing.shows)


def test_products_stand_side_by_side(show, synthetic) -> None:
    node = synthetic(gpus=1)
    for kernel, backend, seconds in (("naive", "cupy", 8e-3), ("tiled", "cupy", 4e-3), ("library", "torch", 4e-4)):
        point(node, seconds, kernel, backend=backend, n=2048, flop=2.0 * 2048**3)
    (exhibit,) = show(node)
    assert exhibit.drawing
    (row,) = exhibit.drawing.shows["groups"][0]["rows"]
    assert row["label"] == "2,048 × 2,048"
    assert row["told"] == "2.15 / 4.29 / 42.9 TFLOP/s"
    assert "2.00" in exhibit.reading[0]
    assert "10.0" in exhibit.reading[0]
    assert exhibit.drawing.draw(exhibit.drawing.shows)


def test_nothing_is_shown_of_one_path_or_one_number_of_threads(show, synthetic) -> None:
    node = synthetic(gpus=1)
    point(node, 1e-3, "paths", paths=1)
    point(node, 1e-3, "chains", in_flight=32, flop=1e6)
    assert show(node) == []
