"""Small points for every experiment, and helpers to build, run and check their work."""

from __future__ import annotations

from typing import Any

from experiments import worker
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.machine_state import Watch
from experiments.registry import convert_params, get_experiment
from experiments.workload import Workload
from tests.experiments.second_device import SecondCpu

CPU, GPU = CpuDevice(), SecondCpu()

_PLAIN: dict[str, Any] = {"dtype": "float32", "backend": "torch", "threads": 1}
_SHAPE = {"m": 48, "n": 80, "k": 96}
# An experiment that runs on CPUs has a CPU point here, and any other has a GPU point.
SMALL: dict[str, dict[str, Any]] = {
    "bandwidth": {"op": "triad", "footprint": 100_000, "dtype": "float64", "backend": "llvm", "threads": 1},
    "boosting": {"phase": "fit", "rows": 2000, "trees": 100, "backend": "lightgbm", "threads": 1},
    "clock": {"backend": "llvm", "threads": 1, "chain": 1000},
    "content": {**_PLAIN, **_SHAPE, "content": "normal"},
    "convergence": {**_PLAIN, "data": "digits", "model": "mlp", "batch": 64, "rate": 1.0, "epochs": 3, "seeds": 2},
    "equivalence": {**_PLAIN, "model": "mlp", "batch": 8, "steps": 8},
    "gemm": {**_PLAIN, **_SHAPE},
    "inference": {**_PLAIN, "model": "mlp", "batch": 2},
    "language-models": {
        "model": "llama-tiny", "format": "BF16", "phase": "decode", "tokens": 16, "backend": "transformers",
        "threads": 1,
    },
    "language-serving": {
        "model": "llama-tiny", "format": "Q8_0", "users": 2, "prompt_tokens": 8, "new_tokens": 6, "seconds": 1,
        "cores": 1, "backend": "xllamacpp", "threads": 1,
    },
    "libraries": {
        "layer": "convolution", "shape": "conv5-3x3", "batch": 2, "passes": "forward", "variant": "library",
        "dtype": "float32", "threads": 1,
    },
    "models": {"model": "mlp", "threads": 1},
    "numerics": {**_PLAIN, "method": "repeat", "m": 12, "n": 20, "k": 40},
    "offload": {**_PLAIN, "op": "gemm", "m": 40, "n": 24, "k": 56, "uses": 2, "host_memory": "none", "launch": "eager"},
    "orchestration": {**_PLAIN, "model": "mlp", "batch": 6, "source": "photographs", "workers": 0},
    "parallelism": {"kernel": "paths", "in_flight": 0, "paths": 32, "backend": "llvm", "threads": 1},
    "peak": {"kernel": "fma", "dtype": "float32", "backend": "llvm", "threads": 1, "loops": 1000},
    "roofline": {**_PLAIN, "model": "mlp", "batch": 4, "phase": "training"},
    "sequential": {
        "kernel": "chase", "chains": "one", "footprint": 1 << 14, "data": "random", "backend": "numba", "threads": 1,
    },
    "serving": {**_PLAIN, "service": "text-classifier", "requests_per_s": 60, "cores": 1, "seconds": 1},
    "several-devices": {**_PLAIN, "model": "mlp", "batch": 4, "ranks": 1, "interconnect": "gloo"},
    "sustained": {**_PLAIN, "load": "products", "extent": 64},
    "tabular": {"op": "sort", "rows": 3000, "transfers": "none", "backend": "pandas", "threads": 1},
    "time-to-train": {**_PLAIN, "job": "digits-mlp"},
    "training": {**_PLAIN, "model": "mlp", "batch": 4},
    "transfer": {
        "direction": "host_to_device", "size": 5000, "host_memory": "pinned", "backend": "torch", "threads": 0,
    },
    "without-cuda": {"kernel": "triad", "n": 1000, "dtype": "float32", "backend": "cuda", "threads": 0},
}  # fmt: skip


def point_params(name: str, device: Device = CPU, **changed: Any) -> dict[str, Any]:
    """Return the parameters in SMALL with changes; threads are 0 for GPUs."""
    return {**SMALL.get(name, {}), **({} if device.kind == "cpu" else {"threads": 0}), **changed}


def build_work(name: str, device: Device = CPU, **changed: Any) -> Workload:
    """Build the work for a small point with changes."""
    experiment = get_experiment(name)
    work = experiment.function(device, **convert_params(experiment, point_params(name, device, **changed)))
    assert isinstance(work, Workload)
    return work


def run_once(work: Workload) -> None:
    """Run all calls and phases once."""
    for call in [*work.calls, *(phase for _, phase in work.phases)]:
        call()


def check_error(work: Workload) -> float:
    assert work.check is not None
    return work.check()


def passes_check(work: Workload) -> bool:
    assert work.tolerance is not None
    return check_error(work) <= work.tolerance


def observe(work: Workload) -> dict[str, Any]:
    """Call the workload's `observe`; return the value of each metric without its unit."""
    assert work.observe is not None
    return {metric: value for metric, (value, _) in work.observe().items()}


def answer_point(
    name: str, device: Device = CPU, budget_s: float = 0.05, order: dict[str, Any] | None = None, **changed: Any
) -> dict[str, Any]:
    """Answer the order to measure a small point, as a worker does.

    order: more keys for the order, which is the request that a worker gets from its parent process.
    """
    full_order = {
        **(order or {}),
        "experiment": name,
        "params": point_params(name, device, **changed),
        "policy": {"target": 0.5, "budget_s": budget_s, "max_samples": 6},
        # A known call time that fits any budget saves a probe, which may exceed the budget on a busy machine.
        "known": {"call_s": 1e-9},
    }
    return worker.answer_order(full_order, device, Watch("cpu"))


def sample_metrics(reply: dict[str, Any]) -> set[str]:
    return {series["metric"] for part in reply["parts"] for series in part.get("series", [])}
