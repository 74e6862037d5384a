"""Quantities of services give what the nodes were built to have."""

from __future__ import annotations

import math

import pytest

from report.data.dataset import Dataset
from report.formatting import labels_text

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured


def under(
    node: SyntheticNode, rate: int, service: str = "classifier", seconds: int = 4, cores: int = 2,
    device: str = "cpu", spread: float = 1e-3, **metrics: float,
) -> SyntheticNode:  # fmt: skip
    """A server under a load: metrics by name, those that are shares have unit 1."""
    params = {"service": service, "requests_per_s": rate, "cores": cores, "seconds": seconds}
    for name, value in metrics.items():
        node.point("serving", value, metric=name, params=params, device=device, spread=spread, samples=1)
    return node


def tails(node: SyntheticNode, by_rate: dict[int, float], **more: float | str) -> SyntheticNode:
    for rate, seconds in by_rate.items():
        under(node, rate, p99_latency=seconds, **more)  # type: ignore[arg-type]
    return node


def build(synthetic: Factory) -> Dataset:
    node = tails(synthetic("node-a", gpus=1), {100: 0.03, 5: 0.01, 300: 1.5})
    under(node, 20, seconds=60, p99_latency=0.02)
    tails(node, {5: 0.01, 20: 0.01}, service="embedding")
    tails(node, {5: 1.0, 20: 2.0}, cores=1)
    # A lower rate that fails is not made up for by a higher one that does not.
    tails(node, {5: 0.01, 20: 0.5, 100: 0.02}, service="int8")
    under(node, 5, cpu_per_request=0.004, failed_share=0.1)
    under(node, 5, device="cuda:0", cpu_per_request=0.002, gpu_busy_share=0.03)
    return data(synthetic, node)


found = measured(build)
_TWO = {"cores": 2, "service": "classifier"}


@cases(
    case("serving.p99_latency_s", {5: 0.01, 20: 0.02, 100: 0.03, 300: 1.5}, by="requests_per_s", rel=0.01, **_TWO),
    case("serving.capacity", 100, low=100, high=300, detail="offered: 5 to 300", **_TWO),
    case("serving.capacity", 20, low=20, service="embedding"),
    case("serving.capacity", 0, low=0, high=5, cores=1),
    case("serving.capacity", 5, low=5, high=20, service="int8"),
    case("serving.cpu_seconds_per_request", {"cpu": 0.004, "cuda:0": 0.002}, by="device", rel=0.01),
    case("serving.failed_share", 0.1, rel=0.01),
    case("serving.gpu_busy_share", 0.03, rel=0.01, device="gpu", requests_per_s=5),
)  # fmt: skip
def test_services(found: Dataset, one: Case) -> None:
    one.check(found)


def test_loads_are_in_order_and_named_by_what_tells_servers_apart(found: Dataset) -> None:
    tail = cells("serving.p99_latency_s", found, **_TWO)
    assert list(tail["requests_per_s"]) == [5, 20, 100, 300] and not {"seconds", "threads"} & set(tail.labels)


def test_what_scatters_about_the_limit_widens_the_capacity(synthetic: Factory) -> None:
    node = tails(tails(synthetic("node-a"), {5: 0.01, 1000: 3.0}), {20: 0.08, 100: 0.15}, spread=0.5)
    ((low, estimate, high),) = cells("serving.capacity", data(synthetic, node)).rows("low", "estimate", "high")
    assert (low, high) == (5, 1000) and 5 <= estimate <= 100 and not math.isnan(estimate)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"service": "int8", "cores": 1}, "language model in 8-bit integers, 1 core"),
        ({"requests_per_s": 1000}, "1,000 requests/s"),
        ({"cores": 2}, "2 cores"),
        ({"cores": 0}, "all cores"),
    ],
)  # fmt: skip
def test_a_load_is_told_in_words(labels: dict[str, object], text: str) -> None:
    assert labels_text(labels) == text
