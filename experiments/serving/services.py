"""Services: classifiers of texts and of images, rows of a table, the nearest of a million vectors.

Each takes the bytes of a request and gives the best answers with their scores. Weights and vectors are drawn from a
seed: their values do not change their costs, and every process that draws them has the same. Images and texts are real.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.devices import open_device
from experiments.devices.base import Device
from experiments.models.text_generation import exact_logits, seeded_weights, set_tf32
from experiments.models.zoo import ZOO
from experiments.workload import Dtype, Unsupported

SEED = 5
# Different requests, and answers of each at most.
REQUESTS, BEST = 8, 10
# `torch._int_mm` on CUDA takes more than 16 rows.
LEAST_CUDA_ROWS = 32
Answer = dict[str, Any]
Call = Callable[[Tensor], Tensor]


class Service(ABC):
    """One service on a device, in one number format and one runtime.

    threads: of one computation. callers: how many threads may ask for an answer at the same time.
    tolerance: by format it can be had in, the largest right error of a score (see `error`).
    backends: runtimes that compute it.
    """

    tolerance: ClassVar[dict[Dtype, float]]
    backends: ClassVar[tuple[str, ...]] = ("torch",)

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        self.device, self.dtype, self.backend, self.threads, self.callers = device, dtype, backend, threads, callers

    @classmethod
    def tolerance_for(cls, dtype: Dtype, backend: str) -> float:
        """The tolerance of a format. Raises Unsupported if the service does not come in it, or in this runtime."""
        if backend not in cls.backends:
            raise Unsupported(f"this service comes in {', '.join(cls.backends)}, not in {backend}")
        if dtype not in cls.tolerance:
            raise Unsupported(f"this service comes in {', '.join(cls.tolerance)}, not in {dtype}")
        return cls.tolerance[dtype]

    @classmethod
    @abstractmethod
    def memory(cls, dtype: Dtype, backend: str) -> float:
        """Bytes that the service takes at least, and its check."""

    @classmethod
    @abstractmethod
    def inputs(cls, body: bytes) -> Tensor:
        """Data of a request, on the host. Raises ValueError for what is no request."""

    @abstractmethod
    def scores(self, inputs: Tensor) -> Tensor:
        """The score of everything that can be the answer, on the device: shape (answers,)."""

    def answer(self, inputs: Tensor) -> Answer:
        """The best answers by falling score, BEST at most, computed on the device; copies there and back included."""
        with torch.inference_mode():
            scores = self.scores(inputs.to(self.device.name))
            best = scores.topk(min(BEST, len(scores)))
            ids, values = best.indices.tolist(), best.values.tolist()
        return {"answer": ids[0], "best": ids, "scores": values}

    @classmethod
    @abstractmethod
    def requests(cls) -> list[bytes]:
        """The bodies of REQUESTS different requests."""

    @classmethod
    @abstractmethod
    def exact_scores(cls) -> Tensor:
        """All scores of these requests in float64, computed on the CPU without a server: (requests, answers)."""


def answer_error(answer: Answer, exact: Tensor) -> float:
    """How far an answer is from the exact scores (answers,), relative to the largest of them; nan if it has one.

    Both count: what the scores are, and whether the answers are the best. Where two of them
    are as good within rounding, either may stand before the other.
    """
    told = torch.tensor(answer["scores"], dtype=torch.float64)
    named, best = exact[torch.tensor(answer["best"])], exact.topk(min(BEST, len(exact))).values
    if len(set(answer["best"])) != len(best) or answer["answer"] != answer["best"][0]:
        return math.inf
    return float(torch.stack([told - named, best - named]).abs().max() / exact.abs().max())


class Network(Service):
    """A network of the catalogue, of whose classes one is the answer; by the sessions that `inference` times.

    Each caller has a session of its own, so that a computation has the threads of its own session alone. In PyTorch,
    threads belong to the caller, and all share the weights.
    """

    MODEL: ClassVar[str]
    backends = ("torch", "onnx", "openvino")
    # In float32 and int8 two to three times that of `inference`, for this is the worst score's, not that of all.
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 3e-5, Dtype.BFLOAT16: 6e-2, Dtype.INT8: 1e-1}

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        super().__init__(device, dtype, backend, threads, callers)
        set_tf32(device, dtype)
        if backend == "torch":
            self._kept = device.torch_dtype(dtype)
            self._free: list[Call] = [_seeded_network(self.MODEL).to(device.name, self._kept)] * callers
        else:
            self._kept = torch.float32
            self._free = [self._session() for _ in range(callers)]
            for session in self._free:  # the first call sets the runtime up
                session(self._network_inputs(self.inputs(self.requests()[0]).to(device.name)))

    def _session(self) -> Call:
        if self.backend == "onnx":
            from experiments.models import onnx_runtime

            return onnx_runtime.session(self.MODEL, 1, self.dtype, self.threads, self.device)
        from experiments.models import openvino_runtime

        if self.device.kind != "cpu":
            raise self.device.unsupported(self.backend)
        return openvino_runtime.session(self.MODEL, 1, self.dtype, self.threads, alone=self.callers == 1)

    @classmethod
    def tolerance_for(cls, dtype: Dtype, backend: str) -> float:
        if dtype is Dtype.INT8 and backend in ("torch", "openvino"):
            raise Unsupported(f"{backend} does not answer in {dtype} here: int8 is ONNX Runtime's")
        return super().tolerance_for(dtype, backend)

    @classmethod
    def memory(cls, dtype: Dtype, backend: str) -> float:
        """Weights in both processes, in float64 for the check; a runtime's own beside the file that it reads."""
        runtime = 0 if backend == "torch" else 8
        return ZOO[cls.MODEL].parameters() * float(dtype.itemsize + 4 + 12 + runtime)

    @staticmethod
    def _network_inputs(inputs: Tensor) -> Tensor:
        """The network's inputs, from those of a request."""
        return inputs

    def scores(self, inputs: Tensor) -> Tensor:
        inputs = self._network_inputs(inputs)
        session = self._free.pop()  # there are as many as callers
        try:
            out = session(inputs.to(self._kept) if inputs.is_floating_point() else inputs)
            return out[0].float()
        finally:
            self._free.append(session)

    @classmethod
    @cache
    def exact_scores(cls) -> Tensor:
        inputs = cls._network_inputs(torch.cat([cls.inputs(body) for body in cls.requests()]))
        return exact_logits(_seeded_network(cls.MODEL), inputs, open_device("cpu"))

    @classmethod
    def _samples(cls) -> Tensor:
        """Samples as the network takes them, the same ones in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return ZOO[cls.MODEL].batch(REQUESTS)[0]


def _seeded_network(name: str) -> nn.Module:
    """The network with the weights of seed 0, as in the files that runtimes read."""
    with torch.random.fork_rng(devices=[]), seeded_weights(open_device("cpu"), Dtype.FLOAT32):
        return ZOO[name].model().eval()


class TextClassifier(Network):
    """The class, of two, of a text of 128 tokens, by MiniLM-L6; a request is the tokens' numbers (int32)."""

    MODEL, LENGTH = "minilm-l6-classifier", 128
    WORDS = 30_522  # BERT's vocabulary

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        return _parse_words(body, cls.LENGTH, cls.WORDS).long()[None]

    @classmethod
    def requests(cls) -> list[bytes]:
        return [text.to(torch.int32).numpy().tobytes() for text in cls._samples()]


class ImageClassifier(Network):
    """The class, of a thousand, of an image, by ResNet-50; a request is its pixels, 3 x 224 x 224 bytes.

    Not in 8 bits: its convolutions would stay in float32.
    """

    MODEL, SHAPE = "resnet-50", (3, 224, 224)
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 3e-5, Dtype.BFLOAT16: 6e-2}

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        if len(body) != math.prod(cls.SHAPE):
            raise ValueError(f"an image is {math.prod(cls.SHAPE)} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(1, *cls.SHAPE)

    @staticmethod
    def _network_inputs(inputs: Tensor) -> Tensor:
        return inputs.float() / 255

    @classmethod
    def requests(cls) -> list[bytes]:
        return [image.numpy().tobytes() for image in (cls._samples() * 255).round().clamp(0, 255).to(torch.uint8)]


def _parse_words(body: bytes, count: int, most: int) -> Tensor:
    """So many words by their numbers (int32), each below `most`. Raises ValueError for others."""
    if len(body) != 4 * count:
        raise ValueError(f"the numbers of {count} words are {4 * count} bytes, not {len(body)}")
    words = torch.frombuffer(bytearray(body), dtype=torch.int32)
    if not 0 <= int(words.min()) <= int(words.max()) < most:
        raise ValueError(f"words are numbered from 0 to {most - 1}")
    return words


class Embedding(Service):
    """Which of a million stored vectors of 384 numbers are nearest to one: all of them, without an index.

    The vectors are random directions; a request is one of them with noise (float32, in bytes).
    They are stored in `dtype`: reading them is what takes the time. In 8 bits, each has a scale.
    """

    ROWS, WIDTH, CHUNK, NOISE = 1_000_000, 384, 10_000, 0.5
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-5, Dtype.BFLOAT16: 2e-2, Dtype.INT8: 2e-2}

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        super().__init__(device, dtype, backend, threads, callers)
        kept = device.torch_dtype(dtype)
        self.table = torch.empty(self.ROWS, self.WIDTH, dtype=kept, device=device.name)
        self.scale = torch.ones(self.ROWS, device=device.name)
        for start, rows in self.chunks():
            part = slice(start, start + len(rows))
            if dtype is Dtype.INT8:
                rows, self.scale[part] = quantise_rows(rows)
            self.table[part] = rows.to(device.name, kept)

    @classmethod
    def memory(cls, dtype: Dtype, _backend: str) -> float:
        """The vectors, and in float64 the scores of all requests."""
        return float(cls.ROWS * (cls.WIDTH * dtype.itemsize + REQUESTS * 8))

    @classmethod
    def chunks(cls) -> Iterator[tuple[int, Tensor]]:
        """The stored vectors in float32, some at a time: the number of the first, and the vectors."""
        draw = torch.Generator()
        for start in range(0, cls.ROWS, cls.CHUNK):
            draw.manual_seed(SEED + start)
            rows = torch.randn(min(cls.CHUNK, cls.ROWS - start), cls.WIDTH, generator=draw)
            yield start, functional.normalize(rows)

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        if len(body) != 4 * cls.WIDTH:
            raise ValueError(f"a vector is {4 * cls.WIDTH} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.float32).reshape(1, cls.WIDTH)

    def scores(self, inputs: Tensor) -> Tensor:
        if self.dtype is Dtype.INT8:
            return int8_product(inputs, self.table.t(), self.scale)[0]
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
    def exact_scores(cls) -> Tensor:
        queries = cls._queries().double()
        return torch.cat([queries @ rows.double().T for _, rows in cls.chunks()], dim=1)


class Lookup(Embedding):
    """The mean of the vectors of some words, read from a table of a million by their numbers, as a bag of words.

    A request is the numbers of the words (int32, in bytes); the answers are the largest of the mean's components.
    """

    WORDS = 64
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-5, Dtype.BFLOAT16: 2e-2}

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        return _parse_words(body, cls.WORDS, cls.ROWS)

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
    def exact_scores(cls) -> Tensor:
        sums = torch.zeros(REQUESTS, cls.WIDTH, dtype=torch.float64)
        for start, rows in cls.chunks():
            for total, words in zip(sums, cls._words() - start, strict=True):
                total += rows[words[(words >= 0) & (words < len(rows))]].double().sum(dim=0)
        return sums / cls.WORDS


def quantise_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, width) as whole numbers from -127 to 127, and the scale of each row (rows,)."""
    scale = rows.abs().amax(dim=1).clamp_min(1e-12) / 127
    return (rows / scale[:, None]).round().to(torch.int8), scale


def int8_product(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x (rows, width) by 8-bit weights (width, outputs) with a scale for each output (outputs,).

    Symmetric, the scales of the rows of x taken from the data as they come ("dynamic"), sums in
    int32: as torchao's Int8DynamicActivationInt8WeightConfig does it, by the same product.
    """
    rows, own = quantise_rows(x)
    if x.is_cuda and len(x) < LEAST_CUDA_ROWS:
        rows = functional.pad(rows, (0, 0, 0, LEAST_CUDA_ROWS - len(x)))
    return torch._int_mm(rows, weight)[: len(x)] * own[:, None] * scale


SERVICES: dict[str, type[Service]] = {
    "text-classifier": TextClassifier, "image-classifier": ImageClassifier, "lookup": Lookup, "embedding": Embedding,
}  # fmt: skip
