"""A GPU is held against the machine that the article names: a laptop, a desktop or a server, or the claim waits."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.machines import DESKTOP, LAPTOP, SERVER_CORES
from report.data.reference import read_reference
from report.judging.claims import Claim, read_claims
from report.judging.evaluate import PartResult, QuantityCache, evaluate

from .conftest import Factory, SyntheticNode
from .test_quantities import data, of, value

ROOT = Path(__file__).resolve().parents[2]
GPU_RATE, SERVER_RATE, DESKTOP_RATE = 2400e9, 300e9, 60e9
MEMORY = {"op": "triad", "footprint": 2**32}


@cache
def claims() -> dict[str, Claim]:
    reference = read_reference(ROOT / "data" / "reference")
    return {claim.id: claim for claim in read_claims(ROOT / "report" / "claims", reference)}


def weighed(name: str, found: Dataset) -> list[PartResult]:
    claim, evidence = claims()[name], QuantityCache(found)
    return [evaluate(part, claim, evidence) for part in claim.parts]


class Called(SyntheticNode):
    """A node whose processor bears a name."""

    model = "AMD Ryzen 9 7950X 16-Core Processor"

    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"]["model"] = self.model
        return record


def memory(node: SyntheticNode, rate: float, device: str = "cpu", threads: int = 0, **more: Any) -> SyntheticNode:
    seconds = 2**32 / rate
    return node.point(
        "bandwidth", seconds, device=device, params=MEMORY, bytes=2**32, threads=threads, spread=0.001, **more
    )


def step(node: SyntheticNode, rate: float, device: str = "cpu", threads: int = 0) -> SyntheticNode:
    params = {"model": "gpt", "batch": 4}
    return node.point("training", 4 / rate, device=device, params=params, flop=1e9, threads=threads, spread=0.001)


def server(synthetic: Factory, cores: int) -> SyntheticNode:
    """A GPU and its host."""
    node = synthetic("node-a", gpus=1, cores=cores)
    memory(memory(node, GPU_RATE, "cuda:0"), SERVER_RATE, threads=cores)
    return step(step(node, 1000, "cuda:0"), 100, threads=cores)


def desktop(synthetic: Factory, name: str = "node-b", rate: float = DESKTOP_RATE) -> SyntheticNode:
    node = Called(synthetic.root / name, synthetic().devices[:1], cores=16)
    memory(memory(node, rate, threads=16), rate / 2, threads=1)
    return memory(node, rate / 3, threads=16, backend="numpy")


@pytest.mark.parametrize(
    ("name", "desktop", "laptop"),
    [
        ("AMD Ryzen 9 7950X 16-Core Processor", True, False),
        ("AMD Ryzen 7 9800X3D 8-Core Processor", True, False),
        ("AMD Ryzen 5 8600G w/ Radeon 760M Graphics", True, False),
        ("AMD Ryzen 5 7600 6-Core Processor", True, False),
        ("AMD Ryzen 7 PRO 7745 8-Core Processor", True, False),
        ("Intel(R) Core(TM) Ultra 9 285K", True, False),
        ("Intel(R) Core(TM) Ultra 5 225F", True, False),
        # With DDR4 or DDR5.
        ("Intel(R) Core(TM) i9-13900K", False, False),
        ("AMD Ryzen 7 5800X 8-Core Processor", False, False),
        # Four and more channels.
        ("AMD Ryzen Threadripper 7970X 32-Cores", False, False),
        ("AMD Ryzen 9 7945HX with Radeon Graphics", False, True),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", False, True),
        ("Intel(R) Core(TM) Ultra 9 285H", False, True),
        ("Intel(R) Core(TM) Ultra 9 275HX", False, True),
        ("Intel(R) Core(TM) Ultra 7 258V", False, True),
        ("AMD EPYC 9654 96-Core Processor", False, False),
        ("Intel(R) Xeon(R) Platinum 8480CL", False, False),
    ],
)
def test_a_desktop_is_known_by_its_processor(name: str, desktop: bool, laptop: bool) -> None:
    assert (bool(DESKTOP.search(name)), bool(LAPTOP.search(name))) == (desktop, laptop)


def test_a_gpus_memory_is_held_against_the_fastest_desktops_not_its_hosts(synthetic: Factory) -> None:
    others = [desktop(synthetic), desktop(synthetic, "node-c", rate=DESKTOP_RATE / 1.5)]
    found = data(synthetic, server(synthetic, 2), *others)
    cells = of("bandwidth.over_desktop", found, op="triad", baseline="desktop")
    assert value(cells) == pytest.approx(40, rel=0.01)
    assert cells.frame["node"].iloc[0] == "node-a"
    assert cells.frame["detail"].iloc[0] == f"over {found.label('node-b')}"
    (memory,) = weighed("W07", found)
    assert memory.outcome == "supported"


def test_without_the_machines_that_the_articles_name_a_gpu_decides_nothing(synthetic: Factory) -> None:
    found = data(synthetic, server(synthetic, SERVER_CORES - 1))
    assert [(one.outcome, one.reason) for name in ("W07", "W01") for one in weighed(name, found)] == [
        ("awaiting hardware", "awaiting hardware: no desktop with DDR5 memory has measured bandwidth"),
        ("awaiting hardware", "awaiting hardware: no laptop has measured training"),
        ("awaiting hardware", "awaiting hardware: no server with 64 cores beside a GPU has measured training"),
    ]


def test_without_a_gpu_that_is_what_is_missing(synthetic: Factory) -> None:
    found = data(synthetic, desktop(synthetic), step(synthetic("node-d", cores=64), 100))
    reasons = [one.reason for name in ("W07", "W01") for one in weighed(name, found)]
    assert [reason.partition(": ")[2][:18] for reason in reasons] == ["no node with a GPU"] * 3


def test_a_host_of_64_cores_is_a_server(synthetic: Factory) -> None:
    laptop, server_part = weighed("W01", data(synthetic, server(synthetic, SERVER_CORES)))
    assert laptop.outcome == "awaiting hardware"
    assert server_part.outcome == "supported"
    found = of("training.speedup", data(synthetic, server(synthetic, SERVER_CORES)), baseline="server")
    assert set(found.frame["estimate"].round()) == {10.0}


def test_a_server_elsewhere_is_not_the_gpus_host(synthetic: Factory) -> None:
    found = data(synthetic, server(synthetic, 2), step(synthetic("node-d", cores=96), 100, threads=96))
    assert weighed("W01", found)[1].reason.endswith("no server with 64 cores beside a GPU has measured training")
