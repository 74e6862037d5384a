"""Quantities of boosted trees are as built."""

from __future__ import annotations

from typing import Any

from tests.report.conftest import Factory, SyntheticNode

from .cases import case, holding

FEW, MANY = 100_000, 1_000_000


def trees(synthetic: Factory) -> list[SyntheticNode]:
    """Three libraries on a host whose GPU is ahead in fits and behind in predictions of one row, and another host."""
    node, other = synthetic("node-a", gpus=1), synthetic("node-b")

    def point(of: SyntheticNode, seconds: float, backend: str, phase: str, rows: int, **more: Any) -> None:
        params = {"phase": phase, "rows": rows, "trees": more.pop("trees", 100)}
        of.point("boosting", seconds, params=params, backend=backend, dtype="", spread=1e-4, **more)

    for backend, seconds in (("xgboost", 1.2), ("lightgbm", 1.6), ("sklearn", 2.0)):
        point(node, seconds, backend, "fit", FEW, threads=2)
        point(node, 8 * seconds, backend, "fit", MANY, threads=2)
        point(node, seconds / 3000, backend, "predict", 1, threads=2)
    point(node, 1.9, "xgboost", "fit", FEW, threads=1)
    point(node, 0.12, "xgboost", "fit", FEW, trees=10, threads=2)
    for phase, rows, seconds in (("fit", FEW, 0.6), ("fit", MANY, 0.8), ("predict", 1, 2e-3)):
        point(node, seconds, "xgboost", phase, rows, device="cuda:0")
    point(node, 0.4, "lightgbm", "fit", MANY, device="cuda:0")
    point(other, 0.1, "xgboost", "fit", MANY, threads=2)
    return [node, other]


_HUNDRED = {"trees": 100, "node": "node-a", "device": "cpu"}
test_boosting = holding(
    trees,
    case("boosting.fit_s", {("xgboost", 2): 1.2, ("xgboost", 1): 1.9, ("lightgbm", 2): 1.6, ("sklearn", 2): 2.0},
         by=("backend", "threads"), rows=FEW, backend=["xgboost", "lightgbm", "sklearn"], **_HUNDRED),
    case("boosting.fit_s", {FEW: 1.2, MANY: 9.6}, by="rows", backend="best", detail="xgboost, 2 threads", **_HUNDRED),
    case("boosting.fit_s", 0.12, trees=10, backend="best"),
    case("boosting.fit_s", 0.4, rows=MANY, device="gpu", backend="best", detail="lightgbm"),
    case("boosting.predict_s", 4e-4, rows=1, backend="best", detail="xgboost, 2 threads", **_HUNDRED),
    case("boosting.gpu_gain", {("fit", FEW): 2.0, ("predict", 1): 0.2}, by=("phase", "rows"),
         detail="xgboost over xgboost, 2 threads", rows=[FEW, 1]),
    case("boosting.gpu_gain", 24.0, rows=MANY, detail="lightgbm over xgboost, 2 threads",
         labels={"node": "node-a", "device": "cuda:0", "phase": "fit", "rows": MANY, "trees": 100,
                 "runtime": "lightgbm", "cpu_runtime": "xgboost"}),
)  # fmt: skip
