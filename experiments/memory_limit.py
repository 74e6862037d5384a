"""Determine the memory this process may use, which is all of the machine's memory, or less under a cgroup limit."""

from __future__ import annotations

from pathlib import Path

import psutil

from contract.cgroups import ROOT, cgroup_folders, parse_decimal, read_number
from experiments.counters import read_key_values

# Names of the files with a cgroup's limits and its usage, first in version 2, then in version 1.
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
# Entries for memory that the kernel can reclaim: first in version 1 (totals that include child groups), then in
# version 2.
_CACHE = (
    ("total_inactive_file", "total_active_file"),
    ("inactive_file", "active_file", "slab_reclaimable"),
)


def total_bytes(root: Path = ROOT) -> int:
    """Return the machine's memory in bytes, or this process's smallest cgroup limit if that is less."""
    limits = [limit for folder in cgroup_folders(root, "memory") for limit in _limits(folder)]
    return int(min([psutil.virtual_memory().total, *limits]))


def available_bytes(root: Path = ROOT) -> int:
    """Return the bytes left before the system swaps or a cgroup limit is reached; caches count as available."""
    free = [float(psutil.virtual_memory().available)]
    for folder in cgroup_folders(root, "memory"):
        usage_bytes = next((usage for name in _USED if (usage := read_number(folder / name)) is not None), 0.0)
        free += [limit - max(0.0, usage_bytes - _cache_bytes(folder)) for limit in _limits(folder)]
    return max(0, int(min(free)))


def _limits(folder: Path) -> list[float]:
    """Read a cgroup's limits in bytes. Version 1 also reports the smallest limit among all parent groups."""
    limits = [read_number(folder / name) for name in _LIMITS]
    limits.append(parse_decimal(read_key_values(folder / "memory.stat").get("hierarchical_memory_limit", "")))
    return [limit for limit in limits if limit is not None and limit > 0]


def _cache_bytes(folder: Path) -> float:
    stat = read_key_values(folder / "memory.stat")
    names = next((names for names in _CACHE if names[0] in stat), ())
    return sum(parse_decimal(stat.get(name, "")) or 0.0 for name in names)
