"""Language models: rates by runtime, what memory allows, and a GPU against its host. All data are synthetic."""

from __future__ import annotations

from typing import Any

from tests.report.conftest import Factory, SyntheticNode
from tests.report.quantities.cases import case, holding

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


_DECODE, _FOUR = {"phase": "decode", "device": "cpu"}, {"format": "Q4_K_M"}
_LABELS = {"node": "node-a", "model": "llama-1b", "phase": "decode", "tokens": 128}
test_language = holding(
    models,
    case("language.tokens_per_s", {"xllamacpp": 100.0, "llama-cpp-python": 130.0}, by="backend", phase="prompt"),
    case("language.tokens_per_s", {1: 20.0, 2: 30.0}, by="threads", backend="xllamacpp", **_DECODE),
    case("language.tokens_per_s", 24.0, backend="openvino-genai",
         labels={**_LABELS, "device": "cpu", "format": "Q8_0", "backend": "openvino-genai", "threads": 2}),
    case("language.fastest", {"Q4_K_M": 40.0, "Q8_0": 25.0, "best": 40.0}, by="format", runtime="llama-cpp-python",
         **_DECODE),
    case("language.fastest", 40.0, format="best", detail="Q4_K_M, 2 threads", **_DECODE),
    case("language.fastest", 400.0, format="best", device="gpu", detail="BF16"),
    case("language.bandwidth_share", {"xllamacpp": 0.6, "llama-cpp-python": 0.8}, by="backend", threads=2, **_FOUR,
         **_DECODE),
    case("language.bandwidth_share", 0.8, threads=1, **_DECODE),
    # Of prompts memory says nothing, nor of the GPU whose bandwidth was not measured.
    case("language.bandwidth_share", None, phase="prompt"),
    case("language.bandwidth_share", None, device="gpu"),
    case("language.gpu_over_cpu", 12.0, precision="equal", labels={
         **_LABELS, "device": "cuda:0", "dtype": "Q8_0", "precision": "equal", "runtime": "llama-bench",
         "cpu_runtime": "llama-cpp-python"}, sources=("language-models",)),
    case("language.gpu_over_cpu", 10.0, precision="best", detail="BF16 over Q4_K_M", runtime="transformers-graph",
         cpu_runtime="llama-cpp-python"),
)  # fmt: skip
