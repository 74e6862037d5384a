"""Test that an install keeps what an environment has, and is refused where it could not work."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from contract.errors import StudyError
from tests.workflow.project_clones import ROOT, Clone
from workflow import install

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def make_environment(folder: Path, torch: str | None, *packages: str) -> Path:
    """Make an environment with a torch for this CUDA version ('': none; None: no torch) and these packages."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    if torch is not None:
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text("raise ImportError('importing torch takes seconds')")
        (site / "torch/version.py").write_text(f"cuda = {torch or None!r}\n")
    for package in packages:
        (site / f"{package.replace('-', '_')}-1.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (site / f"{package.replace('-', '_')}-1.0.dist-info/METADATA").write_text(metadata)
    return folder / "bin/python"


@pytest.mark.parametrize(
    ("torch", "packages", "cupy"),
    [
        ("12.8", [], "cupy-cuda12x"),
        ("13.0", ["numpy"], "cupy-cuda13x"),
        ("12.8", ["cupy-cuda12x"], ""),
        ("12.8", ["CuPy_CUDA13x"], ""),
        ("", [], ""),
        ("", ["cupy-rocm-7-0"], ""),
        (None, [], "cupy-cuda13x"),
    ],
)
def test_gpu_extra_adds_the_cupy_that_fits_unless_there_is_one(
    tmp_path: Path, torch: str | None, packages: list[str], cupy: str
) -> None:
    python = make_environment(tmp_path / "python", torch, *packages)
    command = [python, "-I", ROOT / "workflow/package_variants.py"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer == {"cupy": cupy, "installed": {}}


def test_installed_variant_stands_in_for_its_requirement(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "python", "", "xgboost", "onnxruntime-gpu")
    command = [python, "-I", ROOT / "workflow/package_variants.py"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer["installed"] == {"xgboost-cpu": "xgboost", "onnxruntime": "onnxruntime-gpu"}


def test_install_without_e_is_refused_in_a_line(clone: Clone, tmp_path: Path) -> None:
    done = clone.run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path / "there"), ".")
    assert done.returncode and "error: the study runs from its folder" in done.stdout + done.stderr
    assert not (tmp_path / "there/report").exists()


def test_pins_meet_the_lower_bounds_which_all_requirements_have() -> None:
    pins = install.pinned_versions()
    for need in map(Requirement, PROJECT["dependencies"]):
        assert need.specifier, f"{need.name} has no lower bound"
        pin = pins.get(install.normal_name(need.name))
        assert pin is None or need.specifier.contains(pin), need


def test_only_packages_that_the_study_refuses_count_as_unsuitable() -> None:
    needs = ["polars>=1.33", "numpy>=1.26", "torch>=2.8; sys_platform == 'no such'"]
    assert install.unsuitable(needs, {"polars": "1.0", "numpy": "2.1.3", "requests": "1"}) == ["polars"]


def test_package_in_two_folders_has_the_version_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version in (("first", "2.1.3"), ("second", "2.5.2")):
        about = tmp_path / folder / "numpy-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: NumPy\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert install.installed_versions() == {"numpy": "2.1.3"}


class Pip:
    """Stand-in for pip, which refuses the first calls with these messages. Keeps the constraints of each call."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.constraints = [*refusals], list[dict[str, str]]()

    def __call__(self, target: str, versions: dict[str, str]) -> subprocess.CompletedProcess[str]:
        self.constraints.append(dict(versions))
        refusal = self.refusals.pop(0) if self.refusals else ""
        return subprocess.CompletedProcess([target], int(bool(refusal)), stderr=refusal)


KEPT, PINS = {"torch": "2.11.0+cu128", "numpy": "2.1.3", "requests": "2.0"}, {"numpy": "2.5.2", "pandera": "0.35"}


def test_core_stays_and_pins_are_for_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "run_pip", pip := Pip("ERROR: ResolutionImpossible: for help visit"))
    install.install("study", KEPT, PINS)
    core = {"torch": "2.11.0+cu128", "numpy": "2.1.3"}
    assert pip.constraints == [core | {"pandera": "0.35"}, core]


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        (
            "WARNING: retrying\nERROR: Could not install packages due to an OSError: No space left on device\n",
            "No space",
        ),
        ("error: externally-managed-environment\n\n× This environment is externally managed\n", "python3 -m venv"),
        (
            "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'ProxyError('Cannot connect"
            " to proxy.')': /simple/\nERROR: No matching distribution found for gguf>=0.17\n",
            r"could be downloaded \(ProxyError\): check the network",
        ),
        (
            "WARNING: Retrying (Retry(total=3, connect=None)) after connection broken by 'ReadTimeoutError('')'\n"
            "ERROR: No matching distribution found for gguf>=0.17\n",
            "No matching distribution found for gguf",
        ),
        ("", "gave no reason"),
    ],
)
def test_failure_is_one_line(refusal: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "run_pip", lambda *_: subprocess.CompletedProcess([], 1, stderr=refusal))
    with pytest.raises(StudyError, match=line) as failure:
        install.install("study", KEPT, PINS)
    assert "\n" not in str(failure.value)


def test_packages_of_an_install_that_was_cut_off_are_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[tuple[str, ...]]()
    monkeypatch.setattr(install, "BEFORE", tmp_path / "before.json")
    monkeypatch.setattr(
        install, "pip_install", lambda *words: calls.append(words) or subprocess.CompletedProcess([], 0, stderr="")
    )
    now = {"torch": "2.11.0+cu128", "gguf": "0.19", "xgboost": "3.2+local", "pandas": "2.2.3", "numpy": "2.1.3"}
    install.repair(now)
    assert calls == []
    install.BEFORE.write_text(json.dumps({"torch": "2.10.0", "pandas": "2.2.0", "numpy": "2.1.3"}))
    install.repair(now)
    assert calls == [("--ignore-installed", "--no-deps", "gguf==0.19", "xgboost==3.2", "pandas==2.2.3")]


def test_failed_repair_names_the_way_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "BEFORE", tmp_path / "before.json")
    install.BEFORE.write_text("{}")
    refusal = subprocess.CompletedProcess([], 1, stderr="ERROR: No matching distribution found for gguf==0.19\n")
    monkeypatch.setattr(install, "pip_install", lambda *_: refusal)
    with pytest.raises(StudyError, match=rf"No matching distribution.*: rm {install.BEFORE}$"):
        install.repair({"gguf": "0.19"})


def test_unknown_extra_and_missing_pip_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StudyError, match=r"no extra 'cuda'\. Extras: dev, gpu"):
        install.main(["cuda"])
    monkeypatch.setattr(install.util, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match="has no pip"):
        install.main([])


@pytest.mark.parametrize("version", [(3, 8, 10), (3, 10, 12)])
def test_old_python_is_refused_in_a_line(version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit, match=r"error: Python >= 3\.11 is needed"):
        runpy.run_path(str(ROOT / "contract/__init__.py"))
