"""How far from float64 the gradients of a right training step may be."""

from __future__ import annotations

from experiments.models.catalogue import networks
from experiments.workload import Dtype, Unsupported

# Relative error of all gradients together: rounding of some hundred operations in a row, each bounded as in
# Dtype.matmul_tolerance.
SMOOTH = {Dtype.FLOAT32: 1e-4, Dtype.TF32: 2e-2, Dtype.BFLOAT16: 1e-1}
# Nineteen ReLUs and more behind batch norm: in every layer a share of the units in proportion to the rounding lies so
# near to the kink that it takes the other path, with its whole gradient, so that the error goes with the square root
# of the rounding (measured, whatever the batch and the width: 0.3 in bfloat16, up to 6e-4 in float32, where 0.3 would
# become 1e-3; ResNet-50 0.08 and 3e-4).
KINKED = {Dtype.FLOAT32: 2e-3, Dtype.TF32: 0.25, Dtype.BFLOAT16: 0.5}

# Measured like the others: 0.04 in float32, 1.3 in bfloat16, which a wrong gradient may have as well.
CHAOTIC = ("mobilenet-v2",)


def of_gradients(model: str, dtype: Dtype) -> float:
    """The largest right error of a model of the zoo. Raises Unsupported for a format in which none is trained."""
    if dtype not in SMOOTH:
        raise Unsupported(f"training in {dtype} needs loss scaling, which is not part of this study")
    if model in CHAOTIC:
        raise Unsupported(
            f"gradients of {model} with random weights hang on rounding: no check tells whether they are right"
        )
    named = networks().get(model)
    kinked = named.family == "convolutional" if named else model in ("resnet", "wide-resnet")
    return (KINKED if kinked else SMOOTH)[dtype]
