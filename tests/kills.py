"""Record the states in which a kill leaves a folder: its content before each write to it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

WRITES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.symlink", "os.link")
# Function that gets each audit event. Python offers no way to remove an audit hook.
_listener: Callable[[str, tuple[Any, ...]], None] | None = None
_hooks: list[object] = []


def _forward(event: str, arguments: tuple[Any, ...]) -> None:
    if _listener is not None and event in WRITES:
        _listener(event, arguments)


def killed_states(root: Path, into: Path, act: Callable[[], object], events: Collection[str] = WRITES) -> list[Path]:
    """Call `act`, and copy the folder `root` into a folder below `into` before each write to it; return the copies.

    events: the audit events to record. A file that is opened to be overwritten is empty in a second copy. Files that
    Arrow writes raise no event.
    """
    global _listener
    states: list[Path] = []

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        global _listener
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes, os.PathLike)) else ""
        writes = event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        # Functions such as rmtree pass bare names with a folder's handle.
        if event not in events or not writes or (Path(path).is_absolute() and not Path(path).is_relative_to(root)):
            return
        _listener = None
        truncates = event == "open" and arguments[2] & os.O_TRUNC and Path(path).is_file()
        for torn in (False, True) if truncates else (False,):
            states.append(into / str(len(states)))
            if root.exists():
                shutil.copytree(root, states[-1], symlinks=True)
            if torn:
                (states[-1] / Path(path).relative_to(root)).write_bytes(b"")
        _listener = listen

    if not _hooks:
        sys.addaudithook(_forward)
        _hooks.append(_forward)
    into.mkdir(parents=True, exist_ok=True)
    _listener = listen
    try:
        act()
    finally:
        _listener = None
    return states


def restore(state: Path, root: Path) -> None:
    """Replace the folder `root` by a state from `killed_states`."""
    shutil.rmtree(root, ignore_errors=True)
    if state.exists():
        shutil.copytree(state, root, symlinks=True)
