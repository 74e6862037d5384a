"""Quantities of matrix products give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value
from .quantity_cases_1 import cases, check, dataset

MEGAHERTZ = 1500.0
GPU: dict[str, Any] = {"device": "cuda:0", "spread": 0}


def product(node: SyntheticNode, rate: float, n: int = 512, graph: float | None = None, **more: Any) -> SyntheticNode:
    """A product on a GPU at `rate` FLOP/s, and in a graph at `graph`, with its clock beside every sample."""
    flop = 2.0 * n**3
    about = {**GPU, "flop": flop, "params": {"m": n, "n": n, "k": n}, **more}
    first = len(node.rows)
    node.point("gemm", flop / rate, **about)
    if graph:
        node.point("gemm", flop / graph, metric="graph_time", **about)
    for row in node.rows[first:]:
        row["clock_mhz"] = MEGAHERTZ
    return node


def search(node: SyntheticNode, rate: float, *depths: int, dtype: str) -> SyntheticNode:
    """A search whose rounds end at products of these depths."""
    about: Any = {"params": {"m": 2048, "n": 2048, "k": 8192, "span": 4}, "device": "cuda:0", "dtype": dtype}
    node.point("gemm-search", rate, metric="rate", unit="FLOP/s", spread=0, **about)
    for name, size in (("best_m", 2048), ("best_n", 1792), ("best_k", 0)):
        node.point("gemm-search", size + 1.0, metric=name, unit="1", spread=0, samples=1, **about)
        for row, depth in zip(node.rows[-3:], depths, strict=True):
            row["value"] = float(size or depth)
    return node


def build(synthetic: Factory) -> SyntheticNode:
    node = product(synthetic(gpus=1), 1e12, graph=4e12)
    product(node, 3e12, n=1024)
    product(node, 3e12, graph=6e12, dtype="bfloat16")
    product(node, 9e12, n=256, status="wrong", reason="error 0.3")
    node.clock(spread=0).peak(40 * 2 * 3e9, spread=0).peak(80 * 2 * 3e9, threads=2, spread=0)
    node.gemm(20, spread=0).gemm(30, n=1024, threads=2, spread=0).peak(2 * 2 * 3e9, kernel="scalar_fma", spread=0)
    about: Any = {"params": {"batch": 64, "m": 8, "n": 8, "k": 4}, "flop": 1e6, **GPU}
    node.point("batched", 1e-5, **about).point("batched", 2e-6, metric="graph_time", **about)
    search(node, 8e14, 8192, 8192, 8192, dtype="bfloat16")
    return search(node, 4e14, 8192, 16384, 8192, dtype="tf32")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset(tmp_path_factory, build)


FLOAT32: dict[str, Any] = {"device": "gpu", "dtype": "float32"}
CPU: dict[str, Any] = {"device": "cpu"}


@cases(
    ("gemm.rate", {**FLOAT32, "backend": "torch", "n": 512}, 1e12),
    ("gemm.rate", {**FLOAT32, "backend": "torch graph", "n": 512}, 4e12),
    ("gemm.rate", {**FLOAT32, "backend": "best"}, {"estimate": 4e12, "detail": "torch graph, 512x512x512"}),
    ("gemm.rate", {**FLOAT32, "backend": "torch", "shape": "best"}, 3e12),
    ("gemm.graph_gain", {"dtype": "float32"}, {"estimate": 4.0, "shape": "512x512x512"}),
    # 3 TFLOP/s at 1.5 GHz are 2,000 operations a cycle, or 1,000 multiply-adds.
    ("gemm.mac_per_cycle", {"backend": "torch", "device": "gpu", "dtype": "bfloat16"}, 1000.0),
    ("gemm.mac_per_cycle", {"backend": "best", "device": "gpu", "dtype": "bfloat16"}, 2000.0),
    ("gemm.mac_per_cycle", {**CPU, "backend": "torch", "threads": 2}, 30.0),
    ("gemm.mac_per_cycle_per_core", {**CPU, "backend": "torch", "threads": 2}, 15.0),
    ("gemm.peak_share", {**CPU, "backend": "torch", "threads": 2}, 30 / 80),
    ("peak.mac_per_cycle", {"threads": 2}, 40.0),
    ("peak.scalar_mac_per_cycle", {}, 2.0),
    ("clock.rate", {}, 3e9),
    ("gemm.batched_rate", {"backend": "torch", "batch": 64}, 1e11),
    ("gemm.batched_rate", {"backend": "torch graph"}, 5e11),
    ("gemm.achievable_rate", {"dtype": "bfloat16"}, {"estimate": 8e14, "detail": "2048x1792x8192"}),
    ("gemm.achievable_rate", {"dtype": "tf32"}, {"detail": "2048x1792x16384 or 2048x1792x8192"}),
)
def test_values(found: Dataset, name: str, scope: dict[str, Any], expected: Any) -> None:
    check(found, name, scope, expected)


def test_a_clock_that_falls_with_the_rate_does_not_widen_their_ratio(synthetic: Factory) -> None:
    node = product(product(synthetic(gpus=1), 3e12), 3e12, n=1024)
    for row in node.rows:  # throttled a little more in every round
        slower = 1 + 0.1 * row["round"] + 1e-5 * row["sample"] * row["round"]
        row["value"] *= slower
        row["clock_mhz"] /= 1 + 0.1 * row["round"]
    evidence = data(synthetic, node)
    rate, per_cycle = (of(f"gemm.{name}", evidence, n=512).frame.iloc[0] for name in ("rate", "mac_per_cycle"))
    assert per_cycle["estimate"] == pytest.approx(1000, rel=1e-3)
    assert per_cycle["high"] / per_cycle["low"] < 1.001 < 1.3 < rate["high"] / rate["low"]


@pytest.mark.parametrize(("clocks", "expected"), [((2000.0, 2000.0, MEGAHERTZ), [1000.0]), ((float("nan"),) * 3, [])])
def test_the_clock_counts_once_the_load_is_on(
    synthetic: Factory, clocks: tuple[float, ...], expected: list[float]
) -> None:
    node = product(synthetic(gpus=1), 3e12)
    for row in node.rows:
        row["elapsed_s"] = float(row["sample"])
        row["clock_mhz"] = clocks[min(row["sample"], 2)]
    cells = of("gemm.mac_per_cycle", data(synthetic, node), backend="torch")
    assert list(cells["estimate"]) == pytest.approx(expected)


def test_a_searched_shape_is_not_among_the_declared_ones(synthetic: Factory) -> None:
    evidence = data(synthetic, search(synthetic(gpus=1), 8e14, 8192, 8192, 8192, dtype="bfloat16"))
    assert value(of("gemm.achievable_rate", evidence)) > 0
    assert len(of("gemm.rate", evidence)) == 0


@pytest.mark.parametrize("name", ["rate", "mac_per_cycle", "graph_gain", "batched_rate", "achievable_rate"])
def test_without_a_gpu_there_is_none(synthetic: Factory, name: str) -> None:
    assert not len(of(f"gemm.{name}", data(synthetic, synthetic().clock())))
