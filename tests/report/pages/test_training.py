"""Training of networks that people know: their rates, formats, backends and memory. All measurements are synthetic."""

from __future__ import annotations

from typing import Any

from report.pages.families import training
from report.quantities import quantities
from tests.report.conftest import Factory, SyntheticNode
from tests.report.pages.test_runtimes import view
from tests.report.priced import evidence


def trained(node: SyntheticNode, model: str, batch: int, seconds: float, dtype: str = "float32", **more: Any) -> None:
    """Add a step of a network by all threads that holds 2 GB."""
    params = {"model": model, "batch": batch}
    node.point("training", seconds, params=params, dtype=dtype, **{"threads": 2, "flop": 1e12, "spread": 1e-4, **more})
    node.point("training", 2e9, params=params, dtype=dtype, metric="peak_memory", unit="B", spread=0,
               **{"threads": 2, **more})  # fmt: skip


def test_each_format_is_told_in_its_fastest_backend_with_its_memory(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    trained(node, "resnet-50", 8, 2.0)
    trained(node, "resnet-50", 8, 1.6, backend="channels_last")
    trained(node, "resnet-50", 8, 1.0, "bfloat16", backend="channels_last")
    trained(node, "bert-base-classifier", 16, 8.0)
    trained(node, "llama-1b-lora", 1, 2.0, "bfloat16")
    trained(node, "mlp", 32, 1e-3)
    trained(node, "resnet-50", 8, 0.01, "tf32", device="cuda:0")
    on_cpu, on_gpu = (one for one in training._machine(view(synthetic, node), 1) if "named" in one.chart.name)
    assert str(on_cpu.heading) == "Networks that people know train at 0.50 to 8 examples a second"
    assert on_cpu.table is not None and [row[:4] for row in on_cpu.table.rows] == [
        ["ResNet-50, batch 8, float32", "PyTorch, channels last", "2", "2.00 GB"],
        ["ResNet-50, batch 8, bfloat16", "PyTorch, channels last", "2", "2.00 GB"],
        ["BERT-base, classifier, batch 16, float32", "PyTorch", "2", "2.00 GB"],
        ["Llama 3.2 1B, LoRA, batch 1, bfloat16", "PyTorch", "2", "2.00 GB"],
    ]
    assert list(on_cpu.says) == [
        "The fastest other format trains 1.6 times as fast as float32.",
        "The fastest backend trains up to 1.3 times as fast as PyTorch as it comes, in the same format.",
    ]
    assert str(on_gpu.heading) == "Networks that people know train at 800 examples a second on the GPU"
    assert list(on_gpu.says) == ["The fastest backend trains about as fast as PyTorch as it comes, in the same format."]


def test_a_network_of_which_adapters_alone_are_trained_has_no_memory_by_the_formula(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for model in ("resnet-50", "llama-1b-lora"):
        trained(node, model, 8, 1.0)
        counts = {"parameters": 25e6, "activation_bytes": 1e8}
        for metric, value in counts.items():
            node.point("models", value, params={"model": model}, metric=metric, unit="1", spread=0)
    found = evidence(synthetic, node)
    for name in ("ladder.training_memory_bytes", "training.memory_model_error"):
        assert "resnet-50" in set(quantities()[name].estimates(found)["model"])
        assert "llama-1b-lora" not in set(quantities()[name].estimates(found)["model"])
