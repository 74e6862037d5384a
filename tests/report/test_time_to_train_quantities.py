"""Quantities of whole jobs give what the nodes were built to have."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from experiments.suite.time_to_train import Name
from report.data.dataset import Dataset
from report.data.machines import LAPTOP
from report.quantities.time_to_train import TASKS, over_measured
from tests.report.deciding import decide

from .conftest import CPU, GPU, Factory, SyntheticNode
from .priced import GIGA, evidence, trained
from .quantity_cases_2 import Case, case, cases, cells, measured

# Prepared in 1 s; 100 steps of 10 ms, each after 1 ms of drawing; 50 forward passes of 4 ms: 2.3 s.
PARTS = {"prepare_time": 1.0, "step_time": 0.01, "draw_time": 0.001, "forward_time": 0.004}
PREDICTED = 1.0 + 100 * (0.01 + 0.001) + 50 * 0.004


def job(node: SyntheticNode, name: str, seconds: float, flop: float = 0.0, **more: Any) -> SyntheticNode:
    """A job that took so long; one of a network if it has FLOP."""
    more = {"threads": 2, "spread": 0, "params": {"job": name}, **more}
    node.point("time-to-train", {"job_time": seconds, **(PARTS if flop else {})}, **more)
    exact = {**more, "spread": 0}
    counts = {"steps": 100, "forward_passes": 50} if flop else {}
    node.point("time-to-train", {"accuracy": 0.97, "reached_share": 1.0, **counts}, unit="1", **exact)
    return node.point("time-to-train", flop, metric="job_flop", unit="FLOP", **exact) if flop else node


def step(node: SyntheticNode, model: str, rate: float, **more: Any) -> SyntheticNode:
    return trained(node, rate, model=model, **{"dtype": "bfloat16", **more})


def listed(synthetic: Factory) -> SyntheticNode:
    """All jobs of the list, one of them in two formats and one of scikit-learn, on a node whose rates are known."""
    node = step(step(synthetic("node-a"), "gpt", 200), "cnn", 100)
    job(node, "bytes-gpt", 2.0, 100 * GIGA, spread=1e-4)
    job(node, "bytes-gpt", 1.6, 100 * GIGA, dtype="bfloat16")
    for other in TASKS - {"bytes-gpt", "table-boosting"}:
        job(node, other, 2.5, GIGA)
    return job(node, "table-boosting", 0.5, backend="sklearn", dtype="float64")


class Laptop(SyntheticNode):
    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"]["model"] = "Intel(R) Core(TM) i7-1360P"
        return record


def build(synthetic: Factory) -> Dataset:
    node = job(listed(synthetic), "digits-mlp", 0.1, GIGA, threads=1)
    for row in node.rows:
        if row["metric"] == "reached_share" and row["round"] == 1 and "table-net" in row["params"]:
            row["value"] = 0.0
    # Twice the steps in one round take twice the time: the prediction is as good as in the others.
    doubled = job(trained(synthetic("node-b"), 200), "bytes-gpt", 2.0, 100 * GIGA)
    for row in doubled.rows:
        if row["round"] == 2 and row["metric"] in ("job_time", "steps", "forward_passes", "job_flop"):
            row["value"] *= 2
    laptop = Laptop(synthetic.root / "node-c", [CPU])
    trained(trained(laptop, 100), 150, model="gpt2")
    gpu = SyntheticNode(synthetic.root / "node-d", [CPU, GPU | {"id": "cuda:0"}])
    trained(trained(gpu, 9000, device="cuda:0"), 3000)
    unsure = job(synthetic("node-e"), "digits-mlp", PREDICTED, GIGA, spread=0.05)
    return evidence(synthetic, node, doubled, laptop, gpu, unsure)


found = measured(build)
_A = {"node": "node-a", "dtype": "float32", "threads": "all"}
_JOBS = {"sources": ("time-to-train",)}
_RATED = {"sources": ("time-to-train", "training"), "method": "rate"}


@cases(
    case("time_to_train.job_time", 2.5, job="digits-mlp", width="any", detail="", **_A),
    case("time_to_train.job_time", 2.5, job="table-net", width="unknown", **_A),
    case("time_to_train.predicted", PREDICTED, job="digits-mlp", width="any", **_A),
    case("time_to_train.prediction_error", 1 - PREDICTED / 2.5, job="digits-mlp", method="parts", width="any", **_A),
    case("time_to_train.prediction_error", PREDICTED / 2.0 - 1, job="bytes-gpt", method="parts", width="any", **_A),
    # 100 GFLOP at 200 GFLOP/s are half a second: of the 2 s that it took, a quarter.
    case("time_to_train.prediction_error", 0.75, job="bytes-gpt", **_RATED, **_A),
    case("time_to_train.prediction_error", 0.75, node="node-b", low=0.75, high=0.75, **_RATED),
    # The fastest format and library with all threads; one that gave up stays on the list and decides nothing.
    case("time_to_train.hours", 1.6 / 3600, job="bytes-gpt", detail="bfloat16, torch", width="any", **_JOBS),
    case("time_to_train.hours", 2.5 / 3600, job="digits-mlp", width="any", **_JOBS),
    case("time_to_train.hours", 2.5 / 3600, job="table-net", width="unknown", **_JOBS),
    case("time_to_train.hours", None, node=["node-b", "node-c"]),
    case("time_to_train.ratio", 60, baseline="laptop", sources=("training",), width="any",
         labels={"node": "node-d", "device": "cuda:0", "baseline": "laptop"}),
)  # fmt: skip
def test_jobs(found: Dataset, one: Case) -> None:
    one.check(found)


def test_what_no_step_or_rate_predicts_has_no_error(found: Dataset) -> None:
    ratios = over_measured(found).only(node="node-a", threads=2)
    assert set(ratios["job"]) == TASKS - {"table-boosting"} and set(get_args(Name)) == TASKS
    assert set(ratios.only(method="rate")["job"]) == {"bytes-gpt", "digits-cnn", "mnist-resnet"}


def test_an_error_whose_sign_is_open_begins_at_zero(found: Dataset) -> None:
    ((low, error, high),) = cells("time_to_train.prediction_error", found, node="node-e").rows(
        "low", "estimate", "high"
    )
    assert low == 0 < error < high


def test_the_list_has_each_task_once_and_its_share_past_a_day_decides(found: Dataset) -> None:
    hours = cells("time_to_train.hours", found, device="cpu", threads="all", node="node-a")
    assert not hours["job"].duplicated().any() and set(hours.only(evidence="measured")["job"]) == TASKS
    assert {"GPT-2 (124M) on FineWeb", "Llama 2 70B"} <= set(hours.only(evidence="derived")["job"])
    slow = int((hours["estimate"] > 24).sum())
    outcomes = [decide("for_share_of", hours, 24, "h", {"share": n / len(hours)}).outcome for n in (slow, slow + 2)]
    assert outcomes == ["supported", "challenged"] and 0 < slow < len(hours)


@pytest.mark.parametrize("gone", ["training", "time-to-train", "digits-boosting"])
def test_a_list_that_lacks_something_is_no_list(synthetic: Factory, gone: str) -> None:
    node = listed(synthetic)
    node.rows = [row for row in node.rows if row["experiment"] != gone and gone not in row["params"]]
    assert not len(cells("time_to_train.hours", evidence(synthetic, node)))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in (
            "13th Gen Intel(R) Core(TM) i7-1360P", "Intel(R) Core(TM) i9-13980HX", "Apple M2 Pro",
            "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "Intel(R) Core(TM) Ultra 7 155H",
            "AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "AMD Ryzen 9 7940HS w/ Radeon 780M Graphics",
        )),
        *((name, False) for name in (
            "AMD EPYC", "Intel(R) Xeon(R) Platinum 8480CL", "Intel(R) Core(TM) i9-13900K",
            "AMD Ryzen 9 7950X 16-Core Processor",
        )),
    ],
)  # fmt: skip
def test_a_laptop_is_known_by_its_processor(name: str, is_one: bool) -> None:
    assert bool(LAPTOP.search(name)) == is_one
