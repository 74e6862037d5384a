"""What a training step is made of: its operators, and the share of products among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from experiments.models import traffic

Operator = tuple[str, tuple[tuple[int, ...], ...]]

# Products, convolutions, attention and recurrent layers, as PyTorch's profiler names them.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv", "attention", "scaled_dot", "einsum", "rnn")


def operators(step: Callable[[], object]) -> tuple[list[Operator], float]:
    """The operators of one call of `step` with their shapes, and the products' share of its FLOP."""
    found = traffic.record(step)
    total, products = sum(one.flop for one in found), sum(one.flop for one in found if one.product)
    return [(one.name, one.shapes) for one in found], products / total if total else 0.0


def repeat_share(step: Callable[[], object], steps: int) -> tuple[float, float]:
    """(share of steps whose operator sequence equals that of the step before, products' share of FLOP)."""
    seen = [operators(step) for _ in range(steps + 1)]
    equal = sum(this[0] == last[0] for last, this in pairwise(seen))
    return equal / steps, seen[-1][1]


def product_time_share(step: Callable[[], object], device: str, steps: int) -> float:
    """Share of operator time, over `steps` steps, in products, convolutions, attention and recurrent layers.

    Self time of operators by `torch.profiler`, on the device where they run; the
    interpreter's time between operators belongs to neither. nan where the profiler does
    not see the device (torch's name of it).
    """
    activity = getattr(ProfilerActivity, device.partition(":")[0].upper(), None)
    if activity is None:
        return math.nan
    with profile(activities=list({ProfilerActivity.CPU, activity})) as seen:
        for _ in range(steps):
            step()
    column = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    products = total = 0.0
    for event in seen.key_averages():
        if event.device_type != DeviceType.CPU:
            continue  # a kernel, whose time its operator is told to have spent as well
        spent = float(getattr(event, column))
        total += spent
        if event.key.startswith(("aten::", "mkldnn::")) and any(name in event.key for name in _PRODUCTS):
            products += spent
    return products / total if total else 0.0
