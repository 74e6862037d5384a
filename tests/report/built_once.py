"""Build shared test folders once per run, and measure page weight."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def build_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` fills once for all pytest processes. Tests must not write to it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # xdist gives each worker its own folder inside the folder for the run.
        root = root.parent
    folder, marker = root / name, root / f"{name}.made"
    with FileLock(root / f"{name}.lock"):
        if not marker.exists():
            # Remove leftovers from a process that failed.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            marker.touch()
    return folder


def loaded_bytes(page: Path) -> int:
    """Add up the bytes of a page and every local file that it loads."""
    links = re.findall(r'(?:src|srcset)="([^"]+)"|rel="stylesheet" href="([^"]+)"', page.read_text(encoding="utf-8"))
    files = {(page.parent / target).resolve() for target in itertools.chain(*links) if target and "://" not in target}
    return sum(path.stat().st_size for path in {page.resolve(), *files})
