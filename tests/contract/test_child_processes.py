"""Test that child processes end with their parent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from multiprocessing import synchronize
from pathlib import Path

import psutil
import pytest

from contract import child_processes

ROOT = Path(__file__).parents[2]
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
# Code that prints all child process IDs and waits.
WAITS = "print(*[one.pid for one in psutil.Process().children(recursive=True)], flush=True); time.sleep(60)"
POOL = f"""
import multiprocessing, psutil, time
from contract import child_processes
with child_processes.worker_pool(2, multiprocessing.get_context({{how!r}})) as pool:
    for at in [pool.submit(abs, 1) for _ in range(4)]: at.result()
    {WAITS}
"""
PROGRAM = f"""
import psutil, sys, threading, time
from contract import child_processes
threading.Thread(target=child_processes.run_program, args=({SLEEPS!r},)).start()
while len(psutil.Process().children(recursive=True)) < 2: time.sleep(0.01)
{WAITS}
"""
COMMAND = f"""
import psutil, subprocess, sys, time
from contract.child_processes import interrupt_on_signal
from contract.errors import run_command
def main(_):
    interrupt_on_signal()
    subprocess.Popen({SLEEPS!r})
    {WAITS}
sys.exit(run_command(main))
"""


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_map_parallel_falls_back_without_shared_memory(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(synchronize._multiprocessing, "SemLock", refuse)
    assert list(child_processes.map_parallel(abs, [-1, 2, -3], processes=2)) == [1, 2, 3]
    assert capsys.readouterr().err == f"note: one process works in place of 2 (/dev/shm: {os.strerror(number)})\n"


def test_map_parallel_raises_errors_from_work() -> None:
    with pytest.raises(FileNotFoundError, match="no such file here"):
        list(child_processes.map_parallel(os.stat, [ROOT, ROOT / "no such file here"], processes=2))


def _restore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start_script(script: str, **variables: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a script; return it and its child processes."""
    head = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Restore the default actions, because a child inherits signals that `nohup` or a background shell ignores.
        preexec_fn=_restore_signals,
    )
    assert head.stdout is not None
    return head, [psutil.Process(int(number)) for number in head.stdout.readline().split()]


@pytest.mark.parametrize("script", [POOL.format(how="forkserver"), POOL.format(how="spawn"), PROGRAM])
def test_children_end_with_killed_parent(script: str) -> None:
    head, started = start_script(script)
    assert len(started) >= 2
    head.kill()
    head.communicate(timeout=20)
    assert psutil.wait_procs(started, 10)[1] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_command_and_children_with_one_line(number: signal.Signals) -> None:
    head, started = start_script(COMMAND)
    # Send the signal twice, because a command may get it from the workflow that started the command, and also from the
    # terminal, which signals the whole process group.
    head.send_signal(number)
    head.send_signal(number)
    _, stderr = head.communicate(timeout=20)
    assert stderr.count("\n") == 1 and stderr.startswith("interrupted: ")
    assert head.returncode == 130
    assert psutil.wait_procs(started, 10)[1] == []


def test_signals_that_arrive_together_end_command_with_one_line() -> None:
    together = """
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    for number in signals: signal.raise_signal(number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
"""
    head, _ = start_script("import signal" + COMMAND.replace(f"    {WAITS}\n", f"    print(flush=True){together}"))
    _, stderr = head.communicate(timeout=20)
    assert stderr.count("\n") == 1 and stderr.startswith("interrupted: ")
    assert head.returncode == 130


def test_command_ends_with_coordinator() -> None:
    coordinator = subprocess.Popen(SLEEPS)
    head, started = start_script(COMMAND, **{child_processes.COORDINATOR: str(coordinator.pid)})
    assert head.poll() is None
    coordinator.kill()
    coordinator.wait()
    _, stderr = head.communicate(timeout=20)
    assert stderr.startswith("interrupted: ")
    assert psutil.wait_procs(started, 10)[1] == []


def test_run_program_returns_output_and_exit_code(tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd()); print('told', file=sys.stderr); sys.exit(3)"
    ran = child_processes.run_program([sys.executable, "-c", script], cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, f"{tmp_path}\n", "told\n")


def test_hanging_command_is_killed_after_grace_period() -> None:
    head, started = start_script(
        COMMAND.replace("sys.exit(", "import atexit; atexit.register(time.sleep, 60); sys.exit(")
    )
    head.terminate()
    head.communicate(timeout=30)
    assert psutil.wait_procs(started, 10)[1] == []
