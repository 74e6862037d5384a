"""Linear layers whose three products go through oneDNN instead of PyTorch's default library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.backends.pytorch import onednn_linear


class _Product(torch.autograd.Function):
    """y = x w^T + bias in float32: forward, and both gradients, by oneDNN's inner product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        out = onednn_linear(torch.float32)(x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        above, linear = gradients[0].flatten(0, -2).contiguous(), onednn_linear(torch.float32)
        wanted = ctx.needs_input_grad
        below = linear(above, weight.t().contiguous()).reshape(x.shape) if wanted[0] else None
        steeper = linear(above.t().contiguous(), x.flatten(0, -2).t().contiguous()) if wanted[1] else None
        return below, steeper, above.sum(0) if ctx.biased and wanted[2] else None


class Linear(nn.Linear):
    """As `torch.nn.Linear`; in other formats than float32 it does what that does."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype is not torch.float32 or self.weight.dtype is not torch.float32:
            return super().forward(input)
        out: Tensor = _Product.apply(input, self.weight, self.bias)
        return out


def through_onednn(model: nn.Module) -> nn.Module:
    """The model with every linear layer's class changed, weights and all else kept. Raises Unsupported."""
    onednn_linear(torch.float32)
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
    return model
