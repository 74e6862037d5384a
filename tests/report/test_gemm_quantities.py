"""Quantities of matrix products on GPUs give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import lacking, select
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, value

MEGAHERTZ = 1500.0


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"gemm.{name}"].compute(found), scope)


def product(node: SyntheticNode, rate: float, n: int = 512, graph: float | None = None, **more: Any) -> SyntheticNode:
    """A product on a GPU at `rate` FLOP/s, and in a graph at `graph`, with its clock beside every sample."""
    flop = 2.0 * n**3
    about = {"device": "cuda:0", "flop": flop, "params": {"m": n, "n": n, "k": n}, "spread": 0, **more}
    first = len(node.rows)
    node.point("gemm", flop / rate, **about)
    if graph:
        node.point("gemm", flop / graph, metric="graph_time", **about)
    for row in node.rows[first:]:
        row["clock_mhz"] = MEGAHERTZ
    return node


def test_a_graph_has_a_cell_of_its_own_and_takes_part_in_the_best(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 1e12, graph=4e12)
    product(node, 3e12, n=1024)
    found = data(synthetic, node)
    assert value(of("rate", found, backend="torch", n=512)) == pytest.approx(1e12)
    assert value(of("rate", found, backend="torch graph", n=512)) == pytest.approx(4e12)
    best = of("rate", found, device="gpu", backend="best")
    assert value(best) == pytest.approx(4e12)
    assert best.frame["detail"].iloc[0] == "torch graph, 512x512x512"
    assert value(of("rate", found, backend="torch", shape="best")) == pytest.approx(3e12)


def test_what_the_host_costs_is_the_time_over_that_in_a_graph(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 1e12, graph=4e12)
    gain = of("graph_gain", data(synthetic, product(node, 3e12, n=1024)))
    assert value(gain) == pytest.approx(4)
    assert gain.label_values(0)["shape"] == "512x512x512"


def test_multiply_adds_per_cycle_of_a_gpu_come_from_the_clock_beside_its_samples(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 3e12, graph=6e12, dtype="bfloat16")
    node.gemm(20, spread=0).clock(spread=0)
    found = data(synthetic, node)
    # 3 TFLOP/s at 1.5 GHz are 2,000 operations a cycle, or 1,000 multiply-adds.
    assert value(of("mac_per_cycle", found, backend="torch", device="gpu")) == pytest.approx(1000)
    assert value(of("mac_per_cycle", found, backend="best", device="gpu")) == pytest.approx(2000)
    assert value(of("mac_per_cycle", found, backend="best", device="cpu")) == pytest.approx(20)


def test_a_clock_that_falls_with_the_rate_does_not_widen_their_ratio(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 3e12, n=512)
    product(node, 3e12, n=1024)
    for row in node.rows:  # throttled a little more in every round
        slower = 1 + 0.1 * row["round"] + 1e-5 * row["sample"] * row["round"]
        row["value"] *= slower
        row["clock_mhz"] /= 1 + 0.1 * row["round"]
    found = data(synthetic, node)
    rate, per_cycle = (of(name, found, n=512).frame.iloc[0] for name in ("rate", "mac_per_cycle"))
    assert per_cycle["estimate"] == pytest.approx(1000, rel=1e-3)
    assert per_cycle["high"] / per_cycle["low"] < 1.001
    assert rate["high"] / rate["low"] > 1.3


def test_the_clock_before_the_load_was_on_does_not_count(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 3e12)
    for row in node.rows:
        row["elapsed_s"] = float(row["sample"])
        row["clock_mhz"] = 2000.0 if row["sample"] < 2 else MEGAHERTZ
    assert value(of("mac_per_cycle", data(synthetic, node), backend="torch")) == pytest.approx(1000)


def test_without_a_clock_there_are_no_cycles_to_divide_by(synthetic: Factory) -> None:
    node = product(synthetic(gpus=1), 3e12)
    for row in node.rows:
        row["clock_mhz"] = float("nan")
    assert len(of("mac_per_cycle", data(synthetic, node), device="gpu")) == 0


def test_a_batch_has_a_rate_in_and_out_of_a_graph(synthetic: Factory) -> None:
    node = synthetic(gpus=1)
    about: Any = {"params": {"batch": 64, "m": 8, "n": 8, "k": 4}, "device": "cuda:0", "flop": 1e6, "spread": 0}
    node.point("batched", 1e-5, **about).point("batched", 2e-6, metric="graph_time", **about)
    found = data(synthetic, node)
    assert value(of("batched_rate", found, backend="torch", batch=64)) == pytest.approx(1e11)
    assert value(of("batched_rate", found, backend="torch graph")) == pytest.approx(5e11)


def search(node: SyntheticNode, rate: float, *depths: int, dtype: str = "bfloat16") -> SyntheticNode:
    """A search whose rounds end at products of these depths."""
    about: Any = {"params": {"m": 2048, "n": 2048, "k": 8192, "span": 4}, "device": "cuda:0", "dtype": dtype}
    node.point("gemm-search", rate, metric="rate", unit="FLOP/s", spread=0.01, **about)
    for name, size in (("best_m", 2048), ("best_n", 1792), ("best_k", 0)):
        node.point("gemm-search", size + 1.0, metric=name, unit="1", spread=0, samples=1, **about)
        for row, depth in zip(node.rows[-3:], depths, strict=True):
            row["value"] = float(size or depth)
    return node


def test_what_a_search_found_is_measured_and_named(synthetic: Factory) -> None:
    node = search(synthetic(gpus=1), 8e14, 8192, 8192, 8192)
    search(node, 4e14, 8192, 16384, 8192, dtype="tf32")
    found = data(synthetic, node)
    bfloat16, tf32 = (of("achievable_rate", found, dtype=dtype) for dtype in ("bfloat16", "tf32"))
    assert value(bfloat16) == pytest.approx(8e14, rel=0.02)
    assert value(tf32) == pytest.approx(4e14, rel=0.02)
    assert bfloat16.frame["detail"].iloc[0] == "2048x1792x8192"
    assert tf32.frame["detail"].iloc[0] == "2048x1792x16384 or 2048x1792x8192"
    assert bfloat16.frame["low"].iloc[0] < 8e14 < bfloat16.frame["high"].iloc[0]
    assert len(of("rate", found)) == 0, "a searched shape is not among the declared ones"


@pytest.mark.parametrize("name", ["rate", "mac_per_cycle", "graph_gain", "batched_rate", "achievable_rate"])
def test_without_a_gpu_each_awaits_hardware(synthetic: Factory, name: str) -> None:
    found = data(synthetic, synthetic().clock())
    quantity = quantities()[f"gemm.{name}"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    part = Part("", quantity.name, "at_least", 1, "", scope={"device": "gpu"})
    assert lacking(part, quantity, cells, found)[0] == "awaiting hardware"
