"""Types with which experiments define their workloads."""

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
    """The device or library does not support this point; the message says why."""


class HarnessError(RuntimeError):
    """The harness, not the measured code, failed at this point (for example at a system limit, or by a lost process).

    The point is recorded as failed with a reason that begins with `harness:`; the message says what to do.
    """


class ProfileError(Exception):
    """A profile has no result; the message says why. The point's other metrics remain valid."""


# Distribution names that differ from the module name.
INSTALLED_AS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "llama_cpp": "llama-cpp-python", "openvino_genai": "openvino-genai",
}  # fmt: skip


def missing_library(absent: ModuleNotFoundError) -> Unsupported:
    """Return an error with the install command. Raises `absent` for modules in this project or the standard library."""
    library = (absent.name or "").partition(".")[0]
    if not library or library in {"contract", "experiments", *sys.stdlib_module_names}:
        raise absent
    return Unsupported(f"{library} is not installed: pip install {INSTALLED_AS.get(library, library)}")


class Dtype(StrEnum):
    """Number format for operands. `TF32` is float32 in memory, rounded inside matrix units."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8_e4m3fn"
    INT8 = "int8"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return {"float64": 8, "float32": 4, "tf32": 4, "float8_e4m3fn": 1, "int8": 1}.get(self.value, 2)

    @property
    def result_itemsize(self) -> int:
        """Bytes per element in a product: bfloat16 for 8-bit floats, int32 for 8-bit integers."""
        return {"float8_e4m3fn": 2, "int8": 4}.get(self.value, self.itemsize)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error from rounding to nearest: half the spacing of numbers at 1; 0 for integers."""
        bits = {"float64": 53, "float32": 24, "tf32": 11, "bfloat16": 8, "float16": 11, "float8_e4m3fn": 4}
        return 2.0 ** -bits[self.value] if self is not Dtype.INT8 else 0.0

    def matmul_tolerance(self, k: int) -> float:
        """Return the largest relative Frobenius-norm error for a correct product with inner dimension `k`.

        Operands and result are rounded to this format. Sums over random data, accumulated in float32 or better, err by
        about sqrt(k) roundings (Higham & Mary 2019, "A new approach to probabilistic rounding error analysis"). Sums in
        a float64 reference err by as many float64 roundings.

        FLOAT8: the operands are exact, and the result is bfloat16. Hopper's units add 32 products at a time to a sum
        truncated to 14 bits (DeepSeek-V3 technical report, arXiv:2412.19437, sections 3.3.2 and 3.5.2). Truncation
        always rounds towards zero, so k/32 losses, each up to 2^-13 relative to the sum, add up: 1.6% at k = 4096,
        where that report saw errors close to 2%.
        INT8: products are exact, since the sums are integers.
        """
        if self is Dtype.INT8:
            return 0.0
        if self is Dtype.FLOAT8:
            return 4.0 * Dtype.BFLOAT16.unit_roundoff + k / 32 * 2.0**-13
        accumulator = self if self is Dtype.FLOAT64 else Dtype.FLOAT32
        return 4.0 * self.unit_roundoff + 2.0 * math.sqrt(k) * accumulator.unit_roundoff


# Format to measure in place of a format that a GPU has no units for.
SUBSTITUTES = {Dtype.BFLOAT16: Dtype.FLOAT16, Dtype.TF32: Dtype.FLOAT32}


def largest_error(*errors: float) -> float:
    """Return the largest error, or nan if any error is nan, which `max` may miss."""
    return max(errors, key=lambda error: (math.isnan(error), error))


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the Frobenius norm for `result - exact`, relative to `exact`; nan if the result contains nan."""
    import torch

    return float(torch.linalg.norm(result - exact) / torch.linalg.norm(exact))


# Types for parameters that a preset may also set relative to the machine, with texts such as 'all' or '4xLLC'
# (`experiments.sweep`).
Threads = Annotated[int, "all"]
Footprint = Annotated[int, "xLLC"]
Phase = tuple[str, Callable[[], object]]
Observed = tuple[float | Sequence[float], str]


@dataclass(frozen=True)
class Profile:
    """Metrics that require torch's profiler.

    units: unit by metric.
    take: profiles the workload and returns {metric: value}, without metrics that the profile does not give. Raises
        ProfileError or Unsupported if the profile gives no metric.
    """

    units: Mapping[str, str]
    take: Callable[[], Mapping[str, float]]


@dataclass
class Workload:
    """A workload to measure. One call of the workload is the unit that is timed.

    run: performs the call. A sequence of equivalent callables with operands in different memory is used in turn, so
        that the caches do not contain the next call's operands.
    phases: in place of `run`, named phases that make up the call in this order, each timed separately.
    flop: floating-point operations per call, if they limit the call's speed.
    bytes: minimum memory traffic per call in bytes.
    check: computes on fresh inputs and returns the result's relative error against float64.
    tolerance: largest error that `check` may return for a correct result.
    rate: if set, the metric is this event count divided by the time, in `rate_unit`, under the name `metric` (for
        example a clock).
    per: if set, the metric is the time divided by this step count (a latency), under the name `metric`.
    observe: called once; returns values that the measuring core does not time: {metric: (value, unit)}. The value may
        also be a list with one value per sample (for example times measured in child processes). A workload without run
        and phases is only observed.
    profile: metrics that require torch's profiler. On a GPU, the profiler slows the process afterwards, so a round
        takes its profiles after all timed points, with new workloads.
    clock: "device" or "host". On a GPU, "device" takes the time between events around the call, which excludes host
        work. "host" takes the time from the call until the device has finished, which is how long a user waits. With
        phases on the host clock, each phase ends when its callable returns, and the last one waits for the device.
    graph: True if a device graph may capture the call. Short calls are then also timed in a graph, without the host,
        under the name `graph_time`.
    beside: further workloads to measure at the same point, each with its own `metric`.
    lasting: True to use the whole budget, even after the result has converged.
    single: True to time one call per sample and not to stop before `max_samples` or the budget, to get the distribution
        of the times (latency percentiles). If calls are quick, untimed calls between the samples make the measurement
        last as long as without `single`.
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
        # All samples share this cycle. With a new cycle per sample, single calls would always use the first operands.
        self.turns = cycle(self.calls)
        if self.calls and self.phases:
            raise TypeError("a Workload takes either run or phases, not both")
        if not self.calls and not self.phases and self.observe is None:
            raise TypeError("a Workload needs run, phases or observe")
        if self.rate is not None and self.per is not None:
            raise TypeError("a Workload takes either rate or per, not both")
        if len({work.metric for work in (self, *self.beside)}) <= len(self.beside):
            raise TypeError("workloads at one point need different metric names")
        if (self.check is None) != (self.tolerance is None):
            raise TypeError("check and tolerance must be set together")
