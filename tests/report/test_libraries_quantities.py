"""Quantities of vendors' libraries give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import Part, read_claims
from report.judging.evaluate import QuantityCache, evaluate
from report.judging.filters import lacking, select
from report.judging.judge import CLAIMS
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, value


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"libraries.{name}"].compute(found), scope)


def layer(
    node: SyntheticNode,
    seconds: float,
    variant: str = "library",
    kind: str = "convolution",
    shape: str = "conv4-3x3",
    batch: int = 32,
    device: str = "cuda:0",
    **more: Any,
) -> SyntheticNode:
    """A call of 1 GFLOP."""
    params = {"layer": kind, "shape": shape, "batch": batch, "passes": "forward", "variant": variant}
    more = {"spread": 0.0, "backend": "", **more}
    return node.point("libraries", seconds, params=params, flop=1e9, device=device, **more)


def observed(node: SyntheticNode, shape: str, *, device: str = "cuda:0", **values: float) -> SyntheticNode:
    params = {"layer": "none", "shape": shape, "batch": 0, "passes": "forward", "variant": "library"}
    about: dict[str, Any] = {"unit": "1", "samples": 1, "spread": 0.0, "backend": ""}
    return node.point("libraries", values, params=params, device=device, **about)


def switched(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    layer(node, 1e-3)
    layer(node, 6e-3, "native")
    layer(node, 0.5e-3, "searched")
    layer(node, 0.25e-3, dtype="tf32")
    layer(node, 2e-3, "native", dtype="tf32")
    layer(node, 1e-3, kind="lstm", shape="256-cells")
    layer(node, 0.9e-3, "native", kind="lstm", shape="256-cells")
    layer(node, 5e-3, kind="lstm", shape="512-cells")  # nothing to hold it against
    layer(node, 1e-2, device="cpu")
    layer(node, 3e-2, "native", device="cpu")
    for variant, seconds in (("library", 1e-3), ("tiled", 8e-3), ("naive", 2e-2)):
        layer(node, seconds, variant, "product", "1024x1024", 1024)
    return layer(node, 0.2e-3, "library", "product", "1024x1024", 1024, dtype="tf32")


def test_a_gain_is_the_time_without_the_library_over_that_with_it(synthetic: Factory) -> None:
    found = data(synthetic, switched(synthetic))
    gains = of("gain", found, device="gpu")
    told = {
        tuple(gains.label_values(i)[name] for name in ("shape", "dtype", "variant")): gains.frame["estimate"].iloc[i]
        for i in range(len(gains))
    }
    assert told == {
        ("conv4-3x3", "float32", "native"): pytest.approx(6),
        ("conv4-3x3", "tf32", "native"): pytest.approx(8),
        ("256-cells", "float32", "native"): pytest.approx(0.9),
        ("1024x1024", "float32", "tiled"): pytest.approx(8),  # the faster of this project's kernels
    }
    assert value(of("gain", found, device="cpu", layer="convolution")) == pytest.approx(3)
    assert value(of("search_gain", found)) == pytest.approx(2)


def test_own_kernels_are_held_against_the_library_at_the_same_format(synthetic: Factory) -> None:
    found = data(synthetic, switched(synthetic))
    assert value(of("own_kernel_share", found, variant="tiled")) == pytest.approx(1 / 8)
    assert value(of("own_kernel_share", found, variant="naive")) == pytest.approx(1 / 20)


def test_what_whole_partial_sums_cost(synthetic: Factory) -> None:
    node = switched(synthetic)
    layer(node, 1e-3, "library", "product", "16384x512", 512, dtype="bfloat16")
    layer(node, 1.5e-3, "float32_sums", "product", "16384x512", 512, dtype="bfloat16")
    assert value(of("float32_sums_cost", data(synthetic, node))) == pytest.approx(1.5)


def test_matrix_units_are_held_against_the_best_without_them(synthetic: Factory) -> None:
    node = switched(synthetic)
    layer(node, 1e-4, "tiled", "product", "2048x2048", 2048)
    layer(node, 2e-4, "library", "product", "2048x2048", 2048)
    layer(node, 0.5e-4, "library", "product", "2048x2048", 2048, dtype="tf32")
    found = data(synthetic, node)
    assert value(of("matrix_unit_gain", found, layer="product", shape="1024x1024")) == pytest.approx(5)
    assert value(of("matrix_unit_gain", found, layer="product", shape="2048x2048")) == pytest.approx(2)
    # The searched algorithm is the best without them.
    assert value(of("matrix_unit_gain", found, layer="convolution")) == pytest.approx(2)


def test_gains_are_no_surer_than_what_they_are_made_of(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    layer(node, 1e-3, spread=0.02)
    layer(node, 6e-3, "native", spread=0.02)
    gain = of("gain", data(synthetic, node)).frame.iloc[0]
    rate = of("rate", data(synthetic, node), variant="library").frame.iloc[0]
    assert gain["low"] < 6 < gain["high"]
    assert gain["high"] / gain["low"] > rate["high"] / rate["low"]


def installed(synthetic: Factory, toolkit: float = 0.0) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    observed(node, "loaded", system_toolkit_loaded=toolkit, system_driver_loaded=1.0, toolkit_libraries_loaded=9.0)
    every, public = (3000.0, 1200.0, 1500.0), (2000.0, 1000.0, 1000.0)
    values = {
        f"{names}{what}": value
        for names, counts in (("", every), ("public_", public))
        for what, value in zip(("operators", "kernels_cpu", "kernels_cuda"), counts, strict=True)
    }
    about: dict[str, Any] = {**values}
    observed(node, "operators", **about)
    return observed(node, "operators", device="cpu", operators=3000.0, kernels_cpu=1200.0)


def test_origins_are_exact_and_without_labels(synthetic: Factory) -> None:
    found = data(synthetic, installed(synthetic))
    for name, expected in (("system_toolkit_loaded", 0), ("system_driver_loaded", 1)):
        cells = of(name, found, device="gpu")
        assert value(cells) == expected
        assert cells.label_values(0) == {"node": "node-a", "device": "cuda:0"}
        assert cells.frame["low"].iloc[0] == cells.frame["high"].iloc[0] == expected


def test_coverage_is_told_for_what_the_build_has(synthetic: Factory) -> None:
    found = data(synthetic, installed(synthetic))
    assert value(of("dispatch_coverage", found, device="gpu", key="cuda", names="all")) == 0.5
    assert value(of("dispatch_coverage", found, device="gpu", key="cpu", names="public")) == 0.5
    assert value(of("dispatch_coverage", found, device="cpu")) == 0.4
    assert len(of("dispatch_coverage", found, key="mps")) == 0


def outcomes(claim: str, found: Dataset) -> list[str]:
    """Outcomes of the claim's parts."""
    declared = next(one for one in read_claims(CLAIMS, read_reference(REFERENCE)) if one.id == claim)
    evidence = QuantityCache(found)
    return [evaluate(part, declared, evidence).outcome for part in declared.parts]


def test_the_claims_are_decided_from_what_was_measured(synthetic: Factory) -> None:
    node = switched(synthetic)
    observed(node, "loaded", system_toolkit_loaded=0.0, system_driver_loaded=1.0)
    found = data(synthetic, node)
    assert outcomes("G07", found) == ["supported"]  # three gains of four, and not on every shape
    assert outcomes("N08", found) == ["supported"]
    assert outcomes("G24", found) == ["challenged", "supported"]


@pytest.mark.parametrize("name", ["gain", "matrix_unit_gain", "system_toolkit_loaded"])
def test_without_a_gpu_the_claims_await_hardware(synthetic: Factory, name: str) -> None:
    node = layer(layer(synthetic("node-a"), 1e-2, device="cpu"), 3e-2, "native", device="cpu")
    found = data(synthetic, node)
    quantity = quantities()[f"libraries.{name}"]
    cells = quantity.compute(found)
    part = Part("", quantity.name, "at_least", 1, "", scope={"device": "gpu"})
    assert len(select(cells, part.scope)) == 0
    assert lacking(part, quantity, cells, found)[0] == "awaiting hardware"
