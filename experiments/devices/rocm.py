"""AMD GPUs through PyTorch's ROCm build, which uses CUDA's names and interface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import driver_errors
from experiments.devices.accelerator import Accelerator

# The driver's compute interface.
_DRIVER = Path("/dev/kfd")
_HIDES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
# The driver does not report the Infinity Cache between L2 and memory, so assume the largest one (MI300).
_INFINITY_CACHE_BYTES = 256 << 20


class RocmDevice(Accelerator):
    """One AMD GPU. Torch uses CUDA's names for it: the device is cuda:N, and a captured graph is a CUDAGraph."""

    interface = "cuda"
    maker = "AMD"
    platform = "ROCm"
    graphs = "CUDAGraph"

    @classmethod
    def is_built(cls, torch: Any) -> bool:
        return torch.version.hip is not None

    @classmethod
    def why_none(cls, torch: Any, messages: Sequence[str]) -> str:
        hiding = [f"{name} is {os.environ[name]!r}" for name in _HIDES if name in os.environ]
        if not _DRIVER.exists():
            attach = f"start the container with --device {_DRIVER} --device /dev/dri"
            mend = attach if driver_errors.in_container() else "sudo modprobe amdgpu"
            return f"the driver is not loaded ({_DRIVER} is missing): {mend}"
        if not os.access(_DRIVER, os.R_OK | os.W_OK):
            return f"no permission to open {_DRIVER}: sudo usermod -aG render,video $USER, and log in again"
        if hiding:
            return f"{' and '.join(hiding)}, which shows torch no GPU: unset it"
        return super().why_none(torch, messages)

    @classmethod
    def why_unusable(cls, torch: Any, index: int) -> str:
        about, built = torch.cuda.get_device_properties(index), torch.cuda.get_arch_list()
        chip = about.gcnArchName.partition(":")[0]
        # Generic code (for example gfx11-generic) runs on a whole family of chips.
        if not built or any(name.partition(":")[0] == chip or name.endswith("generic") for name in built):
            return ""
        return (
            f"torch {torch.__version__} has no code for {about.name} ({chip}); it has code for {', '.join(built)}: "
            "install a build with it (https://pytorch.org/get-started/locally)"
        )

    def facts(self) -> dict[str, Any]:
        about = self._module.get_device_properties(self.name)
        version = Path("/sys/module/amdgpu/version")
        return {
            **super().facts(),
            "multiprocessors": int(about.multi_processor_count),
            "architecture": about.gcnArchName,
            "l2_bytes": int(getattr(about, "L2_cache_size", 0)),
            "runtime": f"HIP {self._torch.version.hip}",
            "driver": version.read_text(encoding="ascii").strip() if version.exists() else None,
        }

    @property
    def last_level_cache_bytes(self) -> int:
        # Prefer a size that is too large: if it were too small, operands that are meant to exceed the cache would stay
        # in the cache.
        return _INFINITY_CACHE_BYTES
