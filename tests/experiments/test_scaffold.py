"""A new experiment is measured, checked, reported, tested and linted without any change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import StudyError
from experiments import scaffold

ROOT = Path(__file__).parents[2]
NEEDED = ("contract", "experiments", "report", "tests", "workflow", "data/reference", "pyproject.toml", "CITATION.cff")
# This is the longest name that is valid.
NAME = "name_of_18_letters"


@pytest.fixture(scope="module")
def repository_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the repository without its data to a writable folder."""
    folder = tmp_path_factory.mktemp("copy")
    for name in NEEDED:
        place, skip = folder / name, shutil.ignore_patterns("__pycache__", "golden")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=skip)
        else:
            shutil.copyfile(ROOT / name, place)
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["gemm", "memory", "checks", "rounds", "Foo", "1a", "class", "a b", "../a", "", f"{NAME}s"]
)
def test_invalid_or_taken_name_writes_nothing(
    repository_copy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(scaffold, "ROOT", repository_copy)
    before = read_files(repository_copy)
    with pytest.raises(StudyError, match=r"is taken: .* exists|is not a valid name: use"):
        scaffold.write_experiment(name)
    assert read_files(repository_copy) == before


def test_failed_write_leaves_no_files(repository_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaffold, "ROOT", repository_copy)
    before, write = read_files(repository_copy), scaffold.write_text

    def full(path: Path, text: str) -> None:
        if "full.yaml" in path.name:
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(scaffold, "write_text", full)
    with pytest.raises(OSError):
        scaffold.write_experiment(NAME)
    assert read_files(repository_copy) == before


def test_new_experiment_is_measured_tested_and_linted_unchanged(repository_copy: Path) -> None:
    def run(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=repository_copy, env={**os.environ, "PYTHONPATH": str(repository_copy)}, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    *paths, _, test, measure = run("experiments", "new", NAME).splitlines()
    files = [path for path in paths if path.endswith(".py")]
    assert all((repository_copy / path).is_file() for path in paths) and len(files) == 4
    assert "2 ok" in run(*measure.split()[2:-1], str(repository_copy / "new.cpu.1.parquet"))
    assert "2 passed" in run(*test.split(), "-q", "-p", "no:cacheprovider")
    assert f"{NAME}.rate" in run("report", "quantities", NAME)
    run("ruff", "check", "--no-cache", *files)
    run("ruff", "format", "--no-cache", "--check", *files)
