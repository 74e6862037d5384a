"""Two commands on a fresh machine: what it lacks is said in a line, and what was cut off is begun again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import browser

ROOT = Path(__file__).parent.parent
STANDIN = """#!/bin/sh
case "$1" in -c) exit 0 ;; esac
mkdir -p .venv/bin
printf '#!/bin/sh\\n[ -e calm ] || { touch .venv/half; kill -9 $PPID; }\\n' > .venv/bin/pip
chmod +x .venv/bin/pip
"""


def make(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, folder)
    # Not as a part of the `make` that runs the tests.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False
    )


def test_a_python_without_venv_says_what_to_install_and_leaves_nothing(tmp_path: Path) -> None:
    # As Debian's python3 does where python3-venv is missing.
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError(\"No module named 'ensurepip'\")")
    said = make(tmp_path, "study", f"PYTHON={sys.executable}", PYTHONPATH=str(tmp_path))
    assert said.returncode != 0
    mistake = [line for line in said.stderr.splitlines() if not line.startswith("make")]
    assert len(mistake) == 1
    assert "apt-get install python3-venv" in mistake[0]
    assert not (tmp_path / ".venv").exists()


def test_an_install_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "standin").write_text(STANDIN)
    (tmp_path / "standin").chmod(0o755)
    order = (".venv/study.stamp", f"PYTHON={tmp_path / 'standin'}")
    assert make(tmp_path, *order).returncode != 0
    assert (tmp_path / ".venv/half").exists()
    (tmp_path / "calm").touch()
    assert make(tmp_path, *order).returncode == 0
    assert not (tmp_path / ".venv/half").exists()
    assert "up to date" in make(tmp_path, *order).stdout


def test_an_environment_of_ones_own_is_not_cleared(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/own").touch()
    (tmp_path / "standin").write_text(STANDIN)
    (tmp_path / "standin").chmod(0o755)
    for calm in (False, True):
        if calm:
            (tmp_path / "calm").touch()
        done = make(tmp_path, ".venv/study.stamp", f"PYTHON={tmp_path / 'standin'}")
        assert (done.returncode == 0) is calm
    assert (tmp_path / ".venv/own").exists()


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a browser or a compiler."""
    (tmp_path / "bin").mkdir()
    return {
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PATH": str(tmp_path / "bin"),
        "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "browsers"),
    }


def test_what_the_machine_lacks_is_left_out_and_told_but_fails_under_ci(tmp_path: Path, bare: dict[str, str]) -> None:
    (tmp_path / "test_all.py").write_text(
        "def test_a(chromium): pass\ndef test_b(chromium): pass\ndef test_c(compiler): pass\ndef test_d(): pass\n"
    )
    order = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    order += ["-p", "no:cacheprovider", str(tmp_path / "test_all.py")]
    quiet = subprocess.run(order, env=bare, capture_output=True, text=True, check=False, cwd=ROOT)
    assert quiet.returncode == 0, quiet.stdout
    assert "1 passed, 3 skipped" in quiet.stdout
    told = [line for line in quiet.stdout.splitlines() if line.startswith("not tested here")]
    assert len(told) == 2, "each reason once"
    assert told[0].startswith("not tested here (2): the report in a browser: none starts; `apt-get install chromium`")
    assert told[1].startswith("not tested here (1): compiled code: no C++ compiler; ")
    strict = subprocess.run(order, env={**bare, "CI": "true"}, capture_output=True, text=True, check=False, cwd=ROOT)
    assert strict.returncode == 1
    assert "1 passed, 3 errors" in strict.stdout


def test_where_no_browser_can_be_fetched_one_line_says_so_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # It waits for ever, and so does its child.
    monkeypatch.setattr(browser, "ORDER", ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait"])
    monkeypatch.setattr(browser, "WHOLE_S", 1)
    monkeypatch.setattr(browser, "starts", lambda: False)
    browser.main()
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "playwright install" in said
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(int((tmp_path / "child").read_text())).status() == psutil.STATUS_ZOMBIE
