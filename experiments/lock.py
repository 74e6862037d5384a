"""Lock the node for one measuring process per user, independent from the working folder."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.errors import StudyError
from contract.files import acquire_lock

# Not TMPDIR or XDG_RUNTIME_DIR: they differ between one user's sessions.
PLACE = Path("/tmp")


def lock_path() -> Path:
    """Return this user's lock file, in a folder writable only by this user.

    Raises StudyError if the path exists and is not such a folder.
    """
    folder = PLACE / f"does-ai-need-a-gpu-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StudyError(f"{folder}: not a folder writable only by you: remove it, and try again")
    return folder / "node.lock"


@contextmanager
def node_lock(patience_s: float) -> Iterator[None]:
    """Hold the node for measuring.

    The kernel releases the lock when the process ends. Waits up to `patience_s` seconds for another holder (a round
    orphaned by a killed run ends within seconds). Raises StudyError.
    """
    path = lock_path()
    # Count only our own sleeps: a suspended process does not wait.
    waited = 0.0
    while (handle := acquire_lock(path)) is None:
        if waited > patience_s:
            raise StudyError(
                "another process of yours is measuring on this machine: two measurements at once would disturb "
                "each other. Wait for it, or stop it, and try again."
            )
        time.sleep(0.2)
        waited += 0.2
    try:
        yield
    finally:
        os.close(handle)
