"""Quantities of parallelism give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import lacking, select
from report.judging.rules import decide
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data

# A chip whose threads do 1 GFLOP/s each until 50,000 of them are at work.
FULL, EACH = 50_000, 1e9
COUNTS = (1, 32, 1024, 8192, 16384, 32768, 65536, 1048576)


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"parallelism.{name}"].compute(found), scope)


def point(node: SyntheticNode, seconds: float, kernel: str, device: str = "cuda:0", **more: Any) -> SyntheticNode:
    params = {"kernel": kernel, **{name: more.pop(name, 0) for name in ("in_flight", "paths", "n")}}
    backend = more.pop("backend", "cupy")
    given = {"spread": 1e-3, **more}
    return node.point("parallelism", seconds, device=device, backend=backend, dtype="", params=params, **given)


def chains(
    synthetic: Factory, counts: tuple[int, ...] = COUNTS, power: float = 1.0, spread: float = 1e-3
) -> SyntheticNode:
    """The chip; with power < 1 its threads hinder each other from the second on."""
    node = synthetic("node-a", gpus=1)
    for threads in counts:
        rate = EACH * min(threads, FULL) ** power
        point(node, 1e6 * threads / rate, "chains", in_flight=threads, flop=1e6 * threads, spread=spread)
    return node


def test_throughput_is_known_by_threads_in_flight(synthetic: Factory) -> None:
    found = of("throughput", data(synthetic, chains(synthetic)), device="gpu").frame
    rates = dict(zip(found["in_flight"].astype(int), found["estimate"], strict=True))
    assert sorted(rates) == list(COUNTS)
    assert rates[1] == pytest.approx(EACH, rel=0.01)
    assert rates[COUNTS[-1]] == pytest.approx(FULL * EACH, rel=0.01)


def test_nine_tenths_lie_between_the_numbers_that_were_measured(synthetic: Factory) -> None:
    cells = of("threads_for_90_percent", data(synthetic, chains(synthetic)), device="gpu")
    assert len(cells) == 1
    row = cells.frame.iloc[0]
    assert (row["low"], row["high"]) == (32768, 65536)
    # 0.9 lies between shares of 0.655 and 1.
    expected = 32768 * 2 ** (np.log(0.9 / 0.65536) / np.log(1 / 0.65536))
    assert row["estimate"] == pytest.approx(expected, rel=0.02)
    assert row["n_rounds"] == 3
    assert decide("at_least", cells, 10_000).outcome == "supported"
    assert decide("at_least", cells, 50_000).outcome == "undecided"


def test_what_the_intervals_cannot_tell_widens_the_bracket(synthetic: Factory) -> None:
    counts = (1, 16384, 44000, 46000, 65536)
    cells = of("threads_for_90_percent", data(synthetic, chains(synthetic, counts, spread=0.03)))
    row = cells.frame.iloc[0]
    assert (row["low"], row["high"]) == (16384, 65536)
    assert row["low"] < row["estimate"] < row["high"]


def test_a_chip_that_is_full_from_the_start_has_no_lower_end(synthetic: Factory) -> None:
    cells = of("threads_for_90_percent", data(synthetic, chains(synthetic, (65536, 131072))))
    assert np.isnan(cells.frame["low"].iloc[0])
    assert decide("at_least", cells, 10_000).outcome == "undecided"


def test_threads_side_by_side_are_proportional_until_the_chip_is_half_full(synthetic: Factory) -> None:
    cells = of("linearity", data(synthetic, chains(synthetic)), device="gpu")
    assert list(cells.frame["in_flight"].astype(int)) == [32, 1024, 8192, 16384]
    assert list(cells.frame["estimate"]) == pytest.approx([1.0] * 4, rel=0.01)
    assert decide("at_least", cells, 0.9).outcome == "supported"


def test_threads_that_hinder_each_other_are_not_proportional(synthetic: Factory) -> None:
    cells = of("linearity", data(synthetic, chains(synthetic, power=0.7)))
    assert decide("at_least", cells, 0.9).outcome == "challenged"
    # The best rate is that of 1,951 free threads: 1,024 are more than half of them.
    assert list(cells.frame["estimate"]) == pytest.approx([32**-0.3], rel=0.02)


def diverging(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    for paths, seconds in ((1, 1e-3), (8, 7e-3), (32, 24e-3)):
        point(node, seconds, "paths", paths=paths)
    # A vector unit goes through every path; past 16 of them single elements are faster.
    for paths, vectors, single in ((1, 1e-4, 2e-3), (8, 8e-4, 2e-3), (32, 32e-4, 2e-3)):
        point(node, vectors, "paths", "cpu", paths=paths, backend="llvm")
        point(node, single, "paths", "cpu", paths=paths, backend="llvm-scalar")
    return node


def test_the_cost_of_paths_that_part_is_known_on_both_devices(synthetic: Factory) -> None:
    found = data(synthetic, diverging(synthetic))
    on_gpu = of("divergence_cost", found, device="gpu", paths=32)
    assert list(on_gpu.frame["estimate"]) == pytest.approx([24], rel=0.01)
    assert on_gpu.label_values(0) == {"node": "node-a", "device": "cuda:0", "paths": 32}
    assert decide("at_least", on_gpu, 8).outcome == "supported"
    assert list(of("divergence_cost", found, device="gpu", paths=8).frame["estimate"]) == pytest.approx([7], rel=0.01)


def test_on_a_cpu_the_fastest_way_counts(synthetic: Factory) -> None:
    cells = of("divergence_cost", data(synthetic, diverging(synthetic)), device="cpu")
    assert list(cells.frame["estimate"]) == pytest.approx([8, 20], rel=0.01)
    assert list(cells.frame["detail"]) == ["llvm", "llvm-scalar"]


def test_rates_of_products_leave_the_host_out(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for kernel, backend, seconds in (("naive", "cupy", 4e-4), ("tiled", "cupy", 2e-4), ("library", "torch", 1e-5)):
        point(node, seconds, kernel, n=256, backend=backend, flop=2e9)
    point(node, 4e-6, "library", n=256, backend="torch", flop=2e9, metric="graph_time")
    found = data(synthetic, node)
    rates = {kernel: of("product_rate", found, kernel=kernel).frame for kernel in ("naive", "tiled", "library")}
    assert {kernel: len(frame) for kernel, frame in rates.items()} == dict.fromkeys(rates, 1)
    assert rates["tiled"]["estimate"].iloc[0] == pytest.approx(1e13, rel=0.01)
    assert rates["library"]["estimate"].iloc[0] == pytest.approx(5e14, rel=0.01)


@pytest.mark.parametrize("name", ["threads_for_90_percent", "linearity"])
def test_without_a_gpu_the_claims_await_hardware(synthetic: Factory, name: str) -> None:
    node = point(synthetic("node-a"), 1e-3, "paths", "cpu", paths=1, backend="llvm")
    found = data(synthetic, node)
    quantity = quantities()[f"parallelism.{name}"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    verdict, _ = lacking(Part("", quantity.name, "at_least", 1, "", scope={"device": "gpu"}), quantity, cells, found)
    assert verdict == "awaiting hardware"


def test_one_path_alone_has_no_cost(synthetic: Factory) -> None:
    found = data(synthetic, point(synthetic("node-a"), 1e-3, "paths", "cpu", paths=1, backend="llvm"))
    assert len(of("divergence_cost", found)) == 0
    assert len(of("product_rate", found)) == 0
