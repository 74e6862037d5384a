"""Dense matrix product C = A @ B: rate by shape, number format and library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.backends import Library
from experiments.devices import Device
from experiments.registry import experiment
from experiments.work import Dtype, Threads, Work, largest

if TYPE_CHECKING:
    import torch

# Copies of the operands that are used in turn, so that small products do not run from caches alone.
MOST_COPIES = 64


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Half of every dimension, down to 64."""
    halved = {key: max(64, params[key] // 2) for key in ("m", "n", "k")}
    less = {key: min(halved[key], params[key]) for key in halved}
    return {**params, **less} if any(less[key] < params[key] for key in less) else None


def memory(m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Operands and result; the check's float64 copies of B and, by parts, of A."""
    return (m * k + k * n + m * n) * Dtype(dtype).itemsize + (m * k + k * n + m * n) * 8.0


@experiment("gemm", smaller=smaller, memory=memory)
def gemm(
    device: Device,
    m: int,
    n: int,
    k: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Work:
    """One product of (m, k) by (k, n).

    Work: 2*m*n*k FLOP; the least traffic is (m*k + k*n + m*n) elements.
    Unsupported: number formats that the library or the device lacks.
    """
    elements = m * k + k * n + m * n
    a, b = device.normal((m, k), dtype), device.normal((k, n), dtype)
    copies = min(MOST_COPIES, 1 + 2 * device.last_level_cache_bytes // (elements * dtype.itemsize))
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copies - 1)]
    return Work(
        run=[device.matmul(backend, left, right, dtype) for left, right in operands],
        flop=2.0 * m * n * k,
        bytes=float(elements * dtype.itemsize),
        check=lambda: fresh_error(device, m, n, k, dtype, backend),
        tolerance=dtype.matmul_tolerance(k),
    )


def fresh_error(device: Device, m: int, n: int, k: int, dtype: Dtype, backend: str) -> float:
    """Relative error of a product of fresh operands.

    Some rows entry by entry, and the whole by Freivalds' check, C x against A (B x),
    in float64: it sees a wrong entry anywhere at the cost of three vectors.
    """
    a, b = device.normal((m, k), dtype), device.normal((k, n), dtype)
    c = device.matmul(backend, a, b, dtype)().double()
    rows = slice(0, min(m, 16))
    exact = a[rows].double() @ b.double()
    x = device.normal((n, 1), Dtype.FLOAT64)
    return largest(relative_error(c[rows], exact), relative_error(c @ x, a.double() @ (b.double() @ x)))


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the exact result; nan if the result has one."""
    import torch

    return float(torch.linalg.norm(result - exact) / torch.linalg.norm(exact))
