"""The models, each readable on one screen: MLP and CNN on digits, two GPTs on text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.models import data


class Mlp(nn.Module):
    """64 pixels, two hidden layers of 512, ten classes."""

    WIDTHS = (64, 512, 512, 10)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(self.WIDTHS, self.WIDTHS[1:], strict=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out

    @classmethod
    def macs(cls) -> list[int]:
        """Multiply-adds of each layer for one sample, forward."""
        return [i * o for i, o in zip(cls.WIDTHS, cls.WIDTHS[1:], strict=False)]


class Cnn(nn.Module):
    """Three 3x3 convolutions with batch norm on 8x8 images, pooled once, ten classes."""

    CHANNELS = (1, 32, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip(self.CHANNELS, self.CHANNELS[1:], strict=False))
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o in pairs)
        self.head = nn.Linear(self.CHANNELS[-1] * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = functional.relu(norm(convolution(x)))
            if index == 1:
                x = functional.max_pool2d(x, 2)
        out: Tensor = self.head(x.flatten(1))
        return out

    @classmethod
    def macs(cls) -> list[int]:
        """Multiply-adds of each layer for one sample, forward: 8x8 outputs twice, 4x4 after pooling."""
        pixels = (64, 64, 16)
        pairs = zip(cls.CHANNELS, cls.CHANNELS[1:], strict=False)
        return [9 * i * o * p for (i, o), p in zip(pairs, pixels, strict=True)] + [cls.CHANNELS[-1] * 16 * 10]


class Block(nn.Module):
    """Pre-norm transformer block: causal self-attention and a feed-forward of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class Gpt(nn.Module):
    """Byte-level decoder-only transformer (Radford et al. 2019) of 4 blocks, width 256, 64 bytes of context."""

    WIDTH, HEADS, BLOCKS, LENGTH, VOCABULARY = 256, 4, 4, 64, 256

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(self.LENGTH, self.WIDTH))
        self.blocks = nn.Sequential(*(Block(self.WIDTH, self.HEADS) for _ in range(self.BLOCKS)))
        self.norm = nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.blocks(self.tokens(x) + self.places)))
        return out.flatten(0, 1)

    @classmethod
    def macs(cls) -> list[int]:
        """Multiply-adds of each product for one passage, forward.

        Attention is counted whole, as by `torch.utils.flop_counter`, though a causal kernel may skip half.
        """
        token = cls.WIDTH * cls.WIDTH
        block = [3 * token * cls.LENGTH, 2 * cls.LENGTH * cls.LENGTH * cls.WIDTH, token * cls.LENGTH]
        block += [4 * token * cls.LENGTH] * 2
        return block * cls.BLOCKS + [cls.WIDTH * cls.VOCABULARY * cls.LENGTH]


class Gpt2(Gpt):
    """The same in the shape of GPT-2 small (Radford et al. 2019, table 2), on bytes and 256 of them."""

    WIDTH, HEADS, BLOCKS, LENGTH = 768, 12, 12, 256


@dataclass(frozen=True)
class Entry:
    """A model, its data and its count of operations.

    first_input_has_gradient: whether the first counted layer also computes the gradient
        of its input (layers fed by the data do not; those behind an embedding do).
    """

    model: type[nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    macs: Callable[[], list[int]]
    first_input_has_gradient: bool

    def parameters(self) -> int:
        """Number of weights, without making them."""
        with torch.device("meta"):
            return sum(p.numel() for p in self.model().parameters())

    def step_flop(self, batch: int) -> float:
        """FLOP of one training step in products and convolutions.

        Forward 2 per multiply-add, backward as much for the weights' and again for the inputs' gradients.
        """
        macs = self.macs()
        skipped = 0 if self.first_input_has_gradient else macs[0]
        return 2.0 * batch * (3 * sum(macs) - skipped)


ZOO: dict[str, Entry] = {
    "mlp": Entry(Mlp, data.digits_batch, Mlp.macs, first_input_has_gradient=False),
    "cnn": Entry(Cnn, data.digits_batch, Cnn.macs, first_input_has_gradient=False),
    "gpt": Entry(Gpt, lambda size: data.text_batch(size, Gpt.LENGTH), Gpt.macs, first_input_has_gradient=True),
    "gpt2": Entry(Gpt2, lambda size: data.text_batch(size, Gpt2.LENGTH), Gpt2.macs, first_input_has_gradient=True),
}
