"""What the measuring core asks of a device. A new device is one subclass."""

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
    """The mean of those that are numbers; nan where most are none.

    Negative ones stay: where stamps are swapped, the time before or after is longer by as much.
    """
    known = [second for second in seconds if isfinite(second)]
    return sum(known) / len(known) if 2 * len(known) > len(seconds) else nan


def do_nothing() -> None:
    """What there is to do meanwhile, where nobody asks for more."""


class Device(ABC):
    """One processor with its memory.

    The tensors that it makes are PyTorch's: CUDA, ROCm, MPS and XPU share that interface.
    maker: who makes all devices of this class, where one does.
    page_locks: whether host memory can be page-locked for it.
    spoilt: True once something happened after which this process cannot be trusted with another point.
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
        """Names of the devices of this kind; and why there are none, or why some are left out, a line each."""

    @classmethod
    def runs(cls, backend: str) -> bool:
        """Whether devices of this kind can do what an experiment does by this library, where it is installed."""
        return True

    def open(self) -> None:  # noqa: B027 - a CPU has nothing to take
        """Take the device for this process, and the memory that goes with it; before that nothing is allocated.

        Raises StudyError, in one line, if it cannot be worked on.
        """

    def fault(self) -> str:
        """Why nothing can be computed on it any more; '' if it can. A device of which nothing was asked is opened."""
        try:
            self.open()
        except StudyError as refusal:
            return str(refusal)
        return ""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Entry of the node record: id, kind, name, memory_bytes."""

    @property
    @abstractmethod
    def last_level_cache_bytes(self) -> int:
        """Size of the cache that stands before the device's memory."""

    @abstractmethod
    def set_threads(self, threads: int) -> None:
        """Let host libraries use this many threads; 0 leaves them alone."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that can be allocated now."""

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        """Seconds of one call, averaged over `calls` in a row; where the work has phases, of each of them.

        They are what the clock says, which may be no time: see `experiments.clock_readings`.
        meanwhile: called once, outside of what is timed: while the device works on what was launched, where its
        own clock times that, and after it where the host's does.
        """
        measured = self.time_launches if work.clock == "device" else self.time_on_host
        if work.phases:
            each = len(work.phases)
            spent = measured([phase for _, phase in work.phases] * calls, meanwhile)
            return [_mean_known(spent[index::each]) for index in range(each)]
        todo = list(islice(work.turns, calls))
        wait = work.clock == "host" and self.kind != "cpu"

        def run() -> None:
            for call in todo:
                call()
                if wait:
                    self.synchronise()

        return [measured([run], meanwhile)[0] / calls]

    @abstractmethod
    def time_launches(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        """Seconds that the device spends on each launch, by its own clock, one after the other.

        meanwhile: called after the last launch, before anybody waits for the device.
        """

    def time_on_host(
        self, launches: Sequence[Callable[[], object]], meanwhile: Callable[[], object] = do_nothing
    ) -> list[float]:
        """Seconds until each launch returns, by the host's clock; the device has nothing to do at the start."""
        self.synchronise()
        stamps = [perf_counter_ns()]
        for launch in launches:
            launch()
            stamps.append(perf_counter_ns())
        meanwhile()
        return [(end - start) * 1e-9 for start, end in pairwise(stamps)]

    def synchronise(self) -> None:  # noqa: B027 - a CPU has done it when the call returns
        """Wait until the device has done all that was launched."""

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """The calls, captured: one launch that does all of them in a row without the host.

        Raises Unsupported where the device has no such thing, or the calls cannot be captured.
        """
        raise Unsupported(f"{self.name} has no graphs")

    def launch_concurrently(self, calls: Sequence[Callable[[], object]]) -> None:
        """Launch the calls so that the device may do them at the same time; what is launched later waits for all."""
        for call in calls:
            call()

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        """A copy in host memory that the device may read by itself (page-locked)."""
        return data.clone()

    def stage(self, data: torch.Tensor) -> torch.Tensor:
        """A copy in the host memory that suits transfers best: page-locked, where the device has such memory."""
        return self.pin(data)

    @property
    def float64(self) -> bool:
        """Whether it computes with float64."""
        return True

    def to_float64(self, data: torch.Tensor) -> torch.Tensor:
        """The data in float64, where float64 can be computed with."""
        return data.double() if self.float64 else data.cpu().double()

    @classmethod
    def peers(cls, name: str) -> list[str]:
        """Names of the other devices of this kind."""
        return [other for other in cls.detect()[0] if other != name]

    @property
    @abstractmethod
    def overhead_s(self) -> float:
        """What it costs to read the clock twice around a sample."""

    def random_normal(self, shape: tuple[int, ...], dtype: Dtype) -> torch.Tensor:
        """Random normal data: zeros and ones draw less power and run faster than real data.

        INT8 has a standard deviation of 30 and ends at ±127, so that a sum of 100,000 products fits int32.
        """
        import torch

        kept = self.torch_dtype(dtype)
        draw = torch.float64 if dtype is Dtype.FLOAT64 else torch.float32
        data = torch.randn(shape, dtype=draw, device=self.name)
        if dtype is Dtype.INT8:
            data = (30 * data).round_().clamp_(-127, 127)
        return data.to(kept)

    def torch_dtype(self, dtype: Dtype) -> torch.dtype:
        """The format in which elements lie in memory. Raises Unsupported if the device has none such."""
        import torch

        found: torch.dtype = getattr(torch, "float32" if dtype is Dtype.TF32 else dtype.value)
        return found

    @abstractmethod
    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Callable[[], torch.Tensor]:
        """A callable that computes a @ b into its own output, by the library `backend`.

        Raises Unsupported if the library or the format is not available here.
        """

    def unsupported(self, backend: str) -> Unsupported:
        """The outcome where this kind of device does not have the library `backend`."""
        return Unsupported(f"backend {backend} does not run on {self.name}")
