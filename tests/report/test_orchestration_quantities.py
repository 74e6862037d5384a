"""Quantities of training loops with their data give what the nodes were built to have. All data here are made up."""

from __future__ import annotations

from typing import Any

from report.data.dataset import Dataset

from .conftest import Factory, SyntheticNode
from .evidence import data
from .quantity_cases_2 import Case, case, cases, measured


def turn(
    node: SyntheticNode, source: str, workers: int, load: float, step: float, ahead: float = 0.0, decode: float = 0.0,
    model: str = "resnet", **more: Any,
) -> None:  # fmt: skip
    """A turn of a loop with its phases; on a GPU also as it is usually written, with the host ahead."""
    params = {"model": model, "batch": 32, "source": source, "workers": workers}
    values = {"time": load + step, "time.load": load, "time.step": step, "loop_time": ahead}
    about: dict[str, Any] = {"params": params, **more}
    node.point("orchestration", {name: one for name, one in values.items() if one}, spread=1e-3, **about)
    if decode:
        node.point("orchestration", decode, metric="decode_time", spread=1e-5, **about)


def loops(node: SyntheticNode, device: str = "cpu") -> SyntheticNode:
    """Data in place, and pictures for which two workers do better than none or four."""
    ahead = (0.0,) * 4 if device == "cpu" else (8e-3, 18e-3, 10e-3, 14e-3)
    turn(node, "preloaded", 0, 1e-6, 10e-3, ahead[0], device=device)
    turn(node, "encoded", 0, 10e-3, 10e-3, ahead[1], 1e-4, device=device)
    turn(node, "encoded", 2, 2e-3, 10e-3, ahead[2], 1.1e-4, device=device)
    turn(node, "encoded", 4, 3e-3, 12e-3, ahead[3], 1.2e-4, device=device)
    return node


def build(synthetic: Factory) -> Dataset:
    node = loops(loops(synthetic("node-a", gpus=1)), "cuda:0")
    # Faster with its data prepared; and no data in place to hold it against.
    turn(node, "preloaded", 0, 1e-6, 10e-3, model="mlp")
    turn(node, "memory", 1, 1e-5, 9.5e-3, model="mlp")
    turn(node, "encoded", 0, 1e-3, 1e-3, model="gpt")
    for batch, kernels in ((8, 0.2e-3), (512, 0.95e-3), (4096, 1.2e-3)):
        step: dict[str, Any] = {"params": {"model": "mlp", "batch": batch}, "spread": 1e-3}
        node.point("training", {"time": 1e-3, "kernel_time": kernels}, device="cuda:0", **step)
        node.point("training", {"time": 1e-3}, **step)
    return data(synthetic, node)


found = measured(build)


@cases(
    case("orchestration.wait_share", {0: 1 / 2, 2: 1 / 6, 4: 1 / 5}, by="workers", source="encoded", device="cpu",
         model="resnet", rel=0.01),
    case("orchestration.time_lost", 1 - 10 / 12, device="cpu", model="resnet", detail="2 workers", rel=0.02,
         labels={"node": "node-a", "device": "cpu", "model": "resnet", "batch": 32, "source": "encoded",
                 "dtype": "float32", "threads": 1}),
    case("orchestration.time_lost", 0, model="mlp", detail="1 worker", width="exact"),
    case("orchestration.time_lost", None, model="gpt"),
    # On a GPU the loop counts whose host runs ahead.
    case("orchestration.gpu_time_lost_to_host", {"cuda:0": 0.2}, by="device", rel=0.02),
    case("orchestration.decode_time", {0: 1e-4, 2: 1.1e-4, 4: 1.2e-4}, by="workers", device="cpu", rel=0.01),
    case("orchestration.gpu_idle_share", {8: 0.8, 512: 0.05, 4096: 0}, by="batch", width="any", rel=0.05),
)  # fmt: skip
def test_loops(found: Dataset, one: Case) -> None:
    one.check(found)
