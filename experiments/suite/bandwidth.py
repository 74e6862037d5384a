"""Memory bandwidth: STREAM's copy, scale, add and triad, from the first cache to main memory.

`llvm-nt` stores past the caches: the most that main memory takes, and less than the caches do.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from experiments.devices import Device
from experiments.kernels.compile import aligned
from experiments.kernels.stream import STREAM_ARRAYS, STREAM_SCALAR, stream, stream_elements
from experiments.registry import experiment
from experiments.work import Dtype, Footprint, Threads, Unsupported, Work

Op = Literal["copy", "scale", "add", "triad"]


def memory(footprint: int, **_: Any) -> float:
    """All arrays together."""
    return float(footprint)


@experiment("bandwidth", memory=memory)
def bandwidth(
    device: Device,
    op: Op,
    footprint: Footprint,
    dtype: Dtype,
    backend: Literal["llvm", "llvm-nt", "torch"],
    threads: Threads,
) -> Work:
    """One pass of `op` over arrays that take `footprint` bytes together.

    Bytes are counted as STREAM does: each element read and each written once.
    The footprint is the variable, so nothing is rotated or flushed.
    """
    elements = footprint // STREAM_ARRAYS[op] // dtype.itemsize
    if backend == "torch":
        return _torch(device, op, elements, dtype, threads)
    return _llvm(device, op, elements, dtype, threads, nontemporal=backend == "llvm-nt")


def _expected(op: str, a: Any, b: Any) -> Any:
    return {
        "copy": lambda: a,
        "scale": lambda: STREAM_SCALAR * a,
        "add": lambda: a + b,
        "triad": lambda: a + STREAM_SCALAR * b,
    }[op]()


def _llvm(device: Device, op: str, elements: int, dtype: Dtype, threads: Threads, nontemporal: bool) -> Work:
    """Own kernel over NumPy arrays; small footprints are gone over several times within one call."""
    import numpy as np

    if device.kind != "cpu":
        raise device.unsupported("llvm")
    touched = stream_elements(elements, dtype, threads)
    if touched == 0:
        raise Unsupported(f"footprint too small for {threads} threads")
    arrays = [aligned(elements, dtype) for _ in range(STREAM_ARRAYS[op])]
    _fill(arrays)
    kernel = stream(op, dtype, arrays, threads, nontemporal)
    moved = float(STREAM_ARRAYS[op] * touched * dtype.itemsize)
    # Starting threads costs some 20 to 50 µs: a call must move enough for that not to show, at the
    # rate of caches.
    passes = max(1, int((1e9 * threads if threads > 1 else 64e6) / moved)) if moved < 64e6 * threads else 1

    def check() -> float:
        """On the inputs as they were drawn; by parts that stay in a cache."""
        kernel(1)
        difference = size = 0.0
        for start in range(0, touched, 1 << 18):
            part = slice(start, min(start + (1 << 18), touched))
            c, a, b = (array[part].astype(np.float64) for array in (arrays[0], arrays[1], arrays[-1]))
            exact = _expected(op, a, b)
            difference += float(np.sum((c - exact) ** 2))
            size += float(np.sum(exact**2))
        return math.sqrt(difference / size)

    return Work(
        run=lambda: kernel(passes),
        bytes=moved * passes,
        check=check,
        tolerance=4 * dtype.unit_roundoff,
    )


def _fill(arrays: list[Any]) -> None:
    """Random normal data, a million numbers over and over: caches go by address, not by content."""
    import numpy as np

    random = np.random.default_rng()
    for array in arrays:
        block = random.standard_normal(min(len(array), 1_000_003))
        for start in range(0, len(array), len(block)):
            array[start : start + len(block)] = block[: len(array) - start]


def _torch(device: Device, op: str, elements: int, dtype: Dtype, _threads: Threads) -> Work:
    """What a PyTorch user gets: one operator a call, its dispatch included."""
    import torch

    a, b = device.normal((elements,), dtype), device.normal((elements,), dtype)
    c = torch.empty_like(a)
    calls = {
        "copy": lambda: c.copy_(a),
        "scale": lambda: torch.mul(a, STREAM_SCALAR, out=c),
        "add": lambda: torch.add(a, b, out=c),
        "triad": lambda: torch.add(a, b, alpha=STREAM_SCALAR, out=c),
    }

    def check() -> float:
        for operand in (a, b):
            operand.copy_(device.normal((elements,), dtype))
        calls[op]()
        exact = _expected(op, a.double(), b.double())
        return float(torch.linalg.norm(c.double() - exact) / torch.linalg.norm(exact))

    return Work(
        run=calls[op],
        bytes=float(STREAM_ARRAYS[op] * elements * dtype.itemsize),
        check=check,
        tolerance=4 * dtype.unit_roundoff,
    )
