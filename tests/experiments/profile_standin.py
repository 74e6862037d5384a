"""Stand-in for torch's profiler on a GPU. It returns the synthetic events of a test and measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from experiments.models import profiling
from experiments.workload import Dtype
from tests.experiments.second_device import SecondCpu

HEAD_US, MARK_US, CALL_US = 100.0, 5000.0, 10000.0


class Profiled(SecondCpu):
    """GPU with the name cuda:0, which torch's profiler accepts, but with tensors on the CPU."""

    def __init__(self) -> None:
        super().__init__("cuda:0")

    def random_normal(self, shape: tuple[int, ...], dtype: Dtype) -> torch.Tensor:
        return torch.randn(shape)


def host_event(name: str, start_us: float, microseconds: float = 1.0) -> FunctionEvent:
    """Return the event for an operator or a named range."""
    return FunctionEvent(1, name, 1, start_us, start_us + microseconds, use_device="cuda")


def kernel_event(name: str, start_us: float, microseconds: float = 2.0, **more: Any) -> FunctionEvent:
    """Return a device event: a kernel, copy or fill."""
    end = start_us + microseconds
    return FunctionEvent(2, name, 7, start_us, end, device_type=DeviceType.CUDA, use_device="cuda", **more)


def head_events(lost: int = 0) -> list[FunctionEvent]:
    """Return the first events in a profile: kernels, of which the first `lost` are missing, and then the event MARK."""
    kernels = [kernel_event("add", HEAD_US + index) for index in range(lost, profiling.HEAD_KERNELS)]
    return [*kernels, host_event(profiling.MARK, MARK_US)]


def step_kernels(count: int, names: Sequence[str]) -> list[FunctionEvent]:
    """Return kernel events for `count` steps in sequence."""
    return [kernel_event(name, CALL_US + 10 * index) for index, name in enumerate([*names] * count)]


def install(monkeypatch: pytest.MonkeyPatch, events: Callable[[], list[FunctionEvent]]) -> None:
    """Make profiles return these events."""

    @contextmanager
    def profile(**_: Any) -> Iterator[Any]:
        yield SimpleNamespace(events=events)

    monkeypatch.setattr(profiling, "profile", profile)
    monkeypatch.setattr(profiling, "GAP_S", 0.0)
