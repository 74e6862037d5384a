"""Intel GPUs through PyTorch's XPU interface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from experiments import driver_errors
from experiments.devices.accelerator import Accelerator

# If torch does not report a GPU's cache, assume the largest L2 among such GPUs (Data Center GPU Max).
_LARGEST_CACHE_BYTES = 408 << 20


class XpuDevice(Accelerator):
    """One Intel GPU, or one tile of a GPU."""

    interface = "xpu"
    maker = "Intel"
    platform = "XPU"
    graphs = "XPUGraph"
    lacks = ("cuda", "cupy")

    @classmethod
    def is_built(cls, torch: Any) -> bool:
        return getattr(torch.version, "xpu", None) is not None

    @classmethod
    def why_none(cls, torch: Any, messages: Sequence[str]) -> str:
        mask = os.environ.get("ZE_AFFINITY_MASK")
        if mask is not None:
            return f"ZE_AFFINITY_MASK is {mask!r}, which shows torch no GPU: unset it"
        mend = "start the container with --device /dev/dri, and " if driver_errors.in_container() else ""
        return f"{super().why_none(torch, messages)}: {mend}install Intel's GPU driver with Level Zero"

    @cached_property
    def supports_float64(self) -> bool:
        return bool(getattr(self._properties, "has_fp64", True))

    @property
    def _properties(self) -> Any:
        return self._module.get_device_properties(self.name)

    def free_bytes(self) -> int:
        try:
            return super().free_bytes()
        except RuntimeError:  # integrated GPUs lack this query
            return int(self._properties.total_memory) - int(self._module.memory_reserved(self.name))

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "multiprocessors": int(getattr(self._properties, "gpu_subslice_count", 0)),
            "l2_bytes": int(getattr(self._properties, "last_level_cache_size", 0)),
            "runtime": f"XPU {self._torch.version.xpu}",
            "driver": getattr(self._properties, "driver_version", None),
        }

    @property
    def last_level_cache_bytes(self) -> int:
        # Prefer a size that is too large: if it were too small, operands that are meant to exceed the cache would stay
        # in the cache.
        return int(getattr(self._properties, "last_level_cache_size", 0)) or _LARGEST_CACHE_BYTES
