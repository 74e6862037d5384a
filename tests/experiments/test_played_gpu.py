"""GPU experiments run end to end on a simulated GPU from each maker, or are unsupported for the right reason."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.registry import experiments
from tests.experiments import played_gpu
from tests.experiments.played_gpu import FAULTS, KINDS
from tests.experiments.played_points import NOT_PLAYED, POINTS

PLAYED = sorted({name for name, _ in POINTS})
# The metrics that each experiment must give on an NVIDIA GPU besides the call time.
NVIDIA_METRICS = {
    "gemm": {"graph_time"},
    "transfer": {"request_time.enqueue", "request_time.wait", "graph_time"},
    "offload": {"device_time.h2d", "device_time.compute", "device_time.d2h"},
    "inference": {"device_time.to_device", "device_time.compute", "device_time.to_host"},
    "training": {"time.forward", "time.backward", "time.update", "kernel_time", "matmul_time_share", "peak_memory"},
    "roofline": {"matmul_time_share"},
    "orchestration": {"time.load", "time.step", "loop_time"},
}


def run_module(module: str, *arguments: str, orders: str = "") -> list[dict[str, Any]]:
    """Run a test module in its own process, since it patches torch, and parse its JSON lines."""
    command = [sys.executable, "-u", "-m", f"tests.experiments.{module}", *arguments]
    completed = subprocess.run(command, input=orders, capture_output=True, text=True, check=False, timeout=500)
    assert completed.returncode == 0, completed.stderr[-3000:]
    return [json.loads(line) for line in completed.stdout.splitlines()]


@pytest.fixture(scope="module")
def outcomes(compiler: str) -> list[dict[str, Any]]:
    """Run all points on all simulated GPUs and return their outcomes."""
    return run_module("played_gpu")


def device_points(
    outcomes: list[dict[str, Any]], device: str, name: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield parameters and answer for each point of an experiment on a device."""
    pairs = [
        (outcome["params"], outcome["answer"])
        for outcome in outcomes
        if (outcome["device"], outcome["experiment"]) == (device, name)
    ]
    assert pairs, "the experiment was run"
    yield from pairs


def valued_metrics(answer: dict[str, Any]) -> set[str]:
    timed = {series["metric"] for part in answer["parts"] for series in part.get("series", ())}
    profiled = {row["metric"] for row in answer.get("profiled", {}).get("profiled", ()) if "value" in row}
    return timed | set(answer["observed"]) | profiled


def unsupported_reason(device: str, name: str, params: dict[str, Any]) -> str:
    """Return words from the reason why a GPU cannot run a point, or '' if the GPU can run it."""
    dtype, layer = params.get("dtype"), params.get("layer")
    if name == "boosting" and params["backend"] != "sklearn":  # the installed wheels have no GPU support
        nvidia = device == "cuda:0" and params["backend"] == "xgboost"
        return "pip install xgboost" if nvidia else "OpenCL" if params["backend"] == "lightgbm" else "does not run on"
    if name == "language-serving":
        return "does not run on" if params["backend"] == "xllamacpp" else "llama-server"
    if name == "boosting":
        return "does not run on"
    if device == "cuda:0":
        return ""
    if params.get("backend") in KINDS[device].lacks:
        return "does not run on"
    if device == "mps" and any(str(params.get(key)).endswith("graph") for key in ("launch", "backend")):
        return "captures no graphs on Apple's GPUs"
    if device == "mps" and params.get("load") == "one_block":
        return "captures no graphs on Apple's GPUs"
    if device == "mps" and name == "transfer" and params["host_memory"] == "pinned":
        return "nothing is page-locked"
    if device == "mps" and dtype == "float8_e4m3fn":
        return "has no float8_e4m3fn"
    if name == "libraries" and layer in ("convolution", "lstm"):
        return "PyTorch cannot switch off the vendor libraries on"
    if name == "libraries" and params["variant"] == "naive":
        return "run on NVIDIA's and AMD's GPUs only"
    if dtype == "float64" or name == "tabular":
        return "does not compute with"
    return "only on NVIDIA's GPUs" if dtype in ("tf32", "float8_e4m3fn", "int8") else ""


@pytest.mark.parametrize("device", KINDS)
@pytest.mark.parametrize("name", PLAYED)
def test_points_are_ok_or_unsupported_for_the_expected_reason(
    outcomes: list[dict[str, Any]], device: str, name: str
) -> None:
    for params, answer in device_points(outcomes, device, name):
        reason = unsupported_reason(device, name, params)
        assert answer["status"] == ("unsupported" if reason else "ok"), (params, answer["reason"])
        assert reason in answer["reason"], params
        assert played_gpu.is_right(answer), (params, answer)


@pytest.mark.parametrize("name", NVIDIA_METRICS)
def test_nvidia_points_have_all_metrics(outcomes: list[dict[str, Any]], name: str) -> None:
    for params, answer in device_points(outcomes, "cuda:0", name):
        whole = "graph" in (params.get("launch"), params.get("backend")) or params.get("host_memory") == "pageable"
        if not whole:  # the phases of a graph or a pageable request are not timed
            assert NVIDIA_METRICS[name] <= valued_metrics(answer), params


def test_autocast_trains_in_formats_with_16_bits(outcomes: list[dict[str, Any]]) -> None:
    for params, answer in device_points(outcomes, "cuda:0", "training"):
        assert (answer["error"] > 1e-4) == (params["dtype"] in ("bfloat16", "float16")), params


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_has_the_expected_status_and_reason(outcomes: list[dict[str, Any]], fault: str) -> None:
    answer = next(answer for params, answer in device_points(outcomes, "cuda:0", "planted") if params["fault"] == fault)
    if fault in ("an operand of the CPU", "an illegal access"):
        words = "on the same device" if fault == "an operand of the CPU" else "CUDA error: an illegal memory access"
        assert answer["status"] == "failed"
        assert words in answer["reason"]
        assert answer.get("last", False) == (fault == "an illegal access")
        return
    timed, captured = answer["parts"]
    assert (answer["status"], timed["status"]) == ("ok", "ok")
    assert captured["status"] == {"none": "ok", "memory": "oom"}.get(fault, "unsupported")
    if fault == "memory":
        assert "CUDA out of memory" in captured["reason"]
    elif fault != "none":
        assert "cannot be captured in a graph" in captured["reason"]
        assert "previous error" not in captured["reason"], "the first error says why"


def test_process_answers_and_ends_after_a_failed_capture() -> None:
    orders = [
        {
            "experiment": "planted",
            "device": "cuda:0",
            "params": {"fault": fault, "backend": "torch", "threads": 0},
            "known": {"call_s": 1e-9},
            "policy": {"target": 0.5, "budget_s": 0.02, "max_samples": 4},
        }
        for fault in ("none", "item", "none")
    ]
    right, spoilt = run_module("played_worker", orders="".join(json.dumps(order) + "\n" for order in orders))
    assert right["status"] == "ok"
    assert "last" not in right
    assert spoilt["status"] == "ok"
    assert spoilt["last"] is True


def test_gpu_experiments_are_played_or_listed_with_a_reason() -> None:
    missing = {name for name, experiment in experiments().items() if "gpu" in experiment.fits} - set(PLAYED)
    assert missing <= set(NOT_PLAYED)


def test_requests_without_graphs_say_why_device_times_are_missing(outcomes: list[dict[str, Any]]) -> None:
    answers = [
        answer for params, answer in device_points(outcomes, "mps", "offload") if params["host_memory"] == "pinned"
    ]
    lacking = [part for answer in answers for part in answer.get("parts", ()) if part.get("metric") == "device_time"]
    assert lacking
    for part in lacking:
        assert (part["status"], "captures no graphs" in part["reason"]) == ("unsupported", True)
