"""Base class for GPUs that PyTorch supports through a device module (torch.cuda, torch.xpu, torch.mps)."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from contract.errors import StudyError
from experiments import driver_errors, nvml
from experiments.devices.base import Device, do_nothing
from experiments.workload import SUBSTITUTES, Dtype, Unsupported

if TYPE_CHECKING:
    import torch

_ON_NVIDIA = "only on NVIDIA's GPUs does this study compute with"


@cache
def load_torch() -> tuple[Any, str]:
    """Import torch; return (torch, ''), or (None, the error in one line)."""
    try:
        import torch
    except (ImportError, OSError) as refusal:
        return None, f"torch cannot be loaded ({first_line(refusal)}): reinstall it together with its missing libraries"
    return torch, ""


def is_torch_loaded() -> bool:
    """Return True if `load_torch` need not import torch, because torch is imported or a test replaces `load_torch`."""
    return "torch" in sys.modules or not hasattr(load_torch, "cache_info")


def first_line(refusal: object) -> str:
    """Return the first sentence in a library's error message, without the advice after it."""
    return (str(refusal).strip() or type(refusal).__name__).splitlines()[0].split(". ")[0][:200].rstrip(". ")


class Accelerator(Device):
    """One GPU. Kernels run asynchronously, so they are timed by device events and not by the host clock.

    interface: name of torch's module for these GPUs, and prefix of their device names. platform: name of the maker's
    compute platform. graphs: name of the module's class for captured graphs. lacks: libraries that do not support these
    GPUs.
    """

    kind = "gpu"
    page_locks = True
    interface: str
    platform: str
    graphs = ""
    lacks: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._torch, _ = load_torch()
        self._streams: list[Any] = []

    @property
    def _module(self) -> Any:
        return getattr(self._torch, self.interface)

    @classmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        """Query the driver without creating a device context, which would allocate memory."""
        torch, refusal = load_torch()
        if torch is None:
            return [], [refusal]
        if not cls.is_built(torch):
            return [], cls.why_not_built(torch)
        with warnings.catch_warnings(record=True) as caught:
            # Record torch's warnings, which name old drivers and unsupported GPUs.
            warnings.simplefilter("always")
            try:
                count = cls.count(torch)
            except Exception as refusal:  # a broken driver can raise any exception
                return [], [f"{cls.platform}: {first_line(refusal)}: {driver_errors.advice(first_line(refusal))}"]
            reasons = [cls._why_unusable(torch, index) for index in range(count)]
        if not count:
            return [], [f"{cls.platform}: {cls.why_none(torch, [str(warning.message) for warning in caught])}"]
        names = [cls.device_name(index) for index in range(count)]
        left_out = [f"{name}: {reason}" for name, reason in zip(names, reasons, strict=True) if reason]
        return [name for name, reason in zip(names, reasons, strict=True) if not reason], left_out

    @classmethod
    def device_name(cls, index: int) -> str:
        """Return the device's name in torch."""
        return f"{cls.interface}:{index}"

    @classmethod
    @abstractmethod
    def is_built(cls, torch: Any) -> bool:
        """Tell if torch was built for these devices."""

    @classmethod
    def why_not_built(cls, torch: Any) -> list[str]:
        """Return a list with one line, which names all platforms missing in this torch build."""
        others = [kind.platform for kind in Accelerator.__subclasses__() if not kind.is_built(torch)]
        return [f"torch {torch.__version__} was built without {', '.join(others)}"]

    @classmethod
    def count(cls, torch: Any) -> int:
        module = getattr(torch, cls.interface)
        return int(module.device_count()) if module.is_available() else 0

    @classmethod
    def why_none(cls, torch: Any, messages: Sequence[str]) -> str:
        """Explain why torch sees no device. messages: torch's warnings."""
        warning = f" ({first_line(messages[0])})" if messages else ""
        return f"torch {torch.__version__} sees no {cls.maker} GPU{warning}"

    @classmethod
    def why_unusable(cls, torch: Any, index: int) -> str:
        """Explain why a device that torch sees is unusable; '' if it is usable."""
        return ""

    @classmethod
    def _why_unusable(cls, torch: Any, index: int) -> str:
        try:
            return cls.why_unusable(torch, index)
        except Exception as refusal:  # a broken driver can raise any exception
            return f"{first_line(refusal)}: {driver_errors.advice(first_line(refusal))}"

    @classmethod
    def supports(cls, backend: str) -> bool:
        return backend not in cls.lacks

    def open(self) -> None:
        try:
            if ":" in self.name:
                self._module.set_device(self.name)
            # Run a kernel and a copy: allocating memory can succeed even if torch has no code for this GPU.
            total = float(self._torch.ones(2, device=self.name).sum())
        except Exception as refusal:
            # Driver errors have several exception types, depending on the torch version.
            line = first_line(refusal)
            mend = driver_errors.advice(line) if driver_errors.has_advice(line) else ""
            raise StudyError(f"{self.name} cannot be used: {line}. {mend[:1].upper()}{mend[1:]}".strip()) from None
        if total != 2.0:
            raise StudyError(f"{self.name} cannot be used: it computes 1 + 1 = {total:g}")

    @classmethod
    def names(cls) -> list[str]:
        """Return the names for all devices torch sees, including unusable ones, without opening any."""
        torch, _ = load_torch()
        if torch is None or not cls.is_built(torch):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                count = cls.count(torch)
            except Exception:  # `detect` reports the error
                return []
        return [str(cls(cls.device_name(index)).describe()["name"]) for index in range(count)]

    def describe(self) -> dict[str, Any]:
        try:
            facts = {**self.facts(), "last_level_cache_bytes": self.last_level_cache_bytes}
            known = {key: value for key, value in {**facts, "substitutes": self.substitutes()}.items() if value}
        except Exception:  # `open` reports the error
            known = {}
        known.setdefault("name", nvml.placeholder_name(self.maker))
        if unwatched := nvml.find_device(self.name, nvml.load_pynvml()).unwatched:
            known["unwatched"] = unwatched.value
        return {"id": self.name, "kind": self.kind, "maker": self.maker, **known}

    def facts(self) -> dict[str, Any]:
        """Return torch's facts on the device: name, memory_bytes and more."""
        about = self._module.get_device_properties(self.name)
        return {"name": str(about.name), "memory_bytes": int(about.total_memory)}

    def set_threads(self, threads: int) -> None:
        """Do nothing: host threads only launch kernels."""

    def free_bytes(self) -> int:
        # Release memory that allocators have cached, because the next point can use this memory too.
        self._module.empty_cache()
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        return int(self._module.mem_get_info(self.name)[0])

    @cached_property
    def overhead_s(self) -> float:
        """Median time between two consecutive events, in seconds."""
        gaps = [gap for gap in (self.time_launches([lambda: None])[0] for _ in range(50)) if gap > 0]
        return max(median(gaps or [0.0]), 1e-7)

    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        module = self._module
        events = [module.Event(enable_timing=True) for _ in range(len(launches) + 1)]
        module.synchronize()
        events[0].record()
        for launch, event in zip(launches, events[1:], strict=True):
            launch()
            event.record()
        meanwhile()
        module.synchronize()
        return [self.elapsed_ms(start, end) * 1e-3 for start, end in pairwise(events)]

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two completed events."""
        return float(start.elapsed_time(end))

    def synchronise(self) -> None:
        self._module.synchronize()

    @cached_property
    def _warmup_stream(self) -> Any:
        """Stream for the warm-up before a capture; all captures share it, since cuBLAS keeps memory per stream."""
        return self._module.Stream()

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        module = self._module
        if not hasattr(module, self.graphs):
            raise Unsupported(f"torch {self._torch.__version__} captures no graphs on {self.maker}'s GPUs")
        captured, here = getattr(module, self.graphs)(), module.current_stream()
        self._warmup_stream.wait_stream(here)
        try:
            # Warm up first, since what a call initializes at its first run cannot be captured.
            with module.stream(self._warmup_stream):
                for call in calls:
                    call()
            here.wait_stream(self._warmup_stream)
            # After a failed capture, torch 2.11's allocator still assumes a capture is running (pytorch#180395), so the
            # process counts as spoilt until the capture succeeds.
            self.spoilt = True
            with module.graph(captured):
                for call in calls:
                    call()
            self.spoilt = False
        except RuntimeError as refusal:
            # After a failed capture, torch leaves the capture's stream current and hides the original error.
            module.set_stream(here)
            cause = refusal.__context__ if isinstance(refusal.__context__, RuntimeError) else refusal
            if isinstance(cause, getattr(self._torch, "OutOfMemoryError", ())):
                raise cause from None
            raise Unsupported(f"cannot be captured in a graph: {first_line(cause)}") from None
        replay: Callable[[], object] = captured.replay
        return replay

    def launch_concurrently(self, calls: Sequence[Callable[[], object]]) -> None:
        module = self._module
        self._streams += [module.Stream() for _ in range(len(calls) - len(self._streams))]
        here = module.current_stream()
        for call, stream in zip(calls, self._streams, strict=False):
            stream.wait_stream(here)
            with module.stream(stream):
                call()
        for stream in self._streams[: len(calls)]:
            here.wait_stream(stream)

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        return data.pin_memory()

    def substitutes(self) -> dict[str, str]:
        """Return the formats that the GPU has no units for, each with the format to measure in its place."""
        return {str(dtype): str(instead) for dtype, instead in SUBSTITUTES.items() if self.refusal(dtype)}

    def refusal(self, dtype: Dtype) -> str:
        """Explain why the device does not support a number format; '' if it does."""
        if dtype is Dtype.FLOAT64 and not self.supports_float64:
            return f"{self.name} does not compute with float64"
        return f"{_ON_NVIDIA} {dtype}" if dtype is Dtype.TF32 else ""

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        if reason := self.refusal(dtype):
            raise Unsupported(reason)
        return super().torch_dtype(dtype)

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        torch = self._torch
        if backend != "torch":
            raise self.unsupported_backend(backend)
        if dtype in (Dtype.TF32, Dtype.FLOAT8, Dtype.INT8):
            raise Unsupported(f"{_ON_NVIDIA} {dtype}")
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=self.name)
        return lambda: torch.mm(a, b, out=out)
