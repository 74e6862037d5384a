"""Network names for experiment parameters, in a module that does not import PyTorch."""

from __future__ import annotations

from typing import Annotated, Any

from experiments import user_models
from experiments.language import shapes
from experiments.models.catalogue import SMALL, networks

Model = Annotated[str, "a network's name"]
KINDS = (Model, shapes.Name)


def model_names(hint: Any) -> list[str]:
    """Return the allowed names for an experiment parameter, including the name that stands for all user models.

    hint: the parameter's type; `shapes.Name` stands for language models, `Model` for networks.
    """
    return [*(shapes.shapes() if hint == shapes.Name else [*SMALL, *networks()]), user_models.OWN]


def expand_model_name(hint: Any, name: str) -> list[str]:
    """Return all user models if `name` is the name that stands for them, otherwise only `name`.

    hint: the experiment parameter's type; `shapes.Name` stands for language models, all other types for networks.
    """
    if name != user_models.OWN:
        return [name]
    return list(user_models.models("shape" if hint == shapes.Name else "class"))


def has_attention(model: str) -> bool:
    """Return True if the model (a small network, or a network from the catalogue) is a transformer."""
    network = networks().get(model)
    return network.family == "transformer" if network else "gpt" in model
