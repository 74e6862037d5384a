"""Quantities of whole jobs give what the nodes were built to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from experiments.suite.time_to_train import Name
from report.data.dataset import Dataset
from report.data.machines import LAPTOP
from report.data.reference import read_reference
from report.judging.rules import decide
from report.quantities.time_to_train import TASKS, over_measured

from .conftest import Factory, SyntheticNode
from .test_quantities import data, of, value

REFERENCE = read_reference(Path(__file__).resolve().parents[2] / "data" / "reference")
GIGA = 1e9
# Prepared in 1 s; 100 steps of 10 ms, each after 1 ms of drawing; 50 forward passes of 4 ms: 2.3 s.
PARTS = {"prepare_time": 1.0, "step_time": 0.01, "draw_time": 0.001, "forward_time": 0.004}
PREDICTED = 1.0 + 100 * (0.01 + 0.001) + 50 * 0.004


def job(
    node: SyntheticNode, name: str, seconds: float, *, reached: float = 1.0, flop: float = 0.0, **more: Any
) -> SyntheticNode:
    """A job that took so long; one of a network if it has FLOP."""
    more = {"threads": 2, "spread": 0, "params": {"job": name}, **more}
    times = {"job_time": seconds, **(PARTS if flop else {})}
    node.point("time-to-train", times, **more)
    counts = {"accuracy": 0.97, "steps": 100, "forward_passes": 50} if flop else {"accuracy": 0.97}
    node.point("time-to-train", {"reached_share": reached}, **{**more, "spread": 0})
    node.point("time-to-train", counts, unit="1", **{**more, "spread": 0})
    return node.point("time-to-train", flop, metric="job_flop", unit="FLOP", **more) if flop else node


def step(node: SyntheticNode, model: str, rate: float, **more: Any) -> SyntheticNode:
    more = {"threads": 2, "spread": 0, "dtype": "bfloat16", **more}
    return node.point("training", 1 / (rate * GIGA), params={"model": model, "batch": 16}, flop=1.0, **more)


def listed(synthetic: Factory) -> SyntheticNode:
    """All jobs of the list, one of them in two formats and one of scikit-learn, on a node whose rates are known."""
    node = step(step(synthetic("node-a"), "gpt", 200), "cnn", 100)
    job(node, "bytes-gpt", 2.0, flop=100 * GIGA)
    job(node, "bytes-gpt", 1.6, flop=100 * GIGA, dtype="bfloat16")
    for name in TASKS - {"bytes-gpt", "table-boosting"}:
        job(node, name, 2.5, flop=GIGA)
    return job(node, "table-boosting", 0.5, backend="sklearn", dtype="float64")


def found(synthetic: Factory, *nodes: SyntheticNode) -> Dataset:
    return data(synthetic, *nodes, reference=REFERENCE)


def test_a_job_is_predicted_from_its_parts(synthetic: Factory) -> None:
    cells = of("time_to_train.predicted", found(synthetic, listed(synthetic)), job="digits-mlp")
    assert value(cells) == pytest.approx(PREDICTED)


@pytest.mark.parametrize(
    ("name", "dtype", "method", "error"),
    [
        ("digits-mlp", "float32", "parts", 1 - PREDICTED / 2.5),
        ("bytes-gpt", "float32", "parts", PREDICTED / 2.0 - 1),
        # 100 GFLOP at 200 GFLOP/s are half a second: of the 2 s that it took, a quarter.
        ("bytes-gpt", "float32", "rate", 0.75),
    ],
)
def test_the_error_of_a_prediction(synthetic: Factory, name: str, dtype: str, method: str, error: float) -> None:
    evidence = found(synthetic, listed(synthetic))
    cells = of("time_to_train.prediction_error", evidence, job=name, dtype=dtype, method=method)
    assert value(cells) == pytest.approx(error)


def test_what_no_step_or_rate_predicts_has_no_error(synthetic: Factory) -> None:
    cells = over_measured(found(synthetic, listed(synthetic))).frame
    assert set(cells["job"]) == TASKS - {"table-boosting"}
    assert set(cells.loc[cells["method"] == "rate", "job"]) == {"bytes-gpt", "digits-cnn", "mnist-resnet"}


def test_rounds_are_compared_each_with_itself(synthetic: Factory) -> None:
    """Twice the steps in one round take twice the time: the prediction is as good as in the others."""
    node = step(synthetic("node-a"), "gpt", 200)
    job(node, "bytes-gpt", 2.0, flop=100 * GIGA)
    for row in node.rows:
        if row["experiment"] == "time-to-train" and row["round"] == 2:
            row["value"] *= 2 if row["metric"] in ("job_time", "steps", "forward_passes", "job_flop") else 1
    cells = over_measured(found(synthetic, node)).only(method="rate").frame.iloc[0]
    assert cells["estimate"] == pytest.approx(0.25)
    assert cells["low"] == pytest.approx(0.25, rel=1e-3) == cells["high"]


def test_an_error_whose_sign_is_open_begins_at_zero(synthetic: Factory) -> None:
    node = synthetic("node-a")
    job(node, "digits-mlp", PREDICTED, flop=GIGA, spread=0.05)
    cell = of("time_to_train.prediction_error", found(synthetic, node), method="parts").frame.iloc[0]
    assert cell["low"] == 0 < cell["estimate"] < cell["high"]


def test_a_job_that_missed_its_target_in_a_round_has_no_interval(synthetic: Factory) -> None:
    node = listed(synthetic)
    for row in node.rows:
        missed = row["metric"] == "reached_share" and row["round"] == 1 and "digits-mlp" in row["params"]
        row["value"] = 0.0 if missed else row["value"]
    evidence = found(synthetic, node)
    cell = of("time_to_train.job_time", evidence, job="digits-mlp").frame.iloc[0]
    assert cell["estimate"] == pytest.approx(2.5) and cell["low"] != cell["low"] and "gave up" in cell["detail"]
    other = of("time_to_train.job_time", evidence, job="table-net").frame.iloc[0]
    assert other["low"] == other["low"] and not other["detail"]
    # It stays on the list, as one that decides nothing.
    hours = of("time_to_train.hours", evidence, device="cpu", threads="all", job="digits-mlp").frame
    assert len(hours) == 1 and hours["low"].isna().all()


def test_the_list_has_each_task_once(synthetic: Factory) -> None:
    cells = of("time_to_train.hours", found(synthetic, listed(synthetic)), device="cpu", threads="all")
    assert not cells.frame["job"].duplicated().any()
    assert value(cells.only(job="bytes-gpt")) == pytest.approx(1.6 / 3600)
    assert cells.only(job="bytes-gpt").frame["detail"].iloc[0] == "bfloat16, torch"
    assert set(cells.only(evidence="measured").frame["job"]) == TASKS
    assert {"GPT-2 (124M) on FineWeb", "Llama 2 70B"} <= set(cells.only(evidence="derived").frame["job"])


def test_jobs_with_few_threads_are_not_on_the_list(synthetic: Factory) -> None:
    node = job(listed(synthetic), "digits-mlp", 0.1, flop=GIGA, threads=1)
    cells = of("time_to_train.hours", found(synthetic, node), device="cpu", threads="all", job="digits-mlp")
    assert value(cells) == pytest.approx(2.5 / 3600)


@pytest.mark.parametrize("gone", ["training", "time-to-train", "digits-boosting"])
def test_a_list_that_lacks_something_is_no_list(synthetic: Factory, gone: str) -> None:
    node = listed(synthetic)
    node.rows = [row for row in node.rows if row["experiment"] != gone and gone not in row["params"]]
    assert len(of("time_to_train.hours", found(synthetic, node))) == 0


def test_the_share_of_tasks_past_a_day_decides(synthetic: Factory) -> None:
    cells = of("time_to_train.hours", found(synthetic, listed(synthetic)), device="cpu", threads="all")
    slow = sum(cells.frame["estimate"] > 24)
    assert 0 < slow < len(cells)
    ruling = decide("for_share_of", cells, 24, "h", {"share": slow / len(cells)})
    assert ruling.outcome == "supported"
    assert decide("for_share_of", cells, 24, "h", {"share": (slow + 1) / len(cells)}).outcome == "challenged"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("13th Gen Intel(R) Core(TM) i7-1360P", True),
        ("Intel(R) Core(TM) i9-13980HX", True),
        ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", True),
        ("Intel(R) Core(TM) Ultra 7 155H", True),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", True),
        ("AMD Ryzen 9 7940HS w/ Radeon 780M Graphics", True),
        ("Apple M2 Pro", True),
        ("AMD EPYC", False),
        ("Intel(R) Xeon(R) Platinum 8480CL", False),
        ("Intel(R) Core(TM) i9-13900K", False),
        ("AMD Ryzen 9 7950X 16-Core Processor", False),
    ],
)
def test_a_laptop_is_known_by_its_processor(name: str, is_one: bool) -> None:
    assert bool(LAPTOP.search(name)) == is_one


def test_the_list_is_that_of_the_experiment() -> None:
    assert set(get_args(Name)) == TASKS


class Laptop(SyntheticNode):
    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"]["model"] = "Intel(R) Core(TM) i7-1360P"
        return record


def test_a_laptop_against_a_gpu(synthetic: Factory) -> None:
    gpu = step(step(synthetic("node-a", gpus=1), "gpt", 9000, device="cuda:0"), "gpt", 3000)
    laptop = Laptop(synthetic.root / "node-b", gpu.devices[:1])
    step(step(laptop, "gpt", 100), "gpt2", 150)
    cells = of("time_to_train.ratio", found(synthetic, gpu, laptop), baseline="laptop")
    assert value(cells) == pytest.approx(60)
    assert set(cells.frame["node"]) == {"node-a"} and "i7-1360P" in cells.frame["detail"].iloc[0]


def test_without_a_laptop_there_is_no_ratio(synthetic: Factory) -> None:
    gpu = step(step(synthetic("node-a", gpus=1), "gpt", 9000, device="cuda:0"), "gpt", 3000)
    assert len(of("time_to_train.ratio", found(synthetic, gpu))) == 0
