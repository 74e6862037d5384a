"""Boosted trees learn what is there, a spoilt model is noticed, and what is measured reaches its page."""

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
import sklearn.ensemble  # noqa: F401 - its OpenMP is limited too
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
def one_thread(monkeypatch: Patch) -> Iterator[None]:
    """The environment in which a point is measured on one thread; a process that began in it would keep to that."""
    for name, value in get_experiment("boosting").environment(point_params("boosting")).items():
        monkeypatch.setenv(name, value)
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("phase", "rows"), [("fit", 2000), ("predict", 1), ("predict", 300)])
def test_each_library_learns_the_table_and_predicts(backend: str, phase: str, rows: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(boosting, "LEARNT_ROWS", 3000)
    made = build_work("boosting", backend=backend, phase=phase, rows=rows)
    run_once(made)
    assert passes_check(made)
    if phase == "predict":
        inputs = [call.args[0] for call in made.calls]  # type: ignore[attr-defined]
        assert {one.shape for one in inputs} == {(rows, boosting.COLUMNS)}
        assert len({one.tobytes() for one in inputs}) == len(made.calls) > 1


def test_the_same_table_is_fitted_by_all_and_its_chances_are_as_stated() -> None:
    one, other = (boosting.random_table(50_000, np.random.default_rng(boosting.SEED)) for _ in range(2))
    assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    for low in np.arange(0, 1, 0.2):
        there = (one.chances >= low) & (one.chances < low + 0.2)
        assert one.labels[there].mean() == pytest.approx(one.chances[there].mean(), abs=0.02)


class Spoilt(xgboost.XGBClassifier):
    """A model whose predicted chances, of shape (rows, 2), are changed by `fault`."""

    fault: Callable[[np.ndarray], np.ndarray]

    def predict_proba(self, *given: Any, **named: Any) -> np.ndarray:
        return type(self).fault(super().predict_proba(*given, **named).copy())


def nan_at(found: np.ndarray) -> np.ndarray:
    found[-1] = np.nan
    return found


FAULTS = {
    "labels swapped": lambda found: found[:, ::-1],
    "nothing learnt": lambda found: np.full_like(found, 0.5),
    "as sure as can be": np.round,
    "rows in another order": lambda found: found[::-1],
    "one chance is no number": nan_at,
    "a row alone gets another chance": lambda found: found * (0.999 if len(found) == 1 else 1.0),
}


@pytest.mark.parametrize(("phase", "fault"), [("fit", "labels swapped"), *(("predict", fault) for fault in FAULTS)])
def test_a_spoilt_model_fails_its_check(phase: str, fault: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(boosting, "LEARNT_ROWS", 10_000)
    monkeypatch.setattr(boosting, "HELD_ROWS", 4000)
    monkeypatch.setattr(Spoilt, "fault", staticmethod(FAULTS[fault]), raising=False)
    monkeypatch.setattr(xgboost, "XGBClassifier", Spoilt)
    assert not passes_check(build_work("boosting", backend="xgboost", phase=phase, rows=10_000))


def test_scikit_learn_works_with_the_threads_of_its_process_alone(monkeypatch: Patch) -> None:
    assert get_experiment("boosting").environment(point_params("boosting", threads=3))["OMP_NUM_THREADS"] == "3"
    assert get_experiment("boosting").environment({**point_params("boosting"), "threads": 0}) == {}
    for set_to in ("2", None):
        if set_to:
            monkeypatch.setenv("OMP_NUM_THREADS", set_to)
        else:
            monkeypatch.delenv("OMP_NUM_THREADS")
        said = answer_point("boosting", backend="sklearn")
        assert (said["status"], "not with 1" in said["reason"]) == ("unsupported", True)


def gpu(maker: str = "NVIDIA", name: str = "cuda:1") -> Any:
    """A device that no library here computes on."""
    return SimpleNamespace(
        kind="gpu", name=name, maker=maker, describe=lambda: {"name": f"{maker} Card"},
        unsupported_backend=lambda backend: Unsupported(f"backend {backend} does not run on {name}"),
    )  # fmt: skip


def on(device: Any, backend: str) -> Any:
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
def test_a_build_without_gpus_says_what_to_install(backend: str, maker: str, why: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(Unsupported, match=why):
        on(gpu(maker), backend)


class LightGbm(ModuleType):
    """LightGBM's build with OpenCL, which finds a device of this name and says so in its log."""

    def __init__(self, found: str) -> None:
        super().__init__("lightgbm")
        self.basic = SimpleNamespace(LightGBMError=RuntimeError)
        self.found, self.used = found, []  # type: ignore[var-annotated]

    def register_logger(self, log: Any) -> None:
        self.log = log

    def LGBMClassifier(self, **options: Any) -> Any:  # noqa: N802 - its name there
        def fit(*_: Any) -> Any:
            if options["device_type"] == "cuda":
                raise RuntimeError("CUDA Tree Learner was not enabled in this build.\nPlease recompile")
            self.log.info(f"Using GPU Device: {self.found}, Vendor: Some Corporation")
            self.used.append(options)
            return SimpleNamespace(predict_proba=len)

        return SimpleNamespace(fit=fit)


def test_lightgbm_computes_by_opencl_on_the_device_that_is_asked_for_or_not_at_all(monkeypatch: Patch) -> None:
    library = LightGbm("NVIDIA Card")
    monkeypatch.setitem(sys.modules, "lightgbm", library)
    on(gpu(), "lightgbm")
    assert library.used[-1]["device_type"] == "gpu"
    monkeypatch.setitem(sys.modules, "lightgbm", LightGbm("Another Card"))
    with pytest.raises(Unsupported, match="another device than NVIDIA Card"):
        on(gpu(), "lightgbm")


def test_a_system_without_openmp_costs_lightgbm_its_points_alone(monkeypatch: Patch) -> None:
    load = builtins.__import__

    def without(name: str, *given: Any) -> Any:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        return load(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    said = answer_point("boosting", backend="lightgbm")
    assert said["status"] == "unsupported"
    assert "apt-get install libgomp1" in said["reason"]
    assert answer_point("boosting", backend="xgboost", trees=10)["status"] == "ok"


def test_no_thread_limit_stays_behind() -> None:
    before = [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]
    for backend in BACKENDS:
        run_once(build_work("boosting", backend=backend, trees=10))
    after = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    assert [(path, after[path]) for path, _ in before] == before
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_what_is_measured_stands_on_its_page(tmp_path: Path) -> None:
    node = Factory(tmp_path / "nodes")("node-a", gpus=1)

    def point(backend: str, seconds: float, phase: str, rows: int, threads: int = 2, **more: Any) -> None:
        about = {"phase": phase, "rows": rows, "trees": 100}
        node.point("boosting", seconds, params=about, backend=backend, dtype="", threads=threads, spread=1e-4, **more)

    point("xgboost", 10.0, "fit", 10**6)
    point("lightgbm", 12.0, "fit", 10**6)
    point("lightgbm", 20.0, "fit", 10**6, 1)
    point("xgboost", 1.2, "fit", 10**5)
    point("sklearn", 7e-4, "predict", 1)
    point("xgboost", 0.5, "fit", 10**6, device="cuda:0")
    gather([node.write()], tmp_path / "data", allow_synthetic=True)
    shown = list(FAMILY.show(Evidence({"nodes": [node.record()]}, tmp_path / "data")))
    titles = [one.chart.title for one in shown]
    with charts.theme():
        assert all(one.chart.draw(charts.NARROW).axes[0].has_data() for one in shown)
    assert titles[0].startswith("100 boosted trees learn from 1,000,000 rows in 10.0 s with XGBoost, in 20 s with")
    assert titles[1] == "100 boosted trees predict 1 row in 700 µs with scikit-learn"
    assert titles[2] == "Boosted trees learn 20 times as fast on a GPU as on its host's CPU"
    assert shown[0].table and shown[0].table.rows[0][0] == "XGBoost, GPU, 1,000,000 rows"
    assert [row[0] for row in shown[0].table.rows][1:] == [
        "XGBoost, 2 threads, 1,000,000 rows", "LightGBM, 2 threads, 1,000,000 rows",
        "LightGBM, 1 thread, 1,000,000 rows", "XGBoost, 2 threads, 100,000 rows",
    ]  # fmt: skip
