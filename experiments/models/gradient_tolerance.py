"""Tolerances for gradient errors. The error is the difference from the gradients computed in float64."""

from __future__ import annotations

from experiments.models.catalogue import networks
from experiments.workload import Dtype, Unsupported

# Largest accepted error for most networks, relative to the norm of all gradients. It allows for rounding in about a
# hundred successive operations, each with at most the error in Dtype.matmul_tolerance. float16 rounds as TF32 does: up
# to 0.015 was measured with a scaled loss.
SMOOTH = {Dtype.FLOAT32: 1e-4, Dtype.TF32: 2e-2, Dtype.BFLOAT16: 1e-1, Dtype.FLOAT16: 2e-2}
# Largest accepted error for networks with 19 or more ReLUs after batch norm. In every layer, rounding moves some units
# across the ReLU's kink, which switches the gradient through these units on or off. The fraction of these units is
# proportional to the rounding error, so the gradient error grows with the square root of the rounding error. The
# measured gradient error in bfloat16 is 0.3, for any batch size and width. The rounding error in float32 is 2^16 times
# smaller, so the gradient error should be 2^8 times smaller, about 1e-3; up to 6e-4 was measured. For ResNet-50, the
# measured gradient errors are 0.08 in bfloat16 and 3e-4 in float32. In airbench94, rounding moves the maxima of its
# max-pooling, which batch norm follows: 0.27 was measured in bfloat16.
KINKED = {Dtype.FLOAT32: 2e-3, Dtype.TF32: 0.25, Dtype.BFLOAT16: 0.5, Dtype.FLOAT16: 0.25}
_KINKED = ("resnet", "wide-resnet", "resnet-18", "airbench94")

# Networks whose gradients cannot be checked. Rounding alone causes errors of 0.04 in float32 and 1.3 in bfloat16
# (measured), so the check could not tell rounding from wrong gradients.
CHAOTIC = ("mobilenet-v2",)


def largest_gradient_error(model: str, dtype: Dtype) -> float:
    """Return the tolerance for a model in the zoo. Raises Unsupported for formats and models that cannot be checked."""
    if dtype not in SMOOTH:
        raise Unsupported(f"this study does not train in {dtype}")
    if model in CHAOTIC:
        raise Unsupported(f"gradients of {model} with random weights depend on rounding: they cannot be checked")
    network = networks().get(model)
    kinked = network.family == "convolutional" if network else model in _KINKED
    return (KINKED if kinked else SMOOTH)[dtype]
