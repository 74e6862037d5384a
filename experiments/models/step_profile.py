"""What a training step is made of: its operators, and the share of products among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from experiments.devices import Device
from experiments.models import operator_traffic, profiling

Operator = tuple[str, tuple[tuple[int, ...], ...]]
# The operators of a step with their shapes, and the products' share of its FLOP.
Step = tuple[list[Operator], float]

# Products, convolutions, attention and recurrent layers, as PyTorch's profiler names them.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv", "attention", "scaled_dot", "einsum", "rnn")


def operators(step: Callable[[], object]) -> Step:
    """Run `step` once, and note its operators."""
    found = operator_traffic.record(step)
    total, products = sum(one.flop for one in found), sum(one.flop for one in found if one.product)
    return [(one.name, one.shapes) for one in found], products / total if total else 0.0


def repeat_share(seen: Sequence[Step]) -> tuple[float, float]:
    """(share of steps whose operator sequence equals that of the step before, products' share of the last one's FLOP).

    seen: two steps or more.
    """
    equal = sum(this[0] == last[0] for last, this in pairwise(seen))
    return equal / (len(seen) - 1), seen[-1][1]


def profile_metrics(step: Callable[[], object], device: Device, steps: int) -> dict[str, float]:
    """Metrics of a profile of `steps` equal steps, 2 or more on an accelerator, which are warm.

    kernel_time: seconds of a step in which an accelerator computes or copies, the durations of its kernels, copies and
    fills added up; for the rest of a step's time the device waits for its host. matmul_time_share: of the operators'
    own time, on the device where they run, the share of products, convolutions, attention and recurrent layers; the
    interpreter's time between operators belongs to neither. Raises ProfileError where kernels are lost, Unsupported
    where the profiler does not know the device.
    """

    def call() -> None:
        for _ in range(steps):
            step()

    events = profiling.record(call, device)
    if profiling.activity(device) is ProfilerActivity.CPU:
        return {"matmul_time_share": _product_share(events, "self_cpu_time_total")}
    kernels = [event for event in events if profiling.is_kernel(event)]
    profiling.check_whole([kernel.name for kernel in kernels], steps)
    microseconds = math.fsum(kernel.time_range.elapsed_us() for kernel in kernels)
    share = _product_share(events, "self_device_time_total")
    return {"kernel_time": microseconds * 1e-6 / steps, "matmul_time_share": share}


def _product_share(events: Iterable[Any], column: str) -> float:
    products = total = 0.0
    for event in events:
        if event.device_type != DeviceType.CPU:
            continue  # the operator that launched a kernel has its time as well
        spent = float(getattr(event, column))
        total += spent
        if event.name.startswith(("aten::", "mkldnn::")) and any(name in event.name for name in _PRODUCTS):
            products += spent
    return products / total if total else math.nan
