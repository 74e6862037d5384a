"""Training against other nodes' CPUs, against the default, by energy and memory; each rung of both ladders."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value
from .quantity_cases_1 import cases, check, dataset
from .test_sustained_quantities import COUNTED


def step(node: SyntheticNode, rate: float, batch: int = 32, model: str = "mlp", **more: Any) -> SyntheticNode:
    """A training step at `rate` samples/s, of a million operations a sample."""
    more = {"spread": 0, "flop": 1e6 * batch, **more}
    return node.point("training", batch / rate, params={"model": model, "batch": batch}, **more)


def host(synthetic: Factory, name: str = "node-a", gain: float = 1.0, gpus: int = 0) -> SyntheticNode:
    """A CPU that does 10 samples/s on one core as PyTorch comes, 18 on two, 60 at its best."""
    node = synthetic(name, gpus=gpus)
    for threads, more in ((1, 1.0), (2, 1.8)):
        step(node, 10 * gain * more, threads=threads)
        step(node, 15 * gain * more, threads=threads, backend="onednn")
    step(node, 20 * gain, dtype="bfloat16")
    step(node, 60 * gain, threads=2, dtype="bfloat16", backend="inductor")
    return step(node, 0.1, backend="scalar")


def with_gpu(synthetic: Factory) -> SyntheticNode:
    node = host(synthetic, gpus=1)
    step(node, 900, device="cuda:0")
    step(node, 3000, device="cuda:0", dtype="bfloat16")
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": 32}, "spread": 0, "threads": 2}
    node.point("training", 64.0, metric=COUNTED, unit="J", **about)
    node.point("training", {"peak_memory": 3e8}, **{**about, "unit": "B"})
    node.point("training", {"repeat_share": 0.9, "matmul_flop_share": 0.8}, **about)
    node.point("training", {"matmul_time_share": 0.7}, **{**about, "spread": 1e-4})
    node.point("training", {f"time.{phase}": 0.5 for phase in ("forward", "backward", "update")}, **about)
    node.peak(45e6, spread=0).peak(90e6, threads=2, spread=0)
    return node.gemm(1e10 / 6e9, device="cuda:0", spread=0)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, with_gpu, lambda synthetic: host(synthetic, "node-b", gain=5.0))


A, TORCH = {"node": "node-a"}, {"node": "node-a", "backend": "torch", "dtype": "float32", "threads": 2}
SPEEDUP, SHARE = "training.speedup", "training.default_over_best"


@cases(
    ("training.rate", TORCH, 18.0),
    (SPEEDUP, {"baseline": "core", "precision": "equal", "dtype": "float32"}, 900 / 15),
    (SPEEDUP, {"baseline": "core", "precision": "best"}, 3000 / 20),
    (SPEEDUP, {"baseline": "node", "precision": "equal", "dtype": "float32"}, 900 / 27),
    (SPEEDUP, {"baseline": "node", "precision": "best"}, 50.0),
    (SPEEDUP, {"baseline": "fleet", "precision": "equal", "dtype": "float32"}, {"estimate": 900 / 135, **A}),
    (SPEEDUP, {"baseline": "fleet", "precision": "best"}, {"estimate": 10.0, **A}),
    (SHARE, {**A, "precision": "equal"}, {"estimate": 18 / 27, "detail": "over onednn, float32, 2 threads"}),
    (SHARE, {**A, "precision": "best"}, 18 / 60),
    ("training.energy_per_sample", {}, {"estimate": 2.0, "detail": "counted by the device"}),
    ("training.peak_memory_bytes", {}, 3e8),
    ("training.mfu", TORCH, 18 / 90),
    ("training.mfu", {"device": "gpu", "dtype": "float32"}, 900e6 / 1e10),
    ("training.split", {**TORCH, "phase": "update"}, 0.5 * 18 / 32),
    ("training.repeat_share", {}, 0.9),
    ("training.matmul_flop_share", {}, 0.8),
    ("training.matmul_time_share", {}, 0.7),
    ("training.scaling_efficiency", TORCH, 0.9),
)
def test_values(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, scope, expected)


def test_the_fleet_is_named_and_one_node_is_none(found: Dataset, synthetic: Factory) -> None:
    fleet = of(SPEEDUP, found, baseline="fleet")
    other = found.label("node-b")
    assert set(fleet["detail"]) == {f"over {other}", f"over {other} in bfloat16"}
    assert set(of(SPEEDUP, data(synthetic, with_gpu(synthetic)))["baseline"]) == {"core", "node"}


def test_a_speed_up_over_the_fleet_is_as_uncertain_as_both_sides(synthetic: Factory) -> None:
    other = step(synthetic("node-b"), 500, threads=2, spread=0.2)
    cells = of(SPEEDUP, data(synthetic, with_gpu(synthetic), other), baseline="fleet", dtype="float32")
    assert (cells["high"] / cells["low"] > 1.1).all() and len(cells) == 1


def test_a_default_that_is_the_best_is_exactly_one(synthetic: Factory) -> None:
    node = step(synthetic(), 10, threads=2, spread=0.05)
    check(data(synthetic, node), SHARE, {"precision": "best"}, {"low": 1.0, "estimate": 1.0, "high": 1.0})


RUNG, GAIN = "training.ladder", "training.ladder_gain"


@cases(
    (RUNG, {"rung": "one core, as it comes"}, {"estimate": 10.0, "detail": "torch, float32", "place": 1}),
    (RUNG, {"rung": "one core, at its best"}, {"estimate": 20.0, "detail": "torch, bfloat16", "place": 2}),
    (RUNG, {"rung": "all cores, as it comes"}, {"estimate": 18.0, "place": 3}),
    (RUNG, {"rung": "all cores, best library"}, {"estimate": 27.0, "detail": "onednn, float32"}),
    (RUNG, {"rung": "all cores, at their best"}, {"estimate": 60.0, "detail": "inductor, bfloat16"}),
    (RUNG, {"rung": "GPU, float32"}, 900.0),
    (RUNG, {"rung": "GPU, at its best"}, {"estimate": 3000.0, "detail": "torch, bfloat16"}),
    (GAIN, {"rung": "one core, at its best"}, 2.0),
    (GAIN, {"rung": "GPU, at its best"}, 300.0),
)
def test_each_rung_of_training(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, {**A, **scope}, expected)


RATES = {8: 80.0, 16: 150.0, 32: 250.0, 64: 380.0, 128: 400.0}
DETAIL = "256 does not fit; from 64 on within a tenth of the highest rate"


@pytest.mark.parametrize(
    ("refused", "status", "reason", "expected"),
    [
        (256, "oom", "CUDA out of memory", [(128, DETAIL)]),
        (256, "skipped", "memory: needs 9 GiB", [(128, DETAIL)]),
        (256, "skipped", "budget: one call needs 9 s", []),
        (4, "oom", "another process took the memory", []),
    ],
)
def test_the_largest_batch_over_an_eighth_of_it(
    synthetic: Factory, refused: int, status: str, reason: str, expected: list[tuple[int, str]]
) -> None:
    node = synthetic(gpus=1)
    for batch, rate in RATES.items():
        step(node, rate, batch, "gpt2", device="cuda:0", dtype="bfloat16")
    step(node, 1.0, refused, "gpt2", device="cuda:0", dtype="bfloat16", status=status, reason=reason)
    cells = of("scaling.throughput_over_eighth", data(synthetic, node))
    assert cells.rows("batch", "detail") == expected
    assert not expected or value(cells) == pytest.approx(400 / 150)
