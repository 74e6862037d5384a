"""Quantities of sustained load and of energy give what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.data.dataset import Dataset
from report.quantities.energy import METHODS
from report.quantities.sustained import drift

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, cells, measured

COUNTED, ADDED = METHODS


def run(
    node: SyntheticNode, load: str, seconds: Sequence[float], *, calls: int = 1, rounds: int = 1, extent: int = 8192,
    flop: float = 1e12, device: str = "cuda:0", dtype: str = "bfloat16", **beside: Callable[[int, int], Any],
) -> SyntheticNode:  # fmt: skip
    """A run whose samples took so many seconds a call; `beside`: columns by round and sample."""
    begun = len(node.rows)
    node.point("sustained", 1.0, params={"load": load, "extent": extent}, dtype=dtype, device=device, rounds=rounds,
               samples=len(seconds), spread=0, flop=flop)  # fmt: skip
    ends = 100 + np.cumsum(seconds) * calls
    for row in node.rows[begun:]:
        row.update(value=seconds[row["sample"]], calls=calls, elapsed_s=ends[row["sample"]])
        row.update({name: column(row["round"], row["sample"]) for name, column in beside.items()})
    return node


def slowing(loss: float, each: float = 1.25, samples: int = 100, noise: float = 0.0) -> list[float]:
    """Times of samples whose rate falls evenly by `loss` from the first tenth's to the last tenth's."""
    course = np.clip((np.arange(samples) // (samples // 10)) / 9, 0, 1)
    return list(each / (1 - loss * course) * np.exp(noise * np.random.default_rng(7).standard_normal(samples)))


def joules(node: SyntheticNode, experiment: str, energy: float, metric: str = COUNTED, **more: Any) -> None:
    """The energy of one call."""
    node.point(experiment, energy, metric=metric, unit="J", samples=1, **{"spread": 0.0, **more})


def product(node: SyntheticNode, energy: float, n: int = 64, metric: str = COUNTED, **more: Any) -> None:
    """A matrix product and the energy of one call."""
    more = {"params": {"m": n, "n": n, "k": n}, "flop": 2.0 * n**3, **more}
    node.point("gemm", 1e-3, spread=0.0, **more)
    joules(node, "gemm", energy, metric, **more)


def idling(node: SyntheticNode, use: Callable[[int, int], float], rounds: int = 3) -> SyntheticNode:
    """Products at 1 TFLOP/s that fill the chip, and products of one block at a thousandth of that."""
    run(node, "products", [1.0] * 10, rounds=rounds, utilisation=lambda *_: 1.0)
    return run(node, "one_block", [1.0] * 10, rounds=rounds, extent=64, flop=1e9, utilisation=use)


def build(synthetic: Factory) -> Dataset:
    node, device = synthetic("node-a", gpus=1), {"device": "cuda:0"}
    run(node, "loses", slowing(0.05, noise=0.002), flop=1e9)
    run(node, "scatters", slowing(0.0, noise=0.01), flop=1e9)
    run(node, "calls", slowing(0.0, 0.0125), calls=100, rounds=2, flop=1e9)
    run(node, "short", slowing(0.05, 0.02), flop=1e9)
    run(node, "few", slowing(0.05, 10.0, 13), flop=1e9)
    run(node, "idle", [0.05] * 40, rounds=3, extent=1, flop=float("nan"), power_w=lambda *_: 70.0)
    run(
        node, "products", [1.0] * 20, rounds=3, utilisation=lambda *_: 1.0,
        clock_mhz=lambda _, at: 1980.0 if at < 18 else 1500.0,
        temperature_c=lambda _, at: 40.0 + at, power_w=lambda number, at: 600.0 + number if at >= 18 else 100.0,
    )  # fmt: skip
    # While the counter still averages over what was before, it shows less.
    low: dict[str, Any] = {"seconds": [1.0] * 10, "rounds": 3, "extent": 64, "flop": 1e9}
    run(node, "one_block", utilisation=lambda _, at: 0.3 if at < 5 else 1.0, **low)
    run(node, "differs", utilisation=lambda number, _: 0.5 + 0.02 * number, **low)
    run(node, "one_round", utilisation=lambda *_: 1.0, **{**low, "rounds": 1})
    # Against a faster product of the same format, not of another, the run above does little.
    run(node, "products", [10.0] * 10, utilisation=lambda *_: 1.0, rounds=3, dtype="float16", extent=1)
    shape: dict[str, Any] = {"params": {"m": 64, "n": 64, "k": 64}, "flop": 1e12, **device}
    node.point("gemm", 1.0, dtype="float16", **shape)
    node.point("gemm", 0.01, dtype="float8_e4m3fn", **shape)
    product(node, 8.0)
    product(node, 4.0, backend="onednn")
    # Power over time stands in only where nothing counts.
    product(node, 0.1, 32, ADDED, **device)
    product(node, 1.0, **device)
    joules(node, "sustained", 1.0, params={"load": "products", "extent": 128}, flop=1e12, dtype="bfloat16", **device)
    for footprint, energy in ((2**18, 1e-6), (2**28, 4e-3)):
        joules(node, "bandwidth", energy, params={"op": "triad", "footprint": footprint}, bytes=footprint)
    for at, dtype, energy in (("cpu", "float32", 6.0), ("cuda:0", "float32", 3.0), ("cuda:0", "bfloat16", 2.0)):
        joules(node, "training", energy, params={"model": "mlp", "batch": 32}, device=at, dtype=dtype)
    return data(synthetic, node)


found = measured(build)
_BLOCK = {"dtype": "bfloat16"}
_USED = {"sources": ("sustained",)}


@cases(
    case("sustained.throughput_drift", 0.05, load="loses", rel=0.06, detail="in 128 s"),
    case("sustained.throughput_drift", {1: 0, 2: 0}, by="round", load="calls", width="exact", detail="in 125 s"),
    case("sustained.throughput_drift", None, load=["short", "few"]),
    case("sustained.clock", 1.5e9, load="products", width="any"),
    case("sustained.temperature", 58.5, load="products", width="any"),
    case("sustained.power", 602, load="products"),
    case("sustained.utilisation_at_low_mfu", 1.0, load="one_block", low=0.995, high=1.0,
         detail="at 0.1% of the fastest product's rate", **_BLOCK, **_USED),
    case("sustained.utilisation_at_low_mfu", 0.54, load="differs", **_USED),
    case("sustained.utilisation_at_low_mfu", 1.0, load="one_round", width="unknown", **_USED),
    case("sustained.utilisation_at_low_mfu", {"float16": 1.0}, by="dtype", load="products",
         sources=("sustained", "gemm")),
    case("energy.per_flop", {"64x64x64": 1 / (2 * 64**3)}, by="shape", device="gpu", experiment="gemm",
         detail="counted by the device", sources=("gemm",)),
    case("energy.per_flop", 1e-12, device="gpu", experiment="sustained", sources=("sustained",)),
    case("energy.per_byte", 4e-3 / 2**28, footprint=2**28, sources=("bandwidth",)),
    case("energy.gpu_over_cpu", 0.25, sources=("gemm",),
         labels={"node": "node-a", "dtype": "float32", "device": "cuda:0"}),
    case("energy.training_ratio", 3.0, model="mlp", sources=("training",)),
    case("energy.idle_power", 70, width="any", sources=("sustained",)),
)  # fmt: skip
def test_load_and_energy(found: Dataset, one: Case) -> None:
    one.check(found)


def test_a_run_that_only_scatters_has_lost_nothing(found: Dataset) -> None:
    ((low, high),) = cells("sustained.throughput_drift", found, load="scatters").rows("low", "high")
    assert low < 0 < high < 0.02


def test_the_interval_of_a_run_covers_no_drift_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    runs = (drift(pd.DataFrame({"value": np.exp(0.01 * random.standard_normal(100))})) for _ in range(1000))
    assert 970 < sum(one["low"] <= 0 <= one["high"] for one in runs) < 998


def test_readings_are_medians_of_a_rounds_later_half(synthetic: Factory) -> None:
    node = run(synthetic("node-a", gpus=1), "products", [1.0] * 10, rounds=3, clock_mhz=lambda _, at: 100.0 + 100 * at)
    found = data(synthetic, node)
    assert found.readings("sustained", "clock_mhz").rows("estimate", "n_rounds") == [(pytest.approx(800), 3)]
    assert len(found.readings("sustained", "utilisation")) == len(found.readings("gemm", "clock_mhz")) == 0


def test_power_times_time_stands_in_where_nothing_counts(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    product(node, 8.0)
    product(node, 1.0, metric=ADDED, device="cuda:0")
    detail = "CPU: counted by the device; GPU: power times time"
    case("energy.gpu_over_cpu", 1 / 8, detail=detail, sources=("gemm",)).check(data(synthetic, node))
