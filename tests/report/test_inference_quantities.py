"""Quantities of trained models that answer give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import Claim, Part, read_claims
from report.judging.filters import lacking, select
from report.judging.judge import CLAIMS
from report.judging.rules import RuleResult, decide
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value

# Weights and seconds of one request on the CPU: as they come, and in ONNX Runtime.
MODELS = {
    "mlp": (3e5, 50e-6, 25e-6),
    "gpt-1m": (1e6, 4e-3, 2e-3),
    "gpt-10m": (1e7, 40e-3, 30e-3),
    "gpt2": (8.5e7, 0.4, 0.2),
}


def ask(node: SyntheticNode, model: str, seconds: float, batch: int = 1, **more: Any) -> SyntheticNode:
    return node.point("inference", seconds, params={"model": model, "batch": batch}, **{"spread": 0.005, **more})


def count(node: SyntheticNode, *models: str) -> SyntheticNode:
    for model in models or MODELS:
        node.point("models", MODELS[model][0], metric="parameters", unit="1", params={"model": model}, rounds=1,
                   samples=1, spread=0, backend="", dtype="", threads=0)  # fmt: skip
    return node


def zoo(node: SyntheticNode, samples: int = 120) -> SyntheticNode:
    for model, (_, eager, onnx) in MODELS.items():
        ask(node, model, eager, threads=2, samples=samples)
        ask(node, model, onnx, threads=2, backend="onnx", samples=samples)
    return count(node)


def say(node: SyntheticNode, phase: str, seconds: float, flop: float, moved: float, **more: Any) -> SyntheticNode:
    params = {"model": "gpt2", "phase": phase, "context": 256, "batch": 4}
    return node.point("generation", seconds, params=params, flop=flop, bytes=moved, **{"spread": 0.005, **more})


def claim(name: str) -> Claim:
    return next(one for one in read_claims(CLAIMS, read_reference(REFERENCE)) if one.id == name)


def decided(name: str, found: Dataset) -> list[tuple[Part, RuleResult]]:
    rulings = []
    for part in claim(name).parts:
        known = quantities()[part.quantity]
        cells = select(known.cells(found), part.scope)
        rulings.append((part, decide(part.rule, cells, part.threshold, known.unit, part.options)))
    return rulings


def test_a_requests_time_bears_the_size_of_its_model(synthetic: Factory) -> None:
    found = data(synthetic, zoo(synthetic("node-a")))
    cells = of("inference.latency_s", found, model="gpt2", backend="torch")
    assert value(cells) == pytest.approx(0.4, rel=0.02)
    assert cells.frame["parameters"].iloc[0] == 8.5e7
    best = of("inference.latency_s", found, model="gpt2", backend="best")
    assert value(best) == pytest.approx(0.2, rel=0.02)
    assert best.frame["detail"].iloc[0] == "onnx, 2 threads"
    assert best.frame["low"].iloc[0] < value(best) < best.frame["high"].iloc[0]


def test_a_size_that_no_node_counted_is_unknown(synthetic: Factory) -> None:
    cells = of("inference.latency_s", data(synthetic, ask(synthetic("node-a"), "mlp", 1e-4)), backend="torch")
    assert np.isnan(cells.frame["parameters"].astype(float).iloc[0])
    assert value(cells) == pytest.approx(1e-4, rel=0.02)


def tails(node: SyntheticNode, samples: int, slow: list[float], quick: float = 1e-3) -> SyntheticNode:
    """Rounds whose samples all take `quick`, but for the last two, which take that round's slow time."""
    begun = len(node.rows)
    ask(node, "mlp", quick, samples=samples, rounds=len(slow), spread=0)
    for row in node.rows[begun:]:
        if row["sample"] >= samples - 2:
            row["value"] = slow[row["round"] - 1]
    return count(node, "mlp")


def test_the_99th_percentile_is_that_of_each_round(synthetic: Factory) -> None:
    found = data(synthetic, tails(synthetic("node-a"), 120, [0.010, 0.011, 0.012]))
    cells = of("inference.p99_latency_s", found, backend="torch")
    row = cells.frame.iloc[0]
    assert value(cells) == pytest.approx((0.010 * 0.011 * 0.012) ** (1 / 3), rel=1e-6)
    assert row["low"] < 0.010 < 0.012 < row["high"]
    assert (row["n_rounds"], row["n_samples"]) == (3, 360)
    # Of 200 samples the last two are past the 99th percentile.
    found = data(synthetic, tails(synthetic("node-b"), 201, [0.010, 0.011, 0.012]))
    assert value(of("inference.p99_latency_s", found, backend="torch", node="node-b")) == pytest.approx(1e-3)


def test_rounds_with_few_samples_have_no_99th_percentile(synthetic: Factory) -> None:
    found = data(synthetic, tails(synthetic("node-a"), 99, [0.01, 0.01]))
    assert len(of("inference.p99_latency_s", found)) == 0
    assert len(of("inference.latency_s", found)) == 1


def test_what_many_samples_at_once_yield(synthetic: Factory) -> None:
    found = data(synthetic, ask(count(synthetic("node-a"), "mlp"), "mlp", 2e-3, batch=64))
    assert value(of("inference.throughput", found)) == pytest.approx(32000, rel=0.02)


def test_gains_compare_the_same_request(synthetic: Factory) -> None:
    node = zoo(synthetic("node-a", gpus=1))
    ask(node, "mlp", 40e-6, threads=2, backend="inductor")
    ask(node, "mlp", 10e-6, threads=2, backend="onnx", dtype="int8")
    ask(node, "mlp", 10e-6, threads=1, backend="onnx")  # no partner with one thread
    ask(node, "mlp", 100e-6, device="cuda:0")
    ask(node, "mlp", 50e-6, device="cuda:0", backend="graph")
    found = data(synthetic, node)
    onnx = of("inference.onnx_gain", found)
    assert sorted(onnx.frame["model"]) == sorted(MODELS)
    assert set(onnx.frame["dtype"]) == {"float32"}
    for model, (_, eager, quick) in MODELS.items():
        assert value(of("inference.onnx_gain", found, model=model)) == pytest.approx(eager / quick, rel=0.03)
    assert value(of("inference.compile_gain", found)) == pytest.approx(1.25, rel=0.03)
    assert value(of("inference.int8_gain", found)) == pytest.approx(2.5, rel=0.03)
    assert value(of("inference.graph_gain", found)) == pytest.approx(2, rel=0.03)


def test_text_by_the_token(synthetic: Factory) -> None:
    node = say(synthetic("node-a"), "prefill", 0.5, 4e10, 4e8)
    say(node, "decode", 0.02, 1e9, 4e8)
    found = data(synthetic, node)
    assert value(of("generation.tokens_per_s", found, phase="prefill")) == pytest.approx(4 * 256 / 0.5, rel=0.02)
    assert value(of("generation.tokens_per_s", found, phase="decode")) == pytest.approx(4 / 0.02, rel=0.02)


def test_shares_of_what_was_measured_of_the_machine(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1, cache=2**25).peak(2e11)
    node.point("bandwidth", 1e9 / 4e10, bytes=1e9, dtype="float64", backend="llvm",
               params={"op": "triad", "footprint": 2**30})  # fmt: skip
    node.gemm(100, device="cuda:0", n=4096)
    say(node, "prefill", 0.5, 4e10, 4e8)
    say(node, "decode", 0.02, 1e9, 4e8)
    say(node, "decode", 0.001, 1e7, 4e7, dtype="bfloat16")  # so few bytes stay in the cache
    say(node, "decode", 0.01, 3e9, 4e8, device="cuda:0")
    found = data(synthetic, node)
    shares = of("generation.bandwidth_share", found)
    assert sorted(shares.frame["phase"]) == ["decode", "prefill"]
    assert value(of("generation.bandwidth_share", found, phase="decode")) == pytest.approx(0.5, rel=0.05)
    assert value(of("generation.peak_share", found, phase="prefill", device="cpu")) == pytest.approx(0.4, rel=0.05)
    assert value(of("generation.peak_share", found, phase="decode", device="gpu")) == pytest.approx(0.5, rel=0.05)


def test_a_cpu_serves_the_models_that_are_small_enough(synthetic: Factory) -> None:
    found = data(synthetic, zoo(synthetic("node-a")))
    rulings = decided("G15", found)
    assert [ruling.outcome for _, ruling in rulings] == ["depends"] * 3
    assert [ruling.boundary for _, ruling in rulings] == [
        "holds from 10.0 million parameters on, fails up to 1.00 million parameters",
        "holds at 85.0 million parameters, fails up to 10.0 million parameters",
        "holds at 85.0 million parameters, fails up to 10.0 million parameters",
    ]


def test_onnx_is_worth_it_for_the_median_model(synthetic: Factory) -> None:
    ((part, ruling),) = decided("G30", data(synthetic, zoo(synthetic("node-a"))))
    assert part.options["share"] == 0.5
    assert ruling.outcome == "supported"
    others = Factory(synthetic.root.parent / "others")
    slow = others("node-b")
    for model in ("mlp", "gpt-1m"):
        ask(slow, model, 1e-3, threads=2)
        ask(slow, model, 1e-3, threads=2, backend="onnx")
    ((_, ruling),) = decided("G30", data(others, count(slow, "mlp", "gpt-1m")))
    assert ruling.outcome == "challenged"


def test_sizes_at_which_cpu_and_gpu_change_places(synthetic: Factory) -> None:
    node = zoo(synthetic("node-a", gpus=1))
    part = claim("W31").parts[0]
    known = quantities()[part.quantity]
    others = Factory(synthetic.root.parent / "others")
    assert lacking(part, known, Estimates.empty(), data(others, zoo(others("node-b"))))[0] == "awaiting hardware"
    for model in MODELS:
        ask(node, model, 1e-3, device="cuda:0")
        ask(node, model, 0.8e-3, device="cuda:0", backend="graph")
    ((_, ruling),) = decided("W31", data(synthetic, node))
    assert ruling.outcome == "supported"
    (row,) = [dict(row) for _, row in ruling.cells.frame.iterrows()]
    assert (row["low"], row["high"]) == (3e5, 1e6)
    assert 3e5 < row["estimate"] < 1e6
    assert "model" not in ruling.cells.labels


def test_a_gpu_that_is_always_ahead_has_no_such_size(synthetic: Factory) -> None:
    node = zoo(synthetic("node-a", gpus=1))
    for model in MODELS:
        ask(node, model, 1e-6, device="cuda:0")
    ((_, ruling),) = decided("W31", data(synthetic, node))
    assert ruling.outcome == "challenged"


MINE = [name for name, one in quantities().items() if one.compute.__module__ == "report.quantities.inference"]


@pytest.mark.parametrize("name", MINE)
def test_nothing_comes_of_nothing(synthetic: Factory, name: str) -> None:
    assert len(quantities()[name].cells(data(synthetic, synthetic("node-a").clock()))) == 0


@pytest.mark.parametrize("name", ["G15", "G30", "W31"])
def test_the_claims_await_no_experiment(name: str) -> None:
    assert all(part.awaits is None for part in claim(name).parts)
