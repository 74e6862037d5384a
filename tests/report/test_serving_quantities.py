"""Quantities of services give what the nodes were built to have."""

from __future__ import annotations

import math
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.formatting import labels_text
from report.judging.filters import select
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"serving.{name}"].compute(found), scope)


def under(
    node: SyntheticNode, rate: int, service: str = "classifier", seconds: int = 4, cores: int = 2,
    device: str = "cpu", spread: float = 1e-3, **metrics: float,
) -> SyntheticNode:  # fmt: skip
    """A server under a load: metrics by name, those that are shares have unit 1."""
    params = {"service": service, "requests_per_s": rate, "cores": cores, "seconds": seconds}
    for name, value in metrics.items():
        node.point("serving", value, metric=name, params=params, device=device, spread=spread, samples=1)
    return node


def tails(node: SyntheticNode, by_rate: dict[int, float], **more: Any) -> SyntheticNode:
    for rate, seconds in by_rate.items():
        under(node, rate, p99_latency=seconds, **more)
    return node


def values(cells: Estimates) -> list[float]:
    return [float(value) for value in cells.frame["estimate"]]


def test_the_tail_is_told_by_load_whatever_a_load_lasted(synthetic: Factory) -> None:
    node = tails(synthetic("node-a"), {100: 0.03, 5: 0.01})
    under(node, 20, seconds=60, p99_latency=0.02)
    cells = of("p99_latency_s", data(synthetic, node))
    assert list(cells.frame["requests_per_s"]) == [5, 20, 100]
    assert values(cells) == pytest.approx([0.01, 0.02, 0.03], rel=0.01)
    assert "seconds" not in cells.labels
    assert values(of("p99_latency_s", data(synthetic, node), device="cpu", requests_per_s=5, cores=2)) == [
        pytest.approx(0.01, rel=0.01)
    ]


@pytest.mark.parametrize(
    ("by_rate", "capacity", "low", "high"),
    [
        ({5: 0.01, 20: 0.02, 100: 0.05, 300: 1.5}, 100, 100, 300),
        ({5: 0.01, 20: 0.02}, 20, 20, math.nan),
        ({5: 0.3, 20: 2.0}, 0, 0, 5),
        # A lower rate that fails is not made up for by a higher one that does not.
        ({5: 0.01, 20: 0.5, 100: 0.02}, 5, 5, 20),
    ],
    ids=["between", "more than was offered", "less than was offered", "in between by chance"],
)
def test_capacity_is_the_largest_load_that_is_borne(
    synthetic: Factory, by_rate: dict[int, float], capacity: float, low: float, high: float
) -> None:
    row = of("capacity", data(synthetic, tails(synthetic("node-a"), by_rate))).frame.iloc[0]
    assert (row["estimate"], row["low"]) == (capacity, low)
    assert row["high"] == pytest.approx(high, nan_ok=True)


def test_what_scatters_about_the_limit_widens_the_capacity(synthetic: Factory) -> None:
    node = tails(synthetic("node-a"), {5: 0.01, 1000: 3.0})
    under(node, 20, p99_latency=0.08, spread=0.5)
    under(node, 100, p99_latency=0.15, spread=0.5)
    row = of("capacity", data(synthetic, node)).frame.iloc[0]
    assert row["low"] == 5
    assert row["high"] == 1000
    assert 5 <= row["estimate"] <= 100


def test_servers_are_told_apart(synthetic: Factory) -> None:
    node = tails(synthetic("node-a"), {5: 0.01, 20: 1.0})
    tails(node, {5: 0.01, 20: 0.01}, service="embedding")
    tails(node, {5: 1.0}, cores=1)
    found = data(synthetic, node)
    assert values(of("capacity", found, cores=2, service="classifier")) == [5]
    assert values(of("capacity", found, cores=2, service="embedding")) == [20]
    assert values(of("capacity", found, cores=1)) == [0]


def test_costs_and_idleness_are_what_was_observed(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    under(node, 5, cpu_per_request=0.004, failed_share=0.1)
    under(node, 5, device="cuda:0", cpu_per_request=0.002, gpu_busy_share=0.03)
    found = data(synthetic, node)
    assert values(of("cpu_seconds_per_request", found, device="cpu")) == [pytest.approx(0.004, rel=0.01)]
    assert values(of("failed_share", found)) == [pytest.approx(0.1, rel=0.01)]
    busy = of("gpu_busy_share", found, device="gpu", requests_per_s=5)
    assert values(busy) == [pytest.approx(0.03, rel=0.01)]
    assert 0 <= busy.frame["low"].iloc[0] < busy.frame["high"].iloc[0] < 0.1


@pytest.mark.parametrize("name", [name for name, one in quantities().items() if "serving" in one.experiments])
def test_without_a_server_there_is_nothing(synthetic: Factory, name: str) -> None:
    assert len(quantities()[name].cells(data(synthetic, synthetic("node-a").gemm(10)))) == 0


def test_a_load_is_told_in_words() -> None:
    labels = {"service": "int8", "requests_per_s": 1000, "cores": 1}
    assert labels_text(labels) == "language model in 8-bit integers, 1,000 requests/s, 1 core"
    assert labels_text({"cores": 2}) == "2 cores"
    assert labels_text({"cores": 0}) == "all cores"
