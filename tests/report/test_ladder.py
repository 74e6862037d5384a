"""The ladder takes each rung from the right points, and scaling divides by the threads."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Factory, SyntheticNode
from .test_quantities import data, of, value

GIGA = 1e9


def product(node: SyntheticNode, rate: float, m: int = 1000, **more: Any) -> None:
    flop = 2.0 * m * 1000 * 1000
    params = {"m": m, "n": 1000, "k": 1000}
    node.point("gemm", flop / (rate * GIGA), params=params, flop=flop, **{"spread": 0, **more})


def step(node: SyntheticNode, rate: float, batch: int = 32, model: str = "mlp", **more: Any) -> None:
    params = {"model": model, "batch": batch}
    node.point("training", 1e6 * batch / (rate * GIGA), params=params, flop=1e6 * batch, **{"spread": 0, **more})


def climbed(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    for backend, dtype, rate in (("python", "float64", 0.03), ("scalar", "float32", 4), ("simd", "float32", 50)):
        product(node, rate, m=4 if backend == "python" else 1000, backend=backend, dtype=dtype)
        step(node, rate, backend=backend, dtype=dtype)
    for threads, gain in ((1, 1.0), (2, 1.8)):
        product(node, 100 * gain, backend="torch", threads=threads)
        product(node, 240 * gain, backend="onednn", threads=threads)
        product(node, 480 * gain, backend="onednn", threads=threads, dtype="bfloat16")
        step(node, 40 * gain, backend="torch", threads=threads)
        step(node, 60 * gain, backend="onednn", threads=threads)
    product(node, 9000, device="cuda:0")
    product(node, 90000, device="cuda:0", dtype="bfloat16")
    # What must not be taken for a rung: another shape, another batch, another model.
    product(node, 1e6, m=2000, backend="onednn")
    step(node, 1e6, batch=64)
    step(node, 1e6, model="gpt")
    return node


@pytest.mark.parametrize(
    ("work", "rung", "rate"),
    [
        ("product", "interpreted loop", 0.03),
        ("product", "compiled loop, scalar", 4),
        ("product", "compiled loop, vectors", 50),
        ("product", "PyTorch, one core", 100),
        ("product", "PyTorch as it comes", 180),
        ("product", "best library, one core", 240),
        ("product", "best library, all cores", 432),
        ("product", "bfloat16, all cores", 864),
        ("product", "GPU, float32", 9000),
        ("product", "GPU, best format", 90000),
        ("training step", "interpreted loop", 0.03),
        ("training step", "PyTorch as it comes", 72),
        ("training step", "best library, one core", 60),
        ("training step", "best library, all cores", 108),
    ],
)
def test_each_rung(synthetic: Factory, work: str, rung: str, rate: float) -> None:
    found = of("ladder.rate", data(synthetic, climbed(synthetic)), work=work, rung=rung)
    assert value(found) == pytest.approx(rate * GIGA)


def test_rungs_are_named_by_the_library_that_was_fastest_and_counted_from_the_bottom(synthetic: Factory) -> None:
    found = of("ladder.rate", data(synthetic, climbed(synthetic)), work="product", device="cpu")
    order = found.frame.sort_values("place")
    assert next(iter(order["rung"])) == "interpreted loop"
    assert list(order["rung"])[-1] == "bfloat16, all cores"
    best = order.set_index("rung")["detail"]
    assert best["best library, one core"] == "onednn, float32"


def test_the_gain_is_over_default_pytorch(synthetic: Factory) -> None:
    found = data(synthetic, climbed(synthetic))
    assert value(of("ladder.gain", found, work="product", rung="best library, all cores")) == pytest.approx(2.4)
    assert value(of("ladder.gain", found, work="product", rung="GPU, float32")) == pytest.approx(50)
    assert not len(of("ladder.gain", found, rung="PyTorch as it comes"))


def test_efficiency_is_the_gain_per_thread(synthetic: Factory) -> None:
    node = climbed(synthetic)
    for threads, rate in ((1, 40), (2, 50), (4, 60)):
        params = {"op": "triad", "footprint": 2**28}
        node.point("bandwidth", 1 / rate, backend="llvm", dtype="float64", threads=threads, params=params,
                   bytes=1e9, spread=0)  # fmt: skip
    found = data(synthetic, node)
    assert value(of("training.scaling_efficiency", found, backend="torch", model="mlp")) == pytest.approx(0.9)
    bandwidth = of("bandwidth.scaling_efficiency", found, backend="best").frame.set_index("threads")["estimate"]
    assert bandwidth.to_dict() == pytest.approx({2: 50 / 80, 4: 60 / 160})


def test_a_node_without_these_points_has_no_ladder(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("node-a").clock())
    for name in ("ladder.rate", "ladder.gain", "training.scaling_efficiency", "bandwidth.scaling_efficiency"):
        assert len(of(name, found)) == 0
