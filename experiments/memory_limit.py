"""Memory that this process may use: the machine's, or what the cgroups around it leave of it."""

from __future__ import annotations

from pathlib import Path

import psutil

from contract.cgroups import ROOT, cgroups, decimal, number
from experiments.counters import read_key_values

# Files that hold a limit (version 2, version 1) and the usage beside it.
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
# Memory that the kernel takes back when it is needed (version 2; version 1 with all groups inside).
_CACHE = (
    ("total_inactive_file", "total_active_file"),
    ("inactive_file", "active_file", "slab_reclaimable"),
)


def total_bytes(root: Path = ROOT) -> int:
    """Memory of the machine in bytes, or the smallest limit of this process's cgroups if that is less."""
    limits = [limit for folder in cgroups(root, "memory") for limit in _limits(folder)]
    return int(min([psutil.virtual_memory().total, *limits]))


def available_bytes(root: Path = ROOT) -> int:
    """Bytes that can be taken before the machine swaps or a cgroup's limit is reached; caches count as available."""
    free = [float(psutil.virtual_memory().available)]
    for folder in cgroups(root, "memory"):
        used = next((held for name in _USED if (held := number(folder / name)) is not None), 0.0)
        free += [limit - max(0.0, used - _cache_bytes(folder)) for limit in _limits(folder)]
    return max(0, int(min(free)))


def _limits(folder: Path) -> list[float]:
    """The limits of one cgroup in bytes. Version 1 also says the least of the groups around it, seen or unseen."""
    found = [number(folder / name) for name in _LIMITS]
    found.append(decimal(read_key_values(folder / "memory.stat").get("hierarchical_memory_limit", "")))
    return [limit for limit in found if limit is not None and limit > 0]


def _cache_bytes(folder: Path) -> float:
    stat = read_key_values(folder / "memory.stat")
    names = next((names for names in _CACHE if names[0] in stat), ())
    return sum(decimal(stat.get(name, "")) or 0.0 for name in names)
