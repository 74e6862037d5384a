"""One measuring process per node, whoever started it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import StudyError


def lock_path() -> Path:
    """Where the lock of this node lies: the same for every user and working directory."""
    # Not tempfile.gettempdir(): TMPDIR differs between users, the node does not.
    return Path("/tmp/does-ai-need-a-gpu.node.lock")


@contextmanager
def node_lock(patience_s: float) -> Iterator[None]:
    """Hold the node for measuring.

    A kernel lock: it vanishes with the process that holds it, however that ends.
    Waits up to `patience_s` seconds for another holder (a round orphaned by a
    killed run stops by itself within a point). Raises StudyError naming the holder.
    """
    path = lock_path()
    handle = _open(path)
    try:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
                    raise StudyError(
                        f"this machine is being measured by another process ({holder or 'unknown'}): two "
                        "measurements at once would spoil each other. Wait for it, or stop it, and try again."
                    ) from None
                time.sleep(0.2)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Open the lock file without truncating it: the text inside belongs to the holder."""
    try:
        # Not O_CREAT at once: Linux refuses that for another user's file in a sticky folder.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(handle, 0o666)
        return handle
