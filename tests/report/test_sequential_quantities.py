"""Quantities of sequential work give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured

MIB = 2**20


def steps(
    node: SyntheticNode, seconds: float, kernel: str = "chain", kind: str = "random", footprint: int = 4,
    count: int = 1, device: str = "cpu", spread: float = 1e-4,
) -> SyntheticNode:  # fmt: skip
    """A point of the experiment: one chain, or `count` chains that fill the device."""
    params = {"kernel": kernel, "chains": "one" if count == 1 else "full", "footprint": footprint, "data": kind}
    about: dict[str, Any] = {"params": params, "dtype": "", "device": device, "threads": count}
    node.point("sequential", seconds, metric="step_time", spread=spread, **about)
    return node.point("sequential", float(count), metric="chains_in_flight", unit="1", spread=0, samples=1, **about)


def build(synthetic: Factory) -> Dataset:
    """Chains, branches of which every other guess is wrong, and a chase that no GPU ran."""
    node = synthetic("node-a", gpus=1).clock(3e9, spread=1e-4)
    steps(node, 1e-9)
    steps(node, 8e-9, device="cuda:0")
    steps(node, 1.5e-9, count=2)
    steps(node, 2e-9, count=4)
    steps(node, 2e-8, count=1000, device="cuda:0")
    for device, predictable, random in (("cpu", 1e-9, 4e-9), ("cuda:0", 1e-8, 1.05e-8)):
        for kind, seconds in (("predictable", predictable), ("random", random)):
            steps(node, seconds, "branches", kind, 2**19, device=device, spread=0.01)
    for footprint, seconds in ((2**14, 1e-9), (2**18, 4e-9)):
        steps(node, seconds, "chase", "random", footprint)
    return data(synthetic, node)


found = measured(build)
_CHAIN = {"node": "node-a", "device": "cuda:0", "kernel": "chain", "data": "random", "footprint": 4}


@cases(
    case("sequential.step_time", 2e-9, device="cpu", chains="full", threads="all"),
    case("sequential.step_time", 8e-9, device="gpu", chains="one", kernel="chain"),
    case("sequential.chain_speed_ratio", 8, kernel=["chain", "chase"], labels=_CHAIN),
    case("sequential.gpu_over_cpu_one_thread", 1 / 8, kernel="chain", labels=_CHAIN),
    # 1000 chains at 20 ns a step, against four at 2 ns: those of two threads are not all.
    case("sequential.gpu_over_cpu_full_chip", (1000 / 20) / (4 / 2), labels=_CHAIN),
    case("sequential.prediction_gain", {"cpu": 4, "cuda:0": 1.05}, by="device", chains="one", rel=0.02),
    # 3 ns more a step are 6 ns a wrong guess, 18 cycles at 3 GHz.
    case("sequential.mispredict_cycles", 18, rel=0.02),
    case("sequential.load_cycles", {2**14: 3, 2**18: 12}, by="footprint"),
    case("sequential.cache_gain", None),
)  # fmt: skip
def test_chains(found: Dataset, one: Case) -> None:
    one.check(found)


def test_the_cost_of_a_wrong_guess_is_no_surer_than_what_it_is_made_of(found: Dataset) -> None:
    random = cells("sequential.step_time", found, device="cpu", data="random", kernel="branches")
    cost = cells("sequential.mispredict_cycles", found)
    widths = [float((one["high"] - one["low"]).iloc[0] / one["estimate"].iloc[0]) for one in (cost, random)]
    assert widths[0] > widths[1]


def caches(synthetic: Factory, level_2: int | None = MIB, flat: bool = False) -> Dataset:
    """Caches of 32 KiB, 1 MiB and 16 MiB at 2, 6 and 24 ns, and memory at 150 ns."""
    node = synthetic("node-a", cache=16 * MIB)
    record = node.record()
    if level_2 is not None:
        record["hardware"]["cpu"]["caches"]["L2"] = {"bytes": 2 * level_2, "instances": 2}
    node.record = lambda: record  # type: ignore[method-assign]
    for size in (2**power for power in range(12, 28)):
        nanoseconds = 2 if flat or size <= 2**15 else 6 if size <= MIB else 24 if size <= 16 * MIB else 150
        steps(node, nanoseconds * 1e-9, "chase", footprint=size, spread=0.01)
    return data(synthetic, node)


def test_caches_are_found_from_the_curve(synthetic: Factory) -> None:
    levels = cells("sequential.cache_level", caches(synthetic))
    assert levels.rows("level", "low", "estimate", "high", "n_rounds") == [
        (level, size, pytest.approx(size * 2**0.5), 2 * size, 3) for level, size in enumerate((2**15, MIB, 16 * MIB), 1)
    ]
    assert [float(text.split()[0]) for text in levels["detail"]] == pytest.approx([2, 6, 24], rel=0.03)


@pytest.mark.parametrize(
    ("level_2", "gain", "near"), [(MIB, 25, "262 kB"), (None, 25, "262 kB"), (2**15, 75, "32.8 kB")]
)
def test_memory_is_compared_with_what_is_near_a_core(
    synthetic: Factory, level_2: int | None, gain: float, near: str
) -> None:
    evidence = caches(synthetic, level_2)
    case("sequential.cache_gain", gain, rel=0.05, detail=f"134 MB over {near}").check(evidence)


def test_a_flat_curve_has_no_caches(synthetic: Factory) -> None:
    evidence = caches(synthetic, flat=True)
    case("sequential.cache_level", None).check(evidence)
    case("sequential.cache_gain", 1, rel=0.05).check(evidence)
