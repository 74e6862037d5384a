"""Real data that comes with the installed software: nothing is downloaded, nothing made up."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Enough text for any batch here, read in a fraction of a second.
TEXT_BYTES = 4_000_000


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 1, 8, 8) in [0, 1] as float32 and labels (1797,) of scikit-learn's digits.

    Source: UCI Optical Recognition of Handwritten Digits, as scikit-learn ships it.
    """
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


@cache
def text() -> torch.Tensor:
    """The first bytes of Python's standard library, modules in alphabetical order, as int64 tokens 0..255."""
    import torch

    collected = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        collected += path.read_bytes()
        if len(collected) >= TEXT_BYTES:
            break
    return torch.frombuffer(collected[:TEXT_BYTES], dtype=torch.uint8).long()


def digits_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random images (size, 1, 8, 8) and labels; with repetition, so that any batch can be had."""
    import torch

    images, labels = digits()
    chosen = torch.randint(len(labels), (size,))
    return images[chosen], labels[chosen]


def text_batch(size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random passages (size, length) and the same shifted by one, to be predicted."""
    import torch

    tokens = text()
    starts = torch.randint(len(tokens) - length - 1, (size, 1))
    passages = tokens[starts + torch.arange(length + 1)]
    return passages[:, :-1], passages[:, 1:]
