"""CPU limits from Linux control groups, and readers for kernel files."""

from __future__ import annotations

import contextlib
import math
import os
from functools import cache
from pathlib import Path

ROOT = Path("/")


def read_text(path: Path) -> str:
    """Return a kernel file's text, stripped and with invalid bytes replaced; '' if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n")
    except (OSError, ValueError):
        return ""


def parse_decimal(text: str) -> float | None:
    """Parse a finite number; return None for any other text."""
    with contextlib.suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


def read_number(path: Path) -> float | None:
    """Read a kernel file that holds one number; return None for any other file."""
    return parse_decimal(read_text(path))


@cache
def cgroup_folders(root: Path = ROOT, controller: str = "cpu") -> tuple[Path, ...]:
    """Return the folders for this process's cgroup and its ancestors, the innermost cgroup first.

    The tuple is empty on systems other than Linux. Cgroup versions 1 and 2 and hybrid mounts are supported.
    controller: 'cpu' or 'memory'.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    folders: list[Path] = []
    for line in lines:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [
            root / "sys/fs/cgroup" / name for name in ((controllers, controller) if controllers else ("", "unified"))
        ]
        parts = [part for part in Path(place).parts if part not in ("/", "..")]
        # In a container, /proc may show the cgroup's path on the host, but only the last components are mounted.
        # Therefore try the path without its first components, too.
        places = (mount.joinpath(*parts[start:]) for start in range(len(parts) + 1) for mount in mounts)
        # Use os.path.isdir, because Path.is_dir raises an error if permission is missing (in Python 3.11) or if a name
        # is too long.
        inner = next((folder for folder in places if os.path.isdir(folder)), root)  # noqa: PTH112
        levels = [folder for folder in (inner, *inner.parents) if root / "sys/fs" in folder.parents]
        folders += [folder for folder in levels if any(folder.glob(f"{controller}.*"))]
    return tuple(dict.fromkeys(folders))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the smallest CPU quota, in cores, among this process's cgroups, or None if none has a quota."""
    granted = []
    for folder in cgroup_folders(root):
        limit, period = read_number(folder / "cpu.cfs_quota_us"), read_number(folder / "cpu.cfs_period_us")
        if words := read_text(folder / "cpu.max").split():
            limit, period = parse_decimal(words[0]), parse_decimal(words[1] if len(words) > 1 else "100000")
        if limit and period and limit > 0 and period > 0:
            granted.append(limit / period)
    return min(granted, default=None)
