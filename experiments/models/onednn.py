"""Linear layers that compute output and gradients with oneDNN instead of PyTorch's default library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.backends.pytorch import onednn_linear


class _Product(torch.autograd.Function):
    """Function y = x w^T + bias in float32, whose forward and backward pass use oneDNN's inner product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        out = onednn_linear(torch.float32)(x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        output_gradient, linear = gradients[0].flatten(0, -2).contiguous(), onednn_linear(torch.float32)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        dx = linear(output_gradient, weight.t().contiguous()).reshape(x.shape) if needs_x else None
        rows = x.flatten(0, -2).t().contiguous()
        dw = linear(output_gradient.t().contiguous(), rows) if needs_weight else None
        return dx, dw, output_gradient.sum(0) if ctx.biased and needs_bias else None


class Linear(nn.Linear):
    """`torch.nn.Linear` that uses oneDNN for float32, and PyTorch's default library for other formats."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype is not torch.float32 or self.weight.dtype is not torch.float32:
            return super().forward(input)
        out: Tensor = _Product.apply(input, self.weight, self.bias)
        return out


def use_onednn(model: nn.Module) -> nn.Module:
    """Make all linear layers in `model` use oneDNN, with the same weights, and return the same model.

    Raises Unsupported if PyTorch has no oneDNN.
    """
    onednn_linear(torch.float32)
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
    return model
