"""A GPU of each maker, played: NVIDIA's, Apple's, and Intel's without float64, in the places of the real ones.

`played_torch` is the GPU; NVML and CuPy are the other tests' stand-ins, so that kernels in CUDA C are compiled as C++
and run on this machine. `install` changes a process for good.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from experiments import nvml
from experiments.devices.accelerator import Accelerator
from experiments.devices.cuda import CudaDevice
from experiments.devices.mps import MpsDevice
from experiments.devices.xpu import XpuDevice
from experiments.kernels import cuda, parallel
from experiments.kernels.sequential.cuda import CudaChains
from experiments.suite import bandwidth, libraries, parallelism, sustained
from tests.experiments import played_torch
from tests.experiments.cuda_standin import Cupy, find_compiler
from tests.experiments.nvml_standin import Library
from tests.experiments.played_torch import DEVICE, GPU, NAME


class PlayedCuda(CudaDevice):
    interface = NAME

    def pinned(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)


class PlayedXpu(XpuDevice):
    interface = NAME

    def pinned(self, data: torch.Tensor) -> torch.Tensor:
        return GPU.pin(data)

    def facts(self) -> dict[str, Any]:
        return {"name": "Intel Arc A770", "memory_bytes": 16 * 10**9}


class PlayedMps(MpsDevice):
    interface = NAME
    last_level_cache_bytes = 1 << 20  # type: ignore[assignment]

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
    library = Library({"UUID": "GPU-00000000", "TotalEnergyConsumption": 0})
    nvml.module = lambda: library
    compiler = find_compiler()
    sys.modules["cupy"] = _CapturedCupy(compiler) if compiler else None  # type: ignore[assignment]
    # The answers to what is asked by torch's name of a device.
    cuda.cupy_on = _by_makers_name(cuda.cupy_on)
    libraries.switches = _by_makers_name(libraries.switches)
    bandwidth.CALL_BYTES = 1e5
    parallelism.STEPS, parallelism.TURNS = 200, 4
    sustained.IN_A_GRAPH = 10
    parallel.room, parallel.full = lambda _: (2, 64), lambda _: 256
    CudaChains.most = classmethod(lambda *_: 64)  # type: ignore[assignment]
    CudaChains.steps = classmethod(lambda *_: 4096)  # type: ignore[assignment]


def _by_makers_name(function: Callable[..., Any]) -> Callable[..., Any]:
    def asked(name: str, *given: Any, **more: Any) -> Any:
        return function(GPU.name if name.startswith(NAME) else name, *given, **more)

    return asked
