"""Rarer garbage collections, for processes that make many objects and few reference cycles."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Exempt the modules imported so far from garbage collection, and collect a thirtieth as often.

    In tables and figures, Python's default thresholds take 5 to 10% of the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
