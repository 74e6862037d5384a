"""Exhibits on language models that run alone or behind a server. All measurements are synthetic."""

from __future__ import annotations

from typing import Any

from experiments.language.shapes import SHAPES
from report.data.network_labels import LANGUAGE_MODELS
from report.pages.exhibit_types import Exhibit
from report.pages.families import language
from report.pages.language_users import language_users
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import make_evidence, single_view

USED = {"p50_first_token_latency": 0.2, "p99_token_latency": 0.1, "p50_answer_latency": 1.0, "user_tokens_per_s": 40.0,
        "tokens_per_s": 40.0, "failed_share": 0.0, "client_share": 0.001}  # fmt: skip


def add_decoding(node: SyntheticNode, rate: float, backend: str, format: str = "Q4_K_M", **more: Any) -> None:
    """Add decoding at `rate` tokens per second to the node's measurements."""
    params = {"model": "llama-1b", "format": format, "phase": "decode", "tokens": 128}
    more = {"dtype": "", "threads": 2, "spread": 1e-6, **more}
    node.point("language-models", 1 / rate, params=params, backend=backend, flop=2e9, bytes=8e8, **more)


def add_load(node: SyntheticNode, users: int, **changed: float) -> SyntheticNode:
    """Add measurements of a server that `users` users load. changed: metrics that replace the values in USED."""
    params = {"model": "llama-1b", "format": "Q4_K_M", "users": users, "prompt_tokens": 32, "new_tokens": 32,
              "seconds": 3, "cores": 0}  # fmt: skip
    return node.point("language-serving", USED | changed, backend="xllamacpp", params=params, threads=2, spread=0)


def exhibits_by_subject(synthetic: Factory, node: SyntheticNode) -> dict[str, Exhibit]:
    return {exhibit.subject: exhibit for exhibit in language.show(make_evidence(synthetic, node))}


def test_every_known_shape_has_a_label() -> None:
    assert LANGUAGE_MODELS.keys() == SHAPES.keys() - {"llama-tiny"}


def test_formats_threads_and_devices_are_compared_by_the_fastest_runtime(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    add_decoding(node, 30.0, "xllamacpp")
    add_decoding(node, 20.0, "xllamacpp", threads=1)
    add_decoding(node, 40.0, "llama-cpp-python")
    add_decoding(node, 25.0, "llama-cpp-python", "Q8_0")
    add_decoding(node, 24.0, "openvino-genai", "Q8_0")
    add_decoding(node, 400.0, "transformers-graph", "BF16", device="cuda:0")
    add_decoding(node, 300.0, "llama-bench", "Q8_0", device="cuda:0")
    exhibits = exhibits_by_subject(synthetic, node)
    assert {
        "Llama 3.2 1B writes 1.6 times as fast in Q4_K_M as in Q8_0.",
        "Fastest: llama.cpp (llama-cpp-python) for 2 files.",
        "All threads write 1.5 times as fast as one thread.",
    } < set(exhibits["language-decode"].says)
    table = exhibits["language-gpu"].table
    assert table and [row[0] for row in table.rows] == [
        "Llama 3.2 1B writes, BF16 over Q4_K_M", "Llama 3.2 1B writes, both in Q8_0",
    ]  # fmt: skip


def test_single_round_is_marked(synthetic: Factory) -> None:
    node = synthetic("node-a")
    add_decoding(node, 30.0, "xllamacpp", rounds=1)
    (exhibit,) = exhibits_by_subject(synthetic, node).values()
    assert str(exhibit.heading) == "Language models write about 30 tokens a second on the CPU"
    assert "one round" in exhibit.chart.alt
    assert not any("times" in text for text in exhibit.says)


def test_impossible_share_is_not_drawn(synthetic: Factory) -> None:
    node = synthetic("node-a")
    add_decoding(node, 30.0, "xllamacpp")
    node.point("bandwidth", 0.1, params={"op": "triad", "footprint": 2**30}, bytes=2.0**30, threads=2, spread=1e-6)
    (exhibit,) = exhibits_by_subject(synthetic, node).values()
    assert "memory" not in str(exhibit.heading) and "allows" not in exhibit.chart.alt
    assert any("measured in a slow minute" in text for text in exhibit.says)


def test_single_user_is_described_alone(synthetic: Factory) -> None:
    first, _ = language_users(single_view(synthetic, add_load(synthetic("node-a"), 1)), 1)
    assert first.chart.title == "The first token of an answer comes after 200 ms to one user"


def test_failed_answers_client_cost_and_missing_loads_are_reported(synthetic: Factory) -> None:
    node = add_load(add_load(synthetic("node-a"), 1), 8, failed_share=0.25, client_share=0.04)
    reason = "llama-server is not on PATH"
    node.point("language-serving", 0, metric="", backend="llama-server", status="unsupported", reason=reason)
    first, _ = language_users(single_view(synthetic, node), 1)
    text = " ".join(first.says)
    assert "Of the answers to 8 users of Llama 3.2 1B, Q4_K_M, llama.cpp (xllamacpp), about 25% failed." in text
    assert "took up to 4% of the time of the server's cores" in text
    assert "Not measured here: llama.cpp (llama-server), 1 load unsupported: llama-server is not on PATH." in text
