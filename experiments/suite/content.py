"""Matrix contents: rate and power of one product on zeros, ones, whole numbers, normal and other data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from experiments.backends import Library
from experiments.devices import Device
from experiments.registry import experiment
from experiments.suite.gemm import copy_count, flop, least_traffic, memory, smaller
from experiments.workload import Dtype, Threads, Workload, largest_error, relative_error

if TYPE_CHECKING:
    import torch

Content = Literal["zeros", "ones", "integers", "normal", "sparse", "denormal"]

LARGEST_INTEGER = 3
CHECKED = slice(0, 16)  # rows to check cell by cell
DENSITY = 0.1  # share of nonzero values in sparse data


# Seconds to fill the operands for the calls and for the check.
EXTRA_S = 0.1


@experiment("content", smaller=smaller, memory=memory, flop=flop, extra_s=EXTRA_S)
def content(
    device: Device,
    content: Content,
    m: int,
    n: int,
    k: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Workload:
    """Multiply (m, k) by (k, n), both filled with `content`, as in `gemm`.

    `denormal` fills the first operand with values below the format's smallest normal number and the second with normal
    data, since the product of two denormal numbers would be zero. Some units flush denormal inputs to zero (by design
    in Intel's and AMD's bfloat16 instructions): `flushed_share` is the share of cells that are wrongly zero.

    Work: 2*m*n*k FLOP for every content.
    Unsupported: formats that the library or the device lacks.
    """
    a, b = make_operand(device, content, (m, k), dtype), make_operand(device, _second_content(content), (k, n), dtype)
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copy_count(device, least_traffic(m, n, k, dtype)) - 1)]

    def draw_operands_and_product() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return new operands and their product, all three converted to float64."""
        a, b = (
            make_operand(device, content, (m, k), dtype),
            make_operand(device, _second_content(content), (k, n), dtype),
        )
        return device.to_float64(a), device.to_float64(b), device.to_float64(device.matmul(backend, a, b, dtype)())

    def check() -> float:
        """Check some rows cell by cell, and the whole product by Freivalds' check, as in `gemm`.

        The check vector has positive entries only; with mixed signs, sums over ones or whole numbers would cancel.
        """
        import torch

        a, b, c = draw_operands_and_product()
        x = device.to_float64(torch.randint(1, 5, (n, 1), device=device.name))
        pairs = [(c[CHECKED], a[CHECKED] @ b), (c @ x, a @ (b @ x))]
        return largest_error(
            *[content_error(result, exact, may_flush=content == "denormal") for result, exact in pairs]
        )

    def observe_flushed() -> dict[str, tuple[float, str]]:
        a, b, c = draw_operands_and_product()
        wrongly_zero = (c[CHECKED] == 0) & (a[CHECKED] @ b != 0)
        return {"flushed_share": (float(wrongly_zero.double().mean()), "1")}

    return Workload(
        run=[device.matmul(backend, left, right, dtype) for left, right in operands],
        flop=flop(m, n, k),
        bytes=least_traffic(m, n, k, dtype),
        check=check,
        tolerance=dtype.matmul_tolerance(k),
        observe=observe_flushed if content == "denormal" else None,
    )


def _second_content(content: Content) -> Content:
    return "normal" if content == "denormal" else content


def make_operand(device: Device, content: Content, shape: tuple[int, int], dtype: Dtype) -> torch.Tensor:
    """Return a matrix with this content in the device's number format."""
    import torch

    torch_dtype, name = device.torch_dtype(dtype), device.name
    if content == "normal":
        return device.random_normal(shape, dtype)
    if content == "zeros":
        return torch.zeros(shape, dtype=torch_dtype, device=name)
    if content == "ones":
        return torch.ones(shape, dtype=torch_dtype, device=name)
    if content == "integers":
        return torch.randint(0, LARGEST_INTEGER + 1, shape, device=name).to(torch_dtype)
    chance = torch.rand(shape, dtype=torch.float64, device=name if device.supports_float64 else "cpu")
    if content == "sparse":
        return device.random_normal(shape, dtype) * (chance < DENSITY).to(name)
    # Stay far enough below the smallest normal number that rounding cannot reach it.
    return ((2 * chance - 1) * 0.9 * torch.finfo(torch_dtype).tiny).to(torch_dtype).to(name)


def content_error(result: torch.Tensor, exact: torch.Tensor, may_flush: bool = False) -> float:
    """Return the relative error (Frobenius norm). If the exact result is zero, a nonzero result has an infinite error.

    may_flush: return 0 for a zero result, whatever the exact result. Returns nan, which exceeds every tolerance, if the
    result has a nan.
    """
    import torch

    size = float(exact.abs().max())
    if (may_flush or size == 0) and not result.any():
        return 0.0
    if size == 0:
        return math.nan if torch.isnan(result).any() else math.inf
    # Scale the numbers first, because the squares of denormal numbers are zero.
    return relative_error(result / size, exact / size)
