"""The vocabulary in which an experiment says what its work is."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle
from typing import TYPE_CHECKING, Annotated, Literal

if TYPE_CHECKING:
    import torch


class Unsupported(Exception):  # noqa: N818 - an outcome that is recorded, not an error
    """This device or library cannot do this point; the message says why."""


class HarnessError(RuntimeError):
    """The measuring side failed at this point (a limit of the system, a process that ended), not the subject.

    The point is recorded as failed, with a reason that begins with `harness:`; the message says what to do.
    """


class ProfileError(Exception):
    """A profile has no number to give; the message says why. The point's other metrics stand."""


# Libraries whose module has another name than what is installed.
INSTALLED_AS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "llama_cpp": "llama-cpp-python", "openvino_genai": "openvino-genai",
}  # fmt: skip


def missing_library(absent: ModuleNotFoundError) -> Unsupported:
    """What to install for a library that is missing. Raises the error itself for a module of ours or of Python's."""
    library = (absent.name or "").partition(".")[0]
    if not library or library in {"contract", "experiments", *sys.stdlib_module_names}:
        raise absent
    return Unsupported(f"{library} is not installed: pip install {INSTALLED_AS.get(library, library)}")


class Dtype(StrEnum):
    """Number format of the operands. `TF32` is float32 in memory, rounded inside matrix units."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8_e4m3fn"
    INT8 = "int8"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return {"float64": 8, "float32": 4, "tf32": 4, "float8_e4m3fn": 1, "int8": 1}.get(self.value, 2)

    @property
    def result_itemsize(self) -> int:
        """Bytes of one cell of a product: 8-bit floats come out as bfloat16, 8-bit whole numbers as int32."""
        return {"float8_e4m3fn": 2, "int8": 4}.get(self.value, self.itemsize)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest: half the spacing at 1; 0 for whole numbers."""
        bits = {"float64": 53, "float32": 24, "tf32": 11, "bfloat16": 8, "float16": 11, "float8_e4m3fn": 4}
        return 2.0 ** -bits[self.value] if self is not Dtype.INT8 else 0.0

    def matmul_tolerance(self, k: int) -> float:
        """Largest Frobenius-norm error, relative, that a right product of depth `k` may show.

        Operands and result are rounded to this format; sums of random data, kept in
        float32 at least, err by about sqrt(k) roundings (Higham & Mary 2019, "A new
        approach to probabilistic rounding error analysis"), and so does a float64 reference.

        FLOAT8: the operands are what they are, the result is bfloat16. Hopper's units add 32
        products at a time to a sum of which they keep 14 bits and cut off the rest
        (DeepSeek-V3 technical report, arXiv:2412.19437, sections 3.3.2 and 3.5.2). What is cut
        off always points to zero, so that k/32 losses of up to 2^-13 of the sum add up: 1.6%
        at k = 4096, where that report saw errors of nearly 2%.
        INT8: exact, for the sums are whole numbers.
        """
        if self is Dtype.INT8:
            return 0.0
        if self is Dtype.FLOAT8:
            return 4.0 * Dtype.BFLOAT16.unit_roundoff + k / 32 * 2.0**-13
        accumulator = self if self is Dtype.FLOAT64 else Dtype.FLOAT32
        return 4.0 * self.unit_roundoff + 2.0 * math.sqrt(k) * accumulator.unit_roundoff


def largest_error(*errors: float) -> float:
    """The largest error; nan if one of them is, where `max` may pass it over."""
    return max(errors, key=lambda error: (math.isnan(error), error))


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the exact result; nan if the result has one."""
    import torch

    return float(torch.linalg.norm(result - exact) / torch.linalg.norm(exact))


# Parameters that a preset may also give relative to the machine: see experiments.sweep.
Threads = Annotated[int, "all"]
Footprint = Annotated[int, "xLLC"]
Phase = tuple[str, Callable[[], object]]
Observed = tuple[float | Sequence[float], str]


@dataclass(frozen=True)
class Profile:
    """Metrics of a work that take torch's profiler.

    units: the unit of each metric. take: profiles the work; returns {metric: value}, without metrics that it cannot
        tell. Raises ProfileError or Unsupported if it can tell none.
    """

    units: Mapping[str, str]
    take: Callable[[], Mapping[str, float]]


@dataclass
class Workload:
    """One call of what is to be measured.

    run: performs the call; or, to avoid that caches keep the operands of the last
        call, several equivalent callables over different memory, used in turn; or
        named phases that make up the call in this order, each timed for itself.
    flop: floating-point operations of one call, if that is what it is about.
    bytes: least memory traffic of one call in bytes.
    check: computes on fresh inputs and returns the relative error against float64.
    tolerance: largest error that counts as right.
    rate: if set, the metric is this many events over the time, in `rate_unit`,
        under the name `metric` (a clock, say), in place of a time.
    per: if set, the metric is the time divided by this many steps (a latency), under the name `metric`.
    observe: measurements that the core does not time itself, made once: {metric: (value, unit)},
        or several values of a metric (what processes of the work's own have timed, say), each a
        sample. Work without run and phases is observed only.
    profile: metrics that take torch's profiler. On a GPU its hooks slow the process from then on, so a round takes them
        after all timed points, from a work that is built anew.
    clock: the device's own (on a GPU: events around the call, which leave out what
        the host does meanwhile), or the host's, from the call until the device has
        finished: what somebody waits for. With phases on the host's clock, each is the
        time until its callable returns, and the last one waits for the device.
    graph: the call may be captured in a graph of the device. Where it is short, it is
        timed a second time as one, without the host, under the name `graph_time`.
    beside: further works, each with a `metric` of its own, that are measured at the same point.
    lasting: use the whole budget, however soon the answer is good enough.
    single: a sample is one call, never the mean of several, and all samples are made: what counts is how
        they differ (percentiles of a latency). Of quick calls, most pass untimed between two samples, so
        that the samples span as much time as others do.
    """

    run: Callable[[], object] | Sequence[Callable[[], object]] = ()
    phases: Sequence[Phase] = ()
    flop: float | None = None
    bytes: float | None = None
    check: Callable[[], float] | None = None
    tolerance: float | None = None
    metric: str = "time"
    rate: float | None = None
    rate_unit: str = "s"
    per: float | None = None
    observe: Callable[[], Mapping[str, Observed]] | None = None
    profile: Profile | None = None
    clock: Literal["device", "host"] = "device"
    graph: bool = False
    beside: Sequence[Workload] = ()
    lasting: bool = False
    single: bool = False
    calls: Sequence[Callable[[], object]] = field(init=False)
    turns: Iterator[Callable[[], object]] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = (self.run,) if callable(self.run) else tuple(self.run)
        # Goes on from sample to sample: started afresh, single calls would all use the first operands.
        self.turns = cycle(self.calls)
        if self.calls and self.phases:
            raise TypeError("a Workload has either run or phases")
        if not self.calls and not self.phases and self.observe is None:
            raise TypeError("a Workload has something to run, or to observe")
        if self.rate is not None and self.per is not None:
            raise TypeError("a Workload has either a rate or a time per step")
        if len({one.metric for one in (self, *self.beside)}) <= len(self.beside):
            raise TypeError("works at one point need metrics of different names")
        if (self.check is None) != (self.tolerance is None):
            raise TypeError("a check needs a tolerance, and a tolerance a check")
