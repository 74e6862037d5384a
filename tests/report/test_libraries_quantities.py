"""Quantities of vendors' libraries give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data, of
from .quantity_cases_1 import cases, check, dataset


def layer(
    node: SyntheticNode,
    seconds: float,
    variant: str = "library",
    kind: str = "convolution",
    shape: str = "conv4-3x3",
    device: str = "cuda:0",
    **more: Any,
) -> SyntheticNode:
    """A call of 1 GFLOP."""
    params = {"layer": kind, "shape": shape, "batch": 32, "passes": "forward", "variant": variant}
    about = {"spread": 0.0, "backend": "", "flop": 1e9, **more}
    return node.point("libraries", seconds, params=params, device=device, **about)  # fmt: skip


def build(synthetic: Factory) -> SyntheticNode:
    node = layer(layer(layer(synthetic(gpus=1), 1e-3), 6e-3, "native"), 0.5e-3, "searched")
    layer(layer(node, 0.25e-3, dtype="tf32"), 2e-3, "native", dtype="tf32")
    layer(layer(node, 1e-3, kind="lstm", shape="256"), 0.9e-3, "native", kind="lstm", shape="256")
    layer(node, 5e-3, kind="lstm", shape="512")  # nothing to hold it against
    layer(layer(node, 1e-2, device="cpu"), 3e-2, "native", device="cpu")
    for variant, seconds in (("library", 1e-3), ("tiled", 8e-3), ("naive", 2e-2)):
        layer(node, seconds, variant, "product", "1024")
    layer(node, 0.2e-3, "library", "product", "1024", dtype="tf32")
    for variant, seconds in (("library", 1e-3), ("float32_sums", 1.5e-3)):
        layer(node, seconds, variant, "product", "16384", dtype="bfloat16")
    about: dict[str, Any] = {"unit": "1", "samples": 1, "spread": 0.0, "backend": ""}
    params = {"layer": "none", "shape": "loaded", "batch": 0, "passes": "forward", "variant": "library"}
    node.point("libraries", {"system_toolkit_loaded": 0.0, "system_driver_loaded": 1.0}, params=params,
               device="cuda:0", **about)  # fmt: skip
    counts = {"operators": 3000.0, "kernels_cpu": 1200.0, "kernels_cuda": 1500.0}
    public = {"public_operators": 2000.0, "public_kernels_cpu": 1000.0}
    params = {**params, "shape": "operators"}
    node.point("libraries", {**counts, **public}, params=params, device="cuda:0", **about)
    return node.point("libraries", {"operators": 3000.0, "kernels_cpu": 1100.0}, params=params, **about)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, build)


PRODUCT, LAYER = {"layer": "product", "shape": "1024"}, {"layer": "convolution", "device": "gpu"}
COVERAGE = "libraries.dispatch_coverage"


@cases(
    ("libraries.rate", {**LAYER, "variant": "searched"}, 2e12),
    ("libraries.gain", {**LAYER, "dtype": "float32"}, {"estimate": 6.0, "variant": "native"}),
    ("libraries.gain", {**LAYER, "dtype": "tf32"}, 8.0),
    ("libraries.gain", {"layer": "lstm"}, {"estimate": 0.9, "shape": "256"}),
    ("libraries.gain", PRODUCT, {"estimate": 8.0, "variant": "tiled"}),  # the faster of this project's kernels
    ("libraries.gain", {"device": "cpu"}, 3.0),
    ("libraries.search_gain", {}, 2.0),
    ("libraries.own_kernel_share", {"variant": "tiled"}, 1 / 8),
    ("libraries.own_kernel_share", {"variant": "naive"}, 1 / 20),
    ("libraries.float32_sums_cost", {}, 1.5),
    ("libraries.matrix_unit_gain", PRODUCT, 5.0),
    ("libraries.matrix_unit_gain", LAYER, 2.0),  # the searched algorithm is the best without them
)
def test_values(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, scope, expected)


@cases(
    (COVERAGE, {"device": "gpu", "key": "cuda", "names": "all"}, 0.5),
    (COVERAGE, {"device": "gpu", "key": "cpu", "names": "all"}, 0.4),
    (COVERAGE, {"device": "gpu", "key": "cpu", "names": "public"}, 0.5),
    (COVERAGE, {"device": "cpu"}, 1100 / 3000),
)
def test_operators_are_counted(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, scope, expected, exact=True)


@pytest.mark.parametrize(("what", "expected"), [("toolkit", 0), ("driver", 1)])
def test_origins_are_exact_and_without_labels(found: Dataset, what: str, expected: int) -> None:
    origin = of(f"libraries.system_{what}_loaded", found)
    assert origin.rows("low", "estimate", "high") == [(expected,) * 3]
    assert origin.label_values(0) == {"node": "node-a", "device": "cuda:0"}


def test_gains_are_less_sure_than_what_they_are_made_of(synthetic: Factory) -> None:
    node = layer(layer(synthetic(gpus=1), 1e-3, spread=0.02), 6e-3, "native", spread=0.02)
    found = data(synthetic, node)
    gain, rate = (of(f"libraries.{name}", found).frame.iloc[0] for name in ("gain", "rate"))
    assert gain["low"] < 6 < gain["high"]
    assert gain["high"] / gain["low"] > rate["high"] / rate["low"]


@pytest.mark.parametrize("name", ["gain", "matrix_unit_gain", "system_toolkit_loaded"])
def test_without_a_gpu_there_is_none(synthetic: Factory, name: str) -> None:
    node = layer(layer(synthetic(), 1e-2, device="cpu"), 3e-2, "native", device="cpu")
    assert not len(of(f"libraries.{name}", data(synthetic, node), device="gpu"))
