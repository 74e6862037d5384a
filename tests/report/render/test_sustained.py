"""What is shown of sustained load and of energy is what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.render.figures import keep
from report.render.measurements import Exhibit
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import COUNTED, idling, run, slowing
from tests.report.quantities.builders import paid as product

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Any) -> Show:
    return lambda *nodes: shown(*nodes).get("sustained", [])


def hot(node: SyntheticNode, **more: Any) -> SyntheticNode:
    """Two minutes of products that lose 5%, the clock held back from the middle on."""
    return run(
        node, "products", slowing(0.05, noise=0.001), clock_mhz=lambda _, at: 1980.0 - at, power_w=lambda *_: 690.0,
        temperature_c=lambda _, at: 40.0 + at / 4, flags=lambda _, at: "throttled: heat" if at >= 50 else "", **more,
    )  # fmt: skip


def test_a_long_run_is_drawn_over_time_and_told(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    node = run(hot(synthetic("node-a", gpus=1)), "triad", [1.0] * 20)
    (exhibit,) = show(node)
    text = " ".join(exhibit.reading)
    assert "On cuda:0, in 128 s of matrix products in bfloat16 without a pause the rate fell by" in text
    assert "clock 1.98 GHz to 1.89 GHz, temperature 41.1 °C to 63.6 °C and power 690 W to 690 W." in text
    assert "the clock was held back in 50 of 100 samples: heat." in text
    drawing = exhibit.drawing
    assert drawing is not None
    titles = [panel["title"] for panel in drawing.shows["panels"]]
    assert titles == ["rate over that of the first tenth", "clock", "temperature", "power"]
    (span,) = drawing.shows["spans"]
    assert span == pytest.approx([63, 128], abs=2)
    assert keep(drawing, tmp_path, None)
    assert "time of load (s)" in (tmp_path / f"{drawing.name}.svg").read_text()


def test_a_short_run_has_sentences_without_a_figure(show: Show, synthetic: Factory) -> None:
    node = idling(synthetic("node-a", gpus=1), lambda *_: 1.0)
    for row in node.rows:
        row.update({"elapsed_s": row["elapsed_s"] / 10, "value": row["value"] / 10})
    run(node, "idle", [0.05] * 40, extent=1, flop=float("nan"), power_w=lambda *_: 70.0)
    (exhibit,) = show(node)
    assert exhibit.drawing is None
    assert list(exhibit.reading) == [
        "On cuda:0, the driver told a utilisation of 100% with products in one block at 0.1% of the fastest product's "
        "rate.",
        "On cuda:0, with nothing to do it draws 70.0 W.",
    ]


def test_a_processor_whose_power_nothing_tells_says_so(show: Show, synthetic: Factory) -> None:
    (exhibit,) = show(run(synthetic("node-a"), "products", [1.0] * 20, device="cpu"))
    assert exhibit.reading[-1] == "No counter of the processor can be read here that tells its power or energy."
    assert exhibit.drawing is not None
    assert [panel["title"] for panel in exhibit.drawing.shows["panels"]] == ["rate over that of the first tenth"]


def test_energy_is_shown_by_format_with_all_devices_side_by_side(
    show: Show, synthetic: Factory, tmp_path: Path
) -> None:
    node = synthetic("node-a", gpus=1)
    operations = 2.0 * 64**3
    product(node, 4e-10 * operations)
    product(node, 8e-12 * operations, device="cuda:0")
    product(node, 1e-12 * operations, device="cuda:0", dtype="bfloat16")
    about: dict[str, Any] = {"params": {"op": "triad", "footprint": 2**30}, "bytes": 2**30, "device": "cuda:0"}
    node.point("bandwidth", 2**30 * 2e-10, metric=COUNTED, unit="J", spread=0, **about)
    (exhibit,) = show(node)
    assert exhibit.drawing is not None
    groups = exhibit.drawing.shows["groups"]
    assert [group["title"] for group in groups] == ["a floating-point operation", "a byte of memory traffic"]
    assert {row["label"]: row["told"] for row in groups[0]["rows"]} == {
        "float32": "400 pJ / 8.00 pJ",
        "bfloat16": "1.00 pJ",
    }
    assert any(line.startswith("On cuda:0, in float32 the GPU spends 0.02") for line in exhibit.reading)
    assert keep(exhibit.drawing, tmp_path, None)


def test_without_sustained_load_and_energy_nothing_is_shown(show: Show, synthetic: Factory) -> None:
    assert show(synthetic("node-a").gemm(10)) == []
