"""Test that nvidia-smi logs during a run and ends with it, with a stand-in for nvidia-smi."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workflow import nvidia_log

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tool is started on Linux alone")
ROOT = Path(__file__).parents[2]
# Like drivers before 535, this stand-in knows only the older field name for throttle reasons.
TOOL = f"""#!{sys.executable}
import sys, time
if any("clocks_event_reasons" in word for word in sys.argv):
    sys.exit("Field is not a valid field to query.")
while any(word.startswith("--loop-ms") for word in sys.argv):
    print("2026/01/01 00:00:00.000, 0, 1980 MHz", flush=True)
    time.sleep(0.05)
"""
RUN = """
import pathlib, time
from workflow.nvidia_log import start_log
start_log(pathlib.Path('logs/smi'))
time.sleep({})
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for nvidia-smi on the PATH."""
    (tmp_path / "nvidia-smi").write_text(TOOL)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "nvidia-smi"


def log_size(log: Path) -> int:
    return log.read_text("utf-8").count("1980 MHz") if log.exists() else 0


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGINT])
def test_log_grows_during_run_and_ends_with_it(number: signal.Signals | None, tmp_path: Path, tool: Path) -> None:
    log, until = tmp_path / "logs/smi", time.monotonic() + 60
    head = subprocess.Popen([sys.executable, "-c", RUN.format(3.0 if number is None else 600.0)], cwd=tmp_path)
    while log_size(log) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    if number is not None:
        head.send_signal(number)
    head.wait(60)
    before = -1
    while before < (before := log_size(log)):
        assert time.monotonic() < until
        time.sleep(0.5)


def test_unwritable_log_does_not_stop_run(tmp_path: Path, tool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for log in (tmp_path, tool / "log"):
        nvidia_log.start_log(log)
        assert capsys.readouterr().err.startswith(f"note: {log}: ")


def test_without_nvidia_smi_there_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nvidia_log.start_log(tmp_path / "logs" / "smi")
    assert list(tmp_path.iterdir()) == []
