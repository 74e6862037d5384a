"""What a training step is made of: its operators, and the share of products among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

Operator = tuple[str, tuple[tuple[int, ...], ...]]

# Names of the operators that are products, convolutions or attention, as PyTorch's profiler shows them.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv", "attention", "scaled_dot", "einsum")


class _Recorder(TorchDispatchMode):
    """Notes each operator with its shapes, and counts FLOP of products and of everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.product_flop = 0.0
        self.other_flop = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))
        self.operators.append((str(func), shapes))
        packet = func._overloadpacket
        if packet in flop_registry:
            self.product_flop += flop_registry[packet](*args, **kwargs, out_val=out)
        else:
            # One operation per element that comes out: what a pointwise or reducing operator does at the least.
            outputs = out if isinstance(out, tuple | list) else (out,)
            if not func.is_view:
                self.other_flop += sum(o.numel() for o in outputs if isinstance(o, torch.Tensor))
        return out


def operators(step: Callable[[], object]) -> tuple[list[Operator], float]:
    """The operators of one call of `step` with their shapes, and the products' share of its FLOP."""
    recorder = _Recorder()
    with recorder:
        step()
    total = recorder.product_flop + recorder.other_flop
    return recorder.operators, recorder.product_flop / total if total else 0.0


def repeat_share(step: Callable[[], object], steps: int) -> tuple[float, float]:
    """(share of steps whose operator sequence equals that of the step before, products' share of FLOP)."""
    seen = [operators(step) for _ in range(steps + 1)]
    equal = sum(this[0] == last[0] for last, this in pairwise(seen))
    return equal / steps, seen[-1][1]


def product_time_share(step: Callable[[], object], device: str, steps: int) -> float:
    """Share of operator time, over `steps` steps, that is spent in products, convolutions and attention.

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
        spent = float(getattr(event, column))
        total += spent
        if event.key.startswith(("aten::", "mkldnn::")) and any(name in event.key for name in _PRODUCTS):
            products += spent
    return products / total if total else 0.0
