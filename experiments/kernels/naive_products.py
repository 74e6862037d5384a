"""Dense matrix products in float32, as in a programmer's first GPU code: each thread computes one result cell.

naive  each thread reads both factors from memory for every multiply-add
tiled  each thread adds the same terms as in `naive`, in the same order. But the threads in a block first
       load square tiles from both operands into shared memory, so they read each number from memory
       1/TILE as often as in `naive`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from experiments.kernels.cuda_compile import compile_kernel

if TYPE_CHECKING:
    import torch

# Tile width and height: a block of TILE x TILE threads computes TILE x TILE cells.
TILE = 16

SOURCE = f"""
#define TILE {TILE}

#define KERNEL(name) \\
    extern "C" __global__ void __launch_bounds__(TILE * TILE) name( \\
        const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)

KERNEL(naive) {{
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i)
        sum = fmaf(a[(size_t)row * k + i], b[(size_t)i * n + column], sum);
    c[(size_t)row * n + column] = sum;
}}

KERNEL(tiled) {{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int y = threadIdx.y, x = threadIdx.x;
    const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int start = 0; start < k; start += TILE) {{
        // Pad with zeros beyond the operands. No thread leaves early: all have to reach the barriers.
        left[y][x] = row < m && start + x < k ? a[(size_t)row * k + start + x] : 0;
        right[y][x] = start + y < k && column < n ? b[(size_t)(start + y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            sum = fmaf(left[y][i], right[i][x], sum);
        __syncthreads();
    }}
    if (row < m && column < n) c[(size_t)row * n + column] = sum;
}}
"""

Product = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], None]


def product(kind: Literal["naive", "tiled"], device: str) -> Product:
    """Return a callable (a, b, out) that launches a kernel on PyTorch's current stream to write a @ b to `out`.

    The tensors are contiguous, in float32, with shapes (m, k), (k, n) and (m, n). The callable does not wait for the
    kernel. Raises Unsupported without CuPy, and on GPUs for which the source does not compile.
    """
    launch = compile_kernel(SOURCE, kind, device)

    def run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        m, n, k = *out.shape, a.shape[1]
        launch((-(-n // TILE), -(-m // TILE)), (TILE, TILE), a, b, out, np.int32(m), np.int32(n), np.int32(k))

    return run
