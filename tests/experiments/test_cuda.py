"""A GPU's timing, graphs, streams and refusals, on a stand-in for torch whose clock a test moves on."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.devices.accelerator import Accelerator
from experiments.devices.cuda import CudaDevice
from experiments.devices.mps import MpsDevice
from experiments.devices.rocm import RocmDevice
from experiments.devices.xpu import XpuDevice
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.torch_standin import ARC, H100, MI300X, Event, Graph, Stream, Torch, install

T4 = SimpleNamespace(**{**vars(H100), "major": 7, "minor": 5})


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return install(monkeypatch, Torch(H100, cuda="13.0"))


MADE: list[tuple[type[Accelerator], str, dict[str, Any]]] = [
    (CudaDevice, "cuda:0", {"cuda": "13.0"}),
    (RocmDevice, "cuda:0", {"hip": "7.0.51831"}),
    (XpuDevice, "xpu:0", {"xpu": "20250301"}),
    (MpsDevice, "mps", {"mps": True}),
]


@pytest.mark.parametrize(("kind", "name", "built"), MADE)
def test_a_call_is_timed_by_the_device_not_by_its_launch(
    kind: type[Accelerator], name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = install(monkeypatch, Torch(H100, **built))
    assert kind(name).time(Work(run=lambda: torch.launch(2.0)), calls=5) == [pytest.approx(2e-3)]
    kind(name).synchronise()
    assert torch.waits == 3


@pytest.mark.parametrize(("kind", "name", "built"), MADE)
def test_its_counters_are_read_while_the_device_works_and_outside_of_what_is_timed(
    kind: type[Accelerator], name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last event has been recorded, before anybody waits: nothing but launches lies between two events."""
    torch, done = install(monkeypatch, Torch(H100, **built)), list[str]()
    record, synchronise = Event.record, Torch.synchronize
    monkeypatch.setattr(Event, "record", lambda event: (done.append("record"), record(event)))
    monkeypatch.setattr(Torch, "synchronize", lambda torch: (done.append("synchronise"), synchronise(torch)))

    def read() -> None:
        assert torch.now < torch.queued, "the device is idle"
        done.append("read")

    work = Work(phases=[("forward", lambda: torch.launch(1.0)), ("backward", lambda: torch.launch(3.0))])
    assert kind(name).time(work, 2, read) == [pytest.approx(1e-3), pytest.approx(3e-3)]
    assert done[-3:] == ["record", "read", "synchronise"]
    assert done.count("read") == 1


@pytest.mark.parametrize(("kind", "name", "built"), MADE)
def test_where_the_host_times_its_counters_are_read_when_all_is_done(
    kind: type[Accelerator], name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = install(monkeypatch, Torch(H100, **built))
    waited: list[bool] = []

    def read() -> None:
        waited.append(torch.now == torch.queued == 4.0)
        time.sleep(0.1)

    assert kind(name).time(Work(run=lambda: torch.launch(2.0), clock="host"), 2, read)[0] < 0.05
    assert waited == [True]


def test_phases_are_told_apart_without_waiting_between_them(torch: Torch) -> None:
    work = Work(phases=[("forward", lambda: torch.launch(1.0)), ("backward", lambda: torch.launch(3.0))])
    assert CudaDevice("cuda:0").time(work, calls=4) == [pytest.approx(1e-3), pytest.approx(3e-3)]
    assert torch.waits == 2  # before and after, not in between


def test_equivalent_calls_take_turns(torch: Torch) -> None:
    seen: list[str] = []
    CudaDevice("cuda:0").time(Work(run=[lambda: seen.append("a"), lambda: seen.append("b")]), calls=5)
    assert seen == ["a", "b", "a", "b", "a"]


def test_the_cost_of_reading_the_clock_is_never_nothing(torch: Torch) -> None:
    assert CudaDevice("cuda:0").overhead_s == 1e-7


def test_on_apples_gpu_two_events_without_anything_between_may_be_stamped_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = install(monkeypatch, Torch(H100, mps=True))
    stamped: list[Event] = []

    def elapsed_time(start: Event, end: Event) -> float:
        assert end not in stamped, "torch would wait forever"
        stamped.append(end)
        if start not in stamped:
            raise RuntimeError("Events were not created with argument 'enable_timing=True'")
        if end.at <= start.at:
            raise RuntimeError("End event 2 was not recorded after start event 1")
        return end.at - start.at

    monkeypatch.setattr(Event, "elapsed_time", elapsed_time)
    spent = MpsDevice("mps").between([lambda: None, lambda: torch.launch(2.0)])
    assert spent == [0.0, pytest.approx(2e-3)]
    monkeypatch.setattr(Event, "elapsed_time", lambda *_: Torch(refuses=RuntimeError("lost")).ones(1, "mps"))
    with pytest.raises(RuntimeError, match="lost"):
        MpsDevice("mps").between([lambda: None])


def test_a_graph_does_all_calls_at_each_replay_and_nothing_when_captured(torch: Torch) -> None:
    seen: list[float] = []

    def call() -> None:
        seen.append(torch.queued)
        torch.launch(1.0)

    device = CudaDevice("cuda:0")
    replay = device.graph([call, call])
    assert len(seen) == 4  # once to set up, once to capture
    assert torch.queued == 2.0
    assert device.between([replay, replay]) == [pytest.approx(2e-3), pytest.approx(2e-3)]
    assert len(seen) == 4


def test_what_cannot_be_captured_is_unsupported_and_leaves_torchs_stream_as_it_was(torch: Torch) -> None:
    before = torch.here
    with pytest.raises(Unsupported, match=r"^cannot be captured in a graph: operation not permitted .* capturing$"):
        CudaDevice("cuda:0").graph([torch.synchronize])
    assert torch.here is before


@pytest.mark.parametrize(("kind", "name", "built"), MADE[2:])
def test_graphs_are_for_those_who_have_them(
    kind: type[Accelerator], name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = install(monkeypatch, Torch(ARC, **built))
    with pytest.raises(Unsupported, match=r"torch 2\.11\.0 captures no graphs on (Intel|Apple)'s GPUs"):
        kind(name).graph([lambda: None])
    if kind is XpuDevice:  # newer ones do
        monkeypatch.setattr(Torch, "XPUGraph", lambda self: Graph(self), raising=False)
        replay = kind(name).graph([lambda: torch.launch(1.0)])
        assert kind(name).between([replay]) == [pytest.approx(1e-3)]


def test_calls_beside_each_other_have_streams_that_wait_for_what_was_before_and_are_waited_for(torch: Torch) -> None:
    seen: list[Stream] = []
    device, here = CudaDevice("cuda:0"), torch.here
    for _ in range(2):
        device.together([lambda: seen.append(torch.here)] * 3)
    assert len(set(map(id, seen))) == 3
    assert here not in seen
    assert all(here in stream.waited_for for stream in seen)
    assert here.waited_for == seen
    assert torch.here is here


def test_on_apples_gpu_calls_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, mps=True))
    seen: list[Stream] = []
    MpsDevice("mps").together([lambda: seen.append(torch.here)] * 2)
    assert seen == [torch.here] * 2


LACKS: list[tuple[type[Accelerator], str, Torch, str, Dtype, str]] = [
    (CudaDevice, "cuda:0", Torch(H100, cuda="13.0"), "numpy", Dtype.FLOAT32, "numpy does not run on cuda:0"),
    (CudaDevice, "cuda:0", Torch(H100, cuda="13.0"), "onednn", Dtype.FLOAT32, "onednn does not run on cuda:0"),
    (CudaDevice, "cuda:0", Torch(T4, cuda="13.0"), "torch", Dtype.TF32, "compute capability 8.0"),
    (RocmDevice, "cuda:0", Torch(MI300X, hip="7.0"), "torch", Dtype.TF32, "NVIDIA"),
    (RocmDevice, "cuda:0", Torch(MI300X, hip="7.0"), "torch", Dtype.FLOAT8, "NVIDIA"),
    (XpuDevice, "xpu:0", Torch(ARC, xpu="20250301"), "torch", Dtype.INT8, "NVIDIA"),
    (XpuDevice, "xpu:0", Torch(ARC, xpu="20250301"), "cublas", Dtype.FLOAT32, "cublas does not run on xpu:0"),
    (MpsDevice, "mps", Torch(H100, mps=True), "torch", Dtype.TF32, "NVIDIA"),
]


@pytest.mark.parametrize(("kind", "name", "torch", "backend", "dtype", "words"), LACKS)
def test_what_the_device_lacks_is_unsupported(
    kind: type[Accelerator],
    name: str,
    torch: Torch,
    backend: str,
    dtype: Dtype,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, torch)
    with pytest.raises(Unsupported, match=words):
        kind(name).matmul(backend, SimpleNamespace(), SimpleNamespace(), dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "torch"),
    [
        (CudaDevice, "cuda:0", Torch(T4, cuda="13.0")),
        (RocmDevice, "cuda:0", Torch(MI300X, hip="7.0")),
        (XpuDevice, "xpu:0", Torch(ARC, xpu="20250301")),
        (MpsDevice, "mps", Torch(H100, mps=True)),
    ],
)
def test_what_would_be_computed_in_another_format_is_refused_before_data_are_made(
    kind: type[Accelerator], name: str, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, torch)
    with pytest.raises(Unsupported, match="tf32"):
        kind(name).normal((2, 2), Dtype.TF32)


@pytest.mark.parametrize(("dtype", "allowed"), [(Dtype.TF32, True), (Dtype.FLOAT32, False)])
def test_float32_is_not_silently_rounded_to_tf32(torch: Torch, dtype: Dtype, allowed: bool) -> None:
    operand: Any = SimpleNamespace(shape=(2, 2), dtype="float32")
    CudaDevice("cuda:0").matmul("torch", operand, operand, dtype)
    assert torch.backends.cuda.matmul.allow_tf32 is allowed


@pytest.mark.parametrize(("kind", "name", "built"), MADE[1:])
def test_other_makers_multiply_too(
    kind: type[Accelerator], name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(H100, **built))
    operand: Any = SimpleNamespace(shape=(2, 3), dtype="float32")
    other: Any = SimpleNamespace(shape=(3, 4), dtype="float32")
    assert kind(name).matmul("torch", operand, other, Dtype.FLOAT32)() == (2, 4)
