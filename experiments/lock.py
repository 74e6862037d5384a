"""One measuring process per node and user, whichever folder it was started in."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.errors import StudyError
from contract.files import held_lock

# Not TMPDIR or XDG_RUNTIME_DIR: they differ between the sessions of one user, the node does not.
PLACE = Path("/tmp")


def lock_path() -> Path:
    """Where the lock of this user on this node lies, in a folder that nobody else can write to.

    Raises StudyError if there is another thing in the folder's place.
    """
    folder = PLACE / f"does-ai-need-a-gpu-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        raise StudyError(f"{folder}: not a folder that only you can write to: remove it, and try again")
    return folder / "node.lock"


@contextmanager
def node_lock(patience_s: float) -> Iterator[None]:
    """Hold the node for measuring.

    A kernel lock: it vanishes with the process that holds it, however that ends.
    Waits up to `patience_s` seconds for another holder (a round orphaned by a
    killed run ends within seconds). Raises StudyError.
    """
    path = lock_path()
    # Counted by its own waiting: a pause of this process is none.
    waited = 0.0
    while (handle := held_lock(path)) is None:
        if waited > patience_s:
            raise StudyError(
                "this machine is being measured by another process of yours: two measurements at once would spoil "
                "each other. Wait for it, or stop it, and try again."
            )
        time.sleep(0.2)
        waited += 0.2
    try:
        yield
    finally:
        os.close(handle)
