"""The ladder takes each rung from the right points, and scaling divides by the threads."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import of
from .quantity_cases_1 import cases, check, dataset
from .test_training_quantities import step

GIGA = 1e9


def product(node: SyntheticNode, rate: float, m: int = 1000, **more: Any) -> None:
    flop = 2.0 * m * 1000 * 1000
    params = {"m": m, "n": 1000, "k": 1000}
    node.point("gemm", flop / (rate * GIGA), params=params, flop=flop, **{"spread": 0, **more})


def climbed(synthetic: Factory) -> SyntheticNode:
    node = synthetic(gpus=1)
    for backend, dtype, rate in (("python", "float64", 0.03), ("scalar", "float32", 4), ("simd", "float32", 50)):
        product(node, rate, m=4 if backend == "python" else 1000, backend=backend, dtype=dtype)
        step(node, 1000 * rate, backend=backend, dtype=dtype)
    for threads, gain in ((1, 1.0), (2, 1.8)):
        product(node, 100 * gain, backend="torch", threads=threads)
        product(node, 240 * gain, backend="onednn", threads=threads)
        product(node, 480 * gain, backend="onednn", threads=threads, dtype="bfloat16")
        step(node, 40e3 * gain, backend="torch", threads=threads)
        step(node, 60e3 * gain, backend="onednn", threads=threads)
    product(node, 500, backend="blis")  # the fastest on one core, and not tried on all
    product(node, 9000, device="cuda:0")
    product(node, 90000, device="cuda:0", dtype="bfloat16")
    # What must not be taken for a rung: another shape, another batch, another model.
    product(node, 1e6, m=2000, backend="onednn")
    step(node, 1e9, batch=64)
    step(node, 1e9, model="gpt")
    for threads, rate in ((1, 40), (2, 50), (4, 60)):
        params = {"op": "triad", "footprint": 2**28}
        about: dict[str, Any] = {"backend": "llvm", "dtype": "float64", "spread": 0, "bytes": 1e9}
        node.point("bandwidth", 1 / rate, threads=threads, params=params, **about)
    return node


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, climbed)


PRODUCTS = {
    "interpreted loop": (0.03, "python, float64", 1), "compiled loop, scalar": (4, "scalar, float32", 2),
    "compiled loop, vectors": (50, "simd, float32", 3), "PyTorch, one core": (100, "torch, float32", 4),
    "PyTorch as it comes": (180, "torch, float32", 5), "best library, one core": (500, "blis, float32", 6),
    "best library, all cores": (432, "onednn, float32", 7), "bfloat16, all cores": (864, "onednn, bfloat16", 9),
    "GPU, float32": (9000, "torch, float32", 10), "GPU, best format": (90000, "torch, bfloat16", 11),
}  # fmt: skip
STEPS = {
    "interpreted loop": 0.03,
    "PyTorch as it comes": 72,
    "best library, one core": 60,
    "best library, all cores": 108,
}


@pytest.mark.parametrize("rung", PRODUCTS)
def test_each_rung(found: Dataset, rung: str) -> None:
    rate, detail, place = PRODUCTS[rung]
    expected = {"estimate": float(rate * GIGA), "detail": detail, "place": place}
    check_one(found, "gemm", {"work": "product", "rung": rung}, expected)
    if rung in STEPS:
        check_one(found, "training", {"work": "training step", "rung": rung}, {"estimate": STEPS[rung] * GIGA})


def check_one(found: Dataset, experiment: str, scope: dict[str, Any], expected: dict[str, Any]) -> None:
    check(found, "ladder.rate", scope, expected, made_of={experiment})


@cases(
    ("ladder.gain", {"work": "product", "rung": "best library, all cores"}, 2.4),
    ("ladder.gain", {"work": "product", "rung": "GPU, float32"}, 50.0),
    ("bandwidth.scaling_efficiency", {"backend": "best", "threads": 2}, 50 / 80),
    ("bandwidth.scaling_efficiency", {"backend": "best", "threads": 4}, 60 / 160),
)
def test_gains_are_over_default_pytorch_and_efficiency_by_the_thread(
    found: Dataset, name: str, scope: dict[str, Any], expected: Any
) -> None:
    check(found, name, scope, expected, made_of={"gemm" if name == "ladder.gain" else "bandwidth"})
    assert not len(of("ladder.gain", found, rung="PyTorch as it comes"))
