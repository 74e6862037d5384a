"""Budgets and memory are looked at before a point runs."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import worker
from experiments.devices.cpu import CpuDevice
from experiments.registry import Experiment
from experiments.state import Watch
from experiments.timing import Policy
from experiments.work import Work

CPU = CpuDevice()
POLICY = {"target": 0.5, "budget_s": 0.05, "max_samples": 6}


def answer(name: str, **params: Any) -> dict[str, Any]:
    order = {"experiment": name, "device": "cpu", "params": {"threads": 1, **params}, "policy": POLICY}
    return worker.answer_to(order, CPU, Watch("cpu"))


class Clocked(CpuDevice):
    """A CPU on which work takes as long as its FLOP say."""

    def time(self, work: Work, calls: int) -> list[float]:
        assert work.flop is not None
        self.longest = max(getattr(self, "longest", 0.0), work.flop * 1e-6)
        return [work.flop * 1e-6 + 1e-4]


def known(limit: float) -> Experiment:
    """An experiment of n FLOP; it must never be built whole where it does not fit."""

    def build(device: Any, n: int) -> Work:
        assert n <= limit
        return Work(run=lambda: None, flop=float(n))

    def quarter(params: dict[str, Any]) -> dict[str, Any] | None:
        return {"n": params["n"] // 4} if params["n"] >= 4 else None

    return Experiment("known", build, {"n": int}, quarter, None, None, ("cpu",), lambda params: {})


@pytest.mark.parametrize("n", [10**6, 10**9])
def test_what_would_not_fit_is_skipped_without_being_tried(n: int) -> None:
    device = Clocked()
    policy = Policy(target=0.5, budget_s=0.1, max_samples=6)
    with pytest.raises(worker.Skipped, match=r"budget: one call is predicted to take .* s, the point has 0\.1 s"):
        worker._fits_budget(known(limit=n // 4), {"n": n}, device, policy)
    assert device.longest <= max(policy.budget_s, worker.PROBE_S)


def test_a_disturbed_probe_does_not_cost_the_point() -> None:
    class Disturbed(Clocked):
        """Takes 16 ms to start its threads, however little there is to do."""

        def time(self, work: Work, calls: int) -> list[float]:
            return [super().time(work, calls)[0] + 0.016]

    worker._fits_budget(known(limit=80_000), {"n": 80_000}, Disturbed(), Policy(target=0.5, budget_s=0.1))


@pytest.mark.parametrize("n", [1, 100, 80_000])
def test_what_fits_is_let_through_although_small_probes_are_all_overhead(n: int) -> None:
    worker._fits_budget(known(limit=n), {"n": n}, Clocked(), Policy(target=0.5, budget_s=0.1, max_samples=6))


def test_a_point_larger_than_memory_is_skipped_with_both_figures() -> None:
    reply = answer("bandwidth", op="copy", footprint=10**15, dtype="float64", backend="llvm")
    assert reply["status"] == "skipped"
    assert "memory: needs 931322.6 GiB" in reply["reason"]


def test_what_asks_about_accelerators_says_that_there_is_none() -> None:
    reply = answer("transfer", direction="host_to_device", size=4, host_memory="pinned", backend="torch")
    assert reply == {"status": "unsupported", "reason": "no accelerator"}


def test_a_good_answer_holds_samples_readings_and_counts() -> None:
    reply = answer("gemm", m=64, n=64, k=64, dtype="float32", backend="torch")
    assert reply["status"] == "ok"
    (part,) = reply["parts"]
    (series,) = part["series"]
    assert (series["metric"], series["unit"]) == ("time", "s")
    assert len(series["values"]) == len(part["readings"]) >= 1
    assert reply["flop"] == 2 * 64**3
    assert reply["error"] <= reply["tolerance"]


def test_a_training_answer_has_its_phases_and_observations() -> None:
    reply = answer("training", model="mlp", batch=4, dtype="float32", backend="torch")
    (part,) = reply["parts"]
    assert {series["metric"] for series in part["series"]} == {"time", "time.forward", "time.backward", "time.update"}
    assert set(reply["observed"]) == {"repeat_share", "matmul_flop_share", "matmul_time_share"}


def test_the_clock_is_a_rate_not_a_time() -> None:
    ((series,),) = (part["series"] for part in answer("clock", backend="llvm", chain=1_000_000)["parts"])
    assert (series["metric"], series["unit"]) == ("clock", "Hz")
    assert all(0.2e9 < value < 8e9 for value in series["values"])
