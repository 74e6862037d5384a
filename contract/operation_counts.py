"""Operation counts from a point's parameters. Experiments declare them, and the report checks samples against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def product_flop(m: int, n: int, k: int, **_: Any) -> float:
    """Count the multiplications and additions needed to multiply an (m, k) matrix by a (k, n) matrix."""
    return 2.0 * m * n * k


# For each experiment, the function to compute a point's operation count from its parameters.
FLOP: dict[str, Callable[..., float]] = {"gemm": product_flop, "content": product_flop}
