"""What is shown of services is what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from report.render.figures import VERMILION, keep
from report.render.measurements import Exhibit
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import under

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Callable[..., dict[str, list[Exhibit]]]) -> Show:
    return lambda *nodes: shown(*nodes).get("serving", [])


def served(node: SyntheticNode, device: str = "cpu") -> SyntheticNode:
    """A classifier that bears 100 requests a second and loses some of 300."""
    for rate, tail, lost in ((5, 0.01, 0.0), (100, 0.03, 0.0), (300, 2.0, 0.4)):
        under(node, rate, device=device, p50_latency=tail / 2, p99_latency=tail, failed_share=lost, spread=1e-4,
              cpu_per_request=0.002, client_share=0.05, client_delay=1e-3)  # fmt: skip
    return under(node, 300, device=device, p999_latency=2.1)


def test_loads_are_drawn_told_and_tabled(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    (exhibit,) = show(served(synthetic("node-a")))
    drawing, table = exhibit.drawing, exhibit.table
    assert drawing is not None
    (panel,) = drawing.shows["panels"]
    assert panel["title"] == "Classifier of images, float32"
    assert panel["limits"] == [{"y": 0.1, "label": "0.1 s"}]
    lines = {one["told"]: one for one in panel["series"]}
    assert set(lines) == {"median", "99%", "99.9%", "loads at which some failed"}
    assert lines["99%"]["xs"] == [5, 100, 300]
    assert lines["loads at which some failed"]["xs"] == [300]
    assert lines["loads at which some failed"]["look"][0] == VERMILION
    assert keep(drawing, tmp_path, None)
    text = " ".join(exhibit.reading)
    assert "Classifier of images, float32: of 100 requests a second, 99 in 100 are answered within 30" in text
    assert "; of 300 requests a second, within" in text
    assert "s or later, for some failed." in text
    assert "from these loads on: 40% at 300 requests a second (classifier of images, float32)." in text
    assert "took up to 5.0% of their time" in text
    assert table is not None
    (row,) = table.rows
    assert row[:3] == ["classifier of images, float32", "100/s, fewer than 300", "100/s"]
    assert row[3].startswith("2.00")
    assert "GPU busy" not in table.head


def test_a_gpu_has_a_figure_of_its_own_and_its_busy_time(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    node = served(synthetic("node-a", gpus=1))
    under(node, 5, device="cuda:0", p50_latency=1e-3, cpu_per_request=2e-3, gpu_busy_share=0.02, failed_share=0.0)
    host, gpu = show(node)
    assert host.drawing is not None
    assert gpu.drawing is not None
    assert host.drawing.name != gpu.drawing.name
    assert gpu.table is not None
    assert gpu.table.rows[0][:2] == ["classifier of images, float32", "5/s"]
    assert gpu.table.rows[0][-1].startswith("0.020")
    assert gpu.table.head[-1] == "GPU busy"
    assert keep(gpu.drawing, tmp_path, None)


def test_a_service_that_bears_nothing_says_so(show: Show, synthetic: Factory) -> None:
    node = under(synthetic("node-a"), 5, service="int8", p50_latency=0.4, p99_latency=0.9, cpu_per_request=0.3)
    (exhibit,) = show(node)
    assert "which is more than a tenth of a second" in exhibit.reading[0]
    assert exhibit.table is not None
    assert exhibit.table.rows[0][1] == "0/s, fewer than 5"


def test_without_a_server_nothing_is_shown(show: Show, synthetic: Factory) -> None:
    assert show(synthetic("node-a").gemm(10)) == []
