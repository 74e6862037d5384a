"""What the GPUs that PyTorch works on have in common: found, opened, fed and timed through one of its modules."""

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
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

_ON_NVIDIA = "only on NVIDIA's GPUs does this study compute with"


@cache
def load_torch() -> tuple[Any, str]:
    """torch and ''; or None, and in one line why it cannot be loaded."""
    try:
        import torch
    except (ImportError, OSError) as refusal:
        return None, f"torch cannot be loaded ({first_line(refusal)}): install it again with the libraries it lacks"
    return torch, ""


def is_torch_loaded() -> bool:
    """True if `loaded` answers at once: torch is there already, or something stands in for it."""
    return "torch" in sys.modules or not hasattr(load_torch, "cache_info")


def first_line(refusal: object) -> str:
    """What an error of a library says, without the advice that follows."""
    return (str(refusal).strip() or type(refusal).__name__).splitlines()[0].split(". ")[0][:200].rstrip(". ")


class Accelerator(Device):
    """One GPU. Kernels run asynchronously: its clock is the events', not the host's.

    interface: torch's module for it, with which its devices' names begin. platform:
    what its maker calls the software. graphs: the module's class for what is captured.
    lacks: libraries that do not know these GPUs.
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
        """Asks the driver, and allocates nothing: no context of the device is made for it."""
        torch, refusal = load_torch()
        if torch is None:
            return [], [refusal]
        if not cls.is_built(torch):
            return [], cls.why_not_built(torch)
        with warnings.catch_warnings(record=True) as said:
            # Torch warns of an old driver, and of GPUs that it has no code for, at length.
            warnings.simplefilter("always")
            try:
                count = cls.count(torch)
            except Exception as refusal:  # as below
                return [], [f"{cls.platform}: {first_line(refusal)}: {driver_errors.advice(first_line(refusal))}"]
            reasons = [cls._why_unusable(torch, index) for index in range(count)]
        if not count:
            return [], [f"{cls.platform}: {cls.why_none(torch, [str(one.message) for one in said])}"]
        names = [cls.device_name(index) for index in range(count)]
        left_out = [f"{name}: {reason}" for name, reason in zip(names, reasons, strict=True) if reason]
        return [name for name, reason in zip(names, reasons, strict=True) if not reason], left_out

    @classmethod
    def device_name(cls, index: int) -> str:
        """The device's name in torch."""
        return f"{cls.interface}:{index}"

    @classmethod
    @abstractmethod
    def is_built(cls, torch: Any) -> bool:
        """Whether this torch was built for these devices."""

    @classmethod
    def why_not_built(cls, torch: Any) -> list[str]:
        """Why there are none where torch was not built for them: the same line for all of them."""
        others = [one.platform for one in Accelerator.__subclasses__() if not one.is_built(torch)]
        return [f"torch {torch.__version__} was built without {', '.join(others)}"]

    @classmethod
    def count(cls, torch: Any) -> int:
        """How many devices torch sees."""
        module = getattr(torch, cls.interface)
        return int(module.device_count()) if module.is_available() else 0

    @classmethod
    def why_none(cls, torch: Any, said: Sequence[str]) -> str:
        """Why torch, which was built for them, sees none. said: torch's warnings."""
        told = f" ({first_line(said[0])})" if said else ""
        return f"torch {torch.__version__} sees no {cls.maker} GPU{told}"

    @classmethod
    def why_unusable(cls, torch: Any, index: int) -> str:
        """Why a device that torch sees cannot be worked on; '' if it can."""
        return ""

    @classmethod
    def _why_unusable(cls, torch: Any, index: int) -> str:
        try:
            return cls.why_unusable(torch, index)
        except Exception as refusal:  # a driver in trouble raises what it likes
            return first_line(refusal)

    @classmethod
    def runs(cls, backend: str) -> bool:
        return backend not in cls.lacks

    def open(self) -> None:
        try:
            if ":" in self.name:
                self._module.set_device(self.name)
            # A kernel and a copy: a card can have memory left, and still no code that it runs.
            total = float(self._torch.ones(2, device=self.name).sum())
        except Exception as refusal:
            # Drivers' errors come as several kinds of exception, some of them only in new versions.
            line = first_line(refusal)
            mend = driver_errors.advice(line) if driver_errors.has_advice(line) else ""
            raise StudyError(f"{self.name} cannot be used: {line}. {mend[:1].upper()}{mend[1:]}".strip()) from None
        if total != 2.0:
            raise StudyError(f"{self.name} cannot be used: it computes 1 + 1 = {total:g}")

    @classmethod
    def names(cls) -> list[str]:
        """Names of all devices that torch sees, also of those that cannot be worked on; none is opened."""
        torch, _ = load_torch()
        if torch is None or not cls.is_built(torch):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                count = cls.count(torch)
            except Exception:  # `detect` says why
                return []
        return [str(cls(cls.device_name(index)).describe()["name"]) for index in range(count)]

    def describe(self) -> dict[str, Any]:
        try:
            facts = {**self.facts(), "last_level_cache_bytes": self.last_level_cache_bytes}
            known = {key: value for key, value in facts.items() if value}
        except Exception:  # a device in trouble does not tell; opening it says why
            known = {}
        known.setdefault("name", nvml.placeholder_name(self.maker))
        if unwatched := nvml.find_device(self.name, nvml.load_pynvml()).unwatched:
            known["unwatched"] = unwatched.value
        return {"id": self.name, "kind": self.kind, "maker": self.maker, **known}

    def facts(self) -> dict[str, Any]:
        """What torch tells of the device: name, memory_bytes and more; empty where it does not."""
        about = self._module.get_device_properties(self.name)
        return {"name": str(about.name), "memory_bytes": int(about.total_memory)}

    def set_threads(self, threads: int) -> None:
        """The host's threads only launch; they are left alone."""

    def free_bytes(self) -> int:
        # What the libraries keep for their next allocation is free for the next point.
        self._module.empty_cache()
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        return int(self._module.mem_get_info(self.name)[0])

    @cached_property
    def overhead_s(self) -> float:
        """Median time between two events with nothing between them, in seconds."""
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
        return [self.milliseconds(start, end) * 1e-3 for start, end in pairwise(events)]

    def milliseconds(self, start: Any, end: Any) -> float:
        """Time between two events, one recorded right after the other, that the device has passed."""
        return float(start.elapsed_time(end))

    def synchronise(self) -> None:
        self._module.synchronize()

    @cached_property
    def _aside(self) -> Any:
        """The stream on which calls run once before they are captured: cuBLAS keeps memory for every stream."""
        return self._module.Stream()

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        module = self._module
        if not hasattr(module, self.graphs):
            raise Unsupported(f"torch {self._torch.__version__} captures no graphs on {self.maker}'s GPUs")
        captured, here = getattr(module, self.graphs)(), module.current_stream()
        self._aside.wait_stream(here)
        try:
            # Libraries set themselves up at the first call, which a graph may not hold.
            with module.stream(self._aside):
                for call in calls:
                    call()
            here.wait_stream(self._aside)
            # After a capture that fails, torch 2.11's allocator believes that it goes on (pytorch#180395).
            self.spoilt = True
            with module.graph(captured):
                for call in calls:
                    call()
            self.spoilt = False
        except RuntimeError as refusal:
            # Torch leaves the stream of a capture that fails in place, and covers the error that says why.
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

    def refusal(self, dtype: Dtype) -> str:
        """Why it does not compute with numbers of this format; '' if it does."""
        if dtype is Dtype.FLOAT64 and not self.float64:
            return f"{self.name} does not compute with float64"
        return f"{_ON_NVIDIA} {dtype}" if dtype is Dtype.TF32 else ""

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        if reason := self.refusal(dtype):
            raise Unsupported(reason)
        return super().torch_dtype(dtype)

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        torch = self._torch
        if backend != "torch":
            raise self.unsupported(backend)
        if dtype in (Dtype.TF32, Dtype.FLOAT8, Dtype.INT8):
            raise Unsupported(f"{_ON_NVIDIA} {dtype}")
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=self.name)
        return lambda: torch.mm(a, b, out=out)
