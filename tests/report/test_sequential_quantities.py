"""Quantities of sequential work give what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claims import Part
from report.judging.filters import lacking, select
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, value

MIB = 2**20


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"sequential.{name}"].compute(found), scope)


def steps(
    node: SyntheticNode,
    seconds: float,
    kernel: str = "chain",
    kind: str = "random",
    footprint: int = 4,
    count: int = 1,
    device: str = "cpu",
    spread: float = 0.0,
) -> SyntheticNode:
    """A point of the experiment: one chain, or `count` chains that fill the device."""
    params = {"kernel": kernel, "chains": "one" if count == 1 else "full", "footprint": footprint, "data": kind}
    about: Mapping[str, Any] = {
        "params": params, "dtype": "", "device": device, "threads": count,
        "backend": "numba" if device == "cpu" else "cupy",
    }  # fmt: skip
    node.point("sequential", seconds, metric="step_time", spread=spread, **about)
    return node.point("sequential", float(count), metric="chains_in_flight", unit="1", spread=0, samples=1, **about)


def both(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    steps(node, 1e-9)
    steps(node, 8e-9, device="cuda:0")
    steps(node, 2e-9, count=4)
    steps(node, 1e-9, count=2)
    steps(node, 2e-8, count=1000, device="cuda:0")
    steps(node, 1e-9, "chase", footprint=4096)  # no partner on the GPU
    return node


def test_one_core_against_one_thread(synthetic: Factory) -> None:
    found = data(synthetic, both(synthetic))
    ratio = of("chain_speed_ratio", found, kernel=["chain", "chase", "states"])
    assert value(ratio) == pytest.approx(8)
    assert ratio.label_values(0) == {
        "node": "node-a", "device": "cuda:0", "kernel": "chain", "data": "random", "footprint": 4,
    }  # fmt: skip
    assert value(of("gpu_over_cpu_one_thread", found)) == pytest.approx(1 / 8)


def test_a_whole_gpu_against_all_cores(synthetic: Factory) -> None:
    # 1000 chains at 20 ns a step, against four at 2 ns: those of two threads are not all.
    found = data(synthetic, both(synthetic))
    assert value(of("gpu_over_cpu_full_chip", found, kernel="chain")) == pytest.approx((1000 / 20) / (4 / 2))


def test_times_keep_their_labels(synthetic: Factory) -> None:
    found = data(synthetic, both(synthetic))
    assert value(of("step_time", found, device="cpu", chains="full", threads="all")) == pytest.approx(2e-9)
    assert value(of("step_time", found, device="gpu", chains="one", kernel="chain", data="random")) == (
        pytest.approx(8e-9)
    )


@pytest.mark.parametrize("name", ["chain_speed_ratio", "gpu_over_cpu_one_thread", "gpu_over_cpu_full_chip"])
def test_without_a_gpu_a_comparison_awaits_hardware(synthetic: Factory, name: str) -> None:
    found = data(synthetic, steps(steps(synthetic("node-a"), 1e-9), 1e-9, count=2))
    quantity = quantities()[f"sequential.{name}"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    verdict, _ = lacking(Part("", quantity.name, "at_least", 5, ""), quantity, cells, found)
    assert verdict == "awaiting hardware"


def branching(synthetic: Factory, spread: float = 0.0) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    for device, predictable, random in (("cpu", 1e-9, 4e-9), ("cuda:0", 1e-8, 1.05e-8)):
        for kind, seconds in (("predictable", predictable), ("random", random)):
            steps(node, seconds, "branches", kind, 2**19, device=device, spread=spread)
    return node.clock(3e9, spread=spread)


def test_what_prediction_is_worth_on_each_device(synthetic: Factory) -> None:
    found = data(synthetic, branching(synthetic))
    assert value(of("prediction_gain", found, device="cpu", chains="one")) == pytest.approx(4)
    assert value(of("prediction_gain", found, device="gpu", chains="one")) == pytest.approx(1.05)


def test_what_a_wrong_guess_costs(synthetic: Factory) -> None:
    # Every other guess is wrong: 3 ns more a step are 6 ns a wrong guess, 18 cycles at 3 GHz.
    assert value(of("mispredict_cycles", data(synthetic, branching(synthetic)))) == pytest.approx(18)


def test_loads_are_told_in_cycles_of_the_nodes_own_clock(synthetic: Factory) -> None:
    node = synthetic()
    for footprint, seconds in ((2**14, 1e-9), (2**18, 4e-9)):
        steps(node, seconds, "chase", "random", footprint, spread=0.01)
    cells = of("load_cycles", data(synthetic, node.clock(4e9, spread=0.01)))
    found = dict(zip(cells.frame["footprint"], cells.frame["estimate"], strict=True))
    assert found == {2**14: pytest.approx(4, rel=0.03), 2**18: pytest.approx(16, rel=0.03)}
    assert all(cells.frame["low"] < cells.frame["estimate"]) and all(cells.frame["estimate"] < cells.frame["high"])


def test_the_cost_of_a_wrong_guess_is_no_surer_than_what_it_is_made_of(synthetic: Factory) -> None:
    found = data(synthetic, branching(synthetic, spread=0.02))
    cost = of("mispredict_cycles", found).frame.iloc[0]
    random = of("step_time", found, device="cpu", data="random").frame.iloc[0]
    assert cost["low"] < cost["estimate"] < cost["high"]
    assert (cost["high"] - cost["low"]) / cost["estimate"] > (random["high"] - random["low"]) / random["estimate"]
    assert cost["n_rounds"] == 3


def ladder(synthetic: Factory, level_2: int | None = MIB) -> SyntheticNode:
    """Caches of 32 KiB, 1 MiB and 16 MiB at 2, 6 and 24 ns, and memory at 150 ns."""
    node = synthetic("node-a", cache=16 * MIB)
    record = node.record()
    if level_2 is not None:
        record["hardware"]["cpu"]["caches"]["L2"] = {"bytes": 2 * level_2, "instances": 2}
    node.record = lambda: record  # type: ignore[method-assign]
    for power in range(12, 28):
        size = 2**power
        nanoseconds = 2 if size <= 2**15 else 6 if size <= MIB else 24 if size <= 16 * MIB else 150
        steps(node, nanoseconds * 1e-9, "chase", footprint=size, spread=0.01)
    return node


def test_caches_are_found_from_the_curve(synthetic: Factory) -> None:
    levels = of("cache_level", data(synthetic, ladder(synthetic))).frame
    assert list(levels["level"]) == [1, 2, 3]
    assert list(levels["low"]) == [2**15, MIB, 16 * MIB]
    assert list(levels["high"]) == [2**16, 2 * MIB, 32 * MIB]
    assert ((levels["low"] < levels["estimate"]) & (levels["estimate"] < levels["high"])).all()
    assert [text.split()[1] for text in levels["detail"]] == ["ns", "ns", "ns"]
    assert [float(text.split()[0]) for text in levels["detail"]] == pytest.approx([2, 6, 24], rel=0.03)


def test_a_level_can_be_asked_for(synthetic: Factory) -> None:
    found = data(synthetic, ladder(synthetic))
    assert value(of("cache_level", found, level=2)) == pytest.approx(2**20.5)


@pytest.mark.parametrize(("level_2", "gain"), [(MIB, 25), (None, 25), (2**15, 75)])
def test_memory_is_compared_with_what_is_near_a_core(synthetic: Factory, level_2: int | None, gain: float) -> None:
    cells = of("cache_gain", data(synthetic, ladder(synthetic, level_2)))
    assert value(cells) == pytest.approx(gain, rel=0.05)
    near = "32.8 kB" if level_2 == 2**15 else "262 kB"
    assert cells.frame["detail"].iloc[0] == f"134 MB over {near}"


def test_without_footprints_beyond_the_caches_nothing_is_said_of_memory(synthetic: Factory) -> None:
    node = synthetic("node-a", cache=16 * MIB)
    for size in (4096, 8192, 32 * MIB):
        steps(node, 1e-9, "chase", footprint=size)
    found = data(synthetic, node)
    assert len(of("cache_gain", found)) == 0
    assert len(of("cache_level", found)) == 0


def test_a_flat_curve_has_no_caches(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for power in range(12, 28):
        steps(node, 1e-9, "chase", footprint=2**power, spread=0.01)
    assert len(of("cache_level", data(synthetic, node))) == 0
