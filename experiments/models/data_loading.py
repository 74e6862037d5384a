"""Batches of real samples for a training loop.

Samples are in memory, or are decoded when they are needed. The batches are prepared by this process, or by PyTorch's
DataLoader in worker processes.
"""

from __future__ import annotations

import gzip
import io
import itertools
import multiprocessing
import random
import shutil
import sys
import unicodedata
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from contract import running_time
from contract.child_processes import end_with_parent
from experiments.devices import Device
from experiments.models import real_data
from experiments.models.zoo import Entry
from experiments.workload import HarnessError, Unsupported, largest_error

if TYPE_CHECKING:
    from PIL import Image

Batch = tuple[Tensor, Tensor]

# Batches that the source `preloaded` copies to the device once, and then repeats in order.
PRELOADED = 8
# Samples that the sampler draws, too many for any training loop to reach the end.
ENDLESS = 2**40
# Samples that the source `memory` holds.
HELD = 64
# Bytes of text per compressed piece, before compression.
PIECE = 1 << 16
# Smallest area of a random crop, as a fraction of the photograph's area (Szegedy et al. 2015, section 6).
LEAST_AREA = 0.08
# If a worker fails and less shared memory than this (in bytes) is free, the error message mentions shared memory. By
# default, containers get only half of this.
LEAST_SHARED = 2**27
# DECODED: samples per timing in `sample_times`. TIMES: number of timings.
DECODED, TIMES = 16, 8


class Samples(Dataset[Batch]):
    """Map-style dataset whose items are (input, target), in the form that the model takes."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Batch: ...

    @abstractmethod
    def wrong_share(self, inputs: Tensor, targets: Tensor) -> float:
        """Return the fraction of samples in a batch that cannot come from this dataset.

        Return 1 if a photograph or a text is decoded wrongly.
        """

    def __getstate__(self) -> dict[str, Any]:
        # Send NumPy arrays to the workers, because PyTorch would move tensors to shared memory, which is scarce in
        # containers.
        return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        vars(self).update(state | {name: torch.from_numpy(array) for name, array in arrays.items()})

    def sample_times(self) -> list[float]:
        """Measure how long this process takes to prepare a sample.

        Return TIMES values in seconds; each value is the mean over DECODED random samples.
        """
        times = []
        for _ in range(TIMES):
            chosen = [int(index) for index in torch.randint(len(self), (DECODED,))]
            begun = running_time.now()
            for index in chosen:
                self[index]
            times.append((running_time.now() - begun) / DECODED)
        return times


class MemorySamples(Samples):
    """Samples that are in host memory and need no decoding."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.images[index], self.labels[index]

    def wrong_share(self, inputs: Tensor, targets: Tensor) -> float:
        known = [
            bool((_equal_rows(self.images, image) & _equal_rows(self.labels, label)).any())
            for image, label in zip(inputs, targets, strict=True)
        ]
        return 1 - sum(known) / len(known)


def _equal_rows(samples: Tensor, row: Tensor) -> Tensor:
    """Return booleans (samples,): True for each sample that equals `row`."""
    return (samples == row).reshape(len(samples), -1).all(1)


@cache
def _pillow_image() -> Any:
    """Return Pillow's module Image, imported here because only `Photographs` needs it."""
    from PIL import Image

    return Image


class Photographs(Samples):
    """JPEG photographs that are decoded, randomly cropped and flipped, and converted to the model's size and channels.

    Source: scikit-learn's two photographs (china.jpg and flower.jpg, 640 by 427). The label is the photograph's index,
    so the task is easy; only the decoding is realistic.
    """

    NAMES = ("china.jpg", "flower.jpg")

    def __init__(self, channels: int, size: int) -> None:
        import sklearn.datasets

        _pillow_image()  # if Pillow is missing, fail here rather than in a worker
        self.mode, self.size = "L" if channels == 1 else "RGB", size
        folder = Path(sklearn.datasets.__file__).parent / "images"
        self.files = [(folder / name).read_bytes() for name in self.NAMES]

    def __len__(self) -> int:
        return len(self.files)

    def decode(self, index: int) -> Image.Image:
        """Decode the whole photograph."""
        return _pillow_image().open(io.BytesIO(self.files[index])).convert("RGB")

    def __getitem__(self, index: int) -> Batch:
        picture = self.decode(index)
        side = random.uniform(LEAST_AREA, 1.0) ** 0.5
        wide, high = picture.width * side, picture.height * side
        left, top = random.uniform(0, picture.width - wide), random.uniform(0, picture.height - high)
        box = (left, top, left + wide, top + high)
        cut = picture.resize((self.size, self.size), _pillow_image().Resampling.BILINEAR, box)
        if random.random() < 0.5:
            cut = cut.transpose(_pillow_image().Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(cut.convert(self.mode), np.float32).reshape(self.size, self.size, -1)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy() / 255), torch.tensor(index)

    def wrong_share(self, inputs: Tensor, targets: Tensor) -> float:
        from sklearn.datasets import load_sample_image

        for index, name in enumerate(self.NAMES):
            if not np.array_equal(np.asarray(self.decode(index)), load_sample_image(name)):
                return 1.0
        right = ((inputs >= 0) & (inputs <= 1)).flatten(1).all(1) & (targets >= 0) & (targets < len(self))
        return 1 - float(right.double().mean())


class Words(Samples):
    """Text that is stored in gzip-compressed pieces.

    To prepare a sample, a piece is decompressed and normalised, its words are hashed to ids, and `length` successive
    words are chosen at random. vocabulary: number of word ids. classes: number of classes; the target is then the
    piece's index modulo `classes`. If `classes` is 0, each word's target is the next word.
    """

    def __init__(self, raw: bytes, length: int, vocabulary: int, classes: int) -> None:
        self.raw, self.length, self.vocabulary, self.classes = raw, length, vocabulary, classes
        self.pieces = [
            gzip.compress(raw[start : start + PIECE], mtime=0) for start in range(0, len(raw) - PIECE + 1, PIECE)
        ]

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> Batch:
        text = gzip.decompress(self.pieces[index]).decode("utf-8", errors="replace")
        words = real_data.hash_words(unicodedata.normalize("NFC", text).encode(), self.vocabulary)
        start = random.randrange(len(words) - self.length)
        cut = words[start : start + self.length + 1]
        return cut[:-1], torch.tensor(index % self.classes) if self.classes else cut[1:]

    def wrong_share(self, inputs: Tensor, targets: Tensor) -> float:
        index = random.randrange(len(self))
        if gzip.decompress(self.pieces[index]) != self.raw[index * PIECE : (index + 1) * PIECE]:
            return 1.0
        right = ((inputs >= 0) & (inputs < self.vocabulary)).all(1)
        if self.classes:
            right &= (targets >= 0) & (targets < self.classes)
        else:
            right &= (inputs[:, 1:] == targets[:, :-1]).all(1)
        return 1 - float(right.double().mean())


@cache
def make_samples(source: str, entry: Entry) -> Samples:
    """Make the samples from a source for a model. Raises Unsupported if the source does not fit the model."""
    if source == "memory":
        inputs, targets = entry.batch(HELD)
        return MemorySamples(inputs, targets.view(HELD, -1))
    if source == "photographs":
        if not entry.images:
            raise Unsupported("photographs need a model for images")
        return Photographs(*entry.sample[:2])
    network = entry.described
    if network is None or network.kind != "tokens" or (entry.length > 1 and not network.is_causal):
        raise Unsupported("encoded text needs a text classifier or causal network from the catalogue")
    from experiments.models.from_transformers import model_config

    classes = entry.classes if entry.length == 1 else 0
    return Words(real_data.text_bytes(), entry.sample[0], model_config(network).vocab_size, classes)


def _shared_memory_fault() -> str:
    """Return text to append to an error message if shared memory is missing or nearly full; '' otherwise.

    The text names the fault and a remedy.
    """
    place = Path("/dev/shm")
    if sys.platform != "linux":
        return ""
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return f"; there is no {place}: mount one (mount -t tmpfs tmpfs {place})"
    return f"; {place} has {free / 2**20:.1f} MiB free (containers: --shm-size=1g)" if free < LEAST_SHARED else ""


def _worker_context(device: Device) -> Any:
    """Return the multiprocessing context for the workers; None for Python's default.

    With a GPU, a fork server starts the workers, because forking this process would copy locks that its threads hold.
    The fork server imports this module in advance, to let workers start quickly.
    """
    if device.kind == "cpu" or "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class Feed:
    """Endless batch stream, copied to the device.

    workers: number of processes to prepare the batches; 0 to prepare them in this process.
    """

    def __init__(self, entry: Entry, batch: int, source: str, workers: int, device: Device) -> None:
        """Make the stream and start its workers.

        Raises Unsupported if the source does not fit the model, HarnessError if worker processes fail.
        """
        self.device, self.samples, self.workers = device, None, workers
        if source == "preloaded":
            if workers:
                raise Unsupported("preloaded batches need no workers")
            batches = [self._to_device(*entry.batch(batch)) for _ in range(PRELOADED)]
            self._batches: Iterator[Batch] = itertools.cycle(batches)
            return
        self.samples = make_samples(source, entry)
        loader = DataLoader(
            self.samples,
            batch,
            sampler=RandomSampler(self.samples, replacement=True, num_samples=ENDLESS),
            num_workers=workers,
            pin_memory=device.page_locks,
            multiprocessing_context=_worker_context(device) if workers else None,
            persistent_workers=workers > 0,
            worker_init_fn=end_with_parent,
        )
        with self._worker_errors():
            self._batches = iter(loader)

    @contextmanager
    def _worker_errors(self) -> Iterator[None]:
        """Turn errors from worker processes (shared memory, files, the processes themselves) into HarnessError."""
        try:
            yield
        except (OSError, RuntimeError) as refusal:
            if not self.workers:
                raise
            # A worker's error contains its traceback, whose last line is the message.
            message = (str(refusal).strip() or type(refusal).__name__).splitlines()[-1]
            lacking = _shared_memory_fault()
            raise HarnessError(f"processes that prepare batches: {message}{lacking}") from refusal

    def _to_device(self, inputs: Tensor, targets: Tensor) -> Batch:
        name = self.device.name
        return inputs.to(name, non_blocking=True), targets.to(name, non_blocking=True)

    def next(self) -> Batch:
        """Return the next batch, whose copy to the device may still be running.

        Raises HarnessError if worker processes fail.
        """
        with self._worker_errors():
            batch = next(self._batches)
        return self._to_device(*batch)

    def error(self) -> float:
        """Take the next two batches, and return the larger `wrong_share`."""
        if self.samples is None:
            return 0.0
        batches = [[tensor.cpu() for tensor in self.next()] for _ in range(2)]
        return largest_error(*(self.samples.wrong_share(inputs, targets) for inputs, targets in batches))
