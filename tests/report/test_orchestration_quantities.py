"""Quantities of training loops with their data give what the nodes were built to have. All data here are made up."""

from __future__ import annotations

from typing import Any

import pytest

from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value

LOOP = {"model": "resnet", "batch": 32}


def turn(
    node: SyntheticNode,
    source: str,
    workers: int,
    load: float,
    step: float,
    *,
    device: str = "cpu",
    ahead: float | None = None,
    decode: float | None = None,
    spread: float = 0.002,
    **params: Any,
) -> SyntheticNode:
    """A turn of a loop with its phases; on a GPU also as it is usually written."""
    about: dict[str, Any] = {"device": device, "spread": spread, "params": {**LOOP, "source": source,
                             "workers": workers, **params}}  # fmt: skip
    node.point("orchestration", {"time": load + step, "time.load": load, "time.step": step}, **about)
    if ahead:
        node.point("orchestration", ahead, metric="loop_time", **about)
    if decode:
        node.point("orchestration", decode, metric="decode_time", **about)
    return node


def loops(node: SyntheticNode, device: str = "cpu", **more: Any) -> SyntheticNode:
    """Data in place, and pictures for which two workers do better than none or four."""
    gpu = device != "cpu"
    turn(node, "preloaded", 0, 1e-6, 10e-3, device=device, ahead=8e-3 if gpu else None, **more)
    turn(node, "encoded", 0, 10e-3, 10e-3, device=device, ahead=18e-3 if gpu else None, decode=1e-4, **more)
    turn(node, "encoded", 2, 2e-3, 10e-3, device=device, ahead=10e-3 if gpu else None, decode=1.1e-4, **more)
    return turn(node, "encoded", 4, 3e-3, 12e-3, device=device, ahead=14e-3 if gpu else None, decode=1.2e-4, **more)


def test_a_loops_wait_is_the_share_of_loading(synthetic: Factory) -> None:
    found = data(synthetic, loops(synthetic("node-a")))
    cells = of("orchestration.wait_share", found, source="encoded", workers=0)
    row = cells.frame.iloc[0]
    assert value(cells) == pytest.approx(0.5, rel=0.02)
    assert row["low"] < 0.5 < row["high"]
    assert value(of("orchestration.wait_share", found, source="preloaded")) < 1e-3


def test_time_is_lost_against_data_in_place_with_the_best_number_of_workers(synthetic: Factory) -> None:
    cells = of("orchestration.time_lost", data(synthetic, loops(synthetic("node-a"))))
    row = cells.frame.iloc[0]
    assert value(cells) == pytest.approx(1 - 10 / 12, rel=0.05)
    assert row["low"] < 1 - 10 / 12 < row["high"]
    assert (row["detail"], row["source"]) == ("2 workers", "encoded")


def test_on_a_gpu_the_loop_counts_whose_host_runs_ahead(synthetic: Factory) -> None:
    node = loops(loops(synthetic("node-a", gpus=1)), "cuda:0")
    cells = of("orchestration.gpu_time_lost_to_host", data(synthetic, node), device="gpu")
    assert list(cells.frame["device"]) == ["cuda:0"]
    assert value(cells) == pytest.approx(0.2, rel=0.05)
    assert quantities()["orchestration.gpu_time_lost_to_host"].kinds == ("gpu",)


def test_a_loop_that_is_faster_with_its_data_prepared_has_lost_nothing(synthetic: Factory) -> None:
    node = turn(synthetic("node-a"), "preloaded", 0, 1e-6, 10e-3)
    turn(node, "memory", 1, 1e-5, 9.5e-3)
    row = of("orchestration.time_lost", data(synthetic, node)).frame.iloc[0]
    assert row["estimate"] == row["low"] == 0
    assert 0 <= row["high"] < 0.02
    assert row["detail"] == "1 worker"


def test_a_loop_without_its_data_in_place_says_nothing_of_what_is_lost(synthetic: Factory) -> None:
    node = turn(synthetic("node-a"), "preloaded", 0, 1e-6, 1e-3, batch=8)
    turn(node, "encoded", 0, 1e-3, 1e-3, decode=1e-4)
    found = data(synthetic, node)
    assert len(of("orchestration.time_lost", found)) == 0
    assert len(of("orchestration.gpu_time_lost_to_host", found)) == 0
    assert value(of("orchestration.decode_time", found)) == pytest.approx(1e-4, rel=0.02)


def test_a_gpu_is_idle_while_none_of_its_kernels_runs(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for batch, kernels in ((8, 0.2e-3), (512, 0.95e-3), (4096, 1.02e-3)):
        params = {"model": "mlp", "batch": batch}
        node.point("training", {"time": 1e-3, "kernel_time": kernels}, device="cuda:0", params=params, spread=0.002)
    node.point("training", {"time": 1e-3}, params={"model": "mlp", "batch": 8})
    cells = of("orchestration.gpu_idle_share", data(synthetic, node), device="gpu")
    shares = dict(zip(cells.frame["batch"], cells.frame["estimate"], strict=True))
    assert shares == {8: pytest.approx(0.8, rel=0.02), 512: pytest.approx(0.05, rel=0.2), 4096: 0.0}
    assert (cells.frame["low"] <= cells.frame["estimate"]).all()
    assert (cells.frame["estimate"] <= cells.frame["high"]).all()


@pytest.mark.parametrize(
    "name", ["wait_share", "time_lost", "gpu_time_lost_to_host", "decode_time", "gpu_idle_share"]
)  # fmt: skip
def test_without_such_points_there_is_nothing(synthetic: Factory, name: str) -> None:
    assert len(of(f"orchestration.{name}", data(synthetic, synthetic("node-a").clock()))) == 0
