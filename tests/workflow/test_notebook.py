"""Test the notebook: its script, its answers to mistakes, and a run that is cut twice, beside other versions."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import jupytext
import nbformat
import pytest

from contract.sample_table import read_samples
from tests.workflow.conftest import PUBLISHED, keep_few_published_records
from tests.workflow.project_clones import ROOT, Clone, clone_into, overlaid_python
from tests.workflow.run_notebook import NOTEBOOK

SCRIPT = NOTEBOOK.with_name("measure_a_gpu.py")
# Versions that differ from the pins.
OTHERS = {"numpy": "2.3.5", "pandas": "2.3.3"}


def test_notebook_is_made_from_its_script_and_has_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    script = jupytext.read(SCRIPT)
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in script.cells
    ], f"jupytext --to ipynb --output {NOTEBOOK.relative_to(ROOT)} {SCRIPT.relative_to(ROOT)}"
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.fixture
def source(tmp_path: Path) -> Clone:
    """Return a repository of the study with little data, to clone from."""
    clone = clone_into(tmp_path / "source")
    for record in (clone.path / "data/nodes").glob("*/node*.json"):
        if record.parent.name != PUBLISHED:
            shutil.rmtree(record.parent)
    keep_few_published_records(clone)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a", "-C", str(clone.path), "commit", "--quiet", "--all")
    assert clone.run(*git, "--message", "Keep little data").returncode == 0
    return clone


def start_notebook(python: Path | str, source: Clone, folder: Path, *settings: str) -> subprocess.Popen[str]:
    """Start the notebook in this folder."""
    folder.mkdir(exist_ok=True)
    script = source.path / "tests/workflow/run_notebook.py"
    return subprocess.Popen(
        [python, script, folder, f"SOURCE={source.path}", *settings], cwd=folder, env=source.env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def cut_after(notebook: subprocess.Popen[str], source: Clone, find: Callable[[], list[Path]]) -> list[Path]:
    """Kill the notebook and its study once `find` returns files, and return these."""
    until = time.monotonic() + 400
    while not (files := find()):
        assert notebook.poll() is None and time.monotonic() < until, notebook.communicate()[0]
        time.sleep(0.1)
    os.killpg(notebook.pid, signal.SIGKILL)
    notebook.wait()
    for process in source.processes():
        process.kill()
    return files


@pytest.mark.slow
def test_run_that_is_cut_twice_continues_beside_other_versions(source: Clone, tmp_path: Path) -> None:
    python, saved = overlaid_python(tmp_path / "python", OTHERS), tmp_path / "saved"
    settings = (f"SAVE={saved}", "REQUIRE=any", f"PRESET={source.path}/tests/workflow/notebook.yaml")
    first = start_notebook(python, source, tmp_path / "first", *settings)
    rounds = cut_after(first, source, lambda: [*saved.glob("nodes/*/*.1.parquet")])
    before = {path: set(read_samples(path)[0]["run"]) for path in rounds}

    # A new machine, whose kernel dies once.
    study = tmp_path / "second/does-ai-need-a-gpu"
    second = start_notebook(python, source, tmp_path / "second", *settings)
    cut_after(second, source, lambda: [*saved.glob("nodes/*/*.2.parquet")])
    third = start_notebook(python, source, tmp_path / "second", *settings)
    output, _ = third.communicate(timeout=500)
    assert third.returncode == 0, output
    assert "matrix product" in output and "<iframe srcdoc" in output
    assert {path: set(read_samples(path)[0]["run"]) for path in rounds} == before, "nothing is measured twice"
    assert [*study.glob("results/*.zip")] and (study / "results/report/index.html").is_file()
    code = "import numpy, pandas; print(numpy.__version__, pandas.__version__)"
    versions = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert versions == [*OTHERS.values()], "the install keeps what is there"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["SOURCE="], "Stopped: the study's address is unknown"),
        (["SOURCE=/nowhere"], "Stopped: git clone /nowhere: "),
    ],
)
def test_mistake_is_one_line(tmp_path: Path, settings: list[str], line: str) -> None:
    words = [sys.executable, str(ROOT / "tests/workflow/run_notebook.py"), str(tmp_path), *settings]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 1 and line in last and "Traceback" not in done.stdout


def test_study_comes_as_an_archive_where_git_is_missing(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    failure = b"raise SystemExit('error: installed from the archive')"
    files = {"Snakefile": b"", "workflow/__init__.py": b"", "workflow/install.py": failure}
    with tarfile.open(tmp_path / "archive/HEAD.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"study-main/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    folder = tmp_path / "machine"
    folder.mkdir()
    script, source = ROOT / "tests/workflow/run_notebook.py", f"SOURCE={tmp_path.as_uri()}/"
    done = subprocess.run(
        [sys.executable, script, folder, source], cwd=folder, env={**os.environ, "PATH": str(folder)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip().endswith("Stopped: installed from the archive") and "Traceback" not in done.stdout
    assert [path.name for path in folder.iterdir()] == ["does-ai-need-a-gpu"]
