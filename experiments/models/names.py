"""Names of the study's networks: for parameters of experiments, which are read where PyTorch is not imported."""

from __future__ import annotations

from typing import Annotated

from experiments.models.catalogue import NETWORKS

# A parameter of this type takes these names.
Model = Annotated[str, "a network's name"]
SMALL = (
    "mlp", "cnn", "resnet", "vit",
    "lstm-32", "lstm-128", "lstm-512",
    "gpt", "gpt2", "gpt-1m", "gpt-10m", "gpt-85m", "gpt-350m", "gpt-1.3b", "gpt-7b",
    "embedding", "tabular",
)  # fmt: skip
NAMES = (*SMALL, *NETWORKS)
