"""Names of the study's networks: for parameters of experiments, which are read where PyTorch is not imported."""

from __future__ import annotations

from typing import Annotated, Any

from experiments import user_models
from experiments.language import shapes
from experiments.models.catalogue import SMALL, networks

# A parameter of this type takes the names of networks.
Model = Annotated[str, "a network's name"]
KINDS = (Model, shapes.Name)


def known(hint: Any) -> list[str]:
    """The names that a parameter of this type takes: also the one by which a preset asks for the user's own models."""
    return [*(shapes.shapes() if hint == shapes.Name else [*SMALL, *networks()]), user_models.OWN]


def expand(hint: Any, name: str) -> list[str]:
    """The models that a preset means by a name, for a parameter of this type."""
    if name != user_models.OWN:
        return [name]
    return list(user_models.models("shape" if hint == shapes.Name else "class"))


def has_attention(model: str) -> bool:
    """True for a transformer, the study's own or of the catalogue."""
    named = networks().get(model)
    return named.family == "transformer" if named else "gpt" in model
