"""How many operations a call takes, where its parameters alone say it: what measures and what checks agree on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def product_flop(m: int, n: int, k: int, **_: Any) -> float:
    """Multiplications and additions of (m, k) by (k, n)."""
    return 2.0 * m * n * k


# By experiment, from a point's parameters.
FLOP: dict[str, Callable[..., float]] = {"gemm": product_flop, "content": product_flop}
