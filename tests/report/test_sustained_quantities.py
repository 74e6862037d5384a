"""Quantities of sustained load and of energy give what the nodes were built to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from report.quantities import quantities
from report.quantities.energy import METHODS

from .conftest import Factory, SyntheticNode
from .evidence import data, of, value

COUNTED, ADDED = METHODS


def run(
    node: SyntheticNode,
    load: str,
    seconds: Sequence[float],
    *,
    calls: int = 1,
    rounds: int = 1,
    extent: int = 8192,
    device: str = "cuda:0",
    flop: float = 1e12,
    **beside: Callable[[int, int], Any],
) -> SyntheticNode:
    """A run whose samples took so many seconds a call; `beside`: columns by round and sample."""
    begun = len(node.rows)
    node.point("sustained", 1.0, params={"load": load, "extent": extent}, dtype="bfloat16", device=device,
               rounds=rounds, samples=len(seconds), spread=0, flop=flop)  # fmt: skip
    ends = 100 + np.cumsum(seconds) * calls
    for row in node.rows[begun:]:
        at = row["sample"]
        row.update({"value": seconds[at], "calls": calls, "elapsed_s": ends[at]})
        row.update({name: column(row["round"], at) for name, column in beside.items()})
    return node


def slowing(loss: float, each: float = 1.25, samples: int = 100, noise: float = 0.0) -> list[float]:
    """Times of samples whose rate falls evenly by `loss` from the first tenth's to the last tenth's."""
    random = np.random.default_rng(7)
    course = np.clip((np.arange(samples) // (samples // 10)) / 9, 0, 1)
    return list(each / (1 - loss * course) * np.exp(noise * random.standard_normal(samples)))


def test_a_run_that_slows_down_has_lost_what_its_last_tenth_lacks(synthetic: Factory) -> None:
    found = data(synthetic, run(synthetic("node-a", gpus=1), "products", slowing(0.05, noise=0.002)))
    cells = of("sustained.throughput_drift", found, device="gpu", load="products")
    row = cells.frame.iloc[0]
    assert value(cells) == pytest.approx(0.05, abs=0.003)
    assert 0.02 < row["low"] < 0.05 < row["high"] < 0.08
    assert (row["round"], row["n_rounds"], row["extent"]) == (1, 1, 8192)


def test_a_run_that_only_scatters_has_lost_nothing(synthetic: Factory) -> None:
    found = data(synthetic, run(synthetic("node-a", gpus=1), "products", slowing(0.0, noise=0.01)))
    row = of("sustained.throughput_drift", found).frame.iloc[0]
    assert row["low"] < 0 < row["high"] < 0.02


def test_the_interval_of_a_run_covers_no_drift_as_often_as_it_says() -> None:
    import pandas as pd

    from report.quantities.sustained import drift

    random = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        found = drift(pd.DataFrame({"value": np.exp(0.01 * random.standard_normal(100))}))
        covered += found["low"] <= 0 <= found["high"]
    assert 0.97 < covered / 1000 < 0.998


@pytest.mark.parametrize(("each", "samples"), [(0.02, 100), (10.0, 13)])
def test_seconds_of_load_or_a_handful_of_samples_say_nothing_of_minutes(
    synthetic: Factory, each: float, samples: int
) -> None:
    found = data(synthetic, run(synthetic("node-a", gpus=1), "products", slowing(0.05, each, samples)))
    assert len(of("sustained.throughput_drift", found)) == 0


def test_the_length_of_a_run_counts_its_first_sample_and_every_call(synthetic: Factory) -> None:
    node = run(synthetic("node-a", gpus=1), "products", [0.0125] * 100, calls=100, rounds=2)
    cells = of("sustained.throughput_drift", data(synthetic, node))
    assert list(cells.frame["detail"]) == ["in 125 s"] * 2
    assert list(cells.frame["round"]) == [1, 2]


def test_where_the_device_ends_up_is_read_in_the_last_tenth(synthetic: Factory) -> None:
    node = run(
        synthetic("node-a", gpus=1), "products", [1.0] * 20, rounds=3,
        clock_mhz=lambda _, at: 1980.0 if at < 18 else 1500.0, temperature_c=lambda _, at: 40.0 + at,
        power_w=lambda number, at: 600.0 + number if at >= 18 else 100.0,
    )  # fmt: skip
    found = data(synthetic, node)
    assert value(of("sustained.clock", found)) == pytest.approx(1.5e9)
    assert value(of("sustained.temperature", found)) == pytest.approx(58.5)
    power = of("sustained.power", found).frame.iloc[0]
    assert power["low"] < 602 < power["high"]
    assert power["estimate"] == pytest.approx(602, rel=1e-3)


def test_readings_are_medians_of_a_rounds_later_half(synthetic: Factory) -> None:
    node = run(synthetic("node-a", gpus=1), "products", [1.0] * 10, rounds=3, clock_mhz=lambda _, at: 100.0 + 100 * at)
    found = data(synthetic, node)
    cells = found.readings("sustained", "clock_mhz")
    assert value(cells) == pytest.approx(800)
    assert cells.frame["n_rounds"].iloc[0] == 3
    assert len(found.readings("sustained", "utilisation")) == len(found.readings("gemm", "clock_mhz")) == 0


def idling(node: SyntheticNode, use: Callable[[int, int], float], rounds: int = 3) -> SyntheticNode:
    """Products at 1 TFLOP/s that fill the chip, and products of one block at a thousandth of that."""
    run(node, "products", [1.0] * 10, rounds=rounds, utilisation=lambda *_: 1.0)
    return run(node, "one_block", [1.0] * 10, rounds=rounds, extent=64, flop=1e9, utilisation=use)


def test_an_idle_chip_that_is_said_to_be_in_full_use(synthetic: Factory) -> None:
    # While the counter still averages over what was before, it shows less.
    node = idling(synthetic("node-a", gpus=1), lambda _, at: 0.3 if at < 5 else 1.0)
    cells = of("sustained.utilisation_at_low_mfu", data(synthetic, node), device="gpu")
    row = cells.frame.iloc[0]
    assert list(cells.frame["load"]) == ["one_block"]
    assert (row["low"], row["estimate"], row["high"]) == (0.995, 1.0, 1.0)
    assert row["detail"] == "at 0.1% of the fastest product's rate"


def test_rounds_that_differ_have_the_wider_interval(synthetic: Factory) -> None:
    node = idling(synthetic("node-a", gpus=1), lambda number, _: 0.5 + 0.02 * number)
    row = of("sustained.utilisation_at_low_mfu", data(synthetic, node)).frame.iloc[0]
    assert row["low"] < 0.52 < 0.54 < 0.56 < row["high"]


def test_one_round_gives_no_interval(synthetic: Factory) -> None:
    node = idling(synthetic("node-a", gpus=1), lambda *_: 1.0, rounds=1)
    row = of("sustained.utilisation_at_low_mfu", data(synthetic, node)).frame.iloc[0]
    assert row[["low", "high"]].isna().all()


def test_a_faster_product_of_another_experiment_is_the_peak(synthetic: Factory) -> None:
    node = run(synthetic("node-a", gpus=1), "products", [1.0] * 10, rounds=3, utilisation=lambda *_: 1.0)
    assert len(of("sustained.utilisation_at_low_mfu", data(synthetic, node))) == 0
    about: dict[str, Any] = {"device": "cuda:0", "params": {"m": 64, "n": 64, "k": 64}, "flop": 1e12}
    node.point("gemm", 0.01, dtype="float8_e4m3fn", **about)  # of another format
    assert len(of("sustained.utilisation_at_low_mfu", data(synthetic, node))) == 0
    node.point("gemm", 0.1, dtype="bfloat16", **about)
    cells = of("sustained.utilisation_at_low_mfu", data(synthetic, node))
    assert list(cells.frame["load"]) == ["products"]


def product(node: SyntheticNode, joules: float, n: int = 64, metric: str = COUNTED, **more: Any) -> SyntheticNode:
    """A matrix product and the energy of one call."""
    more = {"params": {"m": n, "n": n, "k": n}, "flop": 2.0 * n**3, "spread": 0, **more}
    node.point("gemm", 1e-3, **more)
    return node.point("gemm", joules, metric=metric, unit="J", samples=1, **more)


def test_energy_of_an_operation_by_shape_and_of_both_experiments(synthetic: Factory) -> None:
    node = product(synthetic("node-a", gpus=1), 2.0 * 64**3 * 5e-12, device="cuda:0")
    about: dict[str, Any] = {"params": {"load": "products", "extent": 128}, "device": "cuda:0", "flop": 1e12}
    node.point("sustained", 1.0, metric=COUNTED, unit="J", spread=0, **about)
    cells = of("energy.per_flop", data(synthetic, node), device="gpu").frame.set_index("shape")
    assert cells["estimate"].to_dict() == pytest.approx({"64x64x64": 5e-12, "128x128x128": 1e-12})
    assert list(cells["experiment"]) == ["gemm", "sustained"]
    assert set(cells["detail"]) == {"counted by the device"}


def test_power_over_time_stands_in_only_where_nothing_counts(synthetic: Factory) -> None:
    node = product(synthetic("node-a", gpus=2), 1.0, device="cuda:0")
    product(node, 9.0, n=128, metric=ADDED, device="cuda:0")
    product(node, 3.0, metric=ADDED, device="cuda:1")
    cells = of("energy.per_flop", data(synthetic, node)).frame
    assert dict(zip(cells["device"], cells["detail"], strict=True)) == {
        "cuda:0": "counted by the device", "cuda:1": "power times time",
    }  # fmt: skip
    assert list(cells["estimate"] * 2 * 64**3) == pytest.approx([1.0, 3.0])


def test_energy_of_a_byte_is_that_of_memory_not_of_caches(synthetic: Factory) -> None:
    node = synthetic("node-a", cache=2**20)
    for footprint, joules in ((2**18, 1e-6), (2**23, 4e-3)):
        about: dict[str, Any] = {"params": {"op": "triad", "footprint": footprint}, "bytes": footprint}
        node.point("bandwidth", joules, metric=COUNTED, unit="J", spread=0, **about)
    run(node, "triad", [1.0], extent=2**24, device="cpu")
    about = {"params": {"load": "triad", "extent": 2**24}, "dtype": "bfloat16", "bytes": 2**24, "rounds": 1}
    node.point("sustained", 2e-3, metric=COUNTED, unit="J", spread=0, **about)
    cells = of("energy.per_byte", data(synthetic, node)).frame.set_index("experiment")
    assert cells["estimate"].to_dict() == pytest.approx({"bandwidth": 4e-3 / 2**23, "sustained": 2e-3 / 2**24})
    assert cells["footprint"].to_dict() == {"bandwidth": 2**23, "sustained": 2**24}


def test_gpu_and_cpu_each_by_what_takes_least(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    product(product(node, 8.0), 4.0, backend="onednn")
    product(node, 1.0, metric=ADDED, device="cuda:0")
    product(node, 0.1, device="cuda:0", dtype="bfloat16", metric=ADDED)
    cells = of("energy.gpu_over_cpu", data(synthetic, node))
    assert value(cells) == pytest.approx(0.25)
    assert cells.label_values(0) == {"node": "node-a", "dtype": "float32", "device": "cuda:0"}
    assert cells.frame["detail"].iloc[0] == "CPU: counted by the device; GPU: power times time"


def test_a_training_step_in_joules(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for device, dtype, joules in (("cpu", "float32", 6.0), ("cuda:0", "float32", 3.0), ("cuda:0", "bfloat16", 2.0)):
        about: dict[str, Any] = {"params": {"model": "mlp", "batch": 32}, "device": device, "dtype": dtype}
        node.point("training", joules, metric=COUNTED, unit="J", spread=0.01, **about)
    cells = of("energy.training_ratio", data(synthetic, node), model="mlp")
    assert value(cells) == pytest.approx(3.0, rel=0.05)
    assert cells.frame["low"].iloc[0] < cells.frame["estimate"].iloc[0] < cells.frame["high"].iloc[0]


def test_power_of_a_device_with_nothing_to_do(synthetic: Factory) -> None:
    node = run(synthetic("node-a", gpus=1), "idle", [0.05] * 40, extent=1, flop=float("nan"), power_w=lambda *_: 70.0)
    assert value(of("energy.idle_power", data(synthetic, node))) == pytest.approx(70)


@pytest.mark.parametrize("name", sorted(name for name in quantities() if name.split(".")[0] in ("sustained", "energy")))
def test_without_counters_there_is_nothing(synthetic: Factory, name: str) -> None:
    node = run(synthetic("node-a"), "products", [1.0] * 20, device="cpu")
    node.gemm(10).point("bandwidth", 1.0, params={"op": "triad", "footprint": 2**30}, bytes=2**30)
    assert len(quantities()[name].compute(data(synthetic, node))) == 0
