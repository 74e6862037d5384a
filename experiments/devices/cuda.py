"""NVIDIA GPUs through PyTorch's CUDA interface."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments import driver_errors, nvml
from experiments.devices import eight_bit
from experiments.devices.accelerator import Accelerator, first_line
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch


Version = tuple[int, int]

# Minimum compute capability of GPUs with units for a format; all GPUs have units for the other formats. For bfloat16,
# torch would emulate the units. Source: CUDA C++ Programming Guide, arithmetic instructions and compute capabilities.
LEAST_CAPABILITY = {Dtype.BFLOAT16: (8, 0), Dtype.TF32: (8, 0), Dtype.FLOAT8: (8, 9), Dtype.INT8: (7, 5)}


# CUDA versions of PyTorch's builds, the newest first, with the least and greatest compute capability in each build. A
# driver runs all builds for its own major version of CUDA, and for older ones.
# Source: pytorch/pytorch, RELEASE.md and issue 157517; pytorch/test-infra, pull request 7046.
BUILDS = {(13, 0): ((7, 5), (12, 9)), (12, 8): ((7, 5), (12, 0)), (12, 6): ((5, 0), (9, 0)), (11, 8): ((3, 7), (9, 0))}


class CudaDevice(Accelerator):
    """One NVIDIA GPU, or this process's MIG slice."""

    interface = "cuda"
    maker = "NVIDIA"
    platform = "CUDA"
    graphs = "CUDAGraph"

    @classmethod
    def is_built(cls, torch: Any) -> bool:
        return torch.version.cuda is not None

    @classmethod
    def why_not_built(cls, torch: Any) -> list[str]:
        cards = nvml.nvidia_gpus()
        if not cards:
            return super().why_not_built(torch)
        return [
            f"CUDA: there is {cards[0]['name']}, but torch {torch.__version__} was built without CUDA: "
            f"{install_advice(_newest_cuda(), _first_capability())}"
        ]

    @classmethod
    def why_none(cls, torch: Any, messages: Sequence[str]) -> str:
        text, hidden = " ".join(messages), os.environ.get("CUDA_VISIBLE_DEVICES")
        too_old = re.search(r"too old \(found version (\d+)", text)
        latest = _parse_cuda_version(int(too_old[1])) if too_old else _newest_cuda()
        if latest and (too_old or latest[0] < int(torch.version.cuda.split(".")[0])):
            return (
                f"the driver is too old: it supports up to CUDA {latest[0]}.{latest[1]}, torch {torch.__version__} was "
                f"built for {torch.version.cuda}: update the driver, or {install_advice(latest, _first_capability())}"
            )
        error = re.search(r"Error (\d+): ([^(\n]+)", text)
        line = f"error {error[1]}: {first_line(error[2])}" if error else ""
        refused = nvml.refusal()
        if not driver_errors.has_advice(line) and refused and not driver_errors.means_no_driver(refused):
            return f"NVML does not answer ({refused}): {driver_errors.advice(refused)}"
        if hidden is not None and not driver_errors.has_advice(line):
            return f"CUDA_VISIBLE_DEVICES is {hidden!r}, which shows torch no GPU: unset it"
        if line:
            return f"{line}: {driver_errors.advice(line)}"
        return f"{super().why_none(torch, messages)}; NVML: {nvml.status()}"

    @classmethod
    def why_unusable(cls, torch: Any, index: int) -> str:
        capability, built = torch.cuda.get_device_capability(index), torch.cuda.get_arch_list()
        if is_covered(capability, built):
            return ""
        return (
            f"torch {torch.__version__} has no code for {torch.cuda.get_device_name(index)} with compute "
            f"capability {capability[0]}.{capability[1]} (it has {', '.join(built)}): "
            f"{install_advice(_newest_cuda(), capability)}"
        )

    def facts(self) -> dict[str, Any]:
        about = self._module.get_device_properties(self.name)
        return {
            **super().facts(),
            "multiprocessors": int(about.multi_processor_count),
            "compute_capability": f"{about.major}.{about.minor}",
            "l2_bytes": self.last_level_cache_bytes,
            "runtime": f"CUDA {self._torch.version.cuda}",
            "driver": nvml.ask_text(_load_nvml(), "nvmlSystemGetDriverVersion"),
        }

    def refusal(self, dtype: Dtype) -> str:
        least = LEAST_CAPABILITY.get(dtype)
        if least and self._module.get_device_capability(self.name) < least:
            return f"{dtype} needs compute capability {least[0]}.{least[1]}"
        return ""

    @property
    def last_level_cache_bytes(self) -> int:
        return int(getattr(self._module.get_device_properties(self.name), "L2_cache_size", 0))

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        torch = self._torch
        if backend != "torch":
            raise self.unsupported_backend(backend)
        if reason := self.refusal(dtype):
            raise Unsupported(reason)
        if dtype in eight_bit.FORMATS:
            return eight_bit.product(a, b, dtype)
        # This switch applies to the whole process, so set it anew for each sweep point.
        torch.backends.cuda.matmul.allow_tf32 = dtype is Dtype.TF32
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=self.name)
        return lambda: torch.mm(a, b, out=out)


def is_covered(capability: tuple[int, int], built: Sequence[str]) -> bool:
    """Tell if code built for these architectures runs on a GPU with this compute capability; True if `built` is empty.

    Machine code (sm_86) runs on GPUs with the same major version and the same or a higher minor version. The driver
    compiles PTX (compute_90) for later GPUs too. For both, the suffix `a` restricts code to exactly that version, and
    the suffix `f` to its major version.
    Source: CUDA C++ Programming Guide, binary and PTX compatibility, feature sets.
    """

    def runs(kind: str, code: tuple[int, int], only: str) -> bool:
        if only == "a":
            return capability == code
        return capability >= code and (capability[0] == code[0] or (kind == "compute" and not only))

    architectures = _parse_architectures(built)
    return not architectures or any(runs(*architecture) for architecture in architectures)


def _parse_architectures(built: Sequence[str]) -> list[tuple[str, tuple[int, int], str]]:
    """Parse sm_90a to ('sm', (9, 0), 'a')."""
    matches = re.findall(r"(sm|compute)_(\d+)(\d)([af]?)", " ".join(built))
    return [(kind, (int(major), int(minor)), only) for kind, major, minor, only in matches]


def install_advice(latest: Version | None, capability: Version | None = None) -> str:
    """Return advice to install a build of torch that a GPU and its driver can run.

    latest: the newest CUDA version that the driver supports; None if unknown. capability: the GPU's compute capability;
    None if unknown.
    """
    fitting = [cuda for cuda, (least, most) in BUILDS.items() if capability is None or least <= capability <= most]
    if not fitting:
        return "install a newer torch, for a newer CUDA (https://pytorch.org/get-started/locally)"
    runnable = [cuda for cuda in fitting if latest is None or cuda[0] <= latest[0]]
    major, minor = (runnable or fitting[-1:])[0]
    update = f"update the driver, which supports only CUDA {latest[0]}.{latest[1]}, and " if latest else ""
    return (
        f"{'' if runnable else update}install a build of torch for CUDA {major}.{minor} "
        f"(pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu{major}{minor})"
    )


def _first_capability() -> Version | None:
    """Return the compute capability of NVML's first GPU; None if NVML does not tell."""
    return compute_capability(nvml.ask(library := _load_nvml(), "nvmlDeviceGetHandleByIndex", 0), library)


def compute_capability(handle: Any, library: Any) -> Version | None:
    """Return the compute capability of NVML's GPU; None if NVML does not tell."""
    value = nvml.ask(library, "nvmlDeviceGetCudaComputeCapability", handle)
    return (int(value[0]), int(value[1])) if isinstance(value, (tuple, list)) and len(value) == 2 else None


def _newest_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA version the driver supports; None without a driver."""
    return _parse_cuda_version(int(nvml.ask_number(_load_nvml(), "nvmlSystemGetCudaDriverVersion_v2") or 0))


def _load_nvml() -> Any:
    library = nvml.load_pynvml()
    nvml.ask(library, "nvmlInit")
    return library


def _parse_cuda_version(number: int | None) -> tuple[int, int] | None:
    """Parse CUDA's 12040 to (12, 4)."""
    return (number // 1000, number % 1000 // 10) if number else None
