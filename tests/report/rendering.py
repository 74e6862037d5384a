"""What several tests read is made once, and a figure that was drawn already is not drawn again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from report.pages.render import render


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


def render_beside(drawn: Path, verdicts: Path, out: Path, **more: Any) -> Path:
    """Render into `out`, with the figures of another report where they show the same. For tests of other things."""
    shutil.copytree(drawn / "figures", out / "figures")
    render(verdicts, out, renderer="pandoc", **more)
    listed = set(json.loads((out / "render.json").read_text(encoding="utf-8"))["files"])
    for path in (out / "figures").iterdir():
        if f"figures/{path.name}" not in listed:
            path.unlink()
    return out
