"""Quantities of the roofline and of predictions from a few numbers give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.judging.claims import Part
from report.judging.filters import lacking
from report.judging.rules import decide
from report.quantities import prediction, quantities
from report.quantities.kernels import is_held

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value

# FLOP/s, bytes/s: a balance of 16 FLOP/B.
PEAK, MOVED = 1.6e11, 1e10
CACHE = 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


def machine(synthetic: Factory, name: str = "node-a", spread: float = 0.0) -> SyntheticNode:
    """A node whose multiply-add kernel and whose passes over memory show its ceilings."""
    node = synthetic(name, cache=CACHE).peak(PEAK, spread=spread)
    return sweep_over(node, 8 * CACHE, MOVED, spread=spread)


def sweep_over(node: SyntheticNode, footprint: int, rate: float, op: str = "triad", **more: Any) -> SyntheticNode:
    return node.point("bandwidth", footprint / rate, backend="llvm", dtype="float64", bytes=footprint,
                      params={"op": op, "footprint": footprint}, **{"spread": 0.0, **more})  # fmt: skip


def step(
    node: SyntheticNode,
    shares: dict[float, float],
    phase: str = "training",
    batch: int = 8,
    spread: float = 0.0,
    **metrics: float,
) -> SyntheticNode:
    """A step of which so much of the time, bytes and FLOP lies in operators of these intensities."""
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": batch, "phase": phase}, "spread": spread}
    for measure in ("time", "bytes", "flop"):
        for limit in LIMITS:
            share = sum(part for intensity, part in shares.items() if intensity <= limit)
            node.point("roofline", {f"{measure}_below.{limit:g}_share": share}, **about)
    for name, unit in (("product_intensity", "FLOP/B"), ("kernels", "1"), ("matmul_time_share", "1")):
        if name in metrics:
            node.point("roofline", metrics[name], metric=name, unit=unit, **about)
    return node


def test_the_balance_is_peak_over_bandwidth(synthetic: Factory) -> None:
    node = machine(synthetic, spread=0.01)
    assert value(of("roofline.balance", data(synthetic, node))) == pytest.approx(PEAK / MOVED, rel=0.02)


def test_a_product_that_is_faster_than_the_kernel_is_the_peak(synthetic: Factory) -> None:
    node = machine(synthetic).gemm(64, clock=2.5e9, spread=0)
    cells = of("roofline.balance", data(synthetic, node))
    assert value(cells) == pytest.approx(2 * 64 * 2.5e9 / MOVED)
    assert "512x512x512" in cells.frame["detail"].iloc[0]


def test_intensity_is_held_against_the_balance(synthetic: Factory) -> None:
    node = machine(synthetic, spread=0.01)
    step(node, {64: 1.0}, product_intensity=64.0)
    step(node, {1: 1.0}, phase="decode", product_intensity=0.5)
    found = data(synthetic, node)
    assert value(of("roofline.intensity_over_balance", found, phase="training")) == pytest.approx(4, rel=0.05)
    assert decide("at_least", of("roofline.intensity_over_balance", found), 1).outcome == "depends"


def test_time_below_the_balance_is_bound_by_memory(synthetic: Factory) -> None:
    # The balance is 16 within some per cent: between the thresholds 8 and 32.
    node = machine(synthetic, spread=0.01)
    step(node, {0.25: 0.3, 8: 0.3, 64: 0.4})
    cells = of("roofline.memory_bound_share", data(synthetic, node))
    row = cells.frame.iloc[0]
    assert value(cells) == pytest.approx(0.6)
    assert (row["n_rounds"], row["phase"]) == (3, "training")
    # Equal rounds of something timed are no knowledge of its spread.
    assert np.isnan(row["low"])


def test_that_every_operator_lies_below_the_balance_is_counted(synthetic: Factory) -> None:
    node = step(machine(synthetic, spread=0.01), {0.5: 1.0}, phase="decode")
    row = of("roofline.memory_bound_share", data(synthetic, node)).frame.iloc[0]
    assert (row["estimate"], row["low"], row["high"]) == (1, 1, 1)
    node = step(machine(synthetic, "node-b", spread=0.01), {256: 1.0}, phase="prefill")
    row = of("roofline.memory_bound_share", data(synthetic, node), node="node-b").frame.iloc[0]
    assert (row["estimate"], row["low"], row["high"]) == (0, 0, 0)


def test_the_interval_spans_thresholds_around_the_balance_and_rounds(synthetic: Factory) -> None:
    node = machine(synthetic, spread=0.01)
    step(node, {1: 0.3, 16: 0.3, 64: 0.4}, spread=0.02)
    row = of("roofline.memory_bound_share", data(synthetic, node)).frame.iloc[0]
    # Operators at 16 may lie on either side of a balance of about 16.
    assert row["low"] < 0.3 < row["estimate"] < 0.6 < row["high"] < 0.8
    assert row["low"] > 0.2
    assert decide("at_most", of("roofline.memory_bound_share", data(synthetic, node)), 0.9).outcome == "supported"


def test_without_the_ceilings_nothing_is_said(synthetic: Factory) -> None:
    found = data(synthetic, step(synthetic("node-a"), {1: 1.0}, product_intensity=1.0))
    for name in ("memory_bound_share", "intensity_over_balance", "prediction_error"):
        assert len(of(f"roofline.{name}", found)) == 0
    part = Part("", "roofline.memory_bound_share", "at_most", 1, "", scope={"device": "gpu"})
    known = quantities()[part.quantity]
    assert lacking(part, known, known.compute(found), found)[0] == "awaiting hardware"


def test_products_share_of_the_time_leaves_training_to_its_own_quantity(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for phase, share in (("training", 0.9), ("prefill", 0.8), ("decode", 0.5)):
        step(node, {1: 1.0}, phase=phase, matmul_time_share=share)
    found = of("inference.matmul_time_share", data(synthetic, node)).frame
    assert dict(zip(found["phase"], found["estimate"], strict=True)) == pytest.approx({"prefill": 0.8, "decode": 0.5})


def made_up(
    synthetic: Factory, launch: float = 0.0, cache: float = 1.0, reached: float = 1.0, spread: float = 0.0
) -> SyntheticNode:
    """A machine on which every kernel takes exactly what the given numbers say.

    reached: share of both ceilings that kernels reach. cache: its bandwidth over that of memory.
    """
    node = machine(synthetic, spread=spread)
    for n in (64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1536):
        for m in (1, n):
            flop, moved = 2.0 * m * n * n, 4.0 * (2 * m * n + n * n)
            seconds = max(flop / PEAK, moved / MOVED) / reached + launch
            node.point("gemm", seconds, params={"m": m, "n": n, "k": n}, flop=flop, bytes=moved, spread=spread)
    for size in (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, CACHE * 16, CACHE * 24):
        for op in ("copy", "add"):
            rate = MOVED * (cache if size <= CACHE else 1.0) * reached
            node.point("bandwidth", size / rate + launch, backend="llvm", dtype="float64", bytes=size,
                       params={"op": op, "footprint": size}, spread=spread)  # fmt: skip
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        # Half of the bytes in operators of 1/4, half in operators of 64 FLOP/B: 16 FLOP/B is the balance.
        moved, kernels = 1e6 * batch, 50.0
        flop = moved / 2 * (0.25 + 64)
        seconds = (moved / 2 / MOVED + moved / 2 * 64 / PEAK) / reached + kernels * launch
        params = {"model": "mlp", "batch": batch, "phase": "training"}
        node.point("roofline", seconds, params=params, flop=flop, bytes=moved, spread=spread)
        told = {"kernels": kernels, "cached_bytes_share": 0.0}
        for limit in LIMITS:
            told[f"bytes_below.{limit:g}_share"] = 0.5 if limit < 64 else 1.0
            told[f"flop_below.{limit:g}_share"] = 0.25 / 64.25 if limit < 64 else 1.0
        for name, share in told.items():
            node.point("roofline", share, metric=name, unit="1", params=params, spread=0)
    return node


def errors(found: Dataset) -> dict[tuple[int, str], float]:
    frame = of("roofline.prediction_error", found).frame
    return {(int(row["numbers"]), row["ceilings"]): row["estimate"] for row in frame.to_dict("records")}


@pytest.mark.parametrize(
    ("made", "enough"),
    [
        ({}, 2),
        ({"reached": 0.7}, 2),
        ({"launch": 2e-4}, 3),
        ({"launch": 5e-6, "reached": 0.8}, 3),
        ({"launch": 2e-4, "cache": 8.0}, 4),
    ],
)
def test_as_many_numbers_as_the_machine_has_foretell_it(
    synthetic: Factory, made: dict[str, float], enough: int
) -> None:
    found = errors(data(synthetic, made_up(synthetic, **made)))
    for numbers in (2, 3, 4):
        if numbers >= enough:
            assert found[numbers, "fitted"] < 0.01
        else:
            assert found[numbers, "fitted"] > 2 * found[enough, "fitted"] + 0.01
    # A measured ceiling is what kernels reach only if they reach it.
    assert (found[2, "measured"] < 0.01) == (made == {})


def test_the_numbers_are_those_of_the_machine(synthetic: Factory) -> None:
    found = data(synthetic, made_up(synthetic, launch=2e-4, cache=8.0, reached=0.8))
    fits = {one.labels["numbers"]: one.fits for one in prediction.foretold(found)}
    assert fits[4][0] == pytest.approx({"peak": 0.8, "bandwidth": 0.8, "launch": 2e-4, "cache": 8.0}, rel=0.03)
    detail = of("roofline.prediction_error", found, numbers=4).frame["detail"].iloc[0]
    assert "200 µs a launch" in detail
    assert "800% of the bandwidth from the cache" in detail


def test_rounds_give_the_interval_and_kernels_are_no_sample(synthetic: Factory) -> None:
    node = made_up(synthetic, reached=0.7, spread=0.03)
    row = of("roofline.prediction_error", data(synthetic, node), numbers=2, ceilings="measured").frame.iloc[0]
    assert row["low"] < 0.3 < row["high"]
    assert 0 < row["high"] - row["low"] < 0.3
    assert row["n_rounds"] == 3


def test_rounds_without_steps_of_models_take_none_of_them_away(synthetic: Factory) -> None:
    node = made_up(synthetic)
    more = [row for row in node.rows if row["round"] == 1 and row["experiment"] != "roofline"]
    node.rows += [{**row, "round": number, "run": f"run{number}"} for number in (4, 5) for row in more]
    (one, *_) = prediction.foretold(data(synthetic, node))
    assert any(what.startswith("roofline") for what in one.what)
    assert len(one.measured) == 3


def test_what_is_a_ceiling_and_what_shows_a_language_are_not_judged(synthetic: Factory) -> None:
    node = made_up(synthetic)
    node.point("gemm", 10.0, backend="python", params={"m": 4, "n": 4, "k": 4}, flop=128, bytes=400, spread=0)
    node.point("gemm", 2.0 * 4096**3 / PEAK * 0.99, params={"m": 4096, "n": 4096, "k": 4096}, flop=2.0 * 4096**3,
               bytes=12.0 * 4096**2, spread=0)  # fmt: skip
    found = data(synthetic, node)
    judged = {str(what) for what in prediction.foretold(found)[0].what}
    assert judged
    assert all(is_held(what) for what in judged)
    assert not any("python" in what or "4096" in what or f'"footprint": {8 * CACHE}' in what for what in judged)
    # The other half is there as well, and is not judged.
    everything = {str(what) for one in prediction.rounds(found).values() for what in one[0].what}
    assert len(everything - judged) > 6


def test_too_few_kernels_give_no_prediction(synthetic: Factory) -> None:
    node = machine(synthetic)
    for n in (64, 128, 256):
        node.point("gemm", 1e-3, params={"m": n, "n": n, "k": n}, flop=2.0 * n**3, bytes=12.0 * n**2)
    assert len(of("roofline.prediction_error", data(synthetic, node))) == 0


def test_the_number_that_kernels_follow_misses_less(synthetic: Factory) -> None:
    """Products of a matrix by a vector follow bandwidth, those of square matrices arithmetic."""
    found = {}
    for name, wide in (("vectors", False), ("squares", True)):
        node = machine(synthetic, name, spread=0.01)
        for n in range(256, 2048, 64):
            m = n if wide else 1 + n % 5
            flop, moved = 2.0 * m * n * n, 4.0 * (2 * m * n + n * n)
            node.point("gemm", max(flop / PEAK, moved / MOVED), params={"m": m, "n": n, "k": n}, flop=flop,
                       bytes=moved, spread=0.01)  # fmt: skip
        found[name] = node
    made = of("roofline.bandwidth_error_over_compute_error", data(synthetic, *found.values()))
    by_node = dict(zip(made.frame["node"], made.frame["estimate"], strict=True))
    assert by_node["vectors"] < 0.5
    assert by_node["squares"] > 2
