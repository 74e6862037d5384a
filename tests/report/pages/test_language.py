"""Language models, alone and behind a server, where a fleet shows too little of them. All data is synthetic."""

from __future__ import annotations

from typing import Any

from experiments.language.shapes import SHAPES
from report.data.network_labels import LANGUAGE_MODELS
from report.pages.exhibit_types import Exhibit
from report.pages.families import language
from report.pages.language_users import language_users
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import evidence_of, view

USED = {"p50_first_token_latency": 0.2, "p99_token_latency": 0.1, "p50_answer_latency": 1.0, "user_tokens_per_s": 40.0,
        "tokens_per_s": 40.0, "failed_share": 0.0, "client_share": 0.001}  # fmt: skip


def writing(node: SyntheticNode, rate: float, backend: str, format: str = "Q4_K_M", **more: Any) -> None:
    """Add a point that writes so many tokens a second."""
    params = {"model": "llama-1b", "format": format, "phase": "decode", "tokens": 128}
    more = {"dtype": "", "threads": 2, "spread": 1e-6, **more}
    node.point("language-models", 1 / rate, params=params, backend=backend, flop=2e9, bytes=8e8, **more)


def load(node: SyntheticNode, users: int, **changed: float) -> SyntheticNode:
    """Add a load of so many users; further names are metrics."""
    params = {"model": "llama-1b", "format": "Q4_K_M", "users": users, "prompt_tokens": 32, "new_tokens": 32,
              "seconds": 3, "cores": 0}  # fmt: skip
    return node.point("language-serving", USED | changed, backend="xllamacpp", params=params, threads=2, spread=0)


def exhibits(synthetic: Factory, node: SyntheticNode) -> dict[str, Exhibit]:
    """The page's exhibits by subject."""
    return {one.subject: one for one in language.show(evidence_of(synthetic, node))}


def test_every_shape_that_people_know_has_its_name() -> None:
    assert LANGUAGE_MODELS.keys() == SHAPES.keys() - {"llama-tiny"}


def test_formats_threads_and_devices_are_compared_by_the_fastest_runtime(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    writing(node, 30.0, "xllamacpp")
    writing(node, 20.0, "xllamacpp", threads=1)
    writing(node, 40.0, "llama-cpp-python")
    writing(node, 25.0, "llama-cpp-python", "Q8_0")
    writing(node, 24.0, "openvino-genai", "Q8_0")
    writing(node, 400.0, "transformers-graph", "BF16", device="cuda:0")
    writing(node, 300.0, "llama-bench", "Q8_0", device="cuda:0")
    shown = exhibits(synthetic, node)
    assert {
        "Llama 3.2 1B writes 1.6 times as fast in Q4_K_M as in Q8_0.",
        "Fastest: llama.cpp (llama-cpp-python) for 2 files.",
        "All threads write 1.5 times as fast as one.",
    } < set(shown["language-decode"].says)
    table = shown["language-gpu"].table
    assert table and [row[0] for row in table.rows] == [
        "Llama 3.2 1B writes, BF16 over Q4_K_M", "Llama 3.2 1B writes, both in Q8_0",
    ]  # fmt: skip


def test_one_round_of_one_file_is_told_as_such(synthetic: Factory) -> None:
    node = synthetic("node-a")
    writing(node, 30.0, "xllamacpp", rounds=1)
    (shown,) = exhibits(synthetic, node).values()
    assert str(shown.heading) == "Language models write about 30 tokens a second on the CPU"
    assert "one round" in shown.chart.alt
    assert not any("times" in text for text in shown.says)


def test_a_share_that_cannot_be_is_not_drawn(synthetic: Factory) -> None:
    node = synthetic("node-a")
    writing(node, 30.0, "xllamacpp")
    node.point("bandwidth", 0.1, params={"op": "triad", "footprint": 2**30}, bytes=2.0**30, threads=2, spread=1e-6)
    (shown,) = exhibits(synthetic, node).values()
    assert "memory" not in str(shown.heading) and "allows" not in shown.chart.alt
    assert any("disturbed" in text for text in shown.says)


def test_a_single_user_is_told_alone(synthetic: Factory) -> None:
    first, _ = language_users(view(synthetic, load(synthetic("node-a"), 1)), 1)
    assert first.chart.title == "The first token of an answer comes after 200 ms to one user"


def test_failed_answers_a_dear_client_and_lost_loads_are_told(synthetic: Factory) -> None:
    node = load(load(synthetic("node-a"), 1), 8, failed_share=0.25, client_share=0.04)
    reason = "llama-server is not on PATH"
    node.point("language-serving", 0, metric="", backend="llama-server", status="unsupported", reason=reason)
    first, _ = language_users(view(synthetic, node), 1)
    told = " ".join(first.says)
    assert "Of the answers to 8 users of Llama 3.2 1B, Q4_K_M, llama.cpp (xllamacpp), about 25% failed." in told
    assert "took up to 4% of the time of the server's cores" in told
    assert "Not measured here: llama.cpp (llama-server), 1 load unsupported: llama-server is not on PATH." in told
