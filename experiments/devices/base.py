"""Interface between devices and the measuring core. A new kind of device needs only one subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from math import isfinite, nan
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

from contract.errors import StudyError
from experiments.workload import Dtype, Unsupported, Workload

if TYPE_CHECKING:
    import torch

Kind = Literal["cpu", "gpu"]


def _mean_known(seconds: Sequence[float]) -> float:
    """Return the mean over the finite values; nan unless more than half of the values are finite.

    Negative values are included: if two timestamps are swapped, the values beside the negative one are together too
    long by as much as the negative value is too short, so the mean is right.
    """
    known = [second for second in seconds if isfinite(second)]
    return sum(known) / len(known) if 2 * len(known) > len(seconds) else nan


def do_nothing() -> None:
    """Default for `meanwhile` callbacks."""


class Device(ABC):
    """One processor with its memory.

    All data are PyTorch tensors, since CUDA, ROCm, MPS and XPU share PyTorch's interface.
    maker: the company that makes these devices, '' if several companies do.
    page_locks: True if host memory can be page-locked for the device.
    spoilt: True after an event that makes later results in this process unreliable.
    """

    kind: Kind
    maker = ""
    page_locks = False
    spoilt = False

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    @abstractmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        """Return the names for all devices in this class, and one line per omitted or missing device."""

    @classmethod
    def supports(cls, backend: str) -> bool:
        """Tell if these devices support a library, provided that it is installed."""
        return True

    def open(self) -> None:  # noqa: B027 - a CPU needs no opening
        """Open the device for this process, which allocates memory on it.

        Raises StudyError, in one line, if the device is unusable.
        """

    def fault(self) -> str:
        """Open the device if needed; return the reason if it is unusable, else ''."""
        try:
            self.open()
        except StudyError as refusal:
            return str(refusal)
        return ""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the node record entry: id, kind, name, memory_bytes."""

    @property
    @abstractmethod
    def last_level_cache_bytes(self) -> int:
        """Size in bytes of the last cache before the device's memory."""

    @abstractmethod
    def set_threads(self, threads: int) -> None:
        """Set the thread count for host libraries; 0 changes nothing."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the memory available for allocation, in bytes."""

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        """Return the mean seconds per call over `calls` calls in a row; one value per phase if the work has phases.

        Values are raw clock readings and may be unusable: see `experiments.clock_readings`.
        meanwhile: called once and not timed. With the device clock, it is called while the device works; with the host
        clock, after the last call.
        """
        measured = self.time_launches if work.clock == "device" else self.time_on_host
        if work.phases:
            each = len(work.phases)
            spent = measured([phase for _, phase in work.phases] * calls, meanwhile)
            return [_mean_known(spent[index::each]) for index in range(each)]
        callables = list(islice(work.turns, calls))
        wait = work.clock == "host" and self.kind != "cpu"

        def run() -> None:
            for call in callables:
                call()
                if wait:
                    self.synchronise()

        return [measured([run], meanwhile)[0] / calls]

    @abstractmethod
    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        """Time each launch by the device clock, in seconds.

        meanwhile: called after the last launch, before waiting for the device.
        """

    def time_on_host(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        """Return the host clock's seconds until each launch returns. The device is idle before the first launch."""
        self.synchronise()
        stamps = [perf_counter_ns()]
        for launch in launches:
            launch()
            stamps.append(perf_counter_ns())
        meanwhile()
        return [(end - start) * 1e-9 for start, end in pairwise(stamps)]

    def synchronise(self) -> None:  # noqa: B027 - CPU calls are synchronous
        """Wait until the device has finished all launches."""

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """Capture the calls; return a single launch that runs them in sequence without the host.

        Raises Unsupported if the device has no graphs, or the calls cannot be captured.
        """
        raise Unsupported(f"{self.name} has no graphs")

    def launch_concurrently(self, calls: Sequence[Callable[[], object]]) -> None:
        """Launch the calls so that the device may run them concurrently; later launches wait for all of them."""
        for call in calls:
            call()

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        """Copy data to page-locked host memory, which the device can read directly."""
        return data.clone()

    def stage(self, data: torch.Tensor) -> torch.Tensor:
        """Copy data to the kind of host memory with the fastest transfers: page-locked, if the device supports that."""
        return self.pin(data)

    @property
    def supports_float64(self) -> bool:
        """True if the device supports float64."""
        return True

    def to_float64(self, data: torch.Tensor) -> torch.Tensor:
        """Convert data to float64, on the CPU if the device lacks float64."""
        return data.double() if self.supports_float64 else data.cpu().double()

    @classmethod
    def peers(cls, name: str) -> list[str]:
        """Return the names for the other devices in this class."""
        return [other for other in cls.detect()[0] if other != name]

    @property
    @abstractmethod
    def overhead_s(self) -> float:
        """Time that reading the clock adds to a sample, in seconds."""

    def random_normal(self, shape: tuple[int, ...], dtype: Dtype) -> torch.Tensor:
        """Draw normal data, since zeros and ones use less power and run faster than real data.

        INT8 values have standard deviation 30 and are clamped to ±127, so a sum over 100,000 products fits int32.
        """
        import torch

        target = self.torch_dtype(dtype)
        draw = torch.float64 if dtype is Dtype.FLOAT64 else torch.float32
        data = torch.randn(shape, dtype=draw, device=self.name)
        if dtype is Dtype.INT8:
            data = (30 * data).round_().clamp_(-127, 127)
        return data.to(target)

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        """Return the torch dtype that stores the elements. Raises Unsupported if the device lacks it."""
        import torch

        stored: torch.dtype = getattr(torch, "float32" if dtype is Dtype.TF32 else dtype.value)
        return stored

    @abstractmethod
    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        """Return a callable that computes a @ b with the library `backend`, each time into the same output.

        Raises Unsupported if the library or the format is not available.
        """

    def unsupported_backend(self, backend: str) -> Unsupported:
        """Return the error for a library that this device does not support."""
        return Unsupported(f"backend {backend} does not run on {self.name}")
