"""The page of language models: every number from the data, a file without a partner left out, the missing told.

All measurements are synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.language.shapes import SHAPES
from report.data.networks import LANGUAGE_MODELS
from report.pages.exhibit import Exhibit
from report.pages.families import language
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import evidence_of

BYTES = 800e6


def model(node: SyntheticNode, rate: float, phase: str, backend: str, format: str = "Q4_K_M", **more: Any) -> None:
    """Add a point that reads or writes so many tokens a second, after or of 128."""
    params = {"model": "llama-1b", "format": format, "phase": phase, "tokens": 128}
    seconds = (128 if phase == "prompt" else 1) / rate
    more = {"dtype": "", "threads": 2, "spread": 1e-6, **more}
    node.point("language-models", seconds, params=params, backend=backend, flop=2e9, bytes=BYTES, **more)


def models(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    model(node, 30.0, "decode", "xllamacpp")
    model(node, 20.0, "decode", "xllamacpp", threads=1)
    model(node, 40.0, "decode", "llama-cpp-python")
    model(node, 25.0, "decode", "llama-cpp-python", "Q8_0")
    model(node, 24.0, "decode", "openvino-genai", "Q8_0")
    model(node, 100.0, "prompt", "xllamacpp")
    model(node, 130.0, "prompt", "llama-cpp-python")
    model(node, 400.0, "decode", "transformers-graph", "BF16", device="cuda:0")
    model(node, 300.0, "decode", "llama-bench", "Q8_0", device="cuda:0")
    model(node, 10.0, "decode", "transformers", "F16", status="unsupported", reason="no")
    for threads, rate in ((1, 2e10), (2, 4e10)):
        params = {"op": "triad", "footprint": 2**30}
        node.point("bandwidth", 2**30 / rate, params=params, bytes=2.0**30, threads=threads, spread=1e-6)
    return node


def exhibits(synthetic: Factory, node: SyntheticNode) -> dict[str, Exhibit]:
    """The page's exhibits by subject."""
    return {one.subject: one for one in language.show(evidence_of(synthetic, node))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Exhibit]]:
    synthetic = Factory(tmp_path_factory.mktemp("language"))
    yield exhibits(synthetic, models(synthetic))


def test_written_tokens_stand_beside_what_memory_allows(whole: dict[str, Exhibit]) -> None:
    shown = whole["language-decode"]
    assert str(shown.heading) == (
        "Language models write 25 to 40 tokens a second on the CPU, 50% to 80% of what memory allows"
    )
    # 40 GB/s over 0.8 GB.
    assert "Q4_K_M: 40 written" in shown.chart.alt and "Q4_K_M: 50 what memory allows" in shown.chart.alt
    assert {
        "Llama 3.2 1B writes 1.6 times as fast in Q4_K_M as in Q8_0.",
        "Fastest: llama.cpp (llama-cpp-python) for 2 files.",
        "All threads write 1.5 times as fast as one.",
        "Not measured here: Transformers, 1 point unsupported: no.",
    } < set(shown.says)
    assert shown.table and [row[2:4] for row in shown.table.rows] == [
        ["llama.cpp (llama-cpp-python)", "2"], ["llama.cpp (xllamacpp)", "2"], ["llama.cpp (xllamacpp)", "1"],
        ["llama.cpp (llama-cpp-python)", "2"], ["OpenVINO GenAI", "2"],
    ]  # fmt: skip


def test_every_shape_that_people_know_has_its_name() -> None:
    assert LANGUAGE_MODELS.keys() == SHAPES.keys() - {"llama-tiny"}


def test_a_gpu_is_held_against_its_host_by_the_best_of_either(whole: dict[str, Exhibit]) -> None:
    assert str(whole["language-decode-cuda0"].heading) == "Language models write 300 to 400 tokens a second on the GPU"
    shown = whole["language-gpu"]
    assert str(shown.heading) == (
        "A GPU writes 10 times as fast as its host's CPU, each in its fastest format and runtime"
    )
    assert shown.table and [row[0] for row in shown.table.rows] == [
        "Llama 3.2 1B writes, BF16 over Q4_K_M", "Llama 3.2 1B writes, both in Q8_0",
    ]  # fmt: skip


def test_one_round_of_one_file_is_told_as_such(tmp_path: Path) -> None:
    synthetic = Factory(tmp_path)
    node = synthetic("node-a")
    model(node, 30.0, "decode", "xllamacpp", rounds=1)
    (shown,) = exhibits(synthetic, node).values()
    assert str(shown.heading) == "Language models write about 30 tokens a second on the CPU"
    assert "one round" in shown.chart.alt
    assert not any("times" in text for text in shown.says)


def test_a_share_that_cannot_be_is_not_drawn(tmp_path: Path) -> None:
    synthetic = Factory(tmp_path)
    node = synthetic("node-a")
    model(node, 30.0, "decode", "xllamacpp")
    node.point("bandwidth", 0.1, params={"op": "triad", "footprint": 2**30}, bytes=2.0**30, threads=2, spread=1e-6)
    (shown,) = exhibits(synthetic, node).values()
    assert "memory" not in str(shown.heading) and "allows" not in shown.chart.alt
    assert any("disturbed" in text for text in shown.says)
