"""Names of the study's models: for parameters of experiments, which are read where PyTorch is not imported."""

from __future__ import annotations

from typing import Literal

Model = Literal[
    "mlp", "cnn", "resnet", "vit",
    "lstm-32", "lstm-128", "lstm-512",
    "gpt", "gpt2", "gpt-1m", "gpt-10m", "gpt-85m", "gpt-350m", "gpt-1.3b", "gpt-7b",
    "embedding", "tabular",
]  # fmt: skip
