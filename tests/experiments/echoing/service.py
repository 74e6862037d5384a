"""Service that returns the scores in its request and reads no weights."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from experiments.serving.services import REQUESTS, Service
from experiments.workload import Dtype


class Echo(Service):
    """Service that echoes the numbers in a request."""

    SIZE = 20
    tolerance: ClassVar[dict[Dtype, float]] = {Dtype.FLOAT32: 1e-6}

    @classmethod
    def memory_bytes(cls, *_: object) -> float:
        return 0.0

    @classmethod
    def inputs(cls, body: bytes) -> Tensor:
        if len(body) != 4 * cls.SIZE:
            raise ValueError(f"scores are {4 * cls.SIZE} bytes, not {len(body)}")
        return torch.frombuffer(bytearray(body), dtype=torch.float32)

    def scores(self, inputs: Tensor) -> Tensor:
        return inputs

    @classmethod
    def exact_scores(cls) -> Tensor:
        return torch.stack([torch.arange(cls.SIZE).roll(shift) for shift in range(REQUESTS)]).double()

    @classmethod
    def requests(cls) -> list[bytes]:
        return [scores.float().numpy().tobytes() for scores in cls.exact_scores()]
