"""PyTorch's own products (MKL on x86), and oneDNN called through PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.backends.base import Backend
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch


class Torch(Backend):
    """`torch.mm`, the same product as `a @ b`."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        import torch

        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        return lambda: torch.mm(a, b, out=out)


class OneDnn(Backend):
    """oneDNN's inner product, which uses the core's widest instructions on any vendor's CPU."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        weight = b.t().contiguous()
        linear = onednn_linear(a.dtype)
        try:
            linear(a[:1], weight)
        except RuntimeError as refusal:
            raise Unsupported(f"oneDNN: {str(refusal).splitlines()[0]}") from None
        return lambda: linear(a, weight)


def onednn_linear(dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function that multiplies x (m, k) by a transposed weight (n, k) with oneDNN.

    Raises Unsupported if this torch lacks oneDNN, or oneDNN lacks the format.
    """
    import torch

    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise Unsupported(f"oneDNN has no {str(dtype).removeprefix('torch.')} product")
    if not torch.backends.mkldnn.is_available():
        raise Unsupported("this build of torch has no oneDNN")
    try:
        linear = torch.ops.mkldnn._linear_pointwise
    except AttributeError:
        raise Unsupported("this version of torch does not give access to oneDNN's product") from None
    return lambda x, weight: linear(x, weight, None, "none", [], "")
