"""The kernels by which PyTorch computes attention: cuDNN's, flash, memory-efficient, or single operators (math).

PyTorch chooses by GPU, format and shape. On an H100 it takes cuDNN's in bfloat16, on an A100 flash.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.devices import Device

# An operator that computes attention forward, and in its name the kernel: _scaled_dot_product_flash_attention.
_FUSED = re.compile(r"_scaled_dot_product_(\w+?)_attention(?!\w*_backward)\w*")


class _Calls(TorchFunctionMode):
    """Counts the calls of attention in a model's own code."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class _Kernels(TorchDispatchMode):
    """Counts the operators that compute attention in one kernel, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        if fused := _FUSED.fullmatch(func._overloadpacket.__name__):
            self.counts[fused[1]] += 1
        return func(*args, **(kwargs or {}))


def kernels(call: Callable[[], object]) -> dict[str, int]:
    """Calls of attention in one call, by kernel; `math` are those that single operators compute."""
    calls, fused = _Calls(), _Kernels()
    with fused, calls:
        call()
    counts = dict(fused.counts)
    if (single := calls.count - fused.counts.total()) > 0:
        counts["math"] = counts.get("math", 0) + single
    return counts


def metrics(call: Callable[[], object], device: Device) -> Mapping[str, tuple[float, str]]:
    """Metrics of one call of PyTorch's own operators on a GPU: attention.flash, attention.math and others."""
    if device.kind == "cpu":
        return {}
    return {f"attention.{name}": (float(count), "1") for name, count in kernels(call).items()}
