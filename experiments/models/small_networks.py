"""Small networks written for this study, each short enough to read on one screen."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# Token ids: one per byte value.
VOCABULARY = 256


class Mlp(nn.Module):
    """Multilayer perceptron for 64 pixels and ten classes, with two hidden layers of 512 units."""

    WIDTHS = (64, 512, 512, 10)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(self.WIDTHS))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


class Cnn(nn.Module):
    """Network for 8x8 images and ten classes: three 3x3 convolutions with batch norm, and one max-pooling."""

    CHANNELS = (1, 32, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        pairs = list(pairwise(self.CHANNELS))
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


class Residual(nn.Module):
    """Residual block: two 3x3 convolutions with batch norm; the shortcut is a 1x1 convolution if the shape changes.

    normed: True to follow the shortcut's convolution by batch norm.
    """

    def __init__(self, channels: int, filters: int, stride: int, normed: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)
        same = channels == filters and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else nn.Conv2d(channels, filters, 1, stride, bias=False)
        if normed and not same:
            self.shortcut = nn.Sequential(self.shortcut, nn.BatchNorm2d(filters))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.second(functional.relu(self.norm1(self.first(x)))))
        return functional.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-20 (He et al. 2016, "Deep residual learning for image recognition", section 4.2) on 28x28 grey images.

    Its three stages have three residual blocks each, with 16, 32 and 64 filters on 28x28, 14x14 and 7x7 pixels.
    Shortcuts are projections where the shape changes (option B in the paper).
    """

    FILTERS: tuple[int, ...] = (16, 32, 64)
    CHANNELS, BLOCKS, NORMED = 1, 3, False

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(self.CHANNELS, self.FILTERS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(self.FILTERS[0])
        self.blocks = nn.Sequential(*(Residual(*shape, self.NORMED) for shape in self.shapes()))
        self.head = nn.Linear(self.FILTERS[-1], 10)

    @classmethod
    def shapes(cls) -> list[tuple[int, int, int]]:
        """Return (channels, filters, stride) for each block."""
        shapes, channels = [], cls.FILTERS[0]
        for stage, filters in enumerate(cls.FILTERS):
            for block in range(cls.BLOCKS):
                shapes.append((channels, filters, 2 if stage and not block else 1))
                channels = filters
        return shapes

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


class WideResNet(ResNet):
    """ResNet with four times the filters (Zagoruyko and Komodakis 2016, "Wide residual networks", k = 4)."""

    FILTERS = (64, 128, 256)


class ResNet18(ResNet):
    """ResNet-18 (He et al. 2016, table 1) as it is usual for CIFAR-10: a 3x3 stem, no pooling, images of 32x32 pixels.

    Batch norm follows each convolution, also in a shortcut. The last norm in a residual branch starts at DAMPED, as in
    the catalogue's ResNet-50, so that gradients can be checked.
    """

    FILTERS = (64, 128, 256, 512)
    CHANNELS, BLOCKS, NORMED = 3, 2, True
    DAMPED = 0.1

    def __init__(self) -> None:
        super().__init__()
        for name, weight in self.named_parameters():
            if name.endswith("norm2.weight"):
                nn.init.constant_(weight, self.DAMPED)


class AlexNet(nn.Module):
    """AlexNet (Krizhevsky et al. 2012, section 3.5) on images of 227x227 pixels, in two groups as on its two GPUs.

    Local response norms and overlapping pools are as in the paper. Dropout is off, so that gradients can be checked.
    """

    def __init__(self) -> None:
        super().__init__()
        conv, pool = nn.Conv2d, nn.MaxPool2d
        self.features = nn.Sequential(
            conv(3, 96, 11, stride=4), nn.ReLU(), nn.LocalResponseNorm(5, 5e-4, k=2.0), pool(3, 2),
            conv(96, 256, 5, padding=2, groups=2), nn.ReLU(), nn.LocalResponseNorm(5, 5e-4, k=2.0), pool(3, 2),
            conv(256, 384, 3, padding=1), nn.ReLU(),
            conv(384, 384, 3, padding=1, groups=2), nn.ReLU(),
            conv(384, 256, 3, padding=1, groups=2), nn.ReLU(), pool(3, 2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Linear(256 * 6 * 6, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x).flatten(1))
        return out


class Airbench94(nn.Module):
    """Network of airbench94 (Jordan 2024, arXiv:2404.00498, section 3) for CIFAR-10.

    Here a step trains all weights. The original freezes the weights of its first convolution and of its norms, whose
    gradients take less than a thousandth of the multiply-adds.
    """

    WIDTHS = (24, 64, 256, 256)

    def __init__(self) -> None:
        super().__init__()
        self.whitening = nn.Conv2d(3, self.WIDTHS[0], 2)
        groups = [
            nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(o), nn.GELU(),
                nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.GELU(),
            )
            for i, o in pairwise(self.WIDTHS)
        ]  # fmt: skip
        self.groups = nn.Sequential(*groups, nn.MaxPool2d(3))
        self.head = nn.Linear(self.WIDTHS[-1], 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.groups(functional.gelu(self.whitening(x))).flatten(1)) / 9
        return out


class Block(nn.Module):
    """Pre-norm transformer block: causal self-attention, then a feed-forward layer with 4 * width hidden units."""

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
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class Gpt(nn.Module):
    """Byte-level decoder-only transformer (Radford et al. 2019); returns next-byte logits (batch * length, 256)."""

    def __init__(self, width: int, heads: int, blocks: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))
        return out.flatten(0, 1)


class Lstm(nn.Module):
    """Byte-level language model with two LSTM layers of 256 cells; returns next-byte logits (batch * length, 256).

    A byte takes as many multiply-adds as in the transformer `gpt-1m`, within a tenth. Unlike the transformer, this
    network processes the bytes one by one.
    """

    WIDTH, LAYERS = 256, 2

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, self.WIDTH)
        self.layers = nn.LSTM(self.WIDTH, self.WIDTH, self.LAYERS, batch_first=True)
        self.head = nn.Linear(self.WIDTH, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layers(self.tokens(x))
        out: Tensor = self.head(states)
        return out.flatten(0, 1)
