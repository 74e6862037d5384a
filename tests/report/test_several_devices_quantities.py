"""Quantities of several devices give what the nodes were built to have. All measurements here are made up."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset, MissingSourceError

from .conftest import Factory, SyntheticNode
from .evidence import data
from .priced import evidence
from .quantity_cases_2 import Case, case, cases, cells, measured


def ranks(node: SyntheticNode, number: int, rate: float, talk: float | None = None, **more: Any) -> SyntheticNode:
    """A job of so many ranks, all of which train so many samples a second."""
    params = {"model": "gpt-1m", "batch": 8, "interconnect": "gloo", "ranks": number}
    values = {"samples_per_s": rate, **({"communication_share": talk} if talk else {})}
    return node.point("several-devices", values, unit="samples/s", params=params, spread=1e-3, **more)


def counted(node: SyntheticNode, model: str, parameters: float, kept: float) -> SyntheticNode:
    about: dict[str, Any] = {"params": {"model": model}, "rounds": 1, "samples": 1, "spread": 0}
    node.point("models", parameters, metric="parameters", unit="1", **about)
    return node.point("models", kept, metric="activation_bytes", unit="B", **about)


def peak(node: SyntheticNode, model: str, batch: int, held: float, **more: Any) -> SyntheticNode:
    params = {"model": model, "batch": batch}
    more = {"spread": 1e-3, **more}
    return node.point("training", held, metric="peak_memory", unit="B", params=params, samples=1, **more)


def build(synthetic: Factory) -> Dataset:
    node = synthetic("node-a", gpus=1)
    node.devices[1]["memory_bytes"] = 20e9
    for number, rate, talk in ((1, 100, None), (2, 180, 0.1), (4, 300, 0.3)):
        ranks(node, number, rate, talk)
    ranks(node, 2, 180, dtype="bfloat16")  # none of one alone
    counted(counted(node, "gpt2", 1e6, 1e5), "mlp", 1e6, 1e9)
    peak(node, "gpt2", 1, 1.25 * (16e6 + 1e5), device="cuda:0")
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7))
    peak(node, "unknown", 1, 1e6)
    return evidence(synthetic, node)


found = measured(build)
_NEEDED = "several_devices.gpus_needed"


@cases(
    case("several_devices.efficiency", {2: 0.9, 4: 0.75}, by="ranks", dtype="float32", rel=0.01),
    case("several_devices.efficiency", None, dtype="bfloat16"),
    case("several_devices.communication_share", {2: 0.1, 4: 0.3}, by="ranks", rel=0.01),
    case("training.memory_model_error", {"cuda:0": -0.2, "cpu": 1.0}, by="device", rel=0.02, sources=("training",)),
    # 405e9 parameters of 16 bytes on devices of 80e9.
    case(_NEEDED, 81, model="Llama 3.1 405B", accelerator="NVIDIA H100 SXM5", width="exact"),
    # 16e6 bytes of state and 32 samples of 1e9 bytes on a measured device of 20e9.
    case(_NEEDED, 2, model="MLP on digits", accelerator="Synthetic GPU, measured here", width="exact",
         detail="weights, gradients, moments and a batch of 32 take 1.6 times one"),
)  # fmt: skip
def test_several_devices(found: Dataset, one: Case) -> None:
    one.check(found)


def test_large_models_need_several(found: Dataset) -> None:
    assert (cells(_NEEDED, found, size="large")["estimate"] >= 2).all()


def test_a_figure_that_is_missing_is_named(synthetic: Factory) -> None:
    with pytest.raises(MissingSourceError, match=r"resnet50\.parameters"):
        cells(_NEEDED, data(synthetic, synthetic("node-a").clock()))
