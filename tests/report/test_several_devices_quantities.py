"""Quantities of several devices give what the nodes were built to have. All measurements here are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.data.nodes import read_nodes
from report.data.reference import read_reference
from report.quantities.several_devices import BATCH, PUBLISHED, STATE_BYTES

from .conftest import Factory, SyntheticNode
from .evidence import of

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
JOB = {"model": "gpt-1m", "batch": 8, "interconnect": "gloo"}


def data(synthetic: Factory, *nodes: SyntheticNode, reference: bool = False) -> Dataset:
    return Dataset(read_nodes([synthetic.write(nodes)], True), read_reference(REFERENCE) if reference else {})


def ranks(node: SyntheticNode, number: int, rate: float, talk: float | None = None, **more: Any) -> SyntheticNode:
    """A job of so many ranks, all of which train so many samples a second."""
    about = {"params": {**JOB, "ranks": number}, "spread": 0.002, **more}
    node.point("several-devices", rate, metric="samples_per_s", unit="samples/s", samples=1, **about)
    if talk is not None:
        node.point("several-devices", {"communication_share": talk}, **about)
    return node


def test_efficiency_is_the_rate_of_a_rank_over_that_of_one_alone(synthetic: Factory) -> None:
    node = ranks(ranks(ranks(synthetic("node-a"), 1, 100), 2, 180, 0.1), 4, 300, 0.3)
    cells = of("several_devices.efficiency", data(synthetic, node))
    found = cells.frame.set_index("ranks")
    assert found["estimate"].to_dict() == {2: pytest.approx(0.9, rel=0.02), 4: pytest.approx(0.75, rel=0.02)}
    assert ((found["low"] < found["estimate"]) & (found["estimate"] < found["high"])).all()
    talk = of("several_devices.communication_share", data(synthetic, node)).frame.set_index("ranks")
    assert talk["estimate"].to_dict() == {2: pytest.approx(0.1, rel=0.02), 4: pytest.approx(0.3, rel=0.02)}


def test_ranks_are_held_against_one_with_the_same_batch_and_format(synthetic: Factory) -> None:
    node = ranks(ranks(synthetic("node-a"), 1, 100, dtype="bfloat16"), 2, 180, 0.1)
    assert len(of("several_devices.efficiency", data(synthetic, node))) == 0


def counted(node: SyntheticNode, model: str, parameters: float, kept: float) -> SyntheticNode:
    for metric, value, unit in (("parameters", parameters, "1"), ("activation_bytes", kept, "B")):
        node.point("models", value, metric=metric, unit=unit, params={"model": model}, rounds=1, samples=1, spread=0,
                   backend="", dtype="", threads=0)  # fmt: skip
    return node


def peak(node: SyntheticNode, model: str, batch: int, found: float, **more: Any) -> SyntheticNode:
    params = {"model": model, "batch": batch}
    return node.point("training", found, metric="peak_memory", unit="B", params=params, samples=1, **more)


def test_the_model_of_memory_is_held_against_measured_peaks(synthetic: Factory) -> None:
    node = counted(synthetic("node-a", gpus=1), "gpt2", 1e6, 1e5)
    peak(node, "gpt2", 1, 1.25 * (16e6 + 1e5), device="cuda:0", spread=0.002)
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7), spread=0.002)
    peak(node, "unknown", 1, 1e6)
    cells = of("training.memory_model_error", data(synthetic, node)).frame.set_index("device")
    assert cells["estimate"].to_dict() == {"cuda:0": pytest.approx(-0.2, rel=0.05), "cpu": pytest.approx(1, rel=0.05)}
    assert ((cells["low"] < cells["estimate"]) & (cells["estimate"] < cells["high"])).all()


def test_peaks_without_counted_models_say_nothing(synthetic: Factory) -> None:
    node = peak(synthetic("node-a"), "gpt2", 1, 1e9)
    assert len(of("training.memory_model_error", data(synthetic, node))) == 0


def test_large_models_need_several_and_small_ones_one(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("node-a").clock(), reference=True)
    large, small = (of("several_devices.gpus_needed", found, size=size).frame for size in ("large", "small"))
    assert set(large["model"]) == set(PUBLISHED["large"])
    assert (large["estimate"] >= 2).all()
    assert (small["estimate"] == 1).all()
    on_h100 = large[large["accelerator"] == "NVIDIA H100 SXM5"].set_index("model")["estimate"]
    # 405e9 parameters of 16 bytes on devices of 80e9.
    assert on_h100["Llama 3.1 405B"] == 81


def test_measured_gpus_and_counted_models_join_the_published_ones(synthetic: Factory) -> None:
    node = counted(synthetic("node-a", gpus=1).clock(), "mlp", 1e6, 1e9)
    node.devices[1]["memory_bytes"] = 20e9
    cells = of("several_devices.gpus_needed", data(synthetic, node, reference=True), model="MLP on digits")
    found = cells.frame.set_index("accelerator").loc["Synthetic GPU, measured here"]
    assert found["estimate"] == -(-(STATE_BYTES * 1e6 + BATCH * 1e9) // 20e9) == 2
    assert f"a batch of {BATCH} take 1.6 times one" in found["detail"]


def test_a_figure_that_is_missing_is_named(synthetic: Factory) -> None:
    with pytest.raises(MissingSourceError, match=r"resnet50\.parameters"):
        of("several_devices.gpus_needed", data(synthetic, synthetic("node-a").clock()))
