"""Memory bandwidth: STREAM's copy, scale, add and triad, from the first cache to main memory.

`llvm-nt` bypasses the caches with non-temporal stores. It is the fastest for arrays in main memory, but slower than
plain stores for arrays that fit a cache. `cupy` runs the study's own GPU kernels, which measure the GPU's shared (last)
cache and its memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.kernels import stream_cuda
from experiments.kernels.llvm_compile import aligned_array
from experiments.kernels.stream import STREAM_ARRAYS, STREAM_SCALAR, stream, stream_elements
from experiments.registry import experiment
from experiments.workload import Dtype, Footprint, Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch

Op = Literal["copy", "scale", "add", "triad"]

# PART: number of elements to draw or check at a time.
# COPIES: number of float64 arrays with PART elements that a check holds at the same time.
PART, COPIES = 1 << 22, 6
# Minimum bytes to move per call on a GPU. Moving so many bytes takes 0.1 ms even within the GPU's caches, so the launch
# cost is negligible.
CALL_BYTES = 600e6


def memory(footprint: int, backend: str, **_: Any) -> float:
    """Return the bytes of all arrays. For PyTorch and CuPy, add the float64 copies that the check makes."""
    return float(footprint) + (0.0 if backend.startswith("llvm") else COPIES * PART * 8.0)


@experiment("bandwidth", memory=memory)
def bandwidth(
    device: Device,
    op: Op,
    footprint: Footprint,
    dtype: Dtype,
    backend: Literal["llvm", "llvm-nt", "torch", "cupy"],
    threads: Threads,
) -> Workload:
    """Apply `op` to arrays that take `footprint` bytes together.

    If the arrays are short, a call makes several passes over them, except with PyTorch.

    Bytes are counted as in STREAM: each element read and each element written counts once. All calls use the same
        arrays and never flush the caches, because the footprint decides which cache holds the arrays.
    """
    elements = footprint // STREAM_ARRAYS[op] // dtype.itemsize
    if backend.startswith("llvm"):
        return _llvm_workload(device, op, elements, dtype, threads, nontemporal=backend == "llvm-nt")
    if elements == 0:
        raise Unsupported(f"footprint too small for {STREAM_ARRAYS[op]} arrays")
    return (
        _cupy_workload(device, op, elements, dtype)
        if backend == "cupy"
        else _torch_workload(device, op, elements, dtype)
    )


def _expected_result(op: str, a: Any, b: Any) -> Any:
    return {
        "copy": lambda: a,
        "scale": lambda: STREAM_SCALAR * a,
        "add": lambda: a + b,
        "triad": lambda: a + STREAM_SCALAR * b,
    }[op]()


def _llvm_workload(
    device: Device, op: str, elements: int, dtype: Dtype, threads: Threads, nontemporal: bool
) -> Workload:
    """Run the study's LLVM kernel on NumPy arrays; if they are short, one call makes several passes."""
    import numpy as np

    if device.kind != "cpu":
        raise device.unsupported_backend("llvm")
    touched = stream_elements(elements, dtype, threads)
    if touched == 0:
        raise Unsupported(f"footprint too small for {threads} threads")
    arrays = [aligned_array(elements, dtype) for _ in range(STREAM_ARRAYS[op])]
    _fill(arrays)
    kernel = stream(op, dtype, arrays, threads, nontemporal)
    moved = float(STREAM_ARRAYS[op] * touched * dtype.itemsize)
    # Starting threads takes 20 to 50 µs, so repeat the pass until a call takes much longer, even at cache speed.
    passes = max(1, int((1e9 * threads if threads > 1 else 64e6) / moved)) if moved < 64e6 * threads else 1

    def check() -> float:
        """Compare the kernel's result with a float64 computation, in slices that are small enough for a cache."""
        kernel(1)
        difference = size = 0.0
        for start in range(0, touched, 1 << 18):
            part = slice(start, min(start + (1 << 18), touched))
            c, a, b = (array[part].astype(np.float64) for array in (arrays[0], arrays[1], arrays[-1]))
            exact = _expected_result(op, a, b)
            difference += float(np.sum((c - exact) ** 2))
            size += float(np.sum(exact**2))
        return math.sqrt(difference / size)

    return Workload(
        run=lambda: kernel(passes),
        bytes=moved * passes,
        check=check,
        tolerance=4 * dtype.unit_roundoff,
    )


def _fill(arrays: list[Any]) -> None:
    """Fill each array by repeating a block of a million normal numbers; repeated contents do not make caches faster."""
    import numpy as np

    random = np.random.default_rng()
    for array in arrays:
        block = random.standard_normal(min(len(array), 1_000_003))
        for start in range(0, len(array), len(block)):
            array[start : start + len(block)] = block[: len(array) - start]


def _torch_workload(device: Device, op: str, elements: int, dtype: Dtype) -> Workload:
    """Call one PyTorch operator; the time includes its dispatch, as it does for every PyTorch user."""
    import torch

    c, a, b = _make_arrays(device, op, elements, dtype)
    calls = {
        "copy": lambda: c.copy_(a),
        "scale": lambda: torch.mul(a, STREAM_SCALAR, out=c),
        "add": lambda: torch.add(a, b, out=c),
        "triad": lambda: torch.add(a, b, alpha=STREAM_SCALAR, out=c),
    }

    def check() -> float:
        calls[op]()
        return _error(device, op, c, a, b)

    return Workload(
        run=calls[op],
        bytes=float(STREAM_ARRAYS[op] * elements * dtype.itemsize),
        check=check,
        tolerance=4 * dtype.unit_roundoff,
        graph=True,
    )


def _cupy_workload(device: Device, op: str, elements: int, dtype: Dtype) -> Workload:
    """Run the study's CUDA kernel; if the arrays are short, one call makes several passes."""
    if device.kind != "gpu":
        raise device.unsupported_backend("cupy")
    launch = stream_cuda.vector_kernel(op, dtype, device)
    c, a, b = _make_arrays(device, op, elements, dtype)
    moved = float(STREAM_ARRAYS[op] * elements * dtype.itemsize)
    passes = math.ceil(CALL_BYTES / moved)

    def check() -> float:
        launch(c, a, b, passes)
        return _error(device, op, c, a, b)

    return Workload(
        run=lambda: launch(c, a, b, passes), bytes=moved * passes, check=check, tolerance=4 * dtype.unit_roundoff
    )


def _make_arrays(
    device: Device, op: str, elements: int, dtype: Dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (c, a, b): c is filled with nan, a and b with random data; b is a itself if `op` takes one operand."""
    import torch

    c, *operands = (
        torch.full((elements,), math.nan, dtype=device.torch_dtype(dtype), device=device.name)
        for _ in range(STREAM_ARRAYS[op])
    )
    for operand in operands:
        for part in operand.split(PART):
            part.copy_(device.random_normal((len(part),), dtype))
    return c, operands[0], operands[-1]


def _error(device: Device, op: str, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the relative error over all elements of c, computed in float64 for PART elements at a time."""
    difference: Any = 0.0
    size: Any = 0.0
    for result, left, right in zip(c.split(PART), a.split(PART), b.split(PART), strict=True):
        exact = _expected_result(op, device.to_float64(left), device.to_float64(right))
        difference = difference + (device.to_float64(result) - exact).square().sum()
        size = size + exact.square().sum()
    return math.sqrt(float(difference) / float(size))
