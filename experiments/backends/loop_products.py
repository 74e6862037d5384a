"""The product as three nested loops from one source: interpreted, compiled as written, or compiled for vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from experiments.backends.base import Backend
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# scalar: keep the additions in source order, which rules out vectors. simd: let LLVM reorder them, fuse them with
# multiplications and use vectors.
COMPILED: dict[str, dict[str, Any]] = {"scalar": {}, "simd": {"fastmath": True}}


def dot_products(a: Any, bt: Any, c: Any, m: int, n: int, k: int, zero: Any) -> None:
    """Compute c = a @ bt.T on flat row-major sequences: a (m, k), bt (n, k), c (m, n). zero: 0 in their format."""
    for i in range(m):
        for j in range(n):
            total = zero
            for p in range(k):
                total += a[i * k + p] * bt[j * k + p]
            c[i * n + j] = total


@cache
def compile_loop(function: Callable[..., Any], how: str) -> Callable[..., Any]:
    """Return `function` itself (python), or machine code (scalar, simd) that runs without the interpreter lock."""
    if how == "python":
        return function
    import numba

    machine_code: Callable[..., Any] = numba.njit(nogil=True, **COMPILED[how])(function)
    return machine_code


class Loops(Backend):
    """Three nested loops on one thread; interpreted loops use Python numbers, which are float64."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        import numpy as np
        import torch

        if threads > 1:
            raise Unsupported("the plain loops run on one thread")
        formats = (Dtype.FLOAT64,) if self.name == "python" else (Dtype.FLOAT32, Dtype.FLOAT64)
        if dtype not in formats:
            raise Unsupported(f"the {self.name} loop has no {dtype} product")
        (m, k), n = a.shape, b.shape[1]
        loop = compile_loop(dot_products, self.name)
        left, right, out = (np.ravel(x) for x in (a.numpy(), b.t().contiguous().numpy(), np.empty((m, n), dtype.value)))
        zero = out.dtype.type(0)
        if self.name == "python":
            lists = left.tolist(), right.tolist(), out.tolist()

            def interpreted_product() -> torch.Tensor:
                loop(*lists, m, n, k, 0.0)
                return torch.tensor(lists[2], dtype=a.dtype).reshape(m, n)

            return interpreted_product
        wrapped = torch.from_numpy(out).reshape(m, n)

        def product() -> torch.Tensor:
            loop(left, right, out, m, n, k, zero)
            return wrapped

        return product
