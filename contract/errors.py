"""The error for user mistakes, and the entry point that turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from contract.child_processes import lock_error
from contract.encoding import escape_unprintable

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EACCES: "permission denied: choose a place you may write to",
    errno.EPERM: "permission denied: choose a place you may write to",
    errno.EFBIG: "the file would exceed the size limit: raise the limit or free some space",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another place",
    errno.EISDIR: "this is a folder, not a file: name a file",
    errno.ENOENT: "no such file or folder: check the path",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.ELOOP: "links lead in a circle: name the file itself",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine: end other programs",
    errno.ENOMEM: "no memory is left: end other programs, or give this one more",
    errno.EAGAIN: "no more processes may be started: end other programs, or raise the limit (ulimit -u)",
    errno.EIO: "the disk, or the connection to it, does not work: see the system's log (dmesg)",
    errno.ESTALE: "the network file system has lost this file: give the same command again",
}
# An OSError may lack a file name. In this case, its number tells the cause:
# WRITING: a write failed.
# _LIMITS: a system limit was reached.
# _SHARED: shared memory may be unusable. To confirm this, `lock_error` must return an error with the same number.
WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE)
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_SHARED = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR)
_ROOT = Path(__file__).parents[1]
_PACKAGES = ("contract", "experiments", "report", "workflow")


class StudyError(Exception):
    """Mistake that the user can fix.

    The message says what is wrong, where, and what to do about it.
    """

    exit_code = 2


def run_command(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run a command's `main` and return an exit code. Errors that the user can fix are printed as one line.

    Exit codes: 0 done, 2 user mistake, 74 system error, 130 interrupted. Other exceptions are bugs and keep their
    traceback.
    """
    escape_unprintable()
    try:
        code = main(argv)
        _flush()
        return code
    except StudyError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return mistake.exit_code
    except ModuleNotFoundError as lack:
        # If a module from the project's own packages is missing, it is a bug.
        if (lack.name or "").partition(".")[0] in ("", *_PACKAGES):
            raise
        mend = "pip install -e . in the project's folder; without a network, . workflow/offline.sh in this shell"
        print(f"error: {lack.name} is not installed for {sys.executable}: {mend}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: finished rounds are kept; the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe (`… | head`), which is no error.
        sys.stderr.close()
        return 0
    except MemoryError:
        print(f"error: {_advise(errno.ENOMEM)}. Nothing that was finished is lost.", file=sys.stderr)
        return 74
    except OSError as refusal:
        advice = _advice_on(refusal)
        if advice is None:
            raise
        print(f"error: {advice}. Nothing that was finished is lost.", file=sys.stderr)
        return 74


def _flush() -> None:
    """Flush standard output. Raises OSError with 'standard output' as the file name."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError as refusal:
        with suppress(OSError):
            sys.stdout.close()  # otherwise the interpreter would flush it again at exit
        refusal.filename = "standard output"
        raise


def _advice_on(refusal: OSError) -> str | None:
    """Return a message with the file or resource, the reason and a remedy; return None if the error is a bug."""
    name, number = refusal.filename, refusal.errno
    # An error without a number comes from a library, and its message already names the file.
    if number is None:
        return None if type(refusal) is OSError else f"{refusal}: choose another place, or mend this one"
    if name is None and refusal.strerror != os.strerror(number):
        temporary = "temporary directory" in str(refusal.strerror)
        return f"{refusal.strerror}: {'set TMPDIR to a folder that you may write to' if temporary else _advise(number)}"
    if name is None:
        if number in _SHARED and (locks := lock_error()) and locks.errno == number:
            return f"/dev/shm: {_reason(number)}: processes share memory there, make it writable (mode 1777), with room"
        return _advise(number) if number in _LIMITS else f"output: {_advise(number)}" if number in WRITING else None
    frames = list(traceback.walk_tb(refusal.__traceback__))
    if frames and frames[-1][0].f_code.co_filename == subprocess.__file__:
        return f"{name}: cannot be started ({_reason(number)}): install this program, or put it on the PATH"
    if number == errno.ENOENT and any(_ROOT / package in Path(str(name)).parents for package in _PACKAGES):
        return f"{name}: belongs to the study, and is missing: clone it, and install it with pip install --editable"
    if number in (errno.EACCES, errno.EPERM) and Path(str(name)).is_file() and not os.access(name, os.R_OK):
        return f"{name}: permission denied: make the file readable for you (chmod u+r)"
    return f"{name}: {_advise(number)}"


def _reason(number: int) -> str:
    return os.strerror(number).lower()


def _advise(number: int) -> str:
    return _ADVICE.get(number) or f"{_reason(number)}: choose another place, or mend this one"
