"""Services: text and image classifiers, embedding lookup, and nearest-neighbour search over a million vectors.

Each service takes a request body and returns the best answers with scores. Weights and vectors are random, since values
do not change the cost, and seeded, so that all processes draw the same values. Images and texts are real.
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
# REQUESTS: number of distinct requests.
# BEST: maximum number of answers per request.
REQUESTS, BEST = 8, 10
# Number of rows to which `int8_product` pads shorter matrices on CUDA, where `torch._int_mm` requires more than 16.
LEAST_CUDA_ROWS = 32
Answer = dict[str, Any]
Call = Callable[[Tensor], Tensor]


class Service(ABC):
    """A service on a device, in one number format and runtime.

    threads: number of CPU threads per computation. callers: number of threads that may call `answer` concurrently.
    tolerance: largest accepted score error (see `answer_error`) per supported format.
    backends: supported runtimes.
    """

    tolerance: ClassVar[dict[Dtype, float]]
    backends: ClassVar[tuple[str, ...]] = ("torch",)

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        self.device, self.dtype, self.backend, self.threads, self.callers = device, dtype, backend, threads, callers

    @classmethod
    def tolerance_for(cls, dtype: Dtype, backend: str) -> float:
        """Return the tolerance for a format. Raises Unsupported if the service lacks this format or runtime."""
        if backend not in cls.backends:
            raise Unsupported(f"this service supports {', '.join(cls.backends)}, not {backend}")
        if dtype not in cls.tolerance:
            raise Unsupported(f"this service supports {', '.join(cls.tolerance)}, not {dtype}")
        return cls.tolerance[dtype]

    @classmethod
    @abstractmethod
    def memory_bytes(cls, dtype: Dtype, backend: str) -> float:
        """Return the minimum bytes for the service and its check."""

    @classmethod
    @abstractmethod
    def inputs(cls, body: bytes) -> Tensor:
        """Parse a request body to a tensor on the host. Raises ValueError if malformed."""

    @abstractmethod
    def scores(self, inputs: Tensor) -> Tensor:
        """Compute scores for all possible answers, on the device: shape (answers,)."""

    def answer(self, inputs: Tensor) -> Answer:
        """Copy inputs to the device, compute scores, and return up to BEST answers by descending score."""
        with torch.inference_mode():
            scores = self.scores(inputs.to(self.device.name))
            best = scores.topk(min(BEST, len(scores)))
            ids, values = best.indices.tolist(), best.values.tolist()
        return {"answer": ids[0], "best": ids, "scores": values}

    @classmethod
    @abstractmethod
    def requests(cls) -> list[bytes]:
        """Return REQUESTS distinct request bodies."""

    @classmethod
    @abstractmethod
    def exact_scores(cls) -> Tensor:
        """Compute all scores for `requests` in float64 on the CPU, without a server: (requests, answers)."""


def answer_error(answer: Answer, exact: Tensor) -> float:
    """Return an answer's error, relative to the largest exact score.

    exact: all exact scores, shape (answers,). The error compares both the scores and the ranking. Answers whose scores
    differ only by rounding may be in any order. The error is inf if the ranking is invalid, and nan if a score is nan.
    """
    scores = torch.tensor(answer["scores"], dtype=torch.float64)
    chosen, best = exact[torch.tensor(answer["best"])], exact.topk(min(BEST, len(exact))).values
    if len(set(answer["best"])) != len(best) or answer["answer"] != answer["best"][0]:
        return math.inf
    return float(torch.stack([scores - chosen, best - chosen]).abs().max() / exact.abs().max())


class Network(Service):
    """A catalogue network as a classifier, in the same runtimes as in the experiment `inference`.

    In ONNX Runtime and OpenVINO, each caller has its own session with its own threads, so that concurrent computations
    do not share threads. In PyTorch, threads belong to the caller, and all callers share the weights.
    """

    MODEL: ClassVar[str]
    backends = ("torch", "onnx", "openvino")
    # In float32 and int8, two to three times the tolerance in the experiment `inference`: there the error is a norm,
    # here it is the error of the worst score.
    tolerance: ClassVar[dict[Dtype, float]] = {
        Dtype.FLOAT32: 3e-5,
        Dtype.BFLOAT16: 6e-2,
        Dtype.FLOAT16: 1.5e-2,
        Dtype.INT8: 1e-1,
    }

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        super().__init__(device, dtype, backend, threads, callers)
        set_tf32(device, dtype)
        if backend == "torch":
            self._input_dtype = device.torch_dtype(dtype)
            self._free: list[Call] = [_seeded_network(self.MODEL).to(device.name, self._input_dtype)] * callers
        else:
            self._input_dtype = torch.float32
            self._free = [self._session() for _ in range(callers)]
            for session in self._free:  # warm up: the first call initialises the runtime
                session(self._network_inputs(self.inputs(self.requests()[0]).to(device.name)))

    def _session(self) -> Call:
        if self.backend == "onnx":
            from experiments.models import onnx_runtime

            return onnx_runtime.session(self.MODEL, 1, self.dtype, self.threads, self.device)
        from experiments.models import openvino_runtime

        if self.device.kind != "cpu":
            raise self.device.unsupported_backend(self.backend)
        return openvino_runtime.session(self.MODEL, 1, self.dtype, self.threads, alone=self.callers == 1)

    @classmethod
    def tolerance_for(cls, dtype: Dtype, backend: str) -> float:
        if dtype is Dtype.INT8 and backend in ("torch", "openvino"):
            raise Unsupported(f"{backend} does not support {dtype} here: use onnx")
        return super().tolerance_for(dtype, backend)

    @classmethod
    def memory_bytes(cls, dtype: Dtype, backend: str) -> float:
        """Estimate the bytes for the weights: in the server, in the checking process, and in float64 for the check.

        ONNX Runtime and OpenVINO add their own copy and a file.
        """
        runtime = 0 if backend == "torch" else 8
        return ZOO[cls.MODEL].parameters() * float(dtype.itemsize + 4 + 12 + runtime)

    @staticmethod
    def _network_inputs(inputs: Tensor) -> Tensor:
        """Convert request data to network inputs."""
        return inputs

    def scores(self, inputs: Tensor) -> Tensor:
        inputs = self._network_inputs(inputs)
        session = self._free.pop()  # never empty: each caller has a session
        try:
            out = session(inputs.to(self._input_dtype) if inputs.is_floating_point() else inputs)
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
        """Draw network inputs, identical in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return ZOO[cls.MODEL].batch(REQUESTS)[0]


def _seeded_network(name: str) -> nn.Module:
    """Make the network with weights drawn from seed 0, equal to the weights in files for ONNX Runtime and OpenVINO."""
    with torch.random.fork_rng(devices=[]), seeded_weights(open_device("cpu"), Dtype.FLOAT32):
        return ZOO[name].model().eval()


class TextClassifier(Network):
    """Two-class text classifier (MiniLM-L6); a request is 128 token ids (int32)."""

    MODEL, LENGTH = "minilm-l6-classifier", 128
    WORDS = 30_522  # BERT's vocabulary

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        return _parse_words(body, cls.LENGTH, cls.WORDS).long()[None]

    @classmethod
    def requests(cls) -> list[bytes]:
        return [text.to(torch.int32).numpy().tobytes() for text in cls._samples()]


class ImageClassifier(Network):
    """Image classifier with 1000 classes (ResNet-50); a request is pixels, 3 x 224 x 224 bytes.

    The service has no tolerance for int8, and so does not support int8.
    """

    MODEL, SHAPE = "resnet-50", (3, 224, 224)
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 3e-5, Dtype.BFLOAT16: 6e-2, Dtype.FLOAT16: 1.5e-2}

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
    """Parse `count` word ids (int32) below `most`. Raises ValueError if malformed."""
    if len(body) != 4 * count:
        raise ValueError(f"{count} word ids are {4 * count} bytes, not {len(body)}")
    words = torch.frombuffer(bytearray(body), dtype=torch.int32)
    if not 0 <= int(words.min()) <= int(words.max()) < most:
        raise ValueError(f"word ids must be between 0 and {most - 1}")
    return words


class Embedding(Service):
    """Exhaustive nearest-neighbour search over a million vectors with 384 numbers, without an index.

    Vectors are random directions, stored in `dtype`, since reading them dominates the time. In int8, each vector has a
    scale. A request is a stored vector plus noise, in float32.
    """

    ROWS, WIDTH, CHUNK, NOISE = 1_000_000, 384, 10_000, 0.5
    tolerance: ClassVar[dict[Dtype, float]] = {
        Dtype.FLOAT32: 1e-5,
        Dtype.BFLOAT16: 2e-2,
        Dtype.FLOAT16: 5e-3,
        Dtype.INT8: 2e-2,
    }

    def __init__(
        self, device: Device, dtype: Dtype, backend: str = "torch", threads: int = 1, callers: int = 1
    ) -> None:
        super().__init__(device, dtype, backend, threads, callers)
        stored = device.torch_dtype(dtype)
        self.table = torch.empty(self.ROWS, self.WIDTH, dtype=stored, device=device.name)
        self.scale = torch.ones(self.ROWS, device=device.name)
        for start, rows in self.chunks():
            part = slice(start, start + len(rows))
            if dtype is Dtype.INT8:
                rows, self.scale[part] = quantise_rows(rows)
            self.table[part] = rows.to(device.name, stored)

    @classmethod
    def memory_bytes(cls, dtype: Dtype, _backend: str) -> float:
        """Sum the bytes of the vectors and of float64 scores for all requests."""
        return float(cls.ROWS * (cls.WIDTH * dtype.itemsize + REQUESTS * 8))

    @classmethod
    def chunks(cls) -> Iterator[tuple[int, Tensor]]:
        """Yield stored vectors in float32, CHUNK at a time: (first row, vectors)."""
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
    """Bag of words: mean over word vectors looked up in a table with a million rows.

    A request is WORDS word ids (int32); answers are the mean's largest components.
    """

    WORDS = 64
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-5, Dtype.BFLOAT16: 2e-2, Dtype.FLOAT16: 5e-3}

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
    """Quantise rows (rows, width) to integers from -127 to 127; return them and scales (rows,)."""
    scale = rows.abs().amax(dim=1).clamp_min(1e-12) / 127
    return (rows / scale[:, None]).round().to(torch.int8), scale


def int8_product(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Multiply x (rows, width) by 8-bit weights (width, outputs) with scales per output (outputs,).

    Quantisation is symmetric and dynamic: each row of x gets a scale from its largest value. Sums are in int32.
    torchao's Int8DynamicActivationInt8WeightConfig uses the same method and product.
    """
    rows, row_scale = quantise_rows(x)
    if x.is_cuda and len(x) < LEAST_CUDA_ROWS:
        rows = functional.pad(rows, (0, 0, 0, LEAST_CUDA_ROWS - len(x)))
    return torch._int_mm(rows, weight)[: len(x)] * row_scale[:, None] * scale


SERVICES: dict[str, type[Service]] = {
    "text-classifier": TextClassifier, "image-classifier": ImageClassifier, "lookup": Lookup, "embedding": Embedding,
}  # fmt: skip
