"""Training memory if only adapters are trained. All measurements are synthetic."""

from __future__ import annotations

from report.quantities import quantities
from tests.report.conftest import Factory
from tests.report.priced_nodes import evidence


def test_adapter_training_has_no_memory_estimate_by_the_formula(synthetic: Factory) -> None:
    node = synthetic("node-a")
    for model in ("resnet-50", "llama-1b-lora"):
        node.point("training", 2e9, metric="peak_memory", unit="B", params={"model": model, "batch": 8})
        for metric, value in (("parameters", 25e6), ("activation_bytes", 1e8)):
            node.point("models", value, params={"model": model}, metric=metric, unit="1", spread=0)
    dataset = evidence(synthetic, node)
    for name in ("ladder.training_memory_bytes", "training.memory_model_error"):
        models = set(quantities()[name].estimates(dataset)["model"])
        assert "resnet-50" in models and "llama-1b-lora" not in models
