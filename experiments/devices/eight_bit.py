"""8-bit matrix products in PyTorch on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# FORMATS: formats with 8 bits.
# FEWEST_ROWS: minimum number of rows; torch._int_mm requires 17.
# MULTIPLE: torch._scaled_mm (FLOAT8) and torch._int_mm (INT8) require k and n to be multiples of this number.
FORMATS = (Dtype.FLOAT8, Dtype.INT8)
FEWEST_ROWS, MULTIPLE = {Dtype.FLOAT8: 1, Dtype.INT8: 17}, {Dtype.FLOAT8: 16, Dtype.INT8: 8}


def product(a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
    """Return a callable that multiplies (m, k) by (k, n): FLOAT8 to bfloat16, INT8 to int32.

    The second operand is column-major, the layout for the matrix units: torch._scaled_mm accepts no other, and
    torch._int_mm is several times slower with row-major data. FLOAT8 is accumulated in the matrix units
    (`use_fast_accum`), as in training's forward passes; without it, partial sums move to float32 registers every few
    products. Raises Unsupported for shapes that PyTorch rejects.
    """
    import torch

    (m, k), n = a.shape, b.shape[1]
    if m < FEWEST_ROWS[dtype] or k % MULTIPLE[dtype] or n % MULTIPLE[dtype]:
        raise Unsupported(
            f"PyTorch multiplies {dtype} only with at least {FEWEST_ROWS[dtype]} rows, "
            f"and with k and n in multiples of {MULTIPLE[dtype]}"
        )
    columns = b.t().contiguous().t()
    if dtype is Dtype.INT8:
        int_out = torch.empty(m, n, dtype=torch.int32, device=a.device)
        return lambda: torch._int_mm(a, columns, out=int_out)
    unit_scale = torch.ones((), dtype=torch.float32, device=a.device)
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    return lambda: torch._scaled_mm(
        a, columns, scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
    )
