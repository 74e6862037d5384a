"""Helpers that build a shared test folder once per test run, and add up the bytes that a page loads."""

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
    """Return the folder `name`, which `make` fills once per test run.

    All pytest processes share the folder, so tests must not write to it.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # xdist gives each worker its own folder inside the run's folder. Use the run's folder, which all workers share.
        root = root.parent
    folder, marker = root / name, root / f"{name}.made"
    with FileLock(root / f"{name}.lock"):
        if not marker.exists():
            # If another process failed while it filled the folder, remove what it left.
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
