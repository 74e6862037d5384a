"""Limits that the kernel's control groups set a process, and readers of the kernel's files."""

from __future__ import annotations

import contextlib
import math
import os
from functools import cache
from pathlib import Path

ROOT = Path("/")


def read_text(path: Path) -> str:
    """A file of the kernel, stripped; '' where there is none, with odd bytes replaced."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n")
    except (OSError, ValueError):
        return ""


def parse_decimal(text: str) -> float | None:
    """The finite number that a text is; None where it is none."""
    with contextlib.suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


def read_number(path: Path) -> float | None:
    """The number that a file of the kernel holds; None where there is none."""
    return parse_decimal(read_text(path))


@cache
def cgroup_folders(root: Path = ROOT, controller: str = "cpu") -> tuple[Path, ...]:
    """Folders of this process's cgroup and of those that contain it, innermost first; none outside Linux.

    controller: cpu or memory. Versions 1 and 2, and both beside each other.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    found: list[Path] = []
    for line in lines:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [
            root / "sys/fs/cgroup" / name for name in ((controllers, controller) if controllers else ("", "unified"))
        ]
        parts = [part for part in Path(place).parts if part not in ("/", "..")]
        # In a container the path may begin as the host sees it: only its end is mounted there, if any.
        places = (mount.joinpath(*parts[start:]) for start in range(len(parts) + 1) for mount in mounts)
        # Path.is_dir raises where a folder may not be entered (3.11), or a name is too long.
        inner = next((folder for folder in places if os.path.isdir(folder)), root)  # noqa: PTH112
        levels = [folder for folder in (inner, *inner.parents) if root / "sys/fs" in folder.parents]
        found += [folder for folder in levels if any(folder.glob(f"{controller}.*"))]
    return tuple(dict.fromkeys(found))


def cpu_quota(root: Path = ROOT) -> float | None:
    """The fewest cores that a cgroup of this process grants; None if none sets a limit."""
    granted = []
    for folder in cgroup_folders(root):
        limit, period = read_number(folder / "cpu.cfs_quota_us"), read_number(folder / "cpu.cfs_period_us")
        if words := read_text(folder / "cpu.max").split():
            limit, period = parse_decimal(words[0]), parse_decimal(words[1] if len(words) > 1 else "100000")
        if limit and period and limit > 0 and period > 0:
            granted.append(limit / period)
    return min(granted, default=None)
