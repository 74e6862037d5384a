"""Test the bundle for machines without a network: contents, limits and installation."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import run_command
from tests.workflow.project_clones import Clone
from workflow import bundle

# For each package, the wheels that the pip stand-in writes, with their sizes in MiB. The bundle must leave out the
# dependencies NumPy and pulp.
WHEELS = {
    "connection_pool": {"connection_pool": 1}, "mlxtend": {"mlxtend": 1}, "snakemake": {"snakemake": 2, "pulp": 16},
    "uvicorn": {"uvicorn": 4}, "wgpu": {"wgpu": 3}, "polars": {"polars": 1, "polars_runtime_32": 51},
    "onnx": {"onnx": 8, "ml_dtypes": 1, "numpy": 16}, "lightgbm": {"lightgbm": 3, "scipy": 34},
}  # fmt: skip


@pytest.fixture
def make_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that makes a bundle with a pip stand-in, for a project with 10 MiB."""

    def pip(command: str, *words: str) -> None:
        into = Path(words[words.index("--dest" if command == "download" else "--wheel-dir") + 1])
        for package in set(words) & set(WHEELS):
            asked_for = [package] if "--no-deps" in words else WHEELS[package]
            for name, size in ((name, WHEELS[package][name]) for name in asked_for):
                (into / f"{name}-1.0-py3-none-any.whl").write_bytes(bytes(size << 20))

    monkeypatch.setattr(bundle, "run_pip", pip)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known").write_bytes(random.Random(0).randbytes(10 << 20) + bytes(10 << 20))
    (tmp_path / "unknown").write_bytes(bytes(5 << 20))
    subprocess.run("git init -q && git add known", shell=True, check=True)
    return lambda *words: run_command(bundle.main, words)


def bundle_contents() -> set[str]:
    return {path.name.split("-")[0] for path in Path("build/bundle").iterdir()}


def test_large_parts_are_optional(make_bundle: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert make_bundle("3.12") == 0
    assert bundle_contents() == {"connection_pool", "mlxtend", "snakemake", "uvicorn", "wgpu"}
    sizes = {line[:14].strip(): float(line.split()[-2]) for line in capsys.readouterr().out.splitlines()}
    assert sizes == {"the project": 10, "needed": 4, "serving": 4, "wgpu": 3, "build/bundle": 11, "together": 21}
    with_three = [word for part in ("polars", "onnx", "boosting") for word in ("--with", part)]
    assert make_bundle("3.12", "aarch64", *with_three, "--without", "wgpu") == 0
    assert bundle_contents() >= {"polars", "polars_runtime_32", "onnx", "ml_dtypes", "lightgbm"}
    assert not bundle_contents() & {"wgpu", "numpy", "pulp", "scipy"}
    assert [path.name for path in Path("build").iterdir()] == ["bundle"]


def test_bundle_over_limit_is_refused(make_bundle: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert make_bundle("3.12", "--limit", "22") == 0
    assert make_bundle("3.12", "--with", "polars", "--limit", "22") == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "takes 10.0 MiB and the bundle 63.0, together 73.0 of at most 22" in message and message.endswith(
        "polars (52.0), serving (4.0), wgpu (3.0)"
    )
    assert list(Path("build").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("2.7", "'2.7' is not a supported Python version"),
        ("3.12 --with polrs", "invalid choice: 'polrs'"),
        ("3.12 --with wgpu --without wgpu", "both --with and --without wgpu"),
        ("3.12 --limit 0", "'0' leaves no room"),
    ],
)
def test_mistake_is_reported_in_one_line(
    words: str, says: str, make_bundle: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_bundle(*words.split()) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert says in message
    assert not Path("build").exists()


def test_wheels_for_all_glibc_versions_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[str] = []
    monkeypatch.setattr(bundle, "run_pip", lambda *words: options.extend(words))
    bundle.collect(tmp_path, "3.12", "aarch64", [])
    versions = {"1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 35))}
    assert {option for option in options if "linux" in option} == {f"manylinux{name}_aarch64" for name in versions}


def test_pip_failure_is_reported_and_leaves_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "constraints.txt").touch()
    subprocess.run(["git", "init", "-q"], check=True)
    assert run_command(bundle.main, ["3.12"]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "No matching distribution found for connection_pool" in message
    assert list(Path("build").iterdir()) == []


def test_missing_bundle_is_reported(clone: Clone) -> None:
    clone.extra["PATH"] = "/usr/bin:/bin"
    run = clone.run("bash", "workflow/measure-offline.sh")
    assert run.returncode == 2
    assert run.stderr == "error: build/bundle: no such folder: workflow/bundle.sh makes it, where there is a network\n"


def test_interrupted_install_is_repeated(clone: Clone) -> None:
    """Use a Python stand-in whose pip is interrupted the first time."""
    (clone.path / "build/bundle").mkdir(parents=True)
    (clone.path / "build/bundle/one.whl").touch()
    (clone.path / "bin").mkdir()
    (clone.path / "bin/python3").write_text(
        '#!/bin/sh\necho "$PYTHONPATH: $@" >> ran\n'
        'case "$2" in pip) for last in "$@"; do case "$last" in *site*) mkdir -p "$last" ;; esac; done; '
        "[ -e calm ] || { touch calm; exit 1; } ;; esac\n"
    )
    (clone.path / "bin/python3").chmod(0o755)
    clone.extra["PATH"] = f"{clone.path / 'bin'}:/usr/bin:/bin"
    order = ("bash", "workflow/measure-offline.sh", "--profile", "gpu", "--config", "budget_min=9")
    assert [clone.run(*order).returncode for _ in range(3)] == [1, 0, 0]
    # A wheel that is added later is installed too.
    (clone.path / "build/bundle/two.whl").touch()
    assert clone.run(*order).returncode == 0
    ran = (clone.path / "ran").read_text().splitlines()
    wheels = [re.findall(r"\w+\.whl", line) for line in ran]
    assert wheels == [["one.whl"], ["one.whl"], [], [], ["two.whl"], []]
    measure = "-m snakemake --cores all --profile gpu --config budget_min=9 -- measured"
    assert [line for line in ran if "snakemake" in line] == [f"{clone.path}/build/bundle/site: {measure}"] * 3


@pytest.mark.parametrize("there", [True, False])
def test_vulkan_loader_is_used_if_system_lacks_it(there: bool, clone: Clone) -> None:
    (clone.path / "build/bundle/lib").mkdir(parents=True)
    (clone.path / "python").write_text(f"#!/bin/sh\nexit {0 if there else 1}\n")
    (clone.path / "python").chmod(0o755)
    clone.extra |= {"PYTHON": str(clone.path / "python"), "LD_LIBRARY_PATH": "/theirs"}
    run = clone.run("bash", "-euo", "pipefail", "-c", ". workflow/offline.sh && echo $LD_LIBRARY_PATH")
    assert run.stdout == ("/theirs\n" if there else f"{clone.path}/build/bundle/lib:/theirs\n"), run.stderr


def test_vulkan_loader_is_extracted_from_package(
    make_bundle: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Use stand-ins for apt-get and dpkg-deb. The second bundle fails, because they have no package for aarch64."""
    libraries = "there/usr/lib/x86_64-linux-gnu"
    for name, does in (
        ("apt-get", f'[ "$2" = libvulkan1:amd64 ] || {{ echo "E: no $2" >&2; exit 100; }}; touch {tmp_path}/ran a.deb'),
        ("dpkg-deb", f"mkdir -p {libraries}; echo new > {libraries}/libvulkan.so.1.4; "
         f"ln -s libvulkan.so.1.4 {libraries}/libvulkan.so.1"),
    ):  # fmt: skip
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert make_bundle("3.12", "--with", "vulkan") == 0
    assert [path.read_text() for path in Path("build/bundle/lib").iterdir()] == ["new\n"]
    assert Path("build/bundle/lib/libvulkan.so.1").is_file()
    capsys.readouterr()
    assert make_bundle("3.12", "aarch64", "--with", "vulkan") == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "no libvulkan1:arm64" in message and "leave that part out" in message
