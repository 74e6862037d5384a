"""Matrix products that compute their cells, or add the terms in a cell, in different orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from experiments.kernels import cuda_compile
from experiments.kernels.llvm_compile import Team
from experiments.workload import Unsupported

if TYPE_CHECKING:
    import torch

BLOCK = 32  # terms per block in a blocked sum


def visit_cells(a: Any, bt: Any, c: Any, cells: Any, zero: Any) -> None:
    """Compute cells in c = a @ bt.T in the order that `cells` gives, each by a sequential dot product.

    Shapes: a (m, k), bt (n, k), c (m, n). cells: numbers i*n + j for row i and column j. zero: the number 0 in the
    operands' format.
    """
    n, k = bt.shape
    for cell in cells:
        i, j = cell // n, cell % n
        total = zero
        for p in range(k):
            total += a[i, p] * bt[j, p]
        c[i, j] = total


# GPU version of `visit_cells`, with one thread per cell. The GPU may run the threads in another order.
VISIT_CUDA = """
extern "C" __global__ void visit(
    const REAL* a, const REAL* bt, REAL* c, const long long* cells, long long count, long long n, long long k)
{
    long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= count) return;
    long long i = cells[at] / n, j = cells[at] % n;
    REAL total = 0;
    for (long long p = 0; p < k; ++p) total += a[i * k + p] * bt[j * k + p];
    c[i * n + j] = total;
}
"""
_REAL = {"float32": "float", "float64": "double"}


def product_by_cells(a: torch.Tensor, b: torch.Tensor, cells: torch.Tensor, threads: int) -> torch.Tensor:
    """Compute the cells in a @ b in the order that `cells` gives.

    Shapes: a (m, k), b (k, n). cells: each number i*n + j once, for row i and column j. Each CPU thread takes a
    contiguous section of `cells`. Raises Unsupported for formats other than float32 and float64, and on a GPU without
    CuPy.
    """
    import torch

    name = str(a.dtype).removeprefix("torch.")
    if name not in _REAL:
        raise Unsupported(f"the plain loop over the cells has no {name} product")
    bt = b.t().contiguous()
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    if a.device.type != "cpu":
        _visit_on_gpu(a, bt, c, cells.to(a.device), _REAL[name])
        return c
    kernel, out = _compile_visit(), c.numpy()
    calls = [
        partial(kernel, a.numpy(), bt.numpy(), out, part.numpy(), out.dtype.type(0))
        for part in torch.tensor_split(cells, threads)
    ]
    Team(threads).run(calls)
    return c


@cache
def _compile_visit() -> Callable[..., None]:
    import numba

    kernel: Callable[..., None] = numba.njit(nogil=True)(visit_cells)
    return kernel


def _visit_on_gpu(a: torch.Tensor, bt: torch.Tensor, c: torch.Tensor, cells: torch.Tensor, real: str) -> None:
    import numpy as np

    (n, k), count, threads = bt.shape, cells.numel(), 128
    launch = cuda_compile.compile_kernel(VISIT_CUDA, "visit", str(a.device), (f"-DREAL={real}",))
    launch(-(-count // threads), threads, a, bt, c, cells, *map(np.int64, (count, n, k)))


def cell_orders(m: int, n: int) -> dict[str, torch.Tensor]:
    """Return three orders of the cell numbers i*n + j, by name: rows, columns (column by column) and random."""
    import torch

    rows = torch.arange(m * n)
    return {"rows": rows, "columns": rows.reshape(m, n).t().reshape(-1), "random": torch.randperm(m * n)}


def sequential_product(a: torch.Tensor, b: torch.Tensor, terms: Sequence[int]) -> torch.Tensor:
    """Compute a @ b, with each cell's products added one after the other in the order that `terms` gives.

    Each product and each sum is rounded to the operands' format. Shapes: a (m, k), b (k, n).
    """
    total = a[:, terms[0], None] * b[terms[0]]
    for term in terms[1:]:
        total += a[:, term, None] * b[term]
    return total


def blocked_product(a: torch.Tensor, b: torch.Tensor, block: int = BLOCK) -> torch.Tensor:
    """Compute a @ b: each cell sums blocks with `block` terms, and then adds the blocks' sums.

    Rounds as `sequential_product` does.
    """
    k = a.shape[1]
    starts = range(0, k, block)
    parts = (sequential_product(a, b, range(start, min(start + block, k))) for start in starts)
    return _sum_parts(parts)


def pairwise_product(a: torch.Tensor, b: torch.Tensor, start: int = 0, end: int | None = None) -> torch.Tensor:
    """Compute a @ b by pairwise summation: the sum's two halves are computed in the same way, and added.

    Only the terms from `start` up to, but not including, `end` are summed (None: up to the last term).
    Rounds as `sequential_product` does. Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    section 4.1.
    """
    end = a.shape[1] if end is None else end
    if end - start == 1:
        return sequential_product(a, b, [start])
    middle = (start + end) // 2
    return pairwise_product(a, b, start, middle) + pairwise_product(a, b, middle, end)


def split_product(
    product: Callable[[Any, Any], torch.Tensor], a: torch.Tensor, b: torch.Tensor, parts: int
) -> torch.Tensor:
    """Compute a @ b as a sum of `parts` matrix products, each over a section of the inner dimension.

    product: multiplies two matrices, and rounds to the operands' format.
    """
    import torch

    pieces = zip(torch.tensor_split(a, parts, dim=1), torch.tensor_split(b, parts, dim=0), strict=True)
    return _sum_parts(product(left.contiguous(), right.contiguous()) for left, right in pieces)


def _sum_parts(parts: Iterator[torch.Tensor]) -> torch.Tensor:
    total = next(parts).clone()
    for part in parts:
        total += part
    return total


def dot2(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a @ b for float64 operands, as accurate as if computed with twice the precision and rounded once.

    Source: Ogita, Rump & Oishi 2005, "Accurate sum and dot product", algorithm 5.3 (Dot2), here for all cells at once.
    Products are split by Dekker and Veltkamp's method.
    """
    import torch

    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
    correction = torch.zeros_like(total)
    (a_high, a_low), (b_high, b_low) = _split_halves(a), _split_halves(b)
    for p in range(a.shape[1]):
        product = a[:, p, None] * b[p]
        cross = a_high[:, p, None] * b_high[p] - product + a_high[:, p, None] * b_low[p] + a_low[:, p, None] * b_high[p]
        before = total
        total = before + product
        back = total - before
        correction += ((before - (total - back)) + (product - back)) + (cross + a_low[:, p, None] * b_low[p])
    return total + correction


def _split_halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split x into two float64 halves whose products with other numbers' halves are exact."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high
