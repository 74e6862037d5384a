"""Gradient error tolerances, relative to float64."""

from __future__ import annotations

from experiments.models.catalogue import networks
from experiments.workload import Dtype, Unsupported

# Largest accepted error, relative to all gradients: it allows for rounding in about a hundred successive operations,
# each bounded as in Dtype.matmul_tolerance.
SMOOTH = {Dtype.FLOAT32: 1e-4, Dtype.TF32: 2e-2, Dtype.BFLOAT16: 1e-1}
# Largest accepted error for networks with 19 or more ReLUs after batch norm. In every layer, rounding moves a share of
# units across the ReLU's kink, and their whole gradient changes. This share is proportional to the rounding error, so
# the gradient error grows with the square root of the rounding error. Measured errors, for any batch and width: 0.3 in
# bfloat16 and up to 6e-4 in float32, where the square root predicts 1e-3 from 0.3; 0.08 and 3e-4 for ResNet-50.
KINKED = {Dtype.FLOAT32: 2e-3, Dtype.TF32: 0.25, Dtype.BFLOAT16: 0.5}

# Networks that cannot be checked: rounding alone causes an error of 0.04 in float32 and 1.3 in bfloat16 (measured), and
# wrong gradients may have the same error.
CHAOTIC = ("mobilenet-v2",)


def largest_gradient_error(model: str, dtype: Dtype) -> float:
    """Return the tolerance for a model in the zoo. Raises Unsupported for formats and models that cannot be checked."""
    if dtype not in SMOOTH:
        raise Unsupported(f"training in {dtype} needs loss scaling, which this study does not use")
    if model in CHAOTIC:
        raise Unsupported(f"gradients of {model} with random weights depend on rounding: they cannot be checked")
    network = networks().get(model)
    kinked = network.family == "convolutional" if network else model in ("resnet", "wide-resnet")
    return (KINKED if kinked else SMOOTH)[dtype]
