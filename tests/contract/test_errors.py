"""A command ends with one line and a code for what its user can mend, and with a traceback for what is ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import pytest

from contract.errors import StudyError, run_command


def failing(error: BaseException) -> int:
    def main(_: Sequence[str] | None) -> int:
        raise error

    return run_command(main, [])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (StudyError("a.yaml, line 3: wrong"), 2, "error: a.yaml, line 3: wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/out"), 74, "/x/out: the disk is full"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/x/out"), 74, "/x/out: the file system is read-only"),
        (PermissionError(errno.EACCES, "no", "/x/out"), 74, "/x/out: permission denied"),
        (PermissionError(errno.EACCES, "no"), 74, "/dev/shm: permission denied: processes share memory there"),
        (KeyboardInterrupt(), 130, "finished rounds are kept"),
    ],
)
def test_one_line_and_a_code(error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(error) == code
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(errno.EIO, "broken disk", "/x")])
def test_what_is_not_the_users_mistake_keeps_its_traceback(error: BaseException) -> None:
    with pytest.raises(type(error)):
        failing(error)
