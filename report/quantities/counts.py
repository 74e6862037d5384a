"""Quantities that are counted in a model: the same on every machine."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity
from report.quantities.architecture import counted

# A step of training, and a pass of inference, and the metric that counts the operations of each.
_PASSES = {"training": "step_flop", "inference": "forward_flop"}


@quantity(
    "models.flop_per_parameter_token",
    unit="1",
    needs={"experiments": ["models"], "device": "cpu"},
    labels=("model", "of"),
    says="Counted on {node}: products of the model take {value} operations for each parameter and token ({labels})",
)
def flop_per_parameter_token(data: Dataset) -> Estimates:
    """FLOP of a sample's products over its model's parameters and the tokens of the sample.

    of: training (a step) or inference (a forward pass). Parameters with those of embeddings, which are
    looked up and not multiplied; attention grows with the length besides.
    """
    parameters, length = counted(data, "parameters"), counted(data, "length")
    if not len(parameters) or not len(length):
        return Estimates.empty()
    return concat([counted(data, metric).label(of=name) / parameters / length for name, metric in _PASSES.items()])
