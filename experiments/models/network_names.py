"""Network names for experiment parameters, readable without importing PyTorch."""

from __future__ import annotations

from typing import Annotated, Any

from experiments import user_models
from experiments.language import shapes
from experiments.models.catalogue import SMALL, networks

Model = Annotated[str, "a network's name"]
KINDS = (Model, shapes.Name)


def model_names(hint: Any) -> list[str]:
    """List the names that a parameter with this type takes, including the placeholder for user models."""
    return [*(shapes.shapes() if hint == shapes.Name else [*SMALL, *networks()]), user_models.OWN]


def expand_model_name(hint: Any, name: str) -> list[str]:
    """Return the models that a name in a preset stands for: all user models for the placeholder, else one model."""
    if name != user_models.OWN:
        return [name]
    return list(user_models.models("shape" if hint == shapes.Name else "class"))


def has_attention(model: str) -> bool:
    """True if the model is a transformer: a small network, or a network from the catalogue."""
    network = networks().get(model)
    return network.family == "transformer" if network else "gpt" in model
