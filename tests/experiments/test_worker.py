"""Workers check budget and memory before a point, and answer with samples, energy and observations."""

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


class FlopTimedCpu(CpuDevice):
    """A CPU on which time is proportional to FLOP."""

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        assert work.flop is not None
        self.longest = max(getattr(self, "longest", 0.0), work.flop * 1e-6)
        return [work.flop * 1e-6 + 1e-4]


def bounded_experiment(limit: float) -> Experiment:
    """Return an experiment with n FLOP that refuses to build points with n above `limit`."""

    def build(device: Any, n: int) -> Workload:
        assert n <= limit
        return Workload(run=lambda: None, flop=float(n))

    def quarter(params: dict[str, Any]) -> dict[str, Any] | None:
        return {"n": params["n"] // 4} if params["n"] >= 4 else None

    return Experiment("known", build, {"n": int}, quarter, None, None, ("cpu",), lambda params: {})


POLICY = {"target": 0.5, "budget_s": 0.05, "max_samples": 6}


@pytest.mark.parametrize("n", [10**6, 10**9])
def test_point_over_budget_is_skipped_without_running(n: int) -> None:
    device = FlopTimedCpu()
    policy = Policy(target=0.5, budget_s=0.1, max_samples=6)
    with pytest.raises(Skipped, match=r"budget: one call is predicted to take .* s, the point has 0\.1 s"):
        worker._require_budget(bounded_experiment(limit=n // 4), {"n": n}, device, policy)
    assert device.longest <= max(policy.budget_s, worker.PROBE_S)


def test_disturbed_probe_does_not_skip_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe here takes 16 ms longer than its work, like a probe that starts threads."""
    time = FlopTimedCpu.time
    monkeypatch.setattr(FlopTimedCpu, "time", lambda *arguments: [time(*arguments)[0] + 0.016])
    worker._require_budget(
        bounded_experiment(limit=80_000), {"n": 80_000}, FlopTimedCpu(), Policy(target=0.5, budget_s=0.1)
    )


@pytest.mark.parametrize("n", [1, 100, 80_000])
def test_fitting_point_passes_despite_probe_overhead(n: int) -> None:
    worker._require_budget(
        bounded_experiment(limit=n), {"n": n}, FlopTimedCpu(), Policy(target=0.5, budget_s=0.1, max_samples=6)
    )


def test_probe_is_scaled_by_known_call_seconds() -> None:
    """A call takes 90 ms plus 1 ms per tree, so 10 trees take about half as long as 100 trees, not a tenth."""

    class Fits(FlopTimedCpu):
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
def test_point_may_use_most_but_not_all_free_memory(
    wanted: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda _: 10 * 2**30)
    reply = answer_with_known(memory=wanted * 2**30)
    assert reply["status"] == status
    if status == "skipped":
        assert f"needs {wanted:.1f} GiB, 10.0 GiB are free" in reply["reason"]
    reply = answer_point("bandwidth", footprint=int(wanted * 2**50), dtype="float64")
    assert reply["reason"].startswith("memory: needs"), "the experiment states the memory if the plan does not"


def answer_with_known(**known: float) -> dict[str, Any]:
    """Answer an order for a small matrix product. known: values that the plan states in the order."""
    order = {"experiment": "gemm", "device": "cpu", "params": point_params("gemm"), "policy": POLICY, "known": known}
    return worker.answer_order(order, CPU, Watch("cpu"))


def test_point_planned_as_short_needs_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip_point(*_: object) -> None:
        raise Skipped("probed")

    monkeypatch.setattr(worker, "_require_budget", skip_point)
    short = worker.PLANNED_SHARE * POLICY["budget_s"]
    assert answer_with_known(call_s=0.5 * short)["status"] == "ok"
    for known in ({}, {"call_s": 2 * short}, {"call_s": 0.0}, {"memory": 1e3}):
        assert answer_with_known(**known)["reason"] == "probed"


def test_transfer_without_an_accelerator_is_unsupported() -> None:
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
def test_good_answer_holds_samples_readings_and_observations(
    name: str, device: Any, changed: dict[str, Any], sampled: set[str], observed: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(worker, "GRAPH_BELOW_S", 1.0)  # on a busy machine, short calls exceed the usual limit
    reply = answer_point(name, device, **changed)
    assert reply["status"] == "ok", reply["reason"]
    assert sample_metrics(reply) == sampled
    # Only some systems report peak CPU memory.
    assert set(reply["observed"]) - {"peak_memory"} == observed
    assert reply["error"] <= reply["tolerance"]
    for part in reply["parts"]:
        for series in part["series"]:
            assert len(series["values"]) == len(part["readings"]) >= 1
            assert all(value > 0 for value in series["values"])


def test_units_match_the_values() -> None:
    ((series,),) = (part["series"] for part in answer_point("clock", chain=10**6)["parts"])
    assert series["unit"] == "Hz"
    assert all(0.2e9 < value < 8e9 for value in series["values"])
    (part,) = answer_point("sequential")["parts"]
    (series,) = part["series"]
    assert series["unit"] == "s"
    # A value is the time of a step, and each call makes more than 1000 steps.
    assert all(0 < value * 1000 * part["calls"] < part["timed_s"] for value in series["values"])


def measure_parts(work: Workload, device: SecondCpu, budget_s: float = 0.03) -> dict[str, dict[str, Any]]:
    """Measure a workload and the workloads in its `beside`, and return their parts of the answer by metric."""
    parts = worker._measure_workloads(work, device, Policy(target=0.5, budget_s=budget_s, max_samples=6), Watch("cpu"))
    return {part["metric"] if "metric" in part else part["series"][0]["metric"]: part for part in parts}


def test_companion_workload_has_its_own_rows_and_counts() -> None:
    beside = Workload(run=lambda: None, metric="other", per=10.0, flop=3.0)
    parts = measure_parts(Workload(run=lambda: None, flop=5.0, beside=[beside]), SecondCpu())
    assert {name: part["flop"] for name, part in parts.items()} == {"time": 5.0, "other": 3.0}
    assert all(len(part["series"][0]["values"]) == len(part["readings"]) >= 1 for part in parts.values())


def test_budget_is_shared_among_the_workloads_of_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[float] = []

    def record_budget(work: Workload, device: Any, policy: Policy, watch: Watch) -> dict[str, Any]:
        budgets.append(policy.budget_s)
        return {"metric": work.metric, "status": "ok"}

    monkeypatch.setattr(worker, "_measure_workload", record_budget)
    others = [Workload(run=lambda: None, metric=name) for name in ("first", "second")]
    measure_parts(Workload(run=lambda: None, graph=True, beside=others), SecondCpu(), budget_s=8.0)
    assert budgets == [2.0] * 4


def answer_with_fault(**fault: Any) -> dict[str, Any]:
    """Answer a good workload with a fault added."""

    def build(device: Any, n: int) -> Workload:
        return Workload(run=lambda: None, **fault)

    experiment = Experiment("faulty", build, {"n": int})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "get_experiment", lambda _: experiment)
        order = {"experiment": "faulty", "params": {"n": 1}, "policy": POLICY}
        patch.setattr(worker, "_set_threads", lambda *_: None)
        return worker.answer_order(order, GPU, Watch("cpu"))


def failing_call(words: str) -> Any:
    def call() -> None:
        raise RuntimeError(words)

    return call


@pytest.mark.parametrize(
    ("fault", "metric"),
    [
        ({"beside": [Workload(run=failing_call("no stream"), metric="loop_time")]}, "loop_time"),
        ({"observe": failing_call("no counter")}, "observations"),
        ({"observe": lambda: {"peak_memory": (float("nan"), "B")}}, "observations"),
    ],
)
def test_fault_in_a_companion_keeps_the_measured_times(fault: dict[str, Any], metric: str) -> None:
    reply = answer_with_fault(**fault)
    assert (reply["status"], sample_metrics(reply)) == ("ok", {"time"})
    (failed_part,) = (part for part in reply["parts"] if part["status"] != "ok")
    assert (failed_part["metric"], failed_part["status"]) == (metric, "failed")
    assert failed_part["reason"] and "last" not in reply


def test_device_error_in_an_observation_ends_the_process() -> None:
    reply = answer_with_fault(observe=failing_call("CUDA error: an illegal memory access was encountered"))
    assert (reply["status"], reply["last"]) == ("ok", True)


def test_short_call_is_also_timed_in_a_graph_over_all_operands() -> None:
    used: list[int] = []
    calls = [lambda index=index: used.append(index) for index in range(3)]
    device = SecondCpu()
    captured = worker._capture(Workload(run=calls, flop=2.0, graph=True), device)
    used.clear()
    captured.calls[0]()
    assert used == [0, 1, 2] * 7
    assert (captured.metric, captured.per, captured.flop) == ("graph_time", 21.0, 2.0)
    parts = measure_parts(Workload(run=calls, flop=2.0, graph=True), device)
    assert list(parts) == ["time", "graph_time"]
    assert parts["graph_time"]["status"] == "ok"


def test_refused_capture_keeps_the_times_and_long_calls_need_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SecondCpu, "graph", CpuDevice.graph)
    parts = measure_parts(Workload(run=lambda: None, graph=True), SecondCpu())
    assert parts["time"]["status"] == "ok"
    assert parts["graph_time"] == {"status": "unsupported", "reason": "cpu has no graphs", "metric": "graph_time"}
    monkeypatch.setattr(SecondCpu, "time", lambda *_: [2 * worker.GRAPH_BELOW_S])
    assert list(measure_parts(Workload(run=lambda: None, graph=True), SecondCpu())) == ["time"]


def simulate_power(monkeypatch: pytest.MonkeyPatch, **more: float) -> None:
    """Replace the energy counters by a constant 100 W."""
    steady_counters = counters.Counters(joules=lambda: 100.0 * time.perf_counter(), **more)
    monkeypatch.setattr(counters, "cpu_counters", lambda _: steady_counters)


@pytest.mark.parametrize(("metric", "per", "name"), [("time", None, "energy"), ("step_time", 4.0, "step_time.energy")])
def test_energy_covers_the_sampled_time_per_call_or_step(
    monkeypatch: pytest.MonkeyPatch, metric: str, per: float | None, name: str
) -> None:
    simulate_power(monkeypatch)
    work = Workload(run=lambda: time.sleep(0.02), metric=metric, per=per, lasting=True)
    part = measure_parts(work, SecondCpu(), budget_s=1.6)[metric]
    assert (part["energy"]["metric"], part["energy"]["unit"]) == (name, "J")
    steps = part["calls"] * len(part["readings"]) * (per or 1)
    assert part["energy"]["value"] * steps == pytest.approx(100.0 * part["timed_s"], rel=0.05)


@pytest.mark.parametrize(("least_s", "reported"), [(0.1, True), (0.6, False), (counters.NVML_LEAST_S, False)])
def test_energy_needs_the_shortest_span_of_its_counter(
    monkeypatch: pytest.MonkeyPatch, least_s: float, reported: bool
) -> None:
    simulate_power(monkeypatch, least_s=least_s)
    work = Workload(run=lambda: time.sleep(0.01), lasting=True)
    assert (measure_parts(work, SecondCpu(), budget_s=0.4)["time"]["energy"] is not None) == reported


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


def test_experiments_without_torch_do_not_load_it() -> None:
    """If a worker loaded torch, it would start two seconds later."""
    points = [("tabular", point_params("tabular", backend="pandas")), ("sequential", point_params("sequential"))]
    points.append(("bandwidth", point_params("bandwidth")))
    words = [sys.executable, "-c", WITHOUT_TORCH, repr(points)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
