"""Operation counts that follow from a point's parameters, shared by measuring and checking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def product_flop(m: int, n: int, k: int, **_: Any) -> float:
    """Count multiplications and additions in (m, k) by (k, n)."""
    return 2.0 * m * n * k


# Operation count by experiment, from a point's parameters.
FLOP: dict[str, Callable[..., float]] = {"gemm": product_flop, "content": product_flop}
