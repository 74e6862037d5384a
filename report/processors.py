"""How many processors this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """Those that it is bound to, where the system says; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
