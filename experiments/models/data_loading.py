"""Batches for a training loop: real samples, taken from memory or decoded, one by one or by worker processes."""

from __future__ import annotations

import gzip
import io
import itertools
import multiprocessing
import random
import shutil
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

# Batches that lie on the device from the beginning and are used in turn.
PRELOADED = 8
# Samples without end, as far as a point goes.
ENDLESS = 2**40
# Samples that are held in memory.
HELD = 64
# Pieces of text are compressed by so many bytes.
PIECE = 1 << 16
# A photograph is cut to between this share of its area and all of it (Szegedy et al. 2015, section 6).
LEAST_AREA = 0.08
# Bytes of shared memory below which a failure of worker processes is put down to it: containers have half by default.
LEAST_SHARED = 2**27
# The time of one sample is the mean of so many, taken so many times.
DECODED, TIMES = 16, 8


class Samples(Dataset[Batch]):
    """Samples by number: (input, target), as the model takes them."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Batch: ...

    @abstractmethod
    def wrong(self, inputs: Tensor, targets: Tensor) -> float:
        """Share of a loaded batch that cannot be from these samples; 1 where decoding does not give the original."""

    def __getstate__(self) -> dict[str, Any]:
        # As arrays: tensors would be moved into shared memory, of which containers have little.
        return {name: one.numpy() if isinstance(one, Tensor) else one for name, one in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: one for name, one in state.items() if isinstance(one, np.ndarray)}
        vars(self).update(state | {name: torch.from_numpy(one) for name, one in arrays.items()})

    def seconds(self) -> list[float]:
        """Seconds of one sample in this process, several times."""
        found = []
        for _ in range(TIMES):
            chosen = [int(index) for index in torch.randint(len(self), (DECODED,))]
            begun = running_time.now()
            for index in chosen:
                self[index]
            found.append((running_time.now() - begun) / DECODED)
        return found


class Held(Samples):
    """Samples in host memory, ready to be used."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.images[index], self.labels[index]

    def wrong(self, inputs: Tensor, targets: Tensor) -> float:
        found = [
            bool((_equal_rows(self.images, one) & _equal_rows(self.labels, label)).any())
            for one, label in zip(inputs, targets, strict=True)
        ]
        return 1 - sum(found) / len(found)


def _equal_rows(samples: Tensor, one: Tensor) -> Tensor:
    """True for each of the samples that equals `one`; shape (samples,)."""
    return (samples == one).reshape(len(samples), -1).all(1)


@cache
def _pillow() -> Any:
    """Pillow's images, which nothing but photographs needs."""
    from PIL import Image

    return Image


class Photographs(Samples):
    """Photographs as JPEG files, decoded, cut at random, and scaled to the model's size and channels (1 or 3).

    Source: the two that scikit-learn ships (china.jpg and flower.jpg, 640 by 427). A sample
    is one of them, its label which: the work of reading a photograph is real, the task is not hard.
    """

    NAMES = ("china.jpg", "flower.jpg")

    def __init__(self, channels: int, size: int) -> None:
        import sklearn.datasets

        _pillow()  # its absence is told here, not by the process that decodes
        self.mode, self.size = "L" if channels == 1 else "RGB", size
        folder = Path(sklearn.datasets.__file__).parent / "images"
        self.files = [(folder / name).read_bytes() for name in self.NAMES]

    def __len__(self) -> int:
        return len(self.files)

    def decoded(self, index: int) -> Image.Image:
        """The whole photograph."""
        return _pillow().open(io.BytesIO(self.files[index])).convert("RGB")

    def __getitem__(self, index: int) -> Batch:
        picture = self.decoded(index)
        side = random.uniform(LEAST_AREA, 1.0) ** 0.5
        wide, high = picture.width * side, picture.height * side
        left, top = random.uniform(0, picture.width - wide), random.uniform(0, picture.height - high)
        box = (left, top, left + wide, top + high)
        cut = picture.resize((self.size, self.size), _pillow().Resampling.BILINEAR, box)
        if random.random() < 0.5:
            cut = cut.transpose(_pillow().Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(cut.convert(self.mode), np.float32).reshape(self.size, self.size, -1)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy() / 255), torch.tensor(index)

    def wrong(self, inputs: Tensor, targets: Tensor) -> float:
        from sklearn.datasets import load_sample_image

        for index, name in enumerate(self.NAMES):
            if not np.array_equal(np.asarray(self.decoded(index)), load_sample_image(name)):
                return 1.0
        right = ((inputs >= 0) & (inputs <= 1)).flatten(1).all(1) & (targets >= 0) & (targets < len(self))
        return 1 - float(right.double().mean())


class Words(Samples):
    """Text in pieces compressed by gzip: expanded, decoded, normalised (Unicode NFC), and cut into numbered words.

    vocabulary: numbers are below it. classes: of a classifier, whose target is the piece's number; 0 where the target
    is the next word.
    """

    def __init__(self, raw: bytes, length: int, vocabulary: int, classes: int) -> None:
        self.raw, self.length, self.vocabulary, self.classes = raw, length, vocabulary, classes
        self.pieces = [gzip.compress(raw[at : at + PIECE], mtime=0) for at in range(0, len(raw) - PIECE + 1, PIECE)]

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> Batch:
        text = gzip.decompress(self.pieces[index]).decode("utf-8", errors="replace")
        found = real_data.numbered_words(unicodedata.normalize("NFC", text).encode(), self.vocabulary)
        start = random.randrange(len(found) - self.length)
        cut = found[start : start + self.length + 1]
        return cut[:-1], torch.tensor(index % self.classes) if self.classes else cut[1:]

    def wrong(self, inputs: Tensor, targets: Tensor) -> float:
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
def samples(source: str, entry: Entry) -> Samples:
    """The samples of a source, as a model takes them. Made once in a process. Raises Unsupported."""
    if source == "memory":
        inputs, targets = entry.batch(HELD)
        return Held(inputs, targets.view(HELD, -1))
    if source == "photographs":
        if not entry.images:
            raise Unsupported("photographs are for models of images")
        return Photographs(*entry.sample[:2])
    described = entry.described
    if described is None or described.kind != "tokens" or (entry.length > 1 and not described.is_causal):
        raise Unsupported("encoded text is for classifiers and causal networks by name, not for pictures")
    from experiments.models.from_transformers import configured

    classes = entry.classes if entry.length == 1 else 0
    return Words(real_data.text_bytes(), entry.sample[0], configured(described).vocab_size, classes)


def _lacking_shared_memory() -> str:
    """The fault of the memory by which processes hand batches over, and its remedy; '' if it has room."""
    place = Path("/dev/shm")
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return f"; there is no {place}: mount one (mount -t tmpfs tmpfs {place})"
    return f"; {place} has {free / 2**20:.1f} MiB free (containers: --shm-size=1g)" if free < LEAST_SHARED else ""


def _context(device: Device) -> Any:
    """How worker processes are started: beside a GPU by a server, since a fork inherits the locks of its threads.

    None for Python's own way. The server loads this module, once, so that its workers start quickly.
    """
    if device.kind == "cpu" or "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class Feed:
    """Batches on the device without end, each when it is asked for; made by worker processes if there are any."""

    def __init__(self, entry: Entry, batch: int, source: str, workers: int, device: Device) -> None:
        """Raises Unsupported where such a model is not fed from such a source, HarnessError as `next`."""
        self.device, self.samples, self.workers = device, None, workers
        if source == "preloaded":
            if workers:
                raise Unsupported("preloaded batches need no workers")
            batches = [self._moved(*entry.batch(batch)) for _ in range(PRELOADED)]
            self._batches: Iterator[Batch] = itertools.cycle(batches)
            return
        self.samples = samples(source, entry)
        loader = DataLoader(
            self.samples,
            batch,
            sampler=RandomSampler(self.samples, replacement=True, num_samples=ENDLESS),
            num_workers=workers,
            pin_memory=device.page_locks,
            multiprocessing_context=_context(device) if workers else None,
            persistent_workers=workers > 0,
            worker_init_fn=end_with_parent,
        )
        with self._harness():
            self._batches = iter(loader)

    @contextmanager
    def _harness(self) -> Iterator[None]:
        """Tell what the system refuses to worker processes from mistakes: memory that they share, files, themselves."""
        try:
            yield
        except (OSError, RuntimeError) as refusal:
            if not self.workers:
                raise
            # A worker's error holds its traceback, whose last line says what happened.
            said = (str(refusal).strip() or type(refusal).__name__).splitlines()[-1]
            lacking = _lacking_shared_memory()
            raise HarnessError(f"processes that prepare batches: {said}{lacking}") from refusal

    def _moved(self, inputs: Tensor, targets: Tensor) -> Batch:
        name = self.device.name
        return inputs.to(name, non_blocking=True), targets.to(name, non_blocking=True)

    def next(self) -> Batch:
        """The next batch, on its way to the device. Raises HarnessError where worker processes give none."""
        with self._harness():
            batch = next(self._batches)
        return self._moved(*batch)

    def error(self) -> float:
        """Share of two batches that is not as the samples are; 0 if all is well."""
        if self.samples is None:
            return 0.0
        batches = [[one.cpu() for one in self.next()] for _ in range(2)]
        return largest_error(*(self.samples.wrong(inputs, targets) for inputs, targets in batches))
