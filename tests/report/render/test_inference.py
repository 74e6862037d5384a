"""What is shown of models that answer, and of text by the token, is what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from report.render.figures import keep
from report.render.measurements import Exhibit
from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.builders import MODELS, ask, say, zoo

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Callable[..., dict[str, list[Exhibit]]]) -> Show:
    return lambda key, *nodes: shown(*nodes).get(key, [])


def with_gpu(node: SyntheticNode) -> SyntheticNode:
    """The zoo on a CPU and on a GPU that overtakes it between the first and the second model."""
    zoo(node)
    for number, model in enumerate(MODELS):
        ask(node, model, 1e-4 * 2**number, device="cuda:0", samples=120)
        ask(node, model, 0.6e-4 * 2**number, device="cuda:0", backend="graph", samples=120)
    ask(node, "mlp", 40e-6, threads=2, backend="inductor")
    ask(node, "mlp", 20e-6, threads=2, backend="onnx", dtype="int8")
    for batch in (32, 512):
        ask(node, "mlp", 40e-6 + batch * 1e-6, batch=batch, threads=2)
    return node


def test_single_requests_by_model_with_budgets(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    waits, many = show("inference", with_gpu(synthetic("node-a", gpus=1)))
    assert waits.drawing is not None
    (group,) = waits.drawing.shows["groups"]
    assert [row["label"] for row in group["rows"]] == list(MODELS)
    assert [row["below"] for row in group["rows"]][-1] == "85.0 million parameters"
    assert [line["x"] for line in group["lines"]] == [0.01, 0.033, 0.1]
    # Eager and ONNX Runtime on the CPU, eager and graph on the GPU: each with median and 99th percentile.
    assert [len(row["marks"]) for row in group["rows"]] == [9, 8, 8, 8]
    assert [one["label"] for one in waits.drawing.shows["legend"]] == [
        "CPU, PyTorch", "CPU, PyTorch, compiled", "CPU, ONNX Runtime", "GPU, PyTorch", "GPU, PyTorch, one graph",
        "99th percentile",
    ]  # fmt: skip
    cpu, gpu, sooner = waits.reading
    assert cpu == (
        "99% of single requests are answered within 10 ms by 2 of 4 models (not surely: gpt-10m and gpt2); "
        "within 33 ms by 3 of 4 models (not surely: gpt2); within 100 ms by 3 of 4 models (not surely: gpt2)."
    )
    assert (
        gpu
        == "On cuda:0, 99% of single requests are answered within 10 ms by all 4 models; within 100 ms by all 4 models."
    )
    assert sooner == "On cuda:0, of 4 models measured on both, the CPU surely answers sooner for: mlp."
    assert waits.table is not None
    rows = {row[0]: row[2:] for row in waits.table.rows}
    assert rows["mlp"][0].startswith("2.0")
    assert rows["gpt2"][1:] == ["–", "–"]

    assert many.drawing is not None
    (panel,) = many.drawing.shows["panels"]
    assert panel["title"] == "mlp"
    assert [one["label"] for one in panel["series"]] == ["PyTorch, float32"]
    assert panel["series"][0]["xs"] == [1, 32, 512]
    assert many.reading[0].startswith("Samples answered a second with many in a request, against few: mlp 4")
    for exhibit in (waits, many):
        assert exhibit.drawing is not None
        assert keep(exhibit.drawing, tmp_path, None)


def test_a_node_without_a_gpu_shows_its_cpu(show: Show, synthetic: Factory) -> None:
    (waits,) = show("inference", zoo(synthetic("node-a"), samples=5))
    assert waits.drawing is not None
    assert waits.reading == []  # too few samples for a 99th percentile, and nothing to compare with
    assert "99th percentile" not in {one["label"] for one in waits.drawing.shows["legend"]}


def test_models_of_unknown_size_are_shown(show: Show, synthetic: Factory) -> None:
    (waits,) = show("inference", ask(synthetic("node-a"), "mlp", 1e-3))
    assert waits.drawing is not None
    assert waits.drawing.shows["groups"][0]["rows"][0]["below"] == ""
    assert waits.table is None


# The GPU does not tell its cache: only what is past the largest there are counts.
@pytest.mark.parametrize(("device", "moved"), [("cpu", 4e8), ("cuda:0", 2e9)])
def test_text_by_the_token(show: Show, synthetic: Factory, tmp_path: Path, device: str, moved: float) -> None:
    node = synthetic("node-a", gpus=1).peak(2e11, threads=2).gemm(100, device="cuda:0", n=4096)
    for place, backend in (("cpu", "llvm"), ("cuda:0", "cupy")):
        node.point("bandwidth", 1e9 / 2e11, bytes=1e9, dtype="float64", backend=backend, threads=2, device=place,
                   params={"op": "triad", "footprint": 2**30})  # fmt: skip
    for phase, seconds, flop in (("prefill", 0.5, 4e10), ("decode", 0.02, 1e9)):
        say(node, phase, seconds, flop, moved, threads=2, device=device)
    (shown,) = show("generation", count(node))
    assert shown.drawing is not None
    prompt, token = shown.drawing.shows["groups"]
    assert (prompt["title"], token["title"]) == ("the prompt at once", "one token after it")
    assert [len(group["rows"][0]["marks"]) for group in (prompt, token)] == [2, 2]
    assert token["rows"][0]["told"] == "200 tokens/s"
    (line,) = shown.reading
    assert "reads 2,0" in line
    assert "costs 0.09" in line or "costs 0.1" in line
    assert keep(shown.drawing, tmp_path, None)


def test_text_without_a_measured_machine_has_no_shares(show: Show, synthetic: Factory) -> None:
    (shown,) = show("generation", say(say(synthetic("node-a"), "prefill", 0.5, 4e10, 4e8), "decode", 0.02, 1e9, 4e8))
    assert shown.drawing is None
    assert len(shown.reading) == 1


def test_nothing_is_shown_of_nothing(show: Show, synthetic: Factory) -> None:
    assert show("inference", synthetic("node-a").clock()) == []
    assert show("generation", synthetic("node-b").clock()) == []
