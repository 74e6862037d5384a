"""Apple GPUs through PyTorch's MPS interface."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments import hardware, memory_limit
from experiments.devices.accelerator import Accelerator
from experiments.devices.base import Device, do_nothing
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# Metal does not report the system level cache, so assume the largest one so far (M1 Ultra to M3 Ultra).
_LARGEST_CACHE_BYTES = 96 << 20


class MpsDevice(Accelerator):
    """The machine's only GPU, which shares its memory with the CPU.

    Torch's events get their timestamps on the host, when it is notified that the GPU has passed the event.
    """

    interface = "mps"
    maker = "Apple"
    platform = "MPS"
    lacks = ("cuda", "cupy", "vulkan", "webgpu")
    supports_float64 = False
    page_locks = False

    @classmethod
    def is_built(cls, torch: Any) -> bool:
        return bool(torch.backends.mps.is_built())

    @classmethod
    def count(cls, torch: Any) -> int:
        return int(torch.backends.mps.is_available())

    @classmethod
    def device_name(cls, index: int) -> str:
        return "mps"

    @classmethod
    def why_none(cls, torch: Any, messages: Sequence[str]) -> str:
        return f"{super().why_none(torch, messages)}: it needs a GPU with Metal support, and macOS 14 or newer"

    def free_bytes(self) -> int:
        self._module.empty_cache()
        room = int(self._module.recommended_max_memory()) - int(self._module.driver_allocated_memory())
        return max(0, min(room, memory_limit.available_bytes()))

    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        # Torch waits for an event's timestamp only if an interval ends at the event. With an empty launch before the
        # others, an interval also ends where the first timed launch starts. The empty launch's time is dropped.
        return super().time_launches([do_nothing, *launches], meanwhile)[1:]

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return nan if the events' timestamps are missing or in the wrong order, as can happen for short intervals."""
        try:
            return super().elapsed_ms(start, end)
        except RuntimeError as refusal:
            if "not recorded after" in str(refusal) or "enable_timing" in str(refusal):
                return math.nan
            raise

    def launch_concurrently(self, calls: Sequence[Callable[[], object]]) -> None:
        # Torch has only one MPS stream, so launch the calls one after another.
        Device.launch_concurrently(self, calls)

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        raise Unsupported("the GPU shares the CPU's memory: nothing is page-locked")

    def stage(self, data: torch.Tensor) -> torch.Tensor:
        return data.clone()

    def refusal(self, dtype: Dtype) -> str:
        return f"{self.name} has no {dtype}" if dtype is Dtype.FLOAT8 else super().refusal(dtype)

    def facts(self) -> dict[str, Any]:
        about = self._torch.backends.mps
        return {
            "name": about.get_name() if hasattr(about, "get_name") else f"{hardware.cpu()['model']} GPU",
            "memory_bytes": int(self._module.recommended_max_memory()),
            "multiprocessors": int(about.get_core_count()) if hasattr(about, "get_core_count") else None,
            "unified_memory": True,
            "runtime": f"Metal of macOS {platform.mac_ver()[0]}",
        }

    @property
    def last_level_cache_bytes(self) -> int:
        # Prefer a size that is too large: if it were too small, operands that are meant to exceed the cache would stay
        # in the cache.
        return _LARGEST_CACHE_BYTES
