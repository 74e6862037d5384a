"""A request goes there and back: what travels, what is timed, and that a wrong or stale result is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.devices.cpu import CpuDevice
from experiments.models import requests
from experiments.registry import get, typed
from experiments.state import Watch
from experiments.suite import offload as module
from experiments.work import Dtype, Unsupported, Work
from experiments.worker import answer_to

from .second_device import SecondCpu

OPS: dict[str, dict[str, int]] = {
    "elementwise": {"m": 1000, "n": 1, "k": 1},
    "gemv": {"m": 48, "n": 1, "k": 80},
    "gemm": {"m": 40, "n": 24, "k": 56},
    "mlp": {"m": 9, "n": 48, "k": 32},
}
# Elements that travel there and back, and operations of one use.
TRAVELS = {"elementwise": 2000, "gemv": 80 + 48, "gemm": 40 * 56 + 56 * 24 + 40 * 24, "mlp": 9 * 32 * 2}
FLOP = {"elementwise": None, "gemv": 2 * 48 * 80, "gemm": 2 * 40 * 24 * 56, "mlp": 4 * 9 * 48 * 32}
WAYS = [("pinned", "eager"), ("pageable", "eager"), ("pinned", "graph")]


def work(op: str, host_memory: str = "pinned", launch: str = "eager", device: Any = None, **more: Any) -> Work:
    experiment = get("offload")
    params = {
        "op": op, **OPS[op], "uses": 1, "host_memory": host_memory, "launch": launch, "dtype": "float32",
        "backend": "torch", "threads": 0, **more,
    }  # fmt: skip
    return experiment.function(device or SecondCpu(), **typed(experiment, params))


def right(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return made.check() <= made.tolerance


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("host_memory", "launch"), WAYS)
@pytest.mark.parametrize("op", OPS)
def test_fresh_data_go_there_and_the_result_comes_back(op: str, host_memory: str, launch: str, dtype: str) -> None:
    made = work(op, host_memory, launch, dtype=dtype, uses=2)
    assert right(made)
    assert right(made)  # on other data, from another place
    itemsize = {"float64": 8, "float32": 4, "bfloat16": 2}[dtype]
    assert made.bytes == TRAVELS[op] * itemsize
    assert made.flop == (2 * FLOP[op] if FLOP[op] else None)


@pytest.mark.parametrize("op", OPS)
def test_operations_by_formula_are_those_of_the_work(op: str) -> None:
    flop = get("offload").flop
    assert flop is not None
    assert flop(op=op, **OPS[op], uses=3) == (work(op, uses=3).flop or 0)


def test_the_host_times_every_part_until_the_device_is_done() -> None:
    device = SecondCpu()
    made = work("gemm", device=device)
    assert made.clock == "host"
    assert [name for name, _ in made.phases] == ["enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise"]
    before = device.waits
    device.time(made, 3)
    assert device.waits == before + 3 + 1  # for each request, and before the first
    (beside,) = made.beside
    assert (beside.metric, beside.clock) == ("device_time", "device")
    assert [name for name, _ in beside.phases] == ["h2d", "compute", "d2h"]


def test_a_graph_is_one_launch_and_a_wait() -> None:
    made = work("mlp", launch="graph")
    assert [name for name, _ in made.phases] == ["launch", "synchronise"]
    assert made.beside == ()


def test_what_the_device_takes_is_shown_without_the_host_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert work("gemm", "pageable").beside == ()

    def none(self: SecondCpu, calls: Any) -> Any:
        raise Unsupported("no graphs")

    monkeypatch.setattr(SecondCpu, "graph", none)
    assert work("gemm").beside == ()
    with pytest.raises(Unsupported):
        work("gemm", launch="graph")


def test_parts_of_short_requests_are_repeated_in_their_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    graph = SecondCpu.graph

    def counted(self: SecondCpu, calls: Any) -> Any:
        lengths.append(len(calls))
        return graph(self, calls)

    monkeypatch.setattr(SecondCpu, "graph", counted)
    for uses, repeats in ((1, module.REPEATS), (5, module.REPEATS // 5), (1000, 1)):
        made = work("elementwise", uses=uses)
        assert lengths == [repeats] * 3
        assert made.beside[0].per == repeats
        lengths.clear()
    work("elementwise", m=module.SHORT_BYTES // 8)
    assert lengths == [1] * 3


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_requests_use_one_place_in_host_memory_after_another(launch: str) -> None:
    trip = module.Trip(requests.Elementwise(SecondCpu(), "torch", Dtype.FLOAT32, 100, 1, 1), 1, 3, pinned=True)
    phases = trip.phases if launch == "eager" else trip.captured()
    for (data,), result in trip.slots:
        data.fill_(0.0)
        result.fill_(-1.0)
    for done in (1, 2, 3):
        for _, phase in phases:
            phase()
        assert sum(bool((result == 0.5).all()) for _, result in trip.slots) == done


@pytest.mark.parametrize(("host_memory", "launch"), WAYS)
@pytest.mark.parametrize("lost", ["send", "fetch"])
def test_data_that_do_not_travel_are_noticed(
    monkeypatch: pytest.MonkeyPatch, lost: str, host_memory: str, launch: str
) -> None:
    monkeypatch.setattr(module.Trip, lost, lambda self, slot: None)
    assert not right(work("elementwise", host_memory, launch))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("op", OPS)
def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch, op: str, kind: str) -> None:
    one = {"elementwise": requests.Elementwise, "gemm": requests.Product}.get(op, requests.Layers)
    on = one.on
    monkeypatch.setattr(one, "on", lambda self, *data: lambda: on(self, *data)().mul_(1.001))
    device = SecondCpu() if kind == "gpu" else CpuDevice()
    assert not right(work(op, "pinned" if kind == "gpu" else "none", device=device))


@pytest.mark.parametrize("backend", ["torch", "onednn", "numpy"])
@pytest.mark.parametrize("op", ["gemv", "gemm", "mlp"])
def test_a_cpu_does_the_same_by_its_libraries_and_copies_nothing(op: str, backend: str) -> None:
    made = work(op, "none", device=CpuDevice(), backend=backend, uses=2)
    assert right(made)
    assert made.bytes == TRAVELS[op] * 4
    assert not made.phases
    assert len(made.calls) == module.MOST_SLOTS
    for call in made.calls:
        call()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gpu", {"host_memory": "none"}),
        ("cpu", {"host_memory": "pinned"}),
        ("cpu", {"host_memory": "none", "launch": "graph"}),
        ("gpu", {"host_memory": "pageable", "launch": "graph"}),
        ("gpu", {"uses": 0}),
        ("gpu", {"m": 0}),
        ("gpu", {"n": 2}),
        ("gpu", {"dtype": "int8"}),
        ("gpu", {"dtype": "tf32"}),
        ("gpu", {"backend": "onednn"}),
        ("gpu", {"op": "mlp", "backend": "onednn"}),
        ("gpu", {"op": "gemv", "n": 2}),
        ("cpu", {"host_memory": "none", "op": "mlp", "backend": "onednn", "dtype": "float64"}),
    ],
)
def test_what_makes_no_request_is_unsupported(kind: str, more: dict[str, Any]) -> None:
    device = SecondCpu() if kind == "gpu" else CpuDevice()
    with pytest.raises(Unsupported):
        work(**{"op": "elementwise", "device": device, **more})


def test_memory_covers_what_is_kept() -> None:
    memory = get("offload").memory
    assert memory is not None
    for op, shape in OPS.items():
        assert memory(op=op, **shape, dtype="float32") >= (module.MOST_SLOTS + 1) * TRAVELS[op] * 4


@pytest.mark.parametrize("op", OPS)
def test_probes_are_for_the_cpu(op: str) -> None:
    smaller = get("offload").smaller
    assert smaller is not None
    point = {"op": op, "m": 4096, "n": 4096, "k": 4096, "host_memory": "none"}
    assert smaller({**point, "host_memory": "pinned"}) is None
    less = smaller(point)
    assert less is not None
    assert less["m"] < 4096
    assert (less["n"] < 4096) == (op == "gemm")
    assert min(less[name] for name in ("m", "n", "k")) >= 64


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_a_point_yields_the_whole_its_phases_and_what_the_device_takes(launch: str) -> None:
    params = {
        "op": "gemm", **OPS["gemm"], "uses": 1, "host_memory": "pinned", "launch": launch, "dtype": "float32",
        "backend": "torch", "threads": 0,
    }  # fmt: skip
    policy = {"target": 0.1, "budget_s": 0.05, "max_samples": 10}
    order = {"experiment": "offload", "device": "cpu", "params": params, "policy": policy}
    answer = answer_to(order, SecondCpu(), Watch("cpu"))
    assert answer["status"] == "ok"
    metrics = {series["metric"] for part in answer["parts"] for series in part["series"]}
    host = {"time", *(f"time.{name}" for name, _ in work("gemm", launch=launch).phases)}
    device = {"device_time", "device_time.h2d", "device_time.compute", "device_time.d2h"}
    assert metrics == host | (device if launch == "eager" else set())
