"""The bundle for a machine without a network: what it holds, what it takes, and that measuring there needs no more."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from contract.errors import run_command
from tests.missing import missing
from tests.workflow.conftest import ROOT, Clone
from workflow import bundle

# What the stand-in for pip brings of each package, in MiB, with NumPy and pulp asked for by others.
WHEELS = {
    "connection_pool": {"connection_pool": 1}, "mlxtend": {"mlxtend": 1}, "snakemake": {"snakemake": 2, "pulp": 16},
    "aiohttp": {"aiohttp": 4}, "wgpu": {"wgpu": 3}, "polars": {"polars": 1, "polars_runtime_32": 51},
    "onnx": {"onnx": 8, "ml_dtypes": 1, "numpy": 16},
}  # fmt: skip


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Makes bundles of a project of 10 MiB, from a stand-in for pip; gives the exit code."""

    def pip(command: str, *words: str) -> None:
        into = Path(words[words.index("--dest" if command == "download" else "--wheel-dir") + 1])
        for package in set(words) & set(WHEELS):
            for name, size in WHEELS[package].items():
                (into / f"{name}-1.0-py3-none-any.whl").write_bytes(bytes(size << 20))

    monkeypatch.setattr(bundle, "pip", pip)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known").write_bytes(bytes(10 << 20))
    (tmp_path / "unknown").write_bytes(bytes(5 << 20))
    subprocess.run("git init -q && git add known", shell=True, check=True)
    return lambda *words: run_command(bundle.main, words)


def held() -> set[str]:
    return {path.name.split("-")[0] for path in Path("build/bundle").iterdir()}


def test_what_is_large_is_left_out_unless_it_is_named(
    bundled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundled("3.12") == 0
    assert held() == {"connection_pool", "mlxtend", "snakemake", "aiohttp", "wgpu"}
    said = {line[:14].strip(): float(line.split()[-2]) for line in capsys.readouterr().out.splitlines()}
    assert said == {"the project": 10, "needed": 4, "serving": 4, "wgpu": 3, "build/bundle": 11, "together": 21}
    assert bundled("3.12", "aarch64", "--with", "polars", "--with", "onnx", "--without", "wgpu") == 0
    assert held() == {"connection_pool", "mlxtend", "snakemake", "aiohttp", "polars", "polars_runtime_32", "onnx",
                      "ml_dtypes"}  # fmt: skip
    assert [path.name for path in Path("build").iterdir()] == ["bundle"]


def test_more_than_the_limit_is_refused_and_leaves_no_bundle(
    bundled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundled("3.12", "--limit", "21") == 0
    capsys.readouterr()
    assert bundled("3.12", "--with", "polars", "--limit", "21") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "error: the project takes 10.0 MiB and the bundle 63.0, together 73.0 of at most 21: there is no bundle now. "
        "What can be left out: polars (52.0), serving (4.0), wgpu (3.0)\n"
    )
    assert list(Path("build").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "required: python"),
        ("2.7", "'2.7' is not a Python that this runs on"),
        ("3.12 sparc", "invalid choice: 'sparc'"),
        ("3.12 x86_64 polars", "unrecognized arguments: polars"),
        ("3.12 --with polrs", "invalid choice: 'polrs'"),
        ("3.12 --with wgpu --without wgpu", "both --with and --without wgpu"),
        ("3.12 --limit 0", "'0' leaves no room"),
        ("3.12 --limit much", "'much' is not a finite number"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: str, says: str, bundled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundled(*words.split()) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert says in told[0]
    assert not Path("build").exists()


def test_help_says_what_each_part_is_for() -> None:
    said = subprocess.run(
        ["bash", "workflow/bundle.sh", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name, part in bundle.PARTS.items():
        assert any(name in line and part.costs in line for line in said.splitlines())


def test_what_pip_cannot_fetch_is_told_in_one_line_and_leaves_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "constraints.txt").touch()
    subprocess.run(["git", "init", "-q"], check=True)
    assert run_command(bundle.main, ["3.12"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "No matching distribution found for connection_pool" in told[0]
    assert list(Path("build").iterdir()) == []


def test_without_a_bundle_measuring_says_where_it_comes_from(clone: Clone) -> None:
    said = clone.run("bash", "workflow/measure-offline.sh")
    assert said.returncode == 2
    assert said.stderr == "error: build/bundle: no such folder: workflow/bundle.sh makes it, where there is a network\n"


def there(folder: Path) -> Path:
    """A Python that has what the other machine has, and nothing else of what is installed here."""
    venv.create(folder, with_pip=True, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    asked, seen = ["torch", "numpy", "pandas", "pyarrow", "numba", "scikit-learn"], set[str]()
    while asked:
        name = canonicalize_name(asked.pop())
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] != ".."} - {"__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
        needs = [Requirement(text) for text in found.requires or []]
        asked += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    return folder / "bin" / "python3"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the bundle's wheels are for Linux")
def test_measuring_needs_the_bundle_and_what_is_there_already(clone: Clone, tmp_path: Path) -> None:
    reached = clone.run(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path / "one"), "tqdm")
    if reached.returncode:
        missing("no package index can be reached")
    (clone.path / "mine.yaml").write_text(
        "rounds: 1\ntarget: 0.5\npoint_s: 0.05\nround_s: 30\nmax_samples: 6\nexperiments:\n"
        "  clock:\n    sweep:\n      - grid: {backend: [llvm], threads: [1], chain: [1000000]}\n"
    )
    made = clone.run("bash", "workflow/bundle.sh", platform.python_version().rpartition(".")[0], platform.machine())
    assert made.returncode == 0, made.stderr
    # What is sent to a rented machine may take 40 MiB.
    assert float(made.stdout.split()[-2]) <= 40
    clone.extra["PATH"] = f"{there(tmp_path / 'there').parent}:/usr/bin:/bin"
    measured = clone.run("bash", "workflow/measure-offline.sh", "--config", "preset=mine.yaml")
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert list(clone.rounds) == ["clock.cpu.1.parquet"]
