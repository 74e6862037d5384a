"""Names of the study's networks: for parameters of experiments, which are read where PyTorch is not imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from experiments.models.catalogue import NETWORKS, OWN, SMALL, VARIABLE, networks

# A parameter of this type takes these names.
Model = Annotated[str, "a network's name"]


def known() -> list[str]:
    """All names, and the one by which a preset asks for the networks of the user's own."""
    return [*SMALL, *networks(), OWN]


def expand(name: str) -> list[str]:
    """The networks that a preset means by a name."""
    return [one for one in networks() if one not in NETWORKS] if name == OWN else [name]


def variables(params: Mapping[str, Any]) -> dict[str, str]:
    """Variables of a process that measures a point: those that describe a network of the user's own."""
    name = params.get("model")
    return {VARIABLE: os.environ[VARIABLE]} if name in networks() and name not in NETWORKS else {}


def has_attention(model: str) -> bool:
    """True for a transformer, the study's own or of the catalogue."""
    named = networks().get(model)
    return named.family == "transformer" if named else model.startswith(("gpt", "vit"))
