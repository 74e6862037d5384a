"""Quantities of the roofline and of predictions from a few numbers give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.quantities import prediction
from report.quantities.kernels import is_held

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured

# FLOP/s, bytes/s: a balance of 16 FLOP/B.
PEAK, MOVED = 1.6e11, 1e10
CACHE = 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


def passes(
    node: SyntheticNode, footprint: int, seconds: float, op: str = "triad", spread: float = 0.0
) -> SyntheticNode:
    params = {"op": op, "footprint": footprint}
    return node.point(
        "bandwidth", seconds, backend="llvm", dtype="float64", bytes=footprint, params=params, spread=spread
    )


def machine(synthetic: Factory, name: str = "node-a", spread: float = 0.0) -> SyntheticNode:
    """A node whose multiply-add kernel and whose passes over memory show its ceilings."""
    return passes(synthetic(name, cache=CACHE).peak(PEAK, spread=spread), 8 * CACHE, 8 * CACHE / MOVED, spread=spread)


def step(node: SyntheticNode, shares: dict[float, float], phase: str, spread: float = 0.0, **metrics: float) -> None:
    """A step of which so much of the time lies in operators of these intensities."""
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": 8, "phase": phase}, "spread": spread}
    for limit in LIMITS:
        share = sum(part for intensity, part in shares.items() if intensity <= limit)
        node.point("roofline", {f"time_below.{limit:g}_share": share}, **about)
    for name, number in metrics.items():
        node.point("roofline", {name: number}, unit="FLOP/B", **about)


def build(synthetic: Factory) -> Dataset:
    # The balance is 16 within some per cent: between the limits 8 and 32.
    node = machine(synthetic, spread=0.01)
    step(node, {0.25: 0.3, 8: 0.3, 64: 0.4}, "training", product_intensity=64.0, matmul_time_share=0.9)
    step(node, {0.5: 1.0}, "decode", product_intensity=0.5, matmul_time_share=0.5)
    step(node, {256: 1.0}, "prefill", matmul_time_share=0.8)
    # Operators at 16 may lie on either side of a balance of about 16.
    step(node, {1: 0.3, 16: 0.3, 64: 0.4}, "forward", spread=0.02)
    # A product that is faster than the kernel is the peak; no ceilings at all.
    faster = machine(synthetic, "node-b", spread=1e-3).gemm(64, clock=2.5e9, spread=1e-3)
    bare = synthetic("node-c")
    step(bare, {1: 1.0}, "training", product_intensity=1.0)
    return data(synthetic, node, faster, bare)


found = measured(build)
_KERNEL = {"sources": ("peak", "bandwidth")}
_ALL = {"sources": ("roofline", "peak", "bandwidth")}


@cases(
    case("roofline.balance", PEAK / MOVED, node="node-a", rel=0.02, detail="multiply-adds in registers", **_KERNEL),
    case("roofline.balance", 2 * 64 * 2.5e9 / MOVED, node="node-b", rel=0.01, detail="torch, 512x512x512"),
    case("roofline.intensity_over_balance", {"training": 4, "decode": 0.5 / 16}, by="phase", rel=0.05, **_ALL),
    # Equal rounds of something timed are no knowledge of its spread.
    case("roofline.memory_bound_share", 0.6, phase="training", width="unknown", **_ALL),
    # That every operator lies below the balance, or none, is counted.
    case("roofline.memory_bound_share", 1, phase="decode", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0, phase="prefill", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0.5, phase="forward", rel=0.25, **_ALL),
    case("roofline.memory_bound_share", None, node="node-c"),
    # Training has a quantity of its own.
    case("inference.matmul_time_share", {"prefill": 0.8, "decode": 0.5}, by="phase", width="unknown"),
    case("roofline.prediction_error", None),
)  # fmt: skip
def test_roofline(found: Dataset, one: Case) -> None:
    one.check(found)


def test_the_interval_spans_limits_around_the_balance_and_rounds(found: Dataset) -> None:
    ((low, estimate, high),) = cells("roofline.memory_bound_share", found, phase="forward").rows(
        "low", "estimate", "high"
    )
    assert 0.2 < low < 0.3 < estimate < 0.6 < high < 0.8


def made_up(
    synthetic: Factory, launch: float = 0.0, cache: float = 1.0, reached: float = 1.0, spread: float = 0.0
) -> SyntheticNode:
    """A machine on which every kernel takes exactly what the given numbers say.

    reached: share of both ceilings that kernels reach. cache: its bandwidth over that of memory.
    """
    node = machine(synthetic, spread=spread)
    for n in (64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1536):
        for m in (1, n):
            product(node, m, n, reached, launch, spread)
    for size in (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, CACHE * 16, CACHE * 24):
        for op in ("copy", "add"):
            passes(node, size, size / (MOVED * (cache if size <= CACHE else 1.0) * reached) + launch, op, spread)
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        # Half of the bytes in operators of 1/4, half in operators of 64 FLOP/B: 16 FLOP/B is the balance.
        moved, kernels = 1e6 * batch, 50.0
        seconds = (moved / 2 / MOVED + moved / 2 * 64 / PEAK) / reached + kernels * launch
        params = {"model": "mlp", "batch": batch, "phase": "training"}
        node.point("roofline", seconds, params=params, flop=moved / 2 * 64.25, bytes=moved, spread=spread)
        counted = {"kernels": kernels, "cached_bytes_share": 0.0}
        for limit in LIMITS:
            counted[f"bytes_below.{limit:g}_share"] = 0.5 if limit < 64 else 1.0
            counted[f"flop_below.{limit:g}_share"] = 0.25 / 64.25 if limit < 64 else 1.0
        node.point("roofline", counted, unit="1", params=params, spread=0)
    return node


def product(
    node: SyntheticNode, m: int, n: int, reached: float = 1.0, launch: float = 0.0, spread: float = 0.0
) -> None:
    flop, moved = 2.0 * m * n * n, 4.0 * (2 * m * n + n * n)
    seconds = max(flop / PEAK, moved / MOVED) / reached + launch
    node.point("gemm", seconds, params={"m": m, "n": n, "k": n}, flop=flop, bytes=moved, spread=spread)


@pytest.mark.parametrize(
    ("made", "enough"),
    [
        ({}, 2), ({"reached": 0.7}, 2), ({"launch": 2e-4}, 3), ({"launch": 5e-6, "reached": 0.8}, 3),
        ({"launch": 2e-4, "cache": 8.0, "reached": 0.8}, 4),
    ],
)  # fmt: skip
def test_as_many_numbers_as_the_machine_has_foretell_it(
    synthetic: Factory, made: dict[str, float], enough: int
) -> None:
    evidence = data(synthetic, made_up(synthetic, **made))
    found = cells("roofline.prediction_error", evidence)
    errors = {(numbers, by): error for numbers, by, error in found.rows("numbers", "ceilings", "estimate")}
    for numbers in (2, 3, 4):
        least, most = (0, 0.01) if numbers >= enough else (2 * errors[enough, "fitted"] + 0.01, 1e9)
        assert least <= errors[numbers, "fitted"] < most
    # A measured ceiling is what kernels reach only if they reach it.
    assert (errors[2, "measured"] < 0.01) == (made == {})
    if enough == 4:
        fits = {one.labels["numbers"]: one.fits for one in prediction.foretold(evidence)}
        assert fits[4][0] == pytest.approx({"peak": 0.8, "bandwidth": 0.8, "launch": 2e-4, "cache": 8.0}, rel=0.03)


def test_rounds_give_the_interval_and_kernels_are_no_sample(synthetic: Factory) -> None:
    found = cells("roofline.prediction_error", data(synthetic, made_up(synthetic, reached=0.7, spread=0.03)))
    ((low, high, rounds),) = found.only(numbers=2, ceilings="measured").rows("low", "high", "n_rounds")
    assert low < 0.3 < high < low + 0.3 and rounds == 3


def test_what_is_judged(synthetic: Factory) -> None:
    """Half of the kernels; none that is a ceiling or shows a language, and steps of models in however few rounds."""
    node = made_up(synthetic)
    node.point("gemm", 10.0, backend="python", params={"m": 4, "n": 4, "k": 4}, flop=128, bytes=400, spread=0)
    product(node, 4096, 4096, reached=1.01)
    more = [row for row in node.rows if row["round"] == 1 and row["experiment"] != "roofline"]
    node.rows += [{**row, "round": number, "run": f"run{number}"} for number in (4, 5) for row in more]
    evidence = data(synthetic, node)
    first = prediction.foretold(evidence)[0]
    judged = {str(what) for what in first.what}
    assert (
        all(map(is_held, judged)) and any(what.startswith("roofline") for what in judged) and len(first.measured) == 3
    )
    assert not any(other in what for what in judged for other in ("python", "4096", f'"footprint": {8 * CACHE}'))
    everything = {str(what) for one in prediction.rounds(evidence).values() for what in one[0].what}
    assert len(everything - judged) > 6


def test_the_number_that_kernels_follow_misses_less(synthetic: Factory) -> None:
    """Products of a matrix by a vector follow bandwidth, those of square matrices arithmetic; three are too few."""
    nodes = {name: machine(synthetic, name, spread=0.01) for name in ("vectors", "squares", "few")}
    for n in range(256, 2048, 64):
        product(nodes["vectors"], 1 + n % 5, n, spread=0.01)
        product(nodes["squares"], n, n, spread=0.01)
    for n in (64, 128, 256):
        product(nodes["few"], n, n)
    evidence = data(synthetic, *nodes.values())
    ratios = dict(cells("roofline.bandwidth_error_over_compute_error", evidence).rows("node", "estimate"))
    assert ratios.keys() == {"vectors", "squares"} and ratios["vectors"] < 0.5 and ratios["squares"] > 2
    assert not len(cells("roofline.prediction_error", evidence, node="few"))
