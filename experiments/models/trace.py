"""What a training step is made of: its operators, and the share of products among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from experiments.devices import Device
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


def profiled(step: Callable[[], object], device: Device, steps: int) -> tuple[float | None, float]:
    """(seconds of a step in which an accelerator computes or copies, the products' share of operator time).

    Both from one profile of `steps` steps by `torch.profiler`. Seconds: the durations of its kernels, copies and fills
    added up; what of a step's time is not in it, the device waits for its host. None where the profiler does not see
    an accelerator. Share: of the operators' own time, on the device where they run, in products, convolutions,
    attention and recurrent layers; the interpreter's time between operators belongs to neither. nan where the profiler
    does not see the device.
    """
    activity = getattr(ProfilerActivity, device.name.partition(":")[0].upper(), None)
    if activity is None:
        return None, math.nan
    apart = activity is not ProfilerActivity.CPU
    if apart:
        step()
        device.synchronise()
    with profile(activities=list({ProfilerActivity.CPU, activity})) as seen:
        for _ in range(steps):
            step()
        if apart:
            device.synchronise()
    events = seen.key_averages()
    return (added_up(events) / steps or None) if apart else None, _product_share(events, apart)


def added_up(events: Any) -> float:
    """Seconds on the device in a profile's averages. Operators, and ranges that somebody named, hold kernels' again."""
    on_device = (one for one in events if one.device_type != DeviceType.CPU and not one.is_user_annotation)
    return sum(float(one.self_device_time_total) for one in on_device) * 1e-6


def _product_share(events: Any, apart: bool) -> float:
    column = "self_device_time_total" if apart else "self_cpu_time_total"
    products = total = 0.0
    for event in events:
        if event.device_type != DeviceType.CPU:
            continue  # a kernel, whose time its operator is told to have spent as well
        spent = float(getattr(event, column))
        total += spent
        if event.key.startswith(("aten::", "mkldnn::")) and any(name in event.key for name in _PRODUCTS):
            products += spent
    return products / total if total else 0.0
