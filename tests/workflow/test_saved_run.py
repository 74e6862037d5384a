"""Test that a run on a vanishing machine is continued from its saved folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workflow.project_clones import ROOT
from workflow import saved_run

# Stand-in for Snakemake: it writes a round, then waits for the file `go`, and writes the next one.
SNAKEMAKE = """
import pathlib, sys, time
nodes = pathlib.Path("results/nodes/a")
nodes.mkdir(parents=True, exist_ok=True)
number = len([*nodes.iterdir()]) + 1
(nodes / f".round.{number}").touch()
(nodes / f"{number}.parquet").write_text(str(number))
pathlib.Path("results/report").mkdir(exist_ok=True)
(pathlib.Path("results/report/index.html")).touch()
pathlib.Path("words").write_text(" ".join(sys.argv[1:]))
while not pathlib.Path("go").exists():
    time.sleep(0.02)
sys.exit(3)
"""


def make_machine(place: Path) -> Path:
    """Make a machine's folder with the stand-in for Snakemake."""
    (place / "snakemake").mkdir(parents=True)
    (place / "snakemake/__init__.py").touch()
    (place / "snakemake/__main__.py").write_text(SNAKEMAKE)
    return place


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return make_machine(tmp_path / "machine")


def start_run(machine: Path, saved: Path, *words: str) -> subprocess.Popen[str]:
    arguments = [str(saved), *words]
    code = f"import sys; from workflow import saved_run as run; run.LOOK_S = 0.05; sys.exit(run.main({arguments}))"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=machine, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{machine}{os.pathsep}{ROOT}"},
    )  # fmt: skip


def wait_for(path: Path) -> None:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)


def test_next_machine_continues_after_a_kill(machine: Path, tmp_path: Path) -> None:
    saved, following = tmp_path / "saved", make_machine(tmp_path / "following")
    first = start_run(machine, saved, "--config", "preset=rented", "--", "measured")
    wait_for(saved / "nodes/a/1.parquet")
    first.send_signal(signal.SIGKILL)
    (machine / "go").touch()
    first.communicate(timeout=30)
    assert (machine / "words").read_text() == "--cores all --config preset=rented -- measured"
    assert {path.name for path in saved.rglob("*") if path.is_file()} == {"1.parquet"}

    (following / "go").touch()
    second = start_run(following, saved)
    output, _ = second.communicate(timeout=30)
    assert second.returncode == 3 and f"continues with 1 files from {saved}" in output
    assert (saved / "nodes/a/2.parquet").read_text() == "2"


def test_folder_that_cannot_be_written_is_refused_in_one_line(machine: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").write_text("a file")
    run = start_run(machine, tmp_path / "saved")
    _, errors = run.communicate(timeout=30)
    assert run.returncode and "name a folder" in errors.splitlines()[-1]


def test_lost_folder_is_noted_and_measuring_goes_on(machine: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    run = start_run(machine, saved)
    wait_for(saved / "nodes/a/1.parquet")
    (saved / "nodes/a/1.parquet").unlink()
    (saved / "nodes/a").rmdir()
    (saved / "nodes/a").write_text("in the way")
    time.sleep(0.2)
    (machine / "go").touch()
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 3 and f"note: {saved}: " in errors and "Traceback" not in errors


def test_finished_files_are_copied_once(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "node.json").write_text("{}")
    assert [saved_run.copy_missing(source, target) for _ in range(2)] == [1, 0]
    (target / "node.json").write_text("older and longer")
    os.utime(target / "node.json", (1, 1))
    assert saved_run.copy_missing(source, target) == 1
    assert (target / "node.json").read_text() == "{}"
