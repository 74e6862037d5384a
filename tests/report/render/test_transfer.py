"""What is shown of a GPU's memory and of the link to its host is what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.render.figures import Drawing, keep
from report.render.measurements import Exhibit
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import MIB, copy, link

Show = Callable[..., dict[str, list[Exhibit]]]


@pytest.fixture
def show(shown: Any) -> Show:
    return shown


def lines(drawing: Drawing | None) -> dict[tuple[str, str], dict[str, Any]]:
    """The series of a sweep by panel and name."""
    assert drawing is not None
    return {(panel["title"], one["label"]): one for panel in drawing.shows["panels"] for one in panel["series"]}


def passes(node: SyntheticNode, rate: float, footprint: int, **more: Any) -> None:
    more = {"backend": "cupy", "spread": 1e-4, "device": "cuda:0", **more}
    node.point("bandwidth", footprint / rate, params={"op": "triad", "footprint": footprint}, bytes=footprint, **more)


def test_copies_are_shown_by_rate_and_by_time(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    node = link(synthetic)
    for size in (4, 256 * MIB):
        copy(node, 30e-6 + size / 5e9, size, host_memory="pageable")
        copy(node, 5e-6, size, metric="request_time.enqueue")
    rates, times = show(node)["transfer"]
    drawn = lines(rates.drawing)
    assert set(drawn) == {
        ("pinned host memory", "to the device"), ("pinned host memory", "to the host"),
        ("pinned host memory", "both ways at once"), ("pageable host memory", "to the device"),
    }  # fmt: skip
    assert drawn["pinned host memory", "both ways at once"]["y"][-1] == pytest.approx(75e9)
    drawn = lines(times.drawing)
    assert set(drawn) == {("to the device", name) for name in ("pinned", "pinned, call", "pinned, link")}
    assert drawn["to the device", "pinned, link"]["y"] == pytest.approx([1e-6])
    for exhibit in (rates, times):
        assert exhibit.drawing is not None
        assert keep(exhibit.drawing, tmp_path, None)


def test_it_is_said_from_which_size_on_the_link_is_used(show: Show, synthetic: Factory) -> None:
    node = copy(link(synthetic), 256 * MIB / 5e9, 256 * MIB, host_memory="pageable")
    half, smallest, pinning, duplex, within = show(node)["transfer"][0].reading
    assert "half of their best rate to the device from" in half
    assert "(between 64 KiB and 1 MiB; best: 49.9 GB/s) and to the host from" in half
    assert "a copy of 4 B of pinned memory to the device takes 20.0" in smallest
    assert smallest.endswith("without the host, 1.00 µs.")
    assert "at 256 MiB, pinned memory is 9.98" in pinning and "as fast to the device as pageable memory" in pinning
    assert "both ways at once move 1.5" in duplex and "at 256 MiB" in duplex
    assert "at 256 MiB, copies within the device move 2" in within


def test_a_single_copy_is_shown_without_sentences(show: Show, synthetic: Factory) -> None:
    node = copy(synthetic("node-a", gpus=1), 1e-3, MIB)
    rates, times = show(node)["transfer"]
    assert list(rates.reading) == []
    assert set(lines(rates.drawing)) == {("pinned host memory", "to the device")}
    assert times.drawing is None


def test_a_gpus_memory_is_shown_from_its_cache_to_the_link(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    node = copy(synthetic("node-a", gpus=1), 256 * MIB / 5e10, 256 * MIB)
    node.devices[1]["l2_bytes"] = 50 * MIB
    for footprint, rate in ((24 * MIB, 6e12), (8192 * MIB, 3e12)):
        passes(node, rate, footprint)
        passes(node, rate, footprint, dtype="float64")
        passes(node, rate / 2, footprint, backend="torch")
    (exhibit,) = show(node)["bandwidth"]
    assert exhibit.drawing is not None
    (panel,) = exhibit.drawing.shows["panels"]
    assert {one["label"]: len(one["xs"]) for one in panel["series"]} == {
        "triad, float32": 2, "triad, float64": 2, "triad, torch": 2,
    }  # fmt: skip
    assert [(mark["label"], mark["x"]) for mark in panel["marks"]] == [("L2", 50 * MIB)]
    assert [limit["y"] for limit in panel["limits"]] == pytest.approx([5e10], rel=0.01)
    assert "at a footprint of 8 GiB, triad moves 3.00" in exhibit.reading[0]
    assert "at 24 MiB it moves 2.0" in exhibit.reading[0]
    assert keep(exhibit.drawing, tmp_path, None)


def test_stores_past_the_caches_are_held_against_plain_ones_of_the_same_format(show: Show, synthetic: Factory) -> None:
    node = synthetic("node-a")
    for backend, dtype, rate in (("llvm-nt", "float32", 9e10), ("llvm-nt", "float64", 3e10), ("llvm", "float64", 2e10)):
        passes(node, rate, 256 * MIB, backend=backend, dtype=dtype, device="cpu")
    (exhibit,) = show(node)["bandwidth"]
    assert "past the caches give 1.5" in exhibit.reading[0]
