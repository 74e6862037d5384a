"""Dense matrix product C = A @ B: rate by shape, number format and library."""

from __future__ import annotations

from typing import Any

from contract.operation_counts import product as flop
from experiments.backends import Library
from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Workload, largest_error, relative_error

# Copies of the operands that are used in turn, so that small products do not run from caches alone.
MOST_COPIES = 64
# A GPU's last cache is larger for its speed: 50 MB hold 130 products of 256 x 256 in float32.
# So many copies still take it less than 0.05 s to make, and as many again to capture in a graph.
MOST_COPIES_GPU = 512
# Rows that are checked entry by entry. Of fewer, C x could be nothing but cancellation.
CHECKED_ROWS = 16


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Half of every dimension, down to 64; in steps that 8-bit formats take."""
    step = 16 if params["dtype"] in (Dtype.FLOAT8, Dtype.INT8) else 1
    halved = {key: max(64, params[key] // 2 // step * step) for key in ("m", "n", "k")}
    less = {key: min(halved[key], params[key]) for key in halved}
    return {**params, **less} if any(less[key] < params[key] for key in less) else None


def memory(m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Operands and result, and the check's copies of them in float64."""
    return traffic(m, n, k, Dtype(dtype)) + (m * k + k * n + m * n) * 8.0


def traffic(m: int, n: int, k: int, dtype: Dtype) -> float:
    """Bytes of the operands and of the result: what has to be moved at least."""
    return float((m * k + k * n) * dtype.itemsize + m * n * dtype.result_itemsize)


@experiment("gemm", smaller=smaller, memory=memory, flop=flop)
def gemm(
    device: Device,
    m: int,
    n: int,
    k: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Workload:
    """One product of (m, k) by (k, n).

    Work: 2*m*n*k FLOP; the least traffic is (m*k + k*n + m*n) elements. Operations on
    INT8 are counted like floating-point ones. Products of FLOAT8 come out as bfloat16,
    those of INT8 as int32.
    Unsupported: number formats that the library or the device lacks.
    """
    a, b = device.random_normal((m, k), dtype), device.random_normal((k, n), dtype)
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copies(device, traffic(m, n, k, dtype)) - 1)]
    return Workload(
        run=[device.matmul(backend, left, right, dtype) for left, right in operands],
        flop=flop(m, n, k),
        bytes=traffic(m, n, k, dtype),
        check=lambda: fresh_error(device, m, n, k, dtype, backend),
        tolerance=dtype.matmul_tolerance(k),
        graph=device.kind != "cpu",
    )


def copies(device: Device, each: float) -> int:
    """How many sets of operands and results, of `each` bytes, exceed twice the last cache, up to a limit."""
    most = MOST_COPIES if device.kind == "cpu" else MOST_COPIES_GPU
    return min(most, 1 + int(2 * device.last_level_cache_bytes // each))


def fresh_error(device: Device, m: int, n: int, k: int, dtype: Dtype, backend: str) -> float:
    """Relative error of a product of fresh operands.

    Some rows entry by entry and, if there are more, the whole by Freivalds' check, C x against
    A (B x), in float64: it sees a wrong entry anywhere at the cost of three vectors. Its vector
    is of whole numbers, so that nothing is rounded where the operands are whole too:
    sums up to 2^53 are exact.
    """
    a, b = device.random_normal((m, k), dtype), device.random_normal((k, n), dtype)
    c = device.to_float64(device.matmul(backend, a, b, dtype)())
    a, b = device.to_float64(a), device.to_float64(b)
    errors = [relative_error(c[:CHECKED_ROWS], a[:CHECKED_ROWS] @ b)]
    if m > CHECKED_ROWS:
        x = device.to_float64(device.random_normal((n, 1), Dtype.INT8))
        errors.append(relative_error(c @ x, a @ (b @ x)))
    return largest_error(*errors)
