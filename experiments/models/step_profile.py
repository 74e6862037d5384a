"""Operators in a training step, and the share of FLOP and time that go to matrix products."""

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
# Record of a step: its operators (name, input shapes), and the share of its FLOP in products.
Step = tuple[list[Operator], float]

# Parts of the names that PyTorch's profiler gives to products, convolutions, attention and recurrent layers.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv", "attention", "scaled_dot", "einsum", "rnn")


def record_step(step: Callable[[], object]) -> Step:
    """Run `step` once, and return its operators and the share of its FLOP in products."""
    operators = operator_traffic.record_operators(step)
    total = sum(operator.flop for operator in operators)
    products = sum(operator.flop for operator in operators if operator.product)
    return [(operator.name, operator.shapes) for operator in operators], products / total if total else 0.0


def repeat_share(steps: Sequence[Step]) -> tuple[float, float]:
    """Return (share of steps with the same operators as the step before, share of the last step's FLOP in products).

    steps: at least two records. The first step has no step before it, so it does not count.
    """
    equal = sum(step[0] == previous[0] for previous, step in pairwise(steps))
    return equal / (len(steps) - 1), steps[-1][1]


def profile_metrics(step: Callable[[], object], device: Device, steps: int) -> dict[str, float]:
    """Profile `steps` equal steps, and return metrics by name. The caller has to run warm-up steps before.

    steps: number of steps, on an accelerator at least two.
    kernel_time: seconds per step in the accelerator's kernels, copies and fills (only on an accelerator). For a step's
        remaining time, the accelerator waits for the host.
    matmul_time_share: share of the operators' time on their device that goes to products, convolutions, attention and
        recurrent layers. The interpreter's time between operators does not count.
    Raises ProfileError if kernels are lost, Unsupported if the profiler does not support the device.
    """

    def call() -> None:
        for _ in range(steps):
            step()

    events = profiling.record_events(call, device)
    if profiling.device_activity(device) is ProfilerActivity.CPU:
        return {"matmul_time_share": _product_share(events, "self_cpu_time_total")}
    kernels = [event for event in events if profiling.is_kernel(event)]
    profiling.require_all_kernels([kernel.name for kernel in kernels], steps)
    microseconds = math.fsum(kernel.time_range.elapsed_us() for kernel in kernels)
    share = _product_share(events, "self_device_time_total")
    return {"kernel_time": microseconds * 1e-6 / steps, "matmul_time_share": share}


def _product_share(events: Iterable[Any], column: str) -> float:
    products = total = 0.0
    for event in events:
        if event.device_type != DeviceType.CPU:
            continue  # a kernel's time already counts in its operator
        self_time = float(getattr(event, column))
        total += self_time
        if event.name.startswith(("aten::", "mkldnn::")) and any(name in event.name for name in _PRODUCTS):
            products += self_time
    return products / total if total else math.nan
