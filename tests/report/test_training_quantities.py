"""Training against other nodes' CPUs, against the default, by energy and memory, and up to the memory's end."""

from __future__ import annotations

from typing import Any

import pytest

from report.quantities.training_ladder import RUNGS

from .conftest import Factory, SyntheticNode
from .test_quantities import data, of, value
from .test_sustained_quantities import COUNTED


def step(node: SyntheticNode, rate: float, batch: int = 32, model: str = "mlp", **more: Any) -> SyntheticNode:
    """A training step at `rate` samples/s."""
    return node.point("training", batch / rate, params={"model": model, "batch": batch}, **{"spread": 0, **more})


def host(synthetic: Factory, name: str = "node-a", gain: float = 1.0, gpus: int = 0) -> SyntheticNode:
    """A CPU that does 10 samples/s on one core as PyTorch comes, 18 on two, 60 at its best."""
    node = synthetic(name, gpus=gpus)
    for threads, more in ((1, 1.0), (2, 1.8)):
        step(node, 10 * gain * more, threads=threads)
        step(node, 15 * gain * more, threads=threads, backend="onednn")
    step(node, 20 * gain, dtype="bfloat16")
    step(node, 60 * gain, threads=2, dtype="bfloat16", backend="inductor")
    return step(node, 0.1, backend="scalar")


def with_gpu(synthetic: Factory) -> SyntheticNode:
    node = host(synthetic, gpus=1)
    step(node, 900, device="cuda:0")
    return step(node, 3000, device="cuda:0", dtype="bfloat16")


def test_the_fleet_is_the_fastest_cpu_of_all_nodes_and_is_named(synthetic: Factory) -> None:
    found = data(synthetic, with_gpu(synthetic), host(synthetic, "node-b", gain=5.0))
    equal = of("training.speedup", found, baseline="fleet", precision="equal", dtype="float32")
    assert value(equal) == pytest.approx(900 / (5 * 27))
    assert equal.frame["detail"].iloc[0] == f"over {found.label('node-b')}"
    best = of("training.speedup", found, baseline="fleet", precision="best")
    assert value(best) == pytest.approx(3000 / 300)
    assert best.frame["detail"].iloc[0] == f"over {found.label('node-b')} in bfloat16"
    assert set(best.frame["node"]) == {"node-a"}, "a node without a GPU has no speed-up"
    assert value(of("training.speedup", found, baseline="node", precision="best")) == pytest.approx(50)


def test_one_node_is_no_fleet(synthetic: Factory) -> None:
    found = of("training.speedup", data(synthetic, with_gpu(synthetic)))
    assert set(found.frame["baseline"]) == {"core", "node"}


def test_a_speed_up_over_the_fleet_is_as_uncertain_as_both_sides(synthetic: Factory) -> None:
    node, other = with_gpu(synthetic), synthetic("node-b")
    step(other, 500, threads=2, spread=0.2)
    cell = of("training.speedup", data(synthetic, node, other), baseline="fleet", dtype="float32").frame.iloc[0]
    assert cell["high"] / cell["low"] > 1.1


def test_the_default_over_the_best(synthetic: Factory) -> None:
    found = data(synthetic, host(synthetic))
    equal = of("training.default_over_best", found, precision="equal")
    assert value(equal) == pytest.approx(18 / 27)
    assert equal.frame["detail"].iloc[0] == "over onednn, float32, 2 threads"
    assert value(of("training.default_over_best", found, precision="best")) == pytest.approx(18 / 60)


def test_a_default_that_is_the_best_is_exactly_one(synthetic: Factory) -> None:
    node = step(synthetic("node-a"), 10, threads=2, spread=0.05)
    cell = of("training.default_over_best", data(synthetic, node), precision="best").frame.iloc[0]
    assert (cell["low"], cell["estimate"], cell["high"]) == (1.0, 1.0, 1.0)


def test_energy_and_memory_of_a_step(synthetic: Factory) -> None:
    node = host(synthetic)
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": 32}, "spread": 0, "threads": 2}
    node.point("training", 64.0, metric=COUNTED, unit="J", **about)
    node.point("training", 3e8, metric="peak_memory", unit="B", **about)
    found = data(synthetic, node)
    energy = of("training.energy_per_sample", found)
    assert value(energy) == pytest.approx(2.0)
    assert energy.frame["detail"].iloc[0] == "counted by the device"
    assert value(of("training.peak_memory_bytes", found, threads=2)) == pytest.approx(3e8)


RATES = {8: 80.0, 16: 150.0, 32: 250.0, 64: 380.0, 128: 400.0}


def filled(synthetic: Factory, refused: int | None, status: str = "oom", reason: str = "out of memory") -> Any:
    node = synthetic("node-a", gpus=1)
    for batch, rate in RATES.items():
        step(node, rate, batch, "gpt2", device="cuda:0", dtype="bfloat16")
    if refused:
        params = {"model": "gpt2", "batch": refused}
        about: dict[str, Any] = {"device": "cuda:0", "dtype": "bfloat16", "params": params}
        node.point("training", 1.0, status=status, reason=reason, **about)
    return data(synthetic, node)


@pytest.mark.parametrize(("status", "reason"), [("oom", "CUDA out of memory"), ("skipped", "memory: needs 9 GiB")])
def test_the_largest_batch_that_fits_over_an_eighth_of_it(synthetic: Factory, status: str, reason: str) -> None:
    cells = of("scaling.throughput_over_eighth", filled(synthetic, 256, status, reason))
    assert value(cells) == pytest.approx(400 / 150)
    (cell,) = cells.frame.to_dict("records")
    assert cell["batch"] == 128
    assert cell["detail"] == "256 does not fit; from 64 on within a tenth of the highest rate"


@pytest.mark.parametrize(
    ("refused", "status", "reason"),
    [
        (None, "", ""),
        (256, "skipped", "budget: one call needs 9 s"),
        (4, "oom", "another process took the memory"),
    ],
)
def test_without_a_batch_that_did_not_fit_the_largest_is_not_known(
    synthetic: Factory, refused: int | None, status: str, reason: str
) -> None:
    assert not len(of("scaling.throughput_over_eighth", filled(synthetic, refused, status, reason)))


@pytest.mark.parametrize(
    ("rung", "rate", "detail"),
    [
        ("one core, as it comes", 10, "torch, float32"),
        ("one core, at its best", 20, "torch, bfloat16"),
        ("all cores, as it comes", 18, "torch, float32"),
        ("all cores, best library", 27, "onednn, float32"),
        ("all cores, at their best", 60, "inductor, bfloat16"),
        ("GPU, float32", 900, "torch, float32"),
        ("GPU, at its best", 3000, "torch, bfloat16"),
    ],
)
def test_each_rung_of_training(synthetic: Factory, rung: str, rate: float, detail: str) -> None:
    cells = of("training.ladder", data(synthetic, with_gpu(synthetic)), rung=rung)
    assert value(cells) == pytest.approx(rate)
    assert cells.frame["detail"].iloc[0] == detail
    assert int(cells.frame["place"].iloc[0]) == [name for name, *_ in RUNGS].index(rung) + 1


def test_gains_are_over_one_core_as_it_comes_of_the_same_node(synthetic: Factory) -> None:
    found = data(synthetic, with_gpu(synthetic), host(synthetic, "node-b", gain=5.0))
    gains = of("training.ladder_gain", found, node="node-b").frame.set_index("rung")["estimate"]
    assert gains.to_dict() == pytest.approx(
        {
            "one core, at its best": 2,
            "all cores, as it comes": 1.8,
            "all cores, best library": 2.7,
            "all cores, at their best": 6,
        }
    )
    assert value(of("training.ladder_gain", found, rung="GPU, at its best")) == pytest.approx(300)


def test_a_node_without_training_has_none_of_it(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("node-a", gpus=1).clock())
    for name in (
        "training.speedup", "training.default_over_best", "training.energy_per_sample", "training.peak_memory_bytes",
        "training.ladder", "training.ladder_gain", "scaling.throughput_over_eighth",
    ):  # fmt: skip
        assert not len(of(name, found)), name
