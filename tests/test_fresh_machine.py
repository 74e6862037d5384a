"""Test `make` on a fresh machine: missing tools, and interrupted installs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent
TOP = ("Makefile", "pyproject.toml", "constraints.txt")
# Fake Python interpreter that creates an environment with a fake pip. The fake pip succeeds if the file `calm` exists,
# fails if the file `broken` exists, and otherwise hangs.
STANDIN = f"""#!/bin/sh
case "$1" in -c) exit 0 ;; -I) exec {sys.executable} "$@" ;; esac
mkdir -p .venv/bin
printf '#!/bin/sh\\n[ -e calm ] || {{ echo $$ > .venv/half; [ ! -e broken ] && sleep 600; }}\\n' > .venv/bin/pip
chmod +x .venv/bin/pip
"""


def run_make(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    with start_make(folder, *words, **variables) as running:
        stdout, stderr = running.communicate(timeout=60)
    return subprocess.CompletedProcess(words, running.returncode, stdout, stderr)


def start_make(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    for name in (*TOP, "contract/child_processes.py", "workflow/pip_progress.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    # Remove the variables of the `make` that runs the tests.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.Popen(
        ["make", *words], cwd=folder, env=inherited | variables, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # A shell's background processes ignore SIGINT, and `make` would inherit that from the tests.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_python_without_venv_is_reported(tmp_path: Path) -> None:
    # This module imitates Debian's python3 without the package python3-venv.
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError(\"No module named 'ensurepip'\")")
    process = run_make(tmp_path, "study", f"PYTHON={sys.executable}", PYTHONPATH=str(tmp_path))
    assert process.returncode != 0
    (mistake,) = (line for line in process.stderr.splitlines() if not line.startswith("make"))
    assert "apt-get install python3-venv" in mistake
    assert not (tmp_path / ".venv").exists()


@pytest.fixture
def make_targets(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "standin").write_text(STANDIN)
    (tmp_path / "standin").chmod(0o755)
    return ".venv/study.stamp", f"PYTHON={tmp_path / 'standin'}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_interrupted_install_is_repeated(tmp_path: Path, make_targets: tuple[str, str], number: signal.Signals) -> None:
    with start_make(tmp_path, *make_targets) as running:
        until = time.monotonic() + 60
        while not (half := tmp_path / ".venv/half").exists() or not half.read_text():
            assert time.monotonic() < until, running.communicate()
            time.sleep(0.05)
        pip = psutil.Process(int(half.read_text()))
        started = [pip, *pip.children()]
        # A terminal sends the Ctrl-C signal to the whole process group.
        (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
        assert running.communicate(timeout=20) and running.returncode
    assert psutil.wait_procs(started, 10)[1] == []
    (tmp_path / "calm").touch()
    assert run_make(tmp_path, *make_targets).returncode == 0
    assert not half.exists()
    assert "up to date" in run_make(tmp_path, *make_targets).stdout


def test_own_environment_is_not_cleared(tmp_path: Path, make_targets: tuple[str, str]) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/own").touch()
    for name, done in (("broken", False), ("calm", True)):
        (tmp_path / name).touch()
        assert (run_make(tmp_path, *make_targets).returncode == 0) is done
    assert (tmp_path / ".venv/half").exists() and (tmp_path / ".venv/own").exists()


def test_missing_tools_skip_tests_but_fail_in_ci(tmp_path: Path) -> None:
    # This environment has neither a browser nor a compiler.
    bare = {name: value for name, value in os.environ.items() if name != "CI"}
    bare |= {"PATH": str(tmp_path / "bin"), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "browsers")}
    (tmp_path / "test_all.py").write_text(
        "def test_a(chromium): pass\ndef test_b(chromium): pass\ndef test_c(compiler): pass\ndef test_d(): pass\n"
    )
    order = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    order += ["-p", "no:cacheprovider", str(tmp_path / "test_all.py")]
    quiet = subprocess.run(order, env=bare, capture_output=True, text=True, check=False, cwd=ROOT)
    assert quiet.returncode == 0 and "1 passed, 3 skipped" in quiet.stdout, quiet.stdout
    skips = [line for line in quiet.stdout.splitlines() if line.startswith("not tested here")]
    assert len(skips) == 2, "each reason once"
    assert skips[0].startswith("not tested here (2): the report in a browser: none starts; `apt-get install chromium`")
    assert skips[1].startswith("not tested here (1): compiled code: no C++ compiler; ")
    strict = subprocess.run(order, env={**bare, "CI": "true"}, capture_output=True, text=True, check=False, cwd=ROOT)
    assert strict.returncode == 1 and "1 passed, 3 errors" in strict.stdout


def test_checkout_with_windows_line_ends_keeps_scripts_usable(tmp_path: Path) -> None:
    words = ["git", "clone", "--quiet", "--config", "core.autocrlf=true", str(ROOT), str(tmp_path / "study")]
    subprocess.run(words, check=True, capture_output=True)
    listed = subprocess.run(
        ["git", "ls-files", "--eol"], cwd=tmp_path / "study", check=True, capture_output=True, text=True
    )
    places = [line.split() for line in listed.stdout.splitlines()]
    assert len(places) > 500
    assert [line for line in places if line[1] == "w/crlf" and line[2] != "attr/-text"] == []
