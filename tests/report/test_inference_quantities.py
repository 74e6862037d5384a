"""Quantities of trained models that answer give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.judging.claims import Claim, read_claims
from report.judging.filters import select
from report.judging.judge import CLAIMS
from report.quantities import quantities
from tests.report.deciding import decide

from .conftest import Factory, SyntheticNode
from .evidence import data, of
from .priced import REFERENCE
from .quantity_cases_1 import cases, check, dataset

# Weights and seconds of one request on the CPU: as they come, and in ONNX Runtime.
MODELS = {"mlp": (3e5, 50e-6, 25e-6), "gpt-1m": (1e6, 4e-3, 2e-3), "gpt-10m": (1e7, 40e-3, 30e-3),
          "gpt2": (8.5e7, 0.4, 0.2)}  # fmt: skip
GPU: dict[str, Any] = {"device": "cuda:0"}


def ask(node: SyntheticNode, model: str, seconds: float, batch: int = 1, **more: Any) -> SyntheticNode:
    return node.point("inference", seconds, params={"model": model, "batch": batch}, **{"spread": 0, **more})


def zoo(synthetic: Factory, name: str = "node-a", gpus: int = 0) -> SyntheticNode:
    node = synthetic(name, gpus=gpus, cache=2**25)
    for model, (parameters, eager, onnx) in MODELS.items():
        ask(node, model, eager, threads=2, samples=120)
        ask(node, model, onnx, threads=2, backend="onnx", samples=120)
        node.point("models", parameters, metric="parameters", unit="1", params={"model": model}, rounds=1, samples=1,
                   spread=0, backend="", dtype="", threads=0)  # fmt: skip
    return node


def say(node: SyntheticNode, phase: str, seconds: float, flop: float, moved: float, **more: Any) -> None:
    params = {"model": "gpt2", "phase": phase, "context": 256, "batch": 4}
    node.point("generation", seconds, params=params, flop=flop, bytes=moved, **{"spread": 0, **more})


def build(synthetic: Factory) -> SyntheticNode:
    node = zoo(synthetic, gpus=1).peak(2e11, spread=0)
    ask(node, "mlp", 20e-6, threads=1, backend="onnx")  # the quickest; no partner with one thread
    ask(node, "mlp", 1e-3, batch=32, threads=2)
    ask(node, "mlp", 40e-6, threads=2, backend="inductor")
    ask(node, "mlp", 10e-6, threads=2, backend="onnx", dtype="int8")
    ask(node, "mlp", 100e-6, **GPU)
    ask(node, "mlp", 50e-6, backend="graph", **GPU)
    begun = len(node.rows)
    ask(node, "mlp", 100e-6, batch=2, threads=2, samples=200)
    for row in node.rows[begun:]:
        row["value"] = 1e-6 * (row["sample"] + 1) * 1.01 ** row["round"]
    node.point("bandwidth", 1e9 / 4e10, bytes=1e9, dtype="float64", backend="llvm", spread=0,
               params={"op": "triad", "footprint": 2**30})  # fmt: skip
    node.gemm(100, n=4096, spread=0, **GPU)
    say(node, "prefill", 0.5, 4e10, 4e8)
    say(node, "decode", 0.02, 1e9, 4e8)
    say(node, "decode", 0.001, 1e7, 4e7, dtype="bfloat16")  # so few bytes stay in the cache
    say(node, "decode", 0.01, 3e9, 4e8, **GPU)
    return node


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, build)


CPU = {"device": "cpu", "model": "mlp", "dtype": "float32", "batch": 1}
QUICKEST = {"estimate": 20e-6, "detail": "onnx, 1 thread", "parameters": 3e5}
PREFILL, DECODE = ({"phase": phase, "device": "cpu", "dtype": "float32"} for phase in ("prefill", "decode"))


@cases(
    ("inference.latency_s", {"model": "gpt2", "backend": "torch"}, {"estimate": 0.4, "parameters": 8.5e7}),
    ("inference.latency_s", {**CPU, "backend": "best"}, QUICKEST),
    ("inference.p99_latency_s", {"model": "gpt-1m", "backend": "best"}, {"detail": "onnx, 2 threads"}),
    ("inference.p99_latency_s", {"model": "mlp", "batch": 2, "backend": "torch"}, 198e-6 * 1.01**2),
    ("inference.throughput", {**CPU, "batch": 32, "backend": "torch"}, 32000.0),
    ("inference.onnx_gain", {"model": "mlp"}, {"estimate": 2.0, "dtype": "float32", "threads": 2}),
    ("inference.onnx_gain", {"model": "gpt-10m"}, 4 / 3),
    ("inference.compile_gain", {}, 1.25),
    ("inference.int8_gain", {}, 2.5),
    ("inference.graph_gain", {}, 2.0),
    ("generation.tokens_per_s", PREFILL, 4 * 256 / 0.5),
    ("generation.tokens_per_s", DECODE, 4 / 0.02),
    ("generation.bandwidth_share", {"phase": "decode"}, 0.5),
    ("generation.bandwidth_share", {"phase": "prefill"}, 0.02),
    ("generation.peak_share", PREFILL, 0.4),
    ("generation.peak_share", {"device": "gpu"}, 3e9 / 0.01 / 6e11),
)
def test_values(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, scope, expected)


def test_a_percentile_takes_enough_samples(synthetic: Factory) -> None:
    evidence = data(synthetic, ask(synthetic(), "mlp", 1e-3, samples=99))
    assert len(of("inference.latency_s", evidence)) == 1
    assert len(of("inference.p99_latency_s", evidence)) == 0


def claim(name: str) -> Claim:
    return next(one for one in read_claims(CLAIMS, REFERENCE) if one.id == name)


@pytest.mark.parametrize(
    ("seconds", "outcome", "crossing"), [(1e-3, "supported", (3e5, 1e6)), (1e-6, "challenged", None)]
)
def test_sizes_at_which_cpu_and_gpu_change_places(
    synthetic: Factory, seconds: float, outcome: str, crossing: tuple[float, float] | None
) -> None:
    node = zoo(synthetic, gpus=1)
    for model in MODELS:
        ask(node, model, seconds, **GPU)
    (part,), evidence = claim("W31").parts, data(synthetic, node)
    times = select(quantities()[part.quantity].estimates(evidence), part.scope)
    ruling = decide(part, times, "s")
    assert ruling.outcome == outcome
    if crossing:
        assert ruling.estimates.rows("low", "high") == [crossing] and "model" not in ruling.estimates.labels
