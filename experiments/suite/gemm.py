"""Dense matrix product C = A @ B: rate by shape, number format and library."""

from __future__ import annotations

from typing import Any

from contract.operation_counts import product_flop as flop
from experiments.backends import Library
from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Workload, largest_error, relative_error

# Maximum number of operand copies. Calls use the copies in turn, so that small products do not run in the caches alone.
MOST_COPIES = 64
# Maximum number of operand copies on a GPU, whose caches are larger. To exceed twice a cache of 50 MB, the operands and
# results of float32 products of 256 x 256 need 130 copies. Making 512 copies takes less than 0.05 s, and so does
# capturing a graph with them.
MOST_COPIES_GPU = 512
# Number of rows to check entry by entry. Only products with more rows also get Freivalds' check (C x against A (B x)),
# because the entries of C x for so few rows could all cancel almost completely.
CHECKED_ROWS = 16


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Halve every dimension, down to 64, for a cheaper sweep point; 8-bit formats need multiples of 16."""
    step = 16 if params["dtype"] in (Dtype.FLOAT8, Dtype.INT8) else 1
    halved = {key: max(64, params[key] // 2 // step * step) for key in ("m", "n", "k")}
    reduced = {key: min(halved[key], params[key]) for key in halved}
    return {**params, **reduced} if any(reduced[key] < params[key] for key in reduced) else None


def memory(m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Return the bytes for operands and result, plus the bytes for the check's float64 copies."""
    return least_traffic(m, n, k, Dtype(dtype)) + (m * k + k * n + m * n) * 8.0


def least_traffic(m: int, n: int, k: int, dtype: Dtype) -> float:
    """Return the minimum bytes to move: operands and result."""
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
    """Multiply (m, k) by (k, n) once.

    Work: 2*m*n*k FLOP; the least traffic is (m*k + k*n + m*n) elements. INT8 operations count like floating-point ones.
        FLOAT8 products come out as bfloat16, INT8 products as int32.
    Unsupported: number formats that the library or the device lacks.
    """
    a, b = device.random_normal((m, k), dtype), device.random_normal((k, n), dtype)
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copy_count(device, least_traffic(m, n, k, dtype)) - 1)]
    return Workload(
        run=[device.matmul(backend, left, right, dtype) for left, right in operands],
        flop=flop(m, n, k),
        bytes=least_traffic(m, n, k, dtype),
        check=lambda: fresh_error(device, m, n, k, dtype, backend),
        tolerance=dtype.matmul_tolerance(k),
        graph=device.kind != "cpu",
    )


def copy_count(device: Device, set_bytes: float) -> int:
    """Return the number of operand sets of `set_bytes` that together exceed twice the last cache, up to a maximum."""
    most = MOST_COPIES if device.kind == "cpu" else MOST_COPIES_GPU
    return min(most, 1 + int(2 * device.last_level_cache_bytes // set_bytes))


def fresh_error(device: Device, m: int, n: int, k: int, dtype: Dtype, backend: str) -> float:
    """Return the relative error of a product with fresh operands.

    Compare some rows entry by entry. If there are more rows, apply Freivalds' check, C x against A (B x) in float64,
    to detect a wrong entry anywhere at the cost of three products with a vector. The check vector holds whole numbers,
    so nothing is rounded if the operands are whole too: sums up to 2^53 are exact.
    """
    a, b = device.random_normal((m, k), dtype), device.random_normal((k, n), dtype)
    c = device.to_float64(device.matmul(backend, a, b, dtype)())
    a, b = device.to_float64(a), device.to_float64(b)
    errors = [relative_error(c[:CHECKED_ROWS], a[:CHECKED_ROWS] @ b)]
    if m > CHECKED_ROWS:
        x = device.to_float64(device.random_normal((n, 1), Dtype.INT8))
        errors.append(relative_error(c @ x, a @ (b @ x)))
    return largest_error(*errors)
