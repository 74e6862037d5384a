"""Models in ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.models.onnx_files import onnx_file
from experiments.work import Dtype, Unsupported

if TYPE_CHECKING:
    import torch


def session(name: str, batch: int, dtype: Dtype, threads: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The network `name`, with the weights of seed 0, for batches of this size.

    dtype: float32, or int8: weights in 8 bits, and inputs of products rounded to 8 bits with
    a range found at each call (dynamic quantisation). threads: 0 leaves their number to the library.
    Raises Unsupported for other formats and for models past the size of a file.
    """
    import torch

    if dtype not in (Dtype.FLOAT32, Dtype.INT8):
        raise Unsupported(f"ONNX Runtime has no {dtype} kernels for the CPU")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    path = onnx_file(name, batch, dtype is Dtype.INT8)
    made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = made.get_inputs()[0].name

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(made.run(None, {given: inputs.numpy()})[0])

    return call
