"""Quantities that are counted in a model: the same on every machine."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity
from report.quantities.architecture import counted, counted_as


@quantity(
    "models.flop_per_parameter_token",
    "1",
    "Counted on {node}: products of the model take {value} operations for each parameter and token ({labels})",
    needs={"experiments": ["models"], "device": "cpu"},
    labels=("model", "of"),
)
def flop_per_parameter_token(data: Dataset) -> Estimates:
    """FLOP of a sample's products over its model's parameters and the tokens of the sample.

    of: training (a step) or inference (a forward pass). Parameters with those of embeddings, which are
    looked up and not multiplied; attention grows with the length besides.
    """
    operations = counted_as(data, "of", {"training": "step_flop", "inference": "forward_flop"})
    return operations / counted(data, "parameters") / counted(data, "length")
