"""The log of a GPU's own tool is written beside a run, and nothing writes it after that. By a stand-in for the tool."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from workflow import witness

ROOT = Path(__file__).parents[2]
# Knows the older name of what holds a clock back alone, as drivers before 535.
TOOL = """#!{python}
import sys, time
if any("clocks_event_reasons" in word for word in sys.argv):
    sys.exit("Field \\"clocks_event_reasons.active\\" is not a valid field to query.")
print("timestamp, index, clocks.current.sm [MHz]", flush=True)
while any(word.startswith("--loop-ms") for word in sys.argv):
    print("2026/01/01 00:00:00.000, 0, 1980 MHz", flush=True)
    time.sleep(0.05)
"""
RUN = """
import pathlib, time
from workflow import witness
witness.start(pathlib.Path('logs/smi'))
time.sleep({})
"""


def run(folder: Path, seconds: float, monkeypatch: pytest.MonkeyPatch, tool: str = TOOL) -> subprocess.Popen[bytes]:
    """A run that lasts so long, in a folder with a stand-in for nvidia-smi."""
    (folder / "nvidia-smi").write_text(tool.format(python=sys.executable))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return subprocess.Popen([sys.executable, "-c", RUN.format(seconds)], cwd=folder)


def lines(folder: Path) -> int:
    log = folder / "logs" / "smi"
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.skipif(sys.platform != "linux", reason="the tool is started on Linux alone")
@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_log_grows_with_the_run_and_ends_with_it(
    number: signal.Signals | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = run(tmp_path, 3.0 if number is None else 600.0, monkeypatch)
    until = time.monotonic() + 60
    while lines(tmp_path) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    if number is not None:
        head.send_signal(number)
    head.wait(60)
    time.sleep(0.3)
    ended = lines(tmp_path)
    time.sleep(0.3)
    assert lines(tmp_path) == ended
    # Of the question that it does not understand nothing is in the log.
    assert (tmp_path / "logs/smi").read_text().startswith("timestamp, index")


@pytest.mark.skipif(sys.platform != "linux", reason="the tool is started on Linux alone")
def test_a_tool_that_never_answers_ends_with_the_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = run(tmp_path, 600.0, monkeypatch, tool="#!{python}\nimport time\ntime.sleep(600)\n")

    def find_queries() -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if str(tmp_path / "nvidia-smi") in words(one)]

    until = time.monotonic() + 60
    while len(find_queries()) < 2:  # the one that becomes the tool, and the tool as it is find_queries
        assert time.monotonic() < until
        time.sleep(0.02)
    head.kill()
    head.wait(60)
    while find_queries():
        assert time.monotonic() < until, find_queries()
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="the tool is started on Linux alone")
@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("#!{python}\nprint('NVIDIA-SMI has failed: no driver')\nexit(9)\n", "NVIDIA-SMI has failed: no driver"),
        ("#!/no/such/interpreter\n", "No such file or directory"),
        ("no program\n", "Exec format error"),
    ],
)
def test_a_tool_that_fails_is_told_in_one_line_of_the_log(
    tool: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = run(tmp_path, 600.0, monkeypatch, tool)
    until = time.monotonic() + 60
    while not lines(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.02)
    head.kill()
    head.wait(60)
    (told,) = (tmp_path / "logs/smi").read_text().splitlines()
    assert told.startswith(f"error: {tmp_path / 'nvidia-smi'}: ") and says in told


@pytest.mark.skipif(sys.platform != "linux", reason="the tool is started on Linux alone")
def test_a_log_that_cannot_be_written_costs_the_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nvidia-smi").write_text(TOOL.format(python=sys.executable))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for log in (tmp_path, tmp_path / "nvidia-smi" / "log"):
        witness.start(log)
        assert capsys.readouterr().err.startswith(f"note: {log}: ")


def words(process: psutil.Process) -> list[str]:
    """The command line of a process; nothing of one that has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def test_without_the_tool_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    witness.start(tmp_path / "logs" / "smi")
    assert list(tmp_path.iterdir()) == []
