"""One way to tell a person about a mistake, and one way to leave a command."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence

from contract.encoding import escape_unprintable

_DISK = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EACCES: "permission denied: choose a place you may write to",
    errno.EPERM: "permission denied: choose a place you may write to",
    errno.EFBIG: "the file would exceed the size limit: raise the limit or free some space",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another place",
    errno.EISDIR: "this is a folder, not a file: name a file",
    errno.ENOENT: "no such file or folder: check the path",
}


class StudyError(Exception):
    """A mistake that the person running the study can mend.

    The message says what is wrong, where, and what to do about it.
    """

    exit_code = 2


def run_command(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run a command's `main`; turn what its user can mend into one line and an exit code.

    Exit codes: 0 done, 2 a mistake of the user's, 74 the disk said no,
    130 interrupted. Anything else is a defect of ours and keeps its traceback.
    """
    escape_unprintable()
    try:
        return main(argv)
    except StudyError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return mistake.exit_code
    except KeyboardInterrupt:
        print("interrupted: finished rounds are kept; the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`… | head`): nothing is wrong.
        sys.stderr.close()
        return 0
    except OSError as refusal:
        if refusal.errno not in _DISK:
            raise
        where, says = refusal.filename or "output", _DISK[refusal.errno]
        if refusal.filename is None and refusal.errno in (errno.EACCES, errno.EPERM):
            # A file that may not be opened has a name; locks between processes have none.
            where, says = "/dev/shm", "permission denied: processes share memory there, make it writable (mode 1777)"
        print(f"error: {where}: {says}. Nothing that was finished is lost.", file=sys.stderr)
        return 74
