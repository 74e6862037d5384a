"""Single layers from known networks, and matrix products in common shapes, to compare vendors' libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Convolution:
    """Convolution as in ResNet, with square kernels and without bias, for inputs (batch, channels, size, size)."""

    channels: int
    filters: int
    kernel: int
    size: int
    stride: int = 1

    def module(self, **where: Any) -> nn.Module:
        """Make the layer; `where` gives the device and the dtype."""
        padding = self.kernel // 2
        return nn.Conv2d(self.channels, self.filters, self.kernel, self.stride, padding, bias=False, **where)

    def inputs(self, batch: int) -> tuple[int, ...]:
        """Return the input shape."""
        return (batch, self.channels, self.size, self.size)

    @property
    def depth(self) -> int:
        """Products to sum for one output element."""
        return self.channels * self.kernel**2

    def positions(self, batch: int) -> int:
        """Return how often a forward pass uses each weight; the weight's gradient sums as many terms."""
        return batch * ((self.size - 1) // self.stride + 1) ** 2

    def flop(self, batch: int) -> float:
        """Count the FLOP in one forward pass, which consists of multiply-adds only."""
        return 2.0 * self.positions(batch) * self.filters * self.depth

    def elements(self, batch: int) -> int:
        """Count the elements in the input, the weights and the output."""
        images = batch * self.channels * self.size**2
        return images + self.filters * self.depth + self.positions(batch) * self.filters


@dataclass(frozen=True)
class Lstm:
    """LSTM layer with `hidden` cells and as many input features, for sequences with `length` steps."""

    hidden: int
    length: int

    def module(self, **where: Any) -> nn.Module:
        """Make the layer; `where` gives the device and the dtype."""
        return nn.LSTM(self.hidden, self.hidden, **where)

    def inputs(self, batch: int) -> tuple[int, ...]:
        """Return the input shape, with time first as in cuDNN's layout."""
        return (self.length, batch, self.hidden)

    @property
    def depth(self) -> int:
        """Products to sum for one gate: one for each input feature and one for each state."""
        return 2 * self.hidden

    def positions(self, batch: int) -> int:
        """Return how often a forward pass uses each weight; the weight's gradient sums as many terms."""
        return batch * self.length

    def flop(self, batch: int) -> float:
        """Count the FLOP in a forward pass's matrix products, with four gates per cell."""
        return 2.0 * self.positions(batch) * 4 * self.hidden * self.depth

    def elements(self, batch: int) -> int:
        """Count the elements in the input, the weights and the output."""
        return 2 * self.positions(batch) * self.hidden + 4 * self.hidden * self.depth


@dataclass(frozen=True)
class Product:
    """Matrix product: (batch, depth) by (depth, width)."""

    depth: int
    width: int

    def positions(self, batch: int) -> int:
        """Return how often the product uses each weight (each element of the second operand)."""
        return batch

    def flop(self, batch: int) -> float:
        """Count the FLOP in one product."""
        return 2.0 * batch * self.depth * self.width

    def elements(self, batch: int) -> int:
        """Count the elements in both operands and the result."""
        return batch * self.depth + self.depth * self.width + batch * self.width


Layer = Convolution | Lstm

# Convolutions from each stage of ResNet-50 (He et al. 2016, "Deep residual learning for image recognition", table 1).
CONVOLUTIONS = {
    "conv1-7x7": Convolution(3, 64, 7, 224, stride=2),
    "conv2-1x1": Convolution(64, 256, 1, 56),
    "conv2-3x3": Convolution(64, 64, 3, 56),
    "conv3-3x3": Convolution(128, 128, 3, 28),
    "conv4-1x1": Convolution(1024, 256, 1, 14),
    "conv4-3x3": Convolution(256, 256, 3, 14),
    "conv5-3x3": Convolution(512, 512, 3, 7),
}
# LSTM layers in typical sizes for machine translation and speech recognition.
LSTMS = {"256-cells": Lstm(256, 50), "512-cells": Lstm(512, 50), "1024-cells": Lstm(1024, 50)}
PRODUCTS = {
    "1024x1024": Product(1024, 1024),
    "2048x2048": Product(2048, 2048),
    "4096x4096": Product(4096, 4096),
    "8192x8192": Product(8192, 8192),
    "768x3072": Product(768, 3072),
    "16384x512": Product(16384, 512),
}


def find_layer(layer: str, shape: str) -> Layer | Product | None:
    """Return the layer for this kind and shape name; None if there is no such layer."""
    tables: dict[str, Mapping[str, Layer | Product]] = {
        "convolution": CONVOLUTIONS, "lstm": LSTMS, "product": PRODUCTS,
    }  # fmt: skip
    return tables.get(layer, {}).get(shape)


def layer_output(module: nn.Module, x: Tensor) -> Tensor:
    """Return the layer's output; for an LSTM, this is the hidden states at all steps."""
    out = module(x)
    result: Tensor = out[0] if isinstance(out, tuple) else out
    return result


def output_and_gradients(module: nn.Module, x: Tensor, above: Tensor | None) -> list[Tensor]:
    """Return the output and, if `above` is given, also the gradients for the input and for each weight tensor.

    above: gradient for the output.
    """
    if above is None:
        with torch.no_grad():
            return [layer_output(module, x)]
    x = x.detach().requires_grad_()
    y = layer_output(module, x)
    return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], above)]
