"""What several tests read is made once; what a page loads."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, made by whichever of pytest's processes needs it first: nobody may write into it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each process has a folder of its own within that of the run.
        root = root.parent
    folder, made = root / name, root / f"{name}.made"
    with FileLock(root / f"{name}.lock"):
        if not made.exists():
            # What a process that failed at it left behind.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def loaded(page: Path) -> int:
    """Bytes of a page and of all that it loads."""
    named = re.findall(r'(?:src|srcset)="([^"]+)"|rel="stylesheet" href="([^"]+)"', page.read_text(encoding="utf-8"))
    files = {(page.parent / one).resolve() for one in itertools.chain(*named) if one and "://" not in one}
    return sum(path.stat().st_size for path in {page.resolve(), *files})
