"""Users of language models behind a server: what the page says of them is what was measured. All data is synthetic."""

from __future__ import annotations

from typing import Any

from report.pages.exhibit import Exhibit
from report.pages.language_users import language_users
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import view

METRICS = {"p50_first_token_latency": 0.2, "p99_token_latency": 0.1, "p50_answer_latency": 1.0,
           "user_tokens_per_s": 40.0, "tokens_per_s": 40.0, "failed_share": 0.0, "client_share": 0.001}  # fmt: skip


def load(node: SyntheticNode, users: int, model: str = "llama-1b", **changed: Any) -> SyntheticNode:
    """A load of so many users; further names are metrics, or settings of the point."""
    params = {"model": model, "format": "Q4_K_M", "users": users, "prompt_tokens": 32, "new_tokens": 32, "seconds": 3,
              "cores": 0}  # fmt: skip
    about = {"backend": "xllamacpp", "threads": 2, "spread": 0, "samples": 1} | {
        key: changed.pop(key) for key in ("device", "backend", "threads") if key in changed
    }
    for name, value in (METRICS | changed).items():
        node.point("language-serving", value, metric=name, params=params, **about)
    return node


def crowd(synthetic: Factory) -> SyntheticNode:
    node = load(synthetic("node-a"), 1)
    return load(node, 32, p50_first_token_latency=6.0, user_tokens_per_s=2.5, tokens_per_s=75.0)


def shown(synthetic: Factory, node: SyntheticNode) -> list[Exhibit]:
    return list(language_users(view(synthetic, node), 1))


def test_both_figures_tell_of_one_user_and_of_the_most(synthetic: Factory) -> None:
    first, rate = shown(synthetic, crowd(synthetic))
    assert (
        first.chart.title
        == "The first token of an answer comes after 200 ms to one user, after 6.0 s to 32 users at a time"
    )
    assert rate.chart.title == "An answer streams at 40 tokens/s to one user, at 2.5 tokens/s to each of 32 users"
    assert rate.says == ["All users together are written 75 tokens/s at most."]
    assert first.table and [row[2] for row in first.table.rows] == ["1", "32"]
    assert "99% of first tokens within" not in first.table.head, "no percentile without enough answers"
    assert "sends 32 tokens and reads 32" in first.says[0] and len(first.says) == 1
    assert "32 users: 6" in first.chart.alt
    for one in (first, rate):
        one.chart.draw(6.8)


def test_a_single_number_of_users_is_told_alone(synthetic: Factory) -> None:
    (alone, _) = shown(synthetic, load(synthetic("node-a"), 1))
    assert alone.chart.title == "The first token of an answer comes after 200 ms to one user"
    first, rate = shown(synthetic, load(synthetic("node-a"), 4))
    assert first.chart.title == "The first token of an answer comes after 200 ms to 4 users at a time"
    assert rate.chart.title == "An answer streams at 40 tokens/s to each of 4 users"


def test_failed_answers_a_dear_client_and_lost_loads_are_told(synthetic: Factory) -> None:
    node = load(crowd(synthetic), 8, failed_share=0.25, client_share=0.04)
    reason = "llama-server is not on PATH"
    node.point("language-serving", 0, metric="", backend="llama-server", status="unsupported", reason=reason)
    told = " ".join(shown(synthetic, node)[0].says)
    assert "Of the answers to 8 users of Llama 3.2 1B, Q4_K_M, llama.cpp (xllamacpp), about 25% failed." in told
    assert "took up to 4% of the time of the server's cores" in told
    assert "Not measured here: llama.cpp (llama-server), 1 load unsupported: llama-server is not on PATH." in told
