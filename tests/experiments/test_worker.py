"""Budgets and memory are looked at before a point runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from experiments import counters, worker
from experiments.devices.base import do_nothing
from experiments.devices.cpu import CpuDevice
from experiments.machine_state import Watch
from experiments.point_errors import Skipped
from experiments.registry import Experiment
from experiments.timing import Policy
from experiments.workload import Workload
from tests.experiments.point_runs import CPU, GPU, answer_point, point_params, sample_metrics
from tests.experiments.second_device import SecondCpu


class Clocked(CpuDevice):
    """A CPU on which work takes as long as its FLOP say."""

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        assert work.flop is not None
        self.longest = max(getattr(self, "longest", 0.0), work.flop * 1e-6)
        return [work.flop * 1e-6 + 1e-4]


def known(limit: float) -> Experiment:
    """An experiment of n FLOP; it must never be built whole where it does not fit."""

    def build(device: Any, n: int) -> Workload:
        assert n <= limit
        return Workload(run=lambda: None, flop=float(n))

    def quarter(params: dict[str, Any]) -> dict[str, Any] | None:
        return {"n": params["n"] // 4} if params["n"] >= 4 else None

    return Experiment("known", build, {"n": int}, quarter, None, None, ("cpu",), lambda params: {})


POLICY = {"target": 0.5, "budget_s": 0.05, "max_samples": 6}


@pytest.mark.parametrize("n", [10**6, 10**9])
def test_what_would_not_fit_is_skipped_without_being_tried(n: int) -> None:
    device = Clocked()
    policy = Policy(target=0.5, budget_s=0.1, max_samples=6)
    with pytest.raises(Skipped, match=r"budget: one call is predicted to take .* s, the point has 0\.1 s"):
        worker._require_budget(known(limit=n // 4), {"n": n}, device, policy)
    assert device.longest <= max(policy.budget_s, worker.PROBE_S)


def test_a_disturbed_probe_does_not_cost_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 16 ms to start its threads, however little there is to do."""
    time = Clocked.time
    monkeypatch.setattr(Clocked, "time", lambda *given: [time(*given)[0] + 0.016])
    worker._require_budget(known(limit=80_000), {"n": 80_000}, Clocked(), Policy(target=0.5, budget_s=0.1))


@pytest.mark.parametrize("n", [1, 100, 80_000])
def test_what_fits_is_let_through_although_small_probes_are_all_overhead(n: int) -> None:
    worker._require_budget(known(limit=n), {"n": n}, Clocked(), Policy(target=0.5, budget_s=0.1, max_samples=6))


def test_a_probe_is_scaled_by_the_seconds_of_a_call_where_an_experiment_tells_them() -> None:
    """A tree costs 1 ms, whatever comes before it 90 ms: a tenth of the trees take half of the time of all."""

    class Fits(Clocked):
        def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
            return [seconds(int(work.flop or 0))]

    def seconds(trees: int, **_: Any) -> float:
        return 0.09 + 1e-3 * trees

    def fewer(params: dict[str, Any]) -> dict[str, Any] | None:
        return {"trees": 10} if params["trees"] > 10 else None

    fit = Experiment(
        "fit", lambda _, trees: Workload(run=do_nothing, flop=float(trees)), {"trees": int}, fewer, fits=("cpu",)
    )
    policy = Policy(target=0.5, budget_s=0.1)
    with pytest.raises(Skipped, match="one call is predicted to take 1 s"):
        worker._require_budget(fit, {"trees": 100}, Fits(), policy)
    worker._require_budget(replace(fit, call_s=seconds), {"trees": 100}, Fits(), policy)
    with pytest.raises(Skipped, match=r"one call is predicted to take 0\.29 s"):
        worker._require_budget(replace(fit, call_s=seconds), {"trees": 200}, Fits(), policy)


@pytest.mark.parametrize(("wanted", "status"), [(5.0, "ok"), (7.0, "skipped"), (2.0**30, "skipped")])
def test_a_point_may_ask_for_most_of_the_free_memory_and_not_for_all(
    wanted: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda _: 10 * 2**30)
    reply = asked(memory=wanted * 2**30)
    assert reply["status"] == status
    if status == "skipped":
        assert f"needs {wanted:.1f} GiB, 10.0 GiB are free" in reply["reason"]
    reply = answer_point("bandwidth", footprint=int(wanted * 2**50), dtype="float64")
    assert reply["reason"].startswith("memory: needs"), "what the plan does not know is asked of the experiment"


def asked(**known: float) -> dict[str, Any]:
    """The answer to a small product, of which the plan knows something."""
    order = {"experiment": "gemm", "device": "cpu", "params": point_params("gemm"), "policy": POLICY, "known": known}
    return worker.answer_order(order, CPU, Watch("cpu"))


def test_what_the_plan_takes_for_short_is_measured_without_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise Skipped("probed")

    monkeypatch.setattr(worker, "_require_budget", refused)
    short = worker.PLANNED_SHARE * POLICY["budget_s"]
    assert asked(call_s=0.5 * short)["status"] == "ok"
    for known in ({}, {"call_s": 2 * short}, {"call_s": 0.0}, {"memory": 1e3}):
        assert asked(**known)["reason"] == "probed"


def test_what_asks_about_accelerators_says_that_there_is_none() -> None:
    assert answer_point("transfer") == {"status": "unsupported", "reason": "no accelerator"}


STEP = {"time", "time.forward", "time.backward", "time.update"}
REQUEST = {"time", "time.enqueue_h2d", "time.enqueue_compute", "time.enqueue_d2h", "time.synchronise"}
COPY = {"time", "request_time", "request_time.enqueue", "request_time.wait"}
SHARES = {"repeat_share", "matmul_flop_share"}


@pytest.mark.parametrize(
    ("name", "device", "changed", "sampled", "observed"),
    [
        ("gemm", CPU, {}, {"time"}, set()),
        ("gemm", GPU, {}, {"time", "graph_time"}, set()),
        ("clock", CPU, {"chain": 10**6}, {"clock"}, set()),
        ("sequential", CPU, {}, {"step_time"}, {"chains_in_flight"}),
        ("training", CPU, {}, STEP, SHARES),
        ("training", GPU, {}, STEP, SHARES),
        ("transfer", GPU, {}, {*COPY, "graph_time"}, set()),
        ("transfer", GPU, {"host_memory": "pageable"}, COPY, set()),
        (
            "offload", GPU, {"host_memory": "pinned"},
            {*REQUEST, "device_time", "device_time.h2d", "device_time.compute", "device_time.d2h"}, set(),
        ),
        ("offload", GPU, {"host_memory": "pinned", "launch": "graph"}, {"time", "time.launch", "time.synchronise"},
         set()),
        ("inference", CPU, {"model": "cnn"}, {"time"}, set()),
    ],
)  # fmt: skip
def test_a_good_answer_holds_samples_readings_and_observations(
    name: str, device: Any, changed: dict[str, Any], sampled: set[str], observed: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(worker, "GRAPH_BELOW_S", 1.0)  # a busy machine is slow
    reply = answer_point(name, device, **changed)
    assert reply["status"] == "ok", reply["reason"]
    assert sample_metrics(reply) == sampled
    # Of a CPU's memory only some systems tell.
    assert set(reply["observed"]) - {"peak_memory"} == observed
    assert reply["error"] <= reply["tolerance"]
    for part in reply["parts"]:
        for series in part["series"]:
            assert len(series["values"]) == len(part["readings"]) >= 1
            assert all(value > 0 for value in series["values"])


def test_units_are_those_of_the_values() -> None:
    ((series,),) = (part["series"] for part in answer_point("clock", chain=10**6)["parts"])
    assert series["unit"] == "Hz"
    assert all(0.2e9 < value < 8e9 for value in series["values"])
    (part,) = answer_point("sequential")["parts"]
    (series,) = part["series"]
    assert series["unit"] == "s"
    # A step is one of the many that a call makes.
    assert all(0 < value * 1000 * part["calls"] < part["timed_s"] for value in series["values"])


def parts(work: Workload, device: SecondCpu, budget_s: float = 0.03) -> dict[str, dict[str, Any]]:
    """What is answered for a work and what is beside it, by the metric of the first series."""
    found = worker._measure_workloads(work, device, Policy(target=0.5, budget_s=budget_s, max_samples=6), Watch("cpu"))
    return {part["metric"] if "metric" in part else part["series"][0]["metric"]: part for part in found}


def test_what_is_beside_a_work_has_rows_and_counts_of_its_own() -> None:
    beside = Workload(run=lambda: None, metric="other", per=10.0, flop=3.0)
    found = parts(Workload(run=lambda: None, flop=5.0, beside=[beside]), SecondCpu())
    assert {name: part["flop"] for name, part in found.items()} == {"time": 5.0, "other": 3.0}
    assert all(len(part["series"][0]["values"]) == len(part["readings"]) >= 1 for part in found.values())


def test_the_budget_is_shared_among_the_works_of_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def part(work: Workload, device: Any, policy: Policy, watch: Watch) -> dict[str, Any]:
        given.append(policy.budget_s)
        return {"metric": work.metric, "status": "ok"}

    monkeypatch.setattr(worker, "_measure_workload", part)
    others = [Workload(run=lambda: None, metric=name) for name in ("first", "second")]
    parts(Workload(run=lambda: None, graph=True, beside=others), SecondCpu(), budget_s=8.0)
    assert given == [2.0] * 4


def faulty(**fault: Any) -> dict[str, Any]:
    """The answer to a good work with a fault."""

    def build(device: Any, n: int) -> Workload:
        return Workload(run=lambda: None, **fault)

    made = Experiment("faulty", build, {"n": int})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "get_experiment", lambda _: made)
        order = {"experiment": "faulty", "params": {"n": 1}, "policy": POLICY}
        patch.setattr(worker, "_set_threads", lambda *_: None)
        return worker.answer_order(order, GPU, Watch("cpu"))


def fail(words: str) -> Any:
    def call() -> None:
        raise RuntimeError(words)

    return call


@pytest.mark.parametrize(
    ("fault", "metric"),
    [
        ({"beside": [Workload(run=fail("no stream"), metric="loop_time")]}, "loop_time"),
        ({"observe": fail("no counter")}, "observations"),
        ({"observe": lambda: {"peak_memory": (float("nan"), "B")}}, "observations"),
    ],
)
def test_a_fault_beside_the_work_costs_no_time_of_the_work(fault: dict[str, Any], metric: str) -> None:
    reply = faulty(**fault)
    assert (reply["status"], sample_metrics(reply)) == ("ok", {"time"})
    (lost,) = (part for part in reply["parts"] if part["status"] != "ok")
    assert (lost["metric"], lost["status"]) == (metric, "failed")
    assert lost["reason"] and "last" not in reply


def test_an_error_of_the_device_beside_the_work_ends_the_process_all_the_same() -> None:
    reply = faulty(observe=fail("CUDA error: an illegal memory access was encountered"))
    assert (reply["status"], reply["last"]) == ("ok", True)


def test_a_short_call_is_timed_in_a_graph_too_all_its_operands_in_turn() -> None:
    used: list[int] = []
    calls = [lambda index=index: used.append(index) for index in range(3)]
    device = SecondCpu()
    captured = worker._capture(Workload(run=calls, flop=2.0, graph=True), device)
    used.clear()
    captured.calls[0]()
    assert used == [0, 1, 2] * 7
    assert (captured.metric, captured.per, captured.flop) == ("graph_time", 21.0, 2.0)
    found = parts(Workload(run=calls, flop=2.0, graph=True), device)
    assert list(found) == ["time", "graph_time"]
    assert found["graph_time"]["status"] == "ok"


def test_a_refused_capture_is_told_and_costs_only_itself_and_a_long_call_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SecondCpu, "graph", CpuDevice.graph)
    found = parts(Workload(run=lambda: None, graph=True), SecondCpu())
    assert found["time"]["status"] == "ok"
    assert found["graph_time"] == {"status": "unsupported", "reason": "cpu has no graphs", "metric": "graph_time"}
    monkeypatch.setattr(SecondCpu, "time", lambda *_: [2 * worker.GRAPH_BELOW_S])
    assert list(parts(Workload(run=lambda: None, graph=True), SecondCpu())) == ["time"]


def count(monkeypatch: pytest.MonkeyPatch, **more: float) -> None:
    """Let the device count 100 W for as long as the clock runs."""
    told = counters.Counters(joules=lambda: 100.0 * time.perf_counter(), **more)
    monkeypatch.setattr(counters, "cpu_counters", lambda _: told)


@pytest.mark.parametrize(("metric", "per", "name"), [("time", None, "energy"), ("step_time", 4.0, "step_time.energy")])
def test_energy_is_that_of_the_time_that_was_sampled_for_each_call_or_step(
    monkeypatch: pytest.MonkeyPatch, metric: str, per: float | None, name: str
) -> None:
    count(monkeypatch)
    work = Workload(run=lambda: time.sleep(0.02), metric=metric, per=per, lasting=True)
    part = parts(work, SecondCpu(), budget_s=1.6)[metric]
    assert (part["energy"]["metric"], part["energy"]["unit"]) == (name, "J")
    made = part["calls"] * len(part["readings"]) * (per or 1)
    assert part["energy"]["value"] * made == pytest.approx(100.0 * part["timed_s"], rel=0.05)


@pytest.mark.parametrize(("least_s", "told"), [(0.1, True), (0.6, False), (counters.NVML_LEAST_S, False)])
def test_energy_is_told_from_as_many_seconds_on_as_its_counter_needs(
    monkeypatch: pytest.MonkeyPatch, least_s: float, told: bool
) -> None:
    count(monkeypatch, least_s=least_s)
    work = Workload(run=lambda: time.sleep(0.01), lasting=True)
    assert (parts(work, SecondCpu(), budget_s=0.4)["time"]["energy"] is not None) == told


WITHOUT_TORCH = """
import sys
from experiments import worker
from experiments.devices import open_device
from experiments.machine_state import Watch
policy = {"target": 0.5, "budget_s": 0.05, "max_samples": 6}
for name, params in eval(sys.argv[1]):
    order = {"experiment": name, "device": "cpu", "params": params, "policy": policy, "known": {"call_s": 1e-9}}
    answer = worker.answer_order(order, open_device("cpu"), Watch("cpu"))
    assert answer["status"] == "ok", answer
    assert "torch" not in sys.modules, name
"""


def test_what_needs_no_torch_does_not_load_it() -> None:
    """Two seconds for each process that measures."""
    points = [("tabular", point_params("tabular", backend="pandas")), ("sequential", point_params("sequential"))]
    points.append(("bandwidth", point_params("bandwidth")))
    words = [sys.executable, "-c", WITHOUT_TORCH, repr(points)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
