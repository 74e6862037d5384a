"""Quantities of memory and of the link to the host give what the nodes were built to have."""

from __future__ import annotations

import math

import pytest

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value

MIB = 2**20


def copy(
    node: SyntheticNode,
    seconds: float,
    size: int,
    direction: str = "host_to_device",
    host_memory: str = "pinned",
    metric: str = "time",
    spread: float = 0.0,
) -> SyntheticNode:
    """A copy that takes so long; `both` and device_to_device count twice the bytes, as the experiment does."""
    moved = size * (2 if direction in ("both", "device_to_device") else 1)
    params = {"direction": direction, "size": size, "host_memory": host_memory}
    return node.point(
        "transfer", seconds, metric=metric, params=params, bytes=moved, device="cuda:0", dtype="", spread=spread
    )


def link(synthetic: Factory) -> SyntheticNode:
    """10 µs and 50 GB/s to the device, 40 GB/s to the host, 75 GB/s both ways together."""
    node = synthetic("node-a", gpus=1)
    for size in (4, 65536, MIB, 16 * MIB, 256 * MIB):
        copy(node, 10e-6 + size / 50e9, size)
        copy(node, 20e-6 + size / 50e9, size, metric="request_time")
        copy(node, 10e-6 + size / 40e9, size, "device_to_host")
        copy(node, 2 * size / 75e9, size, "both")
    copy(node, 1e-6, 4, metric="graph_time")
    copy(node, 2 * 256 * MIB / 2e12, 256 * MIB, "device_to_device", "none")
    return node


def test_every_footprint_has_a_rate_and_only_large_ones_are_memory(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    node.devices[1]["l2_bytes"] = 50 * MIB
    for footprint, rate in ((6 * MIB, 6e12), (512 * MIB, 3e12)):
        params = {"op": "triad", "footprint": footprint}
        node.point("bandwidth", footprint / rate, device="cuda:0", params=params, bytes=footprint, spread=0)
    found = data(synthetic, node)
    rates = of("bandwidth.by_footprint", found, op="triad").frame
    assert dict(zip(rates["footprint"], rates["estimate"], strict=True)) == pytest.approx(
        {6 * MIB: 6e12, 512 * MIB: 3e12}
    )
    assert value(of("bandwidth.rate", found, op="triad", backend="best", device="gpu")) == pytest.approx(3e12)


def test_a_rate_has_a_direction_and_a_kind_of_host_memory(synthetic: Factory) -> None:
    found = data(synthetic, copy(link(synthetic), 256 * MIB / 8e9, 256 * MIB, host_memory="pageable"))
    assert value(of("transfer.rate", found, size=256 * MIB, direction="both")) == pytest.approx(75e9)
    assert value(of("transfer.rate", found, host_memory="pageable")) == pytest.approx(8e9)
    assert value(of("transfer.rate", found, direction="device_to_device")) == pytest.approx(2e12)


def test_latency_is_that_of_the_smallest_copy_as_the_host_waits_and_on_the_link(synthetic: Factory) -> None:
    found = data(synthetic, link(synthetic))
    assert value(of("transfer.latency", found, clock="host")) == pytest.approx(20e-6, rel=1e-3)
    assert value(of("transfer.latency", found, clock="device")) == pytest.approx(1e-6)
    assert set(of("transfer.latency", found).frame["size"]) == {4}


def test_both_ways_at_once_are_held_against_the_faster_one(synthetic: Factory) -> None:
    gains = of("transfer.duplex_gain", data(synthetic, link(synthetic)), size=256 * MIB)
    assert value(gains) == pytest.approx(1.5, rel=0.01)
    assert "direction" not in gains.labels


def test_half_the_best_rate_is_reached_between_two_sizes(synthetic: Factory) -> None:
    # 10 µs are 500 kB at 50 GB/s: there a copy takes twice as long as its bytes do.
    half = of("transfer.half_rate_size", data(synthetic, link(synthetic)), direction="host_to_device").frame
    (row,) = half.to_dict("records")
    assert (row["low"], row["high"], row["n_rounds"]) == (65536, MIB, 3)
    assert row["estimate"] == pytest.approx(500e3, rel=0.35)
    assert math.isfinite(row["estimate"]) and row["detail"].endswith("GB/s")


def test_a_size_that_is_not_surely_below_half_the_best_rate_is_no_end_of_where_it_lies(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for size, rate in ((65536, 1e9), (MIB, 4.9e9), (4 * MIB, 5.1e9), (16 * MIB, 10e9)):
        copy(node, size / rate, size, spread=0.05)
    (row,) = of("transfer.half_rate_size", data(synthetic, node)).frame.to_dict("records")
    assert 65536 < row["estimate"] < 16 * MIB
    assert (row["low"], row["high"]) == (65536, 16 * MIB)


@pytest.mark.parametrize("rates", [(5e9, 8e9), (8e9, 1e9)])
def test_a_rate_that_does_not_pass_half_of_the_best_has_no_such_size(
    synthetic: Factory, rates: tuple[float, float]
) -> None:
    node = synthetic("node-a", gpus=1)
    for size, rate in zip((MIB, 16 * MIB), rates, strict=True):
        copy(node, size / rate, size)
    assert len(of("transfer.half_rate_size", data(synthetic, node))) == 0


def test_memory_is_held_against_the_link_alone(synthetic: Factory) -> None:
    node = link(synthetic)
    params = {"op": "copy", "footprint": 2**30}
    node.point("bandwidth", 2**30 / 3e12, device="cuda:0", params=params, bytes=2**30, spread=0)
    ratios = of("transfer.memory_ratio", data(synthetic, node), size=256 * MIB)
    assert set(ratios.frame["direction"]) == {"host_to_device", "device_to_host"}
    assert value(ratios.only(direction="host_to_device")) == pytest.approx(60, rel=0.01)
