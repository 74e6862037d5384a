"""GPUs from NVIDIA, Apple and Intel, played on the CPU. The GPUs from Apple and Intel have no float64.

    python -m tests.experiments.played_gpu [experiment ...]

measures the points in `played_points` on each GPU, and calls with planted faults on the NVIDIA GPU. All points are
measured in one process, which prints each outcome as a JSON line.

`played_torch` plays the GPU. Other tests also use the stand-ins for NVML and CuPy; the stand-in for CuPy runs CUDA C
as C++ on this machine. `install` changes a process irreversibly.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity

from experiments import nvml, user_models, worker
from experiments.devices.accelerator import Accelerator
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.devices.cuda import CudaDevice
from experiments.devices.mps import MpsDevice
from experiments.devices.xpu import XpuDevice
from experiments.kernels import cuda_compile, gpu_threads
from experiments.kernels.sequential.cuda_kernels import CudaChains
from experiments.machine_state import Watch
from experiments.models import profiling
from experiments.registry import experiment
from experiments.suite import bandwidth, libraries, parallelism, sustained, time_to_train
from experiments.workload import Threads, Workload
from tests.experiments import played_torch
from tests.experiments.cuda_standin import Cupy, find_compiler
from tests.experiments.nvml_standin import FakeNvml
from tests.experiments.played_points import OWN_MODELS, POINTS, is_expensive
from tests.experiments.played_torch import DEVICE, GPU, NAME, Playing


class PlayedCuda(CudaDevice):
    interface = NAME
    page_locks = False  # else torch would pin batches in a separate thread, which is not played

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)


class PlayedXpu(XpuDevice):
    interface = NAME
    page_locks = False  # else torch would pin batches in a separate thread, which is not played

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)

    def facts(self) -> dict[str, Any]:
        return {"name": "Intel Arc A770", "memory_bytes": 16 * 10**9}


class PlayedMps(MpsDevice):
    interface = NAME
    last_level_cache_bytes = 1 << 12  # type: ignore[assignment]

    def facts(self) -> dict[str, Any]:
        return {"name": "Apple M9 GPU", "memory_bytes": 10**11, "unified_memory": True}


# The class of the played GPU, by the device name in orders.
KINDS: dict[str, type[Accelerator]] = {"cuda:0": PlayedCuda, "mps": PlayedMps, "xpu:0": PlayedXpu}


def open_played(name: str) -> Accelerator:
    """Reset the played GPU to `name` (cuda:0, mps or xpu:0) and open it."""
    GPU.begin(name, float64=name == "cuda:0")
    device = KINDS[name](DEVICE)
    device.open()
    return device


class _CapturedCupy(Cupy):
    """Stand-in for CuPy with launches that a graph can capture."""

    def _kernel(self, library: Any, function: Any, has_barriers: bool) -> Any:
        launch = super()._kernel(library, function, has_barriers)

        def record_launch(*args: Any, **kwargs: Any) -> None:
            GPU.fail()
            launch(*args, **kwargs)
            GPU.record(lambda: launch(*args, **kwargs), (), {}, None)

        return record_launch


def install() -> None:
    """Install all stand-ins, and shrink work that takes milliseconds on real GPUs but far longer here."""
    warnings.simplefilter("ignore")
    played_torch.install()
    library = FakeNvml({"UUID": "GPU-00000000", "TotalEnergyConsumption": 0})
    nvml.load_pynvml = lambda: library
    compiler = find_compiler()
    sys.modules["cupy"] = _CapturedCupy(compiler) if compiler else None  # type: ignore[assignment]
    # These functions accept only device names of real GPUs, so pass them a name such as cuda:0 in place of played:0.
    cuda_compile.open_cupy = _with_maker_name(cuda_compile.open_cupy)
    libraries.switches = _with_maker_name(libraries.switches)
    experiment("planted")(call_with_fault)
    # Calls that are short on real GPUs are long here: raise the time below which calls are captured in a graph.
    worker.GRAPH_BELOW_S, worker.GRAPH_CALLS = 1.0, 2
    profiling.profile, profiling.device_activity = PlayedProfile, _activity_of_maker(profiling.device_activity)
    profiling.GAP_S = 1e-4
    time_to_train.SAMPLES, time_to_train.STEP_S, time_to_train.DRAW_S = 3, 0.05, 0.05
    bandwidth.CALL_BYTES = 1e5
    parallelism.STEPS, parallelism.TURNS = 200, 4
    sustained.IN_A_GRAPH = 10
    gpu_threads.thread_capacity, gpu_threads.resident_threads = lambda _: (2, 64), lambda _: 256
    CudaChains.max_chains = classmethod(lambda *_: 64)  # type: ignore[assignment]
    CudaChains.steps = classmethod(lambda *_: 4096)  # type: ignore[assignment]


def _with_maker_name(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(name: str, *args: Any, **kwargs: Any) -> Any:
        return function(GPU.name if name.startswith(NAME) else name, *args, **kwargs)

    return call


class PlayedProfile(torch.profiler.profile):
    """Torch's profiler with a device kernel added for each outermost operator."""

    def __init__(self, activities: list[Any]) -> None:
        super().__init__(activities=[ProfilerActivity.CPU])
        self.on_device = activities != [ProfilerActivity.CPU]

    def events(self) -> Any:
        events, kernels = list(super().events()), []
        for event in events if self.on_device else ():
            event.use_device = "cuda"
            parent = event.cpu_parent.name if event.cpu_parent else ""
            if event.name.startswith("aten::") and not parent.startswith("aten::"):
                start, end = event.time_range.start, event.time_range.end
                event.append_kernel(event.name, 0, end - start)
                kernels.append(FunctionEvent(event.id, event.name, 7, start, end, device_type=DeviceType.CUDA))
        return events + kernels


def _activity_of_maker(real: Callable[[Device], Any]) -> Callable[[Device], Any]:
    """Return a function that calls `real`, which returns a device's profiler activity.

    For the played GPU, `real` gets a device with the name of the real GPU.
    """
    return lambda device: real(CpuDevice(GPU.name)) if device.name == DEVICE else real(device)


Fault = Literal[
    "none",
    "an operand of the CPU",
    "pageable memory",
    "a blocking copy",
    "item",
    "a mask",
    "memory",
    "an illegal access",
]
FAULTS: tuple[Fault, ...] = Fault.__args__  # type: ignore[attr-defined]


def call_with_fault(device: Device, fault: Fault, backend: Literal["torch"], threads: Threads) -> Workload:
    """Build a call with `fault`. GPUs reject some faults always, and others only while a graph is captured."""
    on_host, on_device = torch.ones(8), torch.ones(8, device=device.name)
    pinned = device.pin(on_host)
    calls: dict[Fault, Callable[[], object]] = {
        "none": lambda: on_device.copy_(pinned, non_blocking=True),
        "an operand of the CPU": lambda: on_device + on_host,
        "pageable memory": lambda: on_device.copy_(on_host, non_blocking=True),
        "a blocking copy": lambda: on_device.copy_(pinned),
        "item": lambda: on_device.sum().item(),
        "a mask": lambda: on_device[on_device > 0],
        "memory": lambda: GPU.refuse_memory_in_a_capture(),
        "an illegal access": lambda: setattr(GPU, "lost", True),
    }
    return Workload(run=calls[fault], graph=True)


# On a real GPU, any profile slows all later timings in the process, even a profile of only the CPU. So here, a point
# that starts a profile fails.
WITHOUT_PROFILES = patch(
    "torch.autograd.profiler._prepare_profiler", side_effect=AssertionError("a profile in a point")
)


def measure_points(only: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the outcome per point and GPU: device, experiment, params, and the worker's answer."""
    faults = [("planted", {"fault": fault, "backend": "torch", "threads": 0}) for fault in FAULTS]
    for name in KINDS:
        device, watch = open_played(name), Watch(name)
        for experiment_name, params in (*POINTS, *faults) if name == "cuda:0" else POINTS:
            if (only and experiment_name not in only) or (name != "cuda:0" and is_expensive(experiment_name, params)):
                continue
            order = {"experiment": experiment_name, "params": params, "known": {"call_s": 1e-9}}
            policy = {"target": 0.5, "budget_s": 0.02, "max_samples": 4}
            with WITHOUT_PROFILES:
                answer = worker.answer_order({**order, "policy": policy}, device, watch)
            if "profile" in answer:
                answer["profiled"] = worker.answer_order({**order, "policy": policy, "profile": True}, device, watch)
            yield {"device": name, "experiment": experiment_name, "params": params, "answer": answer}


def is_right(answer: dict[str, Any]) -> bool:
    """Tell if all metrics were measured, or are unsupported."""
    parts = [*answer.get("parts", ()), *answer.get("profiled", {}).get("profiled", ())]
    return all(part.get("status", "ok") in ("ok", "unsupported") for part in (answer, *parts))


def main() -> None:
    """Print the outcomes for the named experiments, by default all."""
    os.environ.update({user_models.VARIABLE: json.dumps(OWN_MODELS), user_models.FILES: "{}"})
    install()
    torch.set_num_threads(1)
    with Playing():
        for answer in measure_points(sys.argv[1:]):
            print(json.dumps(answer, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
