"""Test one-line errors for user mistakes, and tracebacks for bugs."""

from __future__ import annotations

import errno
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import contract.errors
from contract import child_processes
from contract.errors import StudyError, run_command
from contract.files import atomic_path
from experiments.cli import main as experiments
from report.cli import main as report

OURS = Path(contract.errors.__file__).with_name("x.json")


def bare_error(number: int) -> OSError:
    """Return an OSError without a file name."""
    return OSError(number, os.strerror(number))


def exit_code_of(error: BaseException) -> int:
    def main(_: Sequence[str] | None) -> int:
        raise error

    return run_command(main, [])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (StudyError("a.yaml, line 3: wrong"), 2, "error: a.yaml, line 3: wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/out"), 74, "/x/out: the disk is full"),
        (OSError(errno.EFBIG, "no", "/x/out"), 74, "/x/out: the file would exceed the size limit"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/x/out"), 74, "/x/out: the file system is read-only"),
        (PermissionError(errno.EACCES, "no", "/x/out"), 74, "/x/out: permission denied"),
        (OSError(errno.EIO, "no", "/x/out"), 74, "/x/out: the disk, or the connection to it, does not work"),
        (OSError(errno.ESTALE, "no", "/x/out"), 74, "/x/out: the network file system has lost this file"),
        (OSError(errno.ENAMETOOLONG, "no", "/x/out"), 74, "/x/out: the name is too long"),
        (OSError(errno.ENOTCONN, "no", "/x/out"), 74, "/x/out: transport endpoint is not connected: choose"),
        (FileNotFoundError("No such file (os error 2): /x/in"), 74, "(os error 2): /x/in: choose another place"),
        (OSError(errno.EACCES, "Failed to open local file '/x/out'"), 74, "'/x/out': permission denied: choose"),
        (bare_error(errno.ENOSPC), 74, "error: output: the disk is full"),
        (bare_error(errno.EMFILE), 74, "error: too many files are open: raise the limit (ulimit -n)"),
        (bare_error(errno.EAGAIN), 74, "error: no more processes may be started"),
        (OSError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), 74, "['/tmp']: set TMPDIR"),
        (OSError(errno.ENOENT, "no", str(OURS)), 74, f"{OURS}: belongs to the study, and is missing"),
        (MemoryError(), 74, "error: no memory is left"),
        (ModuleNotFoundError("no", name="ruamel.yaml"), 2, "error: ruamel.yaml is not installed for "),
        (KeyboardInterrupt(), 130, "finished rounds are kept"),
    ],
)
def test_error_prints_one_line_and_returns_code(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == code
    stderr = capsys.readouterr().err
    assert words in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_error_names_refused_shared_memory(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = bare_error(number)
    monkeypatch.setattr(contract.errors, "lock_error", lambda: refusal)
    assert exit_code_of(refusal) == 74
    message = f"error: /dev/shm: {os.strerror(number).lower()}: processes share memory there"
    assert capsys.readouterr().err.startswith(message)


def test_error_names_full_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: Sequence[str] | None) -> int:
        print("a table")
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(io.FileIO("/dev/full", "w")), "utf-8"))
        assert run_command(main) == 74
    assert capsys.readouterr().err.startswith("error: standard output: the disk is full")


def test_error_names_missing_program_and_full_disk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def start(_: Sequence[str] | None) -> int:
        return subprocess.run(["no-such-program"], check=False).returncode

    def fill(_: Sequence[str] | None) -> int:
        with atomic_path(tmp_path / "table.csv"), Path("/dev/full").open("w", encoding="utf-8") as file:
            file.write("x" * 100_000)
        return 0

    assert run_command(start) == run_command(fill) == 74
    program, disk = capsys.readouterr().err.splitlines()
    assert program.startswith("error: no-such-program: cannot be started (no such file or directory): install")
    assert disk.startswith(f"error: {tmp_path / 'table.csv'}: the disk is full")


@pytest.mark.parametrize("error", [ZeroDivisionError(), bare_error(errno.EBADF), bare_error(errno.ENOENT),
                                   OSError("no"), ModuleNotFoundError("no", name="experiments.no")])  # fmt: skip
def test_bugs_keep_their_traceback(error: BaseException) -> None:
    with pytest.raises(type(error)):
        exit_code_of(error)


PLAN, RUN = ["plan"], ["run", "gemm", "--out", "x.parquet"]
CLAIM = ["new-claim", "W99", "--article", "whygpu", "--section", "A", "--says", "B", "--quantity", "gemm.rate",
         "--rule", "at_least", "--why", "C"]  # fmt: skip
REFUSED = [
    *((experiments, PLAN, "--budget", text) for text in ("inf", "nan", "0", "-1", "1e999", "20000", "soon", "")),
    *((experiments, PLAN, "--cores", text) for text in ("0", "-1", "1.5", "inf", "\u0663", "9" * 5000)),
    *((experiments, RUN, "--round", text) for text in ("0", "-1", "nan")),
    *((experiments, RUN, "--seed", text) for text in ("-1", "1e3", str(2**32))),
    *((report, CLAIM, "--threshold", text) for text in ("nan", "inf", "1e999", "much")),
    *((report, [*CLAIM, "--threshold", "1"], "--sensitivity", text) for text in ("nan", "1e31")),
    *((report, ["edition"], "--number", text) for text in ("0", "-1")),
    *((report, ["explain", "W15"], "--rows", text) for text in ("-1", "some")),
]


@pytest.mark.parametrize(("command", "words", "option", "text"), REFUSED)
def test_invalid_number_is_refused_in_one_line(
    command: object, words: list[str], option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    assert run_command(command, [*words, f"{option}={text}"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert f"argument {option}" in stderr
    assert len(stderr) < 400


def test_unknown_argument_prints_no_usage() -> None:
    with pytest.raises(StudyError, match="unrecognized arguments: --bugdet"):
        experiments(["plan", "--bugdet=3"])


@pytest.mark.parametrize("package", ["experiments", "report"])
def test_interrupt_during_import_prints_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == f"{package}.cli":
                raise KeyboardInterrupt

    monkeypatch.setattr(child_processes, "interrupt_on_signal", lambda: None)
    monkeypatch.delitem(sys.modules, f"{package}.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(package, run_name="__main__", alter_sys=True)
    assert ended.value.code == 130
    assert "interrupted" in capsys.readouterr().err
