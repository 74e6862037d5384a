"""Boosted trees learn a table, checks detect spoilt models, and the report's page shows the measured times."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble  # noqa: F401 - loads its OpenMP, which is limited too
import xgboost
from threadpoolctl import threadpool_info, threadpool_limits

from experiments.registry import get_experiment
from experiments.suite import boosting
from experiments.workload import Unsupported
from report.data.gather import gather
from report.pages import charts
from report.pages.families.tables import FAMILY
from report.pages.figure_data import Evidence
from tests.experiments.point_runs import answer_point, build_work, passes_check, point_params, run_once
from tests.report.conftest import Factory

BACKENDS = ("xgboost", "lightgbm", "sklearn")
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def one_thread_environment(monkeypatch: Patch) -> Iterator[None]:
    """Set the variables for one thread, and limit OpenMP libraries that are already loaded to one thread."""
    for name, value in get_experiment("boosting").environment(point_params("boosting")).items():
        monkeypatch.setenv(name, value)
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("phase", "rows"), [("fit", 2000), ("predict", 1), ("predict", 300)])
def test_each_library_learns_the_table_and_predicts(backend: str, phase: str, rows: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(boosting, "LEARNT_ROWS", 3000)
    work = build_work("boosting", backend=backend, phase=phase, rows=rows)
    run_once(work)
    assert passes_check(work)
    if phase == "predict":
        inputs = [call.args[0] for call in work.calls]  # type: ignore[attr-defined]
        assert {table.shape for table in inputs} == {(rows, boosting.COLUMNS)}
        assert len({table.tobytes() for table in inputs}) == len(work.calls) > 1


def test_table_is_reproducible_and_labels_match_stated_chances() -> None:
    table, same = (boosting.random_table(50_000, np.random.default_rng(boosting.SEED)) for _ in range(2))
    assert all(np.array_equal(*pair) for pair in zip(table, same, strict=True))
    for low in np.arange(0, 1, 0.2):
        rows = (table.chances >= low) & (table.chances < low + 0.2)
        assert table.labels[rows].mean() == pytest.approx(table.chances[rows].mean(), abs=0.02)


class SpoiltModel(xgboost.XGBClassifier):
    """Model that passes its predicted chances, of shape (rows, 2), through `fault`."""

    fault: Callable[[np.ndarray], np.ndarray]

    def predict_proba(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return type(self).fault(super().predict_proba(*args, **kwargs).copy())


def last_row_nan(chances: np.ndarray) -> np.ndarray:
    chances[-1] = np.nan
    return chances


FAULTS = {
    "labels swapped": lambda chances: chances[:, ::-1],
    "nothing learnt": lambda chances: np.full_like(chances, 0.5),
    "as sure as can be": np.round,
    "rows in another order": lambda chances: chances[::-1],
    "one chance is no number": last_row_nan,
    "a row alone gets another chance": lambda chances: chances * (0.999 if len(chances) == 1 else 1.0),
}


@pytest.mark.parametrize(("phase", "fault"), [("fit", "labels swapped"), *(("predict", fault) for fault in FAULTS)])
def test_spoilt_model_fails_its_check(phase: str, fault: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(boosting, "LEARNT_ROWS", 10_000)
    monkeypatch.setattr(boosting, "HELD_ROWS", 4000)
    monkeypatch.setattr(SpoiltModel, "fault", staticmethod(FAULTS[fault]), raising=False)
    monkeypatch.setattr(xgboost, "XGBClassifier", SpoiltModel)
    assert not passes_check(build_work("boosting", backend="xgboost", phase=phase, rows=10_000))


def test_scikit_learn_is_unsupported_if_its_process_has_another_thread_count(monkeypatch: Patch) -> None:
    assert get_experiment("boosting").environment(point_params("boosting", threads=3))["OMP_NUM_THREADS"] == "3"
    assert get_experiment("boosting").environment({**point_params("boosting"), "threads": 0}) == {}
    for set_to in ("2", None):
        if set_to:
            monkeypatch.setenv("OMP_NUM_THREADS", set_to)
        else:
            monkeypatch.delenv("OMP_NUM_THREADS")
        answer = answer_point("boosting", backend="sklearn")
        assert (answer["status"], "not with 1" in answer["reason"]) == ("unsupported", True)


def unsupported_gpu(maker: str = "NVIDIA", name: str = "cuda:1") -> Any:
    """Return a GPU that no installed library supports."""
    return SimpleNamespace(
        kind="gpu", name=name, maker=maker, describe=lambda: {"name": f"{maker} Card"},
        unsupported_backend=lambda backend: Unsupported(f"backend {backend} does not run on {name}"),
    )  # fmt: skip


def build_prediction(device: Any, backend: str) -> Any:
    return get_experiment("boosting").function(device, phase="predict", rows=1, trees=100, backend=backend, threads=0)


@pytest.mark.parametrize(
    ("backend", "maker", "why"),
    [
        ("xgboost", "NVIDIA", "pip install xgboost$"),
        ("xgboost", "AMD", "does not run on"),
        ("sklearn", "NVIDIA", "does not run on"),
        ("lightgbm", "NVIDIA", "CUDA Tree Learner was not enabled.*OpenCL.*pip install"),
        ("lightgbm", "AMD", "OpenCL.*pip install"),
    ],
)
def test_build_without_gpu_support_names_the_install_command(
    backend: str, maker: str, why: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(Unsupported, match=why):
        build_prediction(unsupported_gpu(maker), backend)


class FakeLightGbm(ModuleType):
    """Stand-in for a LightGBM that is built for OpenCL, finds one device and logs the name of the device."""

    def __init__(self, device_name: str) -> None:
        super().__init__("lightgbm")
        self.basic = SimpleNamespace(LightGBMError=RuntimeError)
        self.device_name, self.used = device_name, []  # type: ignore[var-annotated]

    def register_logger(self, log: Any) -> None:
        self.log = log

    def LGBMClassifier(self, **options: Any) -> Any:  # noqa: N802 - LightGBM's name
        def fit(*_: Any) -> Any:
            if options["device_type"] == "cuda":
                raise RuntimeError("CUDA Tree Learner was not enabled in this build.\nPlease recompile")
            self.log.info(f"Using GPU Device: {self.device_name}, Vendor: Some Corporation")
            self.used.append(options)
            return SimpleNamespace(predict_proba=len)

        return SimpleNamespace(fit=fit)


def test_lightgbm_rejects_another_opencl_device_than_requested(monkeypatch: Patch) -> None:
    library = FakeLightGbm("NVIDIA Card")
    monkeypatch.setitem(sys.modules, "lightgbm", library)
    build_prediction(unsupported_gpu(), "lightgbm")
    assert library.used[-1]["device_type"] == "gpu"
    monkeypatch.setitem(sys.modules, "lightgbm", FakeLightGbm("Another Card"))
    with pytest.raises(Unsupported, match="another device than NVIDIA Card"):
        build_prediction(unsupported_gpu(), "lightgbm")


def test_missing_openmp_makes_only_lightgbm_unsupported(monkeypatch: Patch) -> None:
    load = builtins.__import__

    def import_without_openmp(name: str, *args: Any) -> Any:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", import_without_openmp)
    answer = answer_point("boosting", backend="lightgbm")
    assert answer["status"] == "unsupported"
    assert "apt-get install libgomp1" in answer["reason"]
    assert answer_point("boosting", backend="xgboost", trees=10)["status"] == "ok"


def test_thread_limits_are_restored() -> None:
    before = [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]
    for backend in BACKENDS:
        run_once(build_work("boosting", backend=backend, trees=10))
    after = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    assert [(path, after[path]) for path, _ in before] == before
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_page_shows_the_measured_times(tmp_path: Path) -> None:
    node = Factory(tmp_path / "nodes")("node-a", gpus=1)

    def add_point(backend: str, seconds: float, phase: str, rows: int, threads: int = 2, **more: Any) -> None:
        params = {"phase": phase, "rows": rows, "trees": 100}
        node.point("boosting", seconds, params=params, backend=backend, dtype="", threads=threads, spread=1e-4, **more)

    add_point("xgboost", 10.0, "fit", 10**6)
    add_point("lightgbm", 12.0, "fit", 10**6)
    add_point("lightgbm", 20.0, "fit", 10**6, 1)
    add_point("xgboost", 1.2, "fit", 10**5)
    add_point("sklearn", 7e-4, "predict", 1)
    add_point("xgboost", 0.5, "fit", 10**6, device="cuda:0")
    gather([node.write()], tmp_path / "data", allow_synthetic=True)
    figures = list(FAMILY.show(Evidence({"nodes": [node.record()]}, tmp_path / "data")))
    titles = [figure.chart.title for figure in figures]
    with charts.theme():
        assert all(figure.chart.draw(charts.NARROW).axes[0].has_data() for figure in figures)
    assert titles[0].startswith("100 boosted trees learn from 1,000,000 rows in 10.0 s with XGBoost, in 20 s with")
    assert titles[1] == "100 boosted trees predict 1 row in 700 µs with scikit-learn"
    assert titles[2] == "Boosted trees learn 20 times as fast on a GPU as on its host's CPU"
    assert figures[0].table and figures[0].table.rows[0][0] == "XGBoost, GPU, 1,000,000 rows"
    assert [row[0] for row in figures[0].table.rows][1:] == [
        "XGBoost, 2 threads, 1,000,000 rows", "LightGBM, 2 threads, 1,000,000 rows",
        "LightGBM, 1 thread, 1,000,000 rows", "XGBoost, 2 threads, 100,000 rows",
    ]  # fmt: skip
