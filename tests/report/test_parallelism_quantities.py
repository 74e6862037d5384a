"""Quantities of parallelism give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from tests.report.deciding import decide

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured

# A chip whose threads do 1 GFLOP/s each until 50,000 of them are at work.
FULL, EACH = 50_000, 1e9
COUNTS = (1, 32, 1024, 8192, 16384, 32768, 65536, 1048576)


def point(node: SyntheticNode, seconds: float, kernel: str, device: str = "cuda:0", **more: Any) -> None:
    params = {"kernel": kernel, **{name: more.pop(name, 0) for name in ("in_flight", "paths", "n")}}
    more = {"spread": 1e-3, "backend": "cupy", **more}
    node.point("parallelism", seconds, device=device, dtype="", params=params, **more)


def chains(
    node: SyntheticNode, counts: tuple[int, ...] = COUNTS, power: float = 1.0, spread: float = 1e-3
) -> SyntheticNode:
    """The chip; with power < 1 its threads hinder each other from the second on."""
    for threads in counts:
        seconds = 1e6 * threads / (EACH * min(threads, FULL) ** power)
        point(node, seconds, "chains", in_flight=threads, flop=1e6 * threads, spread=spread)
    return node


def build(synthetic: Factory) -> Dataset:
    node = chains(synthetic("node-a", gpus=1))
    for paths, seconds in ((1, 1e-3), (8, 7e-3), (32, 24e-3)):
        point(node, seconds, "paths", paths=paths)
    # A vector unit goes through every path; past 16 of them single elements are faster.
    for paths, vectors, single in ((1, 1e-4, 2e-3), (8, 8e-4, 2e-3), (32, 32e-4, 2e-3)):
        point(node, vectors, "paths", "cpu", paths=paths, backend="llvm")
        point(node, single, "paths", "cpu", paths=paths, backend="llvm-scalar")
    for kernel, seconds in (("naive", 4e-4), ("tiled", 2e-4), ("library", 1e-5)):
        point(node, seconds, kernel, n=256, flop=2e9)
    point(node, 4e-6, "library", n=256, flop=2e9, metric="graph_time")
    return data(synthetic, node)


found = measured(build)


@cases(
    case("parallelism.throughput", {n: EACH * min(n, FULL) for n in COUNTS}, by="in_flight", rel=0.01),
    # Nine tenths lie between shares of 0.655 and 1.
    case("parallelism.threads_for_90_percent", 32768 * 2 ** (np.log(0.9 / 0.65536) / np.log(1 / 0.65536)), low=32768,
         high=65536, rel=0.02),
    # Up to half of the threads that would fill the chip.
    case("parallelism.linearity", dict.fromkeys(COUNTS[1:5], 1.0), by="in_flight", rel=0.01),
    case("parallelism.path_time", {1: 1e-4, 8: 8e-4, 32: 2e-3}, by="paths", device="cpu", rel=0.01),
    case("parallelism.divergence_cost", {8: 7, 32: 24}, by="paths", device="gpu", rel=0.01),
    case("parallelism.divergence_cost", 20, device="cpu", paths=32, detail="llvm-scalar", rel=0.01),
    case("parallelism.divergence_cost", 8, device="cpu", paths=8, detail="llvm", rel=0.01,
         labels={"node": "node-a", "device": "cpu", "paths": 8}),
    # Short products are those of a graph, which leaves the host out.
    case("parallelism.product_rate", {"naive": 5e12, "tiled": 1e13, "library": 5e14}, by="kernel", rel=0.01),
)  # fmt: skip
def test_parallelism(found: Dataset, one: Case) -> None:
    one.check(found)


@pytest.mark.parametrize(
    ("counts", "spread", "low", "high"),
    [((1, 16384, 44000, 46000, 65536), 0.03, 16384, 65536), ((65536, 131072), 1e-3, float("nan"), 65536)],
    ids=["what the intervals cannot tell widens the bracket", "full from the start"],
)
def test_the_bracket_of_nine_tenths(
    synthetic: Factory, counts: tuple[int, ...], spread: float, low: float, high: float
) -> None:
    node = chains(synthetic("node-a", gpus=1), counts, spread=spread)
    ((*ends, estimate),) = cells("parallelism.threads_for_90_percent", data(synthetic, node)).rows(
        "low", "high", "estimate"
    )
    assert ends == pytest.approx([low, high], nan_ok=True)
    assert estimate <= high and not estimate < low


def test_threads_that_hinder_each_other_are_not_proportional(synthetic: Factory) -> None:
    shares = cells("parallelism.linearity", data(synthetic, chains(synthetic("node-a", gpus=1), power=0.7)))
    # The best rate is that of 1,951 free threads: 1,024 are more than half of them.
    assert list(shares["estimate"]) == pytest.approx([32**-0.3], rel=0.02)
    assert decide("at_least", shares, 0.9).outcome == "challenged"
