"""Many small matrix products in one call, as attention does them: rate by shape, batch and number format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from contract.work import product as flop
from experiments.backends import Library
from experiments.devices import Device
from experiments.registry import experiment
from experiments.suite import gemm
from experiments.work import Dtype, Threads, Unsupported, Work, largest, relative_error

if TYPE_CHECKING:
    import torch


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Half of the batch, down to one product."""
    return {**params, "batch": params["batch"] // 2} if params["batch"] > 1 else None


def memory(batch: int, m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Operands and results, and the check's copies of them in float64."""
    return batch * gemm.memory(m, n, k, dtype)


@experiment("batched", smaller=smaller, memory=memory, flop=flop, fits=("gpu",))
def batched(
    device: Device,
    batch: int,
    m: int,
    n: int,
    k: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Work:
    """`batch` products of (m, k) by (k, n), none of them related, in one call of torch.bmm.

    Attention multiplies queries by keys so: a product for each sequence and head, m = n
    its length and k the width of a head.
    Work: batch*2*m*n*k FLOP; the least traffic is batch*(m*k + k*n + m*n) elements.
    Unsupported: other libraries than torch, and number formats that it or the device lacks.
    """
    a, b = device.normal((batch, m, k), dtype), device.normal((batch, k, n), dtype)
    moved = batch * gemm.traffic(m, n, k, dtype)
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(gemm.copies(device, moved) - 1)]

    def check() -> float:
        """The first product cell by cell, and every one by Freivalds' check, as in `gemm`: the worst of them."""
        a, b = device.normal((batch, m, k), dtype), device.normal((batch, k, n), dtype)
        c = device.exact(products(device, backend, a, b, dtype)())
        a, b, x = device.exact(a), device.exact(b), device.exact(device.normal((n, 1), Dtype.INT8))
        return largest(relative_error(c[0], a[0] @ b[0]), *_errors(c @ x, a @ (b @ x)))

    return Work(
        run=[products(device, backend, left, right, dtype) for left, right in operands],
        flop=flop(m, n, k, batch),
        bytes=moved,
        check=check,
        tolerance=dtype.matmul_tolerance(k),
        graph=True,
    )


def products(
    device: Device, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype
) -> Callable[[], torch.Tensor]:
    """A callable that multiplies (batch, m, k) by (batch, k, n), product by product. Raises Unsupported."""
    import torch

    if backend != "torch":
        raise Unsupported(f"this study batches products by torch alone, not by {backend}")
    if dtype in (Dtype.FLOAT8, Dtype.INT8):
        raise Unsupported(f"PyTorch has no batched product in {dtype}")
    # Refuses what the device lacks, and switches float32 to TF32 or back.
    device.matmul(backend, a[0], b[0], dtype)
    out = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype, device=a.device)
    return lambda: torch.bmm(a, b, out=out)


def _errors(results: torch.Tensor, exact: torch.Tensor) -> list[float]:
    """The relative error (Frobenius norm) of each result of a batch."""
    import torch

    lost, size = (torch.linalg.norm(one, dim=(1, 2)) for one in (results - exact, exact))
    found: list[float] = (lost / size).tolist()
    return found
