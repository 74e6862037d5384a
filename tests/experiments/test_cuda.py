"""The GPU's timing and its refusals, on a stand-in for torch.cuda whose clock is simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.devices.cuda import CudaDevice
from experiments.work import Dtype, Unsupported, Work


class Clock:
    """A device that runs what is launched later, in order; events note its clock, in milliseconds."""

    def __init__(self, capability: tuple[int, int] = (9, 0), hip: str | None = None) -> None:
        self.now, self.queued, self.synchronised = 0.0, 0.0, 0
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self),
            synchronize=self.synchronize,
            get_device_capability=lambda name: capability,
        )
        self.version = SimpleNamespace(hip=hip)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)))

    def empty(self, *shape: int, **_: Any) -> Any:
        return shape

    def launch(self, milliseconds: float) -> None:
        self.queued += milliseconds

    def synchronize(self) -> None:
        self.synchronised += 1
        self.now = self.queued


class Event:
    """Knows when the device got to it, but only after it has been waited for."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.at = clock, -1.0

    def record(self) -> None:
        self.at = self.clock.queued

    def elapsed_time(self, later: Event) -> float:
        assert self.clock.now >= later.at, "read before the device was there"
        return later.at - self.at


def device(clock: Clock) -> CudaDevice:
    made = CudaDevice.__new__(CudaDevice)
    made.name, made._torch = "cuda:0", clock  # type: ignore[assignment]
    return made


def test_a_call_is_timed_by_the_device_not_by_its_launch() -> None:
    clock = Clock()
    assert device(clock).time(Work(run=lambda: clock.launch(2.0)), calls=5) == [pytest.approx(2e-3)]


def test_phases_are_told_apart_without_waiting_between_them() -> None:
    clock = Clock()
    work = Work(phases=[("forward", lambda: clock.launch(1.0)), ("backward", lambda: clock.launch(3.0))])
    assert device(clock).time(work, calls=4) == [pytest.approx(1e-3), pytest.approx(3e-3)]
    assert clock.synchronised == 2  # before and after, not in between


def test_equivalent_calls_take_turns() -> None:
    clock, seen = Clock(), []
    device(clock).time(Work(run=[lambda: seen.append("a"), lambda: seen.append("b")]), calls=5)
    assert seen == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize(
    ("clock", "backend", "dtype", "words"),
    [
        (Clock(), "numpy", Dtype.FLOAT32, "numpy does not run on cuda:0"),
        (Clock(), "onednn", Dtype.FLOAT32, "onednn does not run on cuda:0"),
        (Clock(capability=(7, 5)), "torch", Dtype.TF32, "compute capability 8.0"),
        (Clock(hip="6.4"), "torch", Dtype.TF32, "NVIDIA"),
    ],
)
def test_what_the_device_lacks_is_unsupported(clock: Clock, backend: str, dtype: Dtype, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        device(clock).matmul(backend, SimpleNamespace(), SimpleNamespace(), dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "allowed"), [(Dtype.TF32, True), (Dtype.FLOAT32, False)])
def test_float32_is_not_silently_rounded_to_tf32(dtype: Dtype, allowed: bool) -> None:
    clock = Clock()
    operand = SimpleNamespace(shape=(2, 2), dtype="float32")
    device(clock).matmul("torch", operand, operand, dtype)  # type: ignore[arg-type]
    assert clock.backends.cuda.matmul.allow_tf32 is allowed
