"""Lock the node, so that only one of a user's processes measures at a time, even if their working folders differ."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.errors import StudyError
from contract.files import acquire_lock

# Do not use TMPDIR or XDG_RUNTIME_DIR, since they differ between one user's sessions.
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
    """Hold the node's lock while measuring.

    The kernel releases the lock when the process ends. If another process holds the lock, this function waits for up to
    `patience_s` seconds, since a round whose workflow was killed ends within seconds. Raises StudyError if the other
    process still holds the lock after this time.
    """
    path = lock_path()
    # Add up the sleeps instead of reading a clock, so that the time during which this process is suspended is not
    # included.
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
