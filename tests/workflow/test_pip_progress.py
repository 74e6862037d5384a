"""Test the announcement of an install, and its progress."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.project_clones import ROOT
from workflow.pip_progress import Progress, announce

LINES = """Collecting torch>=2.8 (from does-ai-need-a-gpu==2.0.0)
  Downloading https://index/torch-2.13.0-cp311-linux.whl.metadata (30 kB)
WARNING: Location 'file:///elsewhere' is ignored
  Downloading torch-2.13.0-cp311-linux.whl (180.5 MB)
  Using cached numpy-2.5.2-cp311-linux.whl (16.0 MB)
  Downloading typst-0.15.0-linux.whl (1.5 GB)
Installing collected packages: torch, numpy, typst
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_install_is_announced_with_measured_size_and_planned_minutes(tmp_path: Path) -> None:
    size, study = " ".join(announce([]).split()).split(" then ")
    assert all(
        words in size for words in ("into .venv: ", " packages, ", " MB to download, ", " MB on disk, ", " MB are free")
    )
    assert "by the preset quick in about " in study and "with a GPU" in study
    assert "by the preset full in about 30 minutes," in " ".join(announce(["preset=full", "budget_min=30"]).split())
    (tmp_path / "own.yaml").write_text("rounds: 3\n")
    own = " ".join(announce([f"preset={tmp_path}/own.yaml"]).split())
    assert f"by the preset {tmp_path}/own.yaml, and renders" in own


@pytest.mark.parametrize("code", [0, 1])
def test_file_has_a_line_for_unpacking_and_the_end(tmp_path: Path, code: int) -> None:
    (tmp_path / ".venv").mkdir()
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\ncat <<'END'\n{LINES}{'ERROR: No space left' if code else ''}\nEND\nexit {code}\n")
    pip.chmod(0o755)
    words = [sys.executable, "-I", str(ROOT / "workflow/pip_progress.py"), "run", str(pip)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    unpacking, *end = done.stdout.splitlines()
    assert "1,696 MB of packages; unpacking 3 packages" in unpacking and "WARNING" not in done.stdout + done.stderr
    if code:
        assert end == [] and done.stderr.splitlines() == [
            "ERROR: No space left",
            "pip failed; all its lines: .venv/install.log",
        ]
    else:
        assert end[0].startswith("installed: 3 packages, 1,696 MB to download, ") and done.stderr == ""
    assert (tmp_path / ".venv/install.log").read_text().startswith(LINES)


def test_terminal_has_one_line_that_disappears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    progress = Progress(terminal := Terminal())
    for line in LINES.splitlines():
        progress.read_line(line)
    progress.end()
    assert progress.sizes().startswith("3 packages, 1,696 MB to download, 0 MB on disk, ")
    drawn = terminal.getvalue()
    assert "\n" not in drawn and drawn.rstrip("\r").rpartition("\r")[2].strip() == ""
    assert "torch-2.13.0-cp311-linux.whl (180.5 MB)" in drawn and "180 MB of packages; " in drawn
