"""A GPU of each maker, played: NVIDIA's, Apple's, and Intel's without float64, in the places of the real ones.

    python -m tests.experiments.played_gpu [experiment ...]

measures the points of `played_points` on each, and points with planted faults on NVIDIA's, in one process, and prints
each outcome as a line of JSON. `played_torch` is the GPU; NVML and CuPy are the other tests' stand-ins, so
that kernels in CUDA C are compiled as C++ and run on this machine. `install` changes a process for good.
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
    page_locks = False  # torch locks pages of batches in a thread of its own, which is not played

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)


class PlayedXpu(XpuDevice):
    interface = NAME
    page_locks = False  # torch locks pages of batches in a thread of its own, which is not played

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)

    def facts(self) -> dict[str, Any]:
        return {"name": "Intel Arc A770", "memory_bytes": 16 * 10**9}


class PlayedMps(MpsDevice):
    interface = NAME
    last_level_cache_bytes = 1 << 12  # type: ignore[assignment]

    def facts(self) -> dict[str, Any]:
        return {"name": "Apple M9 GPU", "memory_bytes": 10**11, "unified_memory": True}


# By the name of such a GPU in orders.
KINDS: dict[str, type[Accelerator]] = {"cuda:0": PlayedCuda, "mps": PlayedMps, "xpu:0": PlayedXpu}


def open_played(name: str) -> Accelerator:
    """The played GPU of this name (cuda:0, mps or xpu:0), as new, ready for work."""
    GPU.begin(name, float64=name == "cuda:0")
    device = KINDS[name](DEVICE)
    device.open()
    return device


class _CapturedCupy(Cupy):
    """CuPy's stand-in, whose launches are captured too."""

    def _kernel(self, loaded: Any, function: Any, together: bool) -> Any:
        launch = super()._kernel(loaded, function, together)

        def recorded(*given: Any, **more: Any) -> None:
            GPU.fail()
            launch(*given, **more)
            GPU.record(lambda: launch(*given, **more), (), {}, None)

        return recorded


def install() -> None:
    """Put all stand-ins in their places, and make small what takes a GPU milliseconds."""
    warnings.simplefilter("ignore")
    played_torch.install()
    library = FakeNvml({"UUID": "GPU-00000000", "TotalEnergyConsumption": 0})
    nvml.load_pynvml = lambda: library
    compiler = find_compiler()
    sys.modules["cupy"] = _CapturedCupy(compiler) if compiler else None  # type: ignore[assignment]
    # The answers to what is asked by torch's name of a device.
    cuda_compile.open_cupy = _with_maker_name(cuda_compile.open_cupy)
    libraries.switches = _with_maker_name(libraries.switches)
    experiment("planted")(planted)
    # A short call of a GPU's is a long one here, and still captured.
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
    def ask(name: str, *given: Any, **more: Any) -> Any:
        return function(GPU.name if name.startswith(NAME) else name, *given, **more)

    return ask


class PlayedProfile(torch.profiler.profile):
    """Torch's profiler, to which each operator that is in no other is a kernel of the device."""

    def __init__(self, activities: list[Any]) -> None:
        super().__init__(activities=[ProfilerActivity.CPU])
        self.on_device = activities != [ProfilerActivity.CPU]

    def events(self) -> Any:
        found, kernels = list(super().events()), []
        for one in found if self.on_device else ():
            one.use_device = "cuda"
            within = one.cpu_parent.name if one.cpu_parent else ""
            if one.name.startswith("aten::") and not within.startswith("aten::"):
                start, end = one.time_range.start, one.time_range.end
                one.append_kernel(one.name, 0, end - start)
                kernels.append(FunctionEvent(one.id, one.name, 7, start, end, device_type=DeviceType.CUDA))
        return found + kernels


def _activity_of_maker(real: Callable[[Device], Any]) -> Callable[[Device], Any]:
    """The question for the profiler's name of a device, asked by its maker's name."""
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


def planted(device: Device, fault: Fault, backend: Literal["torch"], threads: Threads) -> Workload:
    """A call with a fault that a GPU does not forgive, or not in a capture."""
    here, there = torch.ones(8), torch.ones(8, device=device.name)
    pinned = device.pin(here)
    calls: dict[Fault, Callable[[], object]] = {
        "none": lambda: there.copy_(pinned, non_blocking=True),
        "an operand of the CPU": lambda: there + here,
        "pageable memory": lambda: there.copy_(here, non_blocking=True),
        "a blocking copy": lambda: there.copy_(pinned),
        "item": lambda: there.sum().item(),
        "a mask": lambda: there[there > 0],
        "memory": lambda: GPU.refuse_memory_in_a_capture(),
        "an illegal access": lambda: setattr(GPU, "lost", True),
    }
    return Workload(run=calls[fault], graph=True)


# A real GPU's profiler slows what is timed after it, even in a session that looks at the CPU alone.
WITHOUT_PROFILES = patch(
    "torch.autograd.profiler._prepare_profiler", side_effect=AssertionError("a profile in a point")
)


def measure_points(only: list[str]) -> Iterator[dict[str, Any]]:
    """The outcome of each point on each GPU: device, experiment, params, and the process's answer."""
    faults = [("planted", {"fault": fault, "backend": "torch", "threads": 0}) for fault in FAULTS]
    for name in KINDS:
        device, watch = open_played(name), Watch(name)
        for which, params in (*POINTS, *faults) if name == "cuda:0" else POINTS:
            if (only and which not in only) or (name != "cuda:0" and is_expensive(which, params)):
                continue
            order = {"experiment": which, "params": params, "known": {"call_s": 1e-9}}
            policy = {"target": 0.5, "budget_s": 0.02, "max_samples": 4}
            with WITHOUT_PROFILES:
                answer = worker.answer_order({**order, "policy": policy}, device, watch)
            if "profile" in answer:
                answer["profiled"] = worker.answer_order({**order, "policy": policy, "profile": True}, device, watch)
            yield {"device": name, "experiment": which, "params": params, "answer": answer}


def is_right(answer: dict[str, Any]) -> bool:
    """True for samples of all that was to be measured, and where the GPU cannot do it."""
    lacking = [*answer.get("parts", ()), *answer.get("profiled", {}).get("profiled", ())]
    return all(one.get("status", "ok") in ("ok", "unsupported") for one in (answer, *lacking))


def main() -> None:
    """Print the outcomes of the experiments that are named, or of all."""
    os.environ.update({user_models.VARIABLE: json.dumps(OWN_MODELS), user_models.FILES: "{}"})
    install()
    torch.set_num_threads(1)
    with Playing():
        for answer in measure_points(sys.argv[1:]):
            print(json.dumps(answer, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
