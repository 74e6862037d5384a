"""Ratios of GPU to CPU rates: each device uses its best library, in equal number formats or in its best format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from report.compared_estimates import pool_machines
from report.estimates import Estimates, concat_estimates
from report.judging.rules import find_boundary, slopes
from report.outcomes import Side
from report.quantities import quantities
from report.quantities.rate_arithmetic import best_ratios
from tests.report.conftest import Factory, SyntheticNode
from tests.report.made_estimates import log_cases
from tests.report.priced_nodes import evidence

# Work per second by library and format, on a CPU and on a GPU.
CPU = {("torch", "float32"): 2.0, ("openvino", "float32"): 4.0, ("torch", "bfloat16"): 5.0, ("onnx", "int8"): 8.0}
GPU = {("torch", "float32"): 40.0, ("graph", "float32"): 60.0, ("inductor", "bfloat16"): 100.0, ("torch", "tf32"): 80.0}
EXPECTED = {
    ("equal", "float32"): (15.0, "graph", "openvino"),
    ("equal", "bfloat16"): (20.0, "inductor", "torch"),
    ("best", ""): (12.5, "inductor", "onnx"),
}
Add = Callable[[SyntheticNode, float, Mapping[str, Any]], object]


def time_adder(experiment: str, params: Mapping[str, Any], **more: Any) -> Add:
    """Return a function that adds a point with time 1 / rate."""
    return lambda node, rate, point: node.point(experiment, 1 / rate, params=params, spread=1e-6, **more, **point)


def energy_adder(experiment: str, params: Mapping[str, Any]) -> Add:
    """Return a function that adds a point with energy 1 / rate."""

    def add(node: SyntheticNode, rate: float, point: Mapping[str, Any]) -> None:
        node.point(experiment, 1.0, params=params, flop=1.0, **point)
        node.point(experiment, 1 / rate, params=params, flop=1.0, metric="energy", unit="J", spread=1e-6, **point)

    return add


STEP = {"model": "resnet-50", "batch": 16}
TEXT = {"model": "gpt2", "phase": "decode", "context": 64, "batch": 1}
QUANTITIES: dict[str, tuple[Add, dict[str, Any]]] = {
    "inference.gpu_over_cpu": (time_adder("inference", STEP), {}),
    "generation.gpu_over_cpu": (time_adder("generation", TEXT), {}),
    "training.speedup": (time_adder("training", STEP), {"baseline": "node"}),
    "energy.training_ratio": (energy_adder("training", STEP), {}),
}


@pytest.mark.parametrize("name", QUANTITIES)
@pytest.mark.parametrize("backwards", [False, True])
def test_best_on_each_side_is_compared_and_named(synthetic: Factory, name: str, backwards: bool) -> None:
    add, scope = QUANTITIES[name]
    node = synthetic("node-a", gpus=1)
    for device, rates in (("cpu", CPU), ("cuda:0", GPU)):
        points = sorted(rates.items(), reverse=backwards)
        for (backend, dtype), rate in points:
            add(node, rate, {"device": device, "backend": backend, "dtype": dtype, "threads": 2})
    estimates = quantities()[name].estimates(evidence(synthetic, node)).filter(**scope)
    ratios = {
        (precision, dtype if isinstance(dtype, str) else ""): (value, runtime, cpu)
        for precision, dtype, value, runtime, cpu in estimates.rows(
            "precision", "dtype", "estimate", "runtime", "cpu_runtime"
        )
    }
    assert ratios.keys() == EXPECTED.keys()
    for key, (value, *runtimes) in EXPECTED.items():
        assert ratios[key] == (pytest.approx(value, rel=1e-3), *runtimes)
    (best,) = estimates.filter(precision="best")["detail"]
    assert "bfloat16 over" in best and "int8" in best


def test_without_formats_there_is_one_comparison() -> None:
    rates = log_cases([6.0, 9.0, 3.0], 0.01, node="a", device=["cuda:0", "cuda:0", "cpu"],
                      backend=["torch", "cupy", "polars"], rows=10)  # fmt: skip
    gpu, cpu = rates.filter(device="gpu"), rates.filter(device="cpu").drop_labels("device")
    (ratios,) = best_ratios(gpu, cpu, ["rows"])
    assert ratios.rows("rows", "estimate", "runtime", "cpu_runtime") == [(10, pytest.approx(3.0), "cupy", "polars")]
    assert "precision" not in ratios.labels
    for sides in ((gpu, Estimates.empty()), (Estimates.empty(), cpu), (Estimates.empty(), Estimates.empty())):
        assert not len(concat_estimates(best_ratios(*sides, ["rows"])))


def test_machines_of_a_kind_pool_across_runtimes() -> None:
    gains = log_cases([2.0, 3.0, 4.0], 0.01, node=["k.000001", "k.000002", "k.000003"], model="bert-base",
                      runtime=["onnx", "openvino", "inductor"])  # fmt: skip
    (case,) = pool_machines(gains).rows("estimate", "runtime")
    assert case == (3.0, "openvino")


def test_slope_spans_different_fastest_runtimes() -> None:
    speedups = log_cases([1.0, 4.0, 16.0], 0.01, node="a", batch=[1, 4, 16], runtime=["graph", "torch", "inductor"])
    (slope,) = slopes(speedups, {"along": "batch"}).estimates["estimate"]
    assert slope == pytest.approx(1.0, abs=1e-6)


def test_fastest_runtime_is_no_boundary_label() -> None:
    gains = log_cases([0.5, 2.0], 0.01, node="a", runtime=["torch", "openvino"], model=["mlp", "bert-base"])
    assert find_boundary(gains, [Side.CHALLENGES, Side.SUPPORTS], {}).label == "model"


def test_ratios_of_ratios_may_mix_runtimes() -> None:
    above = log_cases([6.0], 0.01, node="a", runtime=["graph"], cpu_runtime=["torch"])
    below = log_cases([3.0], 0.01, node="a", runtime=["torch"], cpu_runtime=["onednn"])
    assert (above / below).rows("estimate", "runtime", "cpu_runtime") == [(pytest.approx(2.0), "graph", "torch")]
