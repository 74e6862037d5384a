"""The measuring core, on a device whose clock is simulated: what it does is exactly known."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import timing
from experiments.devices.base import Device, do_nothing
from experiments.devices.cpu import CpuDevice
from experiments.machine_state import Reading
from experiments.timing import Policy, half_width, measure
from experiments.workload import Workload
from tests.experiments.second_device import SecondCpu

CALM = Reading(0.0)


class SimulatedDevice(SecondCpu):
    """A second CPU whose calls take the times that a test gives, on a clock of its own."""

    kind = "cpu"

    def __init__(self, times: Iterator[float], overhead_s: float = 1e-7) -> None:
        super().__init__("simulated")
        self.times, self.clock, self.overhead_s = times, 0.0, overhead_s

    def now(self) -> float:
        return self.clock

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        parts = [0.0] * (len(work.phases) or 1)
        for _ in range(calls):
            for index in range(len(parts)):
                parts[index] += (took := next(self.times))
                self.clock += took
        meanwhile()
        return [part / calls for part in parts]


def run(device: SimulatedDevice, work: Workload | None = None, **policy: Any) -> timing.Measurement:
    settings = {"target": 0.01, "budget_s": 1.0, "max_samples": 100, **policy}
    return measure(work or Workload(run=lambda: None), device, Policy(**settings), lambda: CALM, now=device.now)


def test_steady_times_converge_at_once_past_the_least_span() -> None:
    result = run(SimulatedDevice(itertools.repeat(0.01)))
    assert (result.stop_reason, set(result.samples[""])) == ("converged", {0.01})
    assert result.timed_s >= timing.LEAST_SHARE * 1.0 - 0.02
    assert len(result.readings) == len(result.samples[""])
    assert result.made == result.calls * len(result.samples[""])
    assert result.warmup_s < 0.2


def test_warm_up_goes_on_while_times_fall_and_none_of_it_is_kept() -> None:
    # Some 70 calls long, many more than are looked at together.
    falling = (max(0.01, 0.02 * 0.99**call) for call in itertools.count())
    assert max(run(SimulatedDevice(falling), budget_s=10).samples[""]) == pytest.approx(0.01)
    # It takes a third of the budget at most.
    ever_faster = (0.03 * 0.97 ** (call / 3) for call in itertools.count())
    assert run(SimulatedDevice(ever_faster)).warmup_s == pytest.approx(1 / 3, abs=0.04)


def spread(widths: Callable[[int], float]) -> Iterator[float]:
    """Times that lie so far above and below a millisecond, in turn."""
    return (1e-3 * (1 + (-1) ** call * widths(call)) for call in itertools.count())


def evenly(call: int) -> float:
    """Numbers between -1 and 1 that fill the space between them evenly (van der Corput's sequence)."""
    return 2 * sum(int(bit) / 2 ** (place + 1) for place, bit in enumerate(f"{call:b}"[::-1])) - 1


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        pytest.param(spread(lambda call: 0.01), "plateau", id="two modes, whose interval never narrows"),
        pytest.param(spread(lambda call: 0.01 * (call + 1) ** -0.07), "plateau", id="by a twentieth in twice the time"),
        pytest.param((1e-3 * (1 + 0.2 * evenly(call)) for call in itertools.count()), "budget", id="as noise does"),
    ],
)
def test_noise_that_hardly_narrows_any_more_is_a_plateau(times: Iterator[float], reason: str) -> None:
    result = run(SimulatedDevice(times), max_samples=1000, target=1e-4)
    assert result.stop_reason == reason
    assert half_width(result.samples[""]) > 1e-4


def test_a_slow_point_has_one_sample_and_says_budget() -> None:
    result = run(SimulatedDevice(itertools.repeat(5.0)), budget_s=1.0)
    assert (len(result.samples[""]), result.stop_reason) == (1, "budget")


def test_the_budget_holds_for_whatever_does_not_converge() -> None:
    chance = random.Random(2)
    device = SimulatedDevice(chance.lognormvariate(-5, 2) for _ in itertools.count())
    result = run(device, budget_s=2.0, target=1e-6, max_samples=10_000)
    assert result.stop_reason in ("budget", "plateau")
    assert device.clock < 2.0 + max(result.samples[""]) * 2


def test_short_calls_are_blocked_until_the_clock_costs_nothing() -> None:
    result = run(SimulatedDevice(itertools.repeat(2e-6), overhead_s=5e-8))
    assert result.calls * 2e-6 >= 5e-8 / timing.OVERHEAD_SHARE
    assert result.samples[""][0] == pytest.approx(2e-6)


def test_a_sample_with_phases_is_their_sum() -> None:
    work = Workload(phases=[("forward", lambda: None), ("backward", lambda: None)])
    result = run(SimulatedDevice(itertools.cycle([0.001, 0.003])), work)
    assert list(result.samples) == ["", "forward", "backward"]
    assert all(sample == pytest.approx((0.004, 0.001, 0.003)) for sample in zip(*result.samples.values(), strict=True))
    assert result.calls > 1  # short steps are averaged like any other call


@pytest.mark.parametrize(
    "times",
    [
        # The first calls are slow, and would make samples look longer than they are.
        pytest.param(itertools.chain([0.014] * 5, itertools.repeat(0.01)), id="cold at first"),
        pytest.param((0.01 * (1 + call / 10_000) for call in itertools.count()), id="slowing down"),
    ],
)
def test_what_lasts_is_sampled_from_cold_on_until_its_time_is_over(times: Iterator[float]) -> None:
    device = SimulatedDevice(times)
    result = run(device, Workload(run=lambda: None, lasting=True), budget_s=100.0, target=0.5)
    assert result.stop_reason == "budget"
    assert result.warmup_s == pytest.approx(5 * 0.012, rel=0.2)
    assert len(result.samples[""]) <= 100
    assert 95 < device.clock < 100 + 2 * result.samples[""][-1] * result.calls


def test_a_single_request_is_a_sample_and_those_between_are_not() -> None:
    # Every tenth call is slow: means of many would all be alike.
    device = SimulatedDevice(itertools.cycle([1e-5] * 9 + [1e-3]))
    result = run(device, Workload(run=lambda: None, single=True), max_samples=200, target=0.5)
    assert (result.stop_reason, result.calls, len(result.samples[""])) == ("samples", 1, 200)
    assert set(map(float, result.samples[""])) == {1e-5, 1e-3}
    assert result.timed_s == pytest.approx(timing.LEAST_SHARE, rel=0.02)  # they span what other points do
    assert result.made == pytest.approx(result.timed_s / 1.09e-4, rel=0.02)


class Launched(SimulatedDevice):
    """A GPU whose calls take three times as long alone as in a row: there the host launches one while another runs."""

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        spent = super().time(work, calls, meanwhile)
        if calls == 1:
            self.clock += 2 * spent[0]
            return [3 * spent[0]]
        return spent


@pytest.mark.parametrize(
    ("device", "policy", "reason"),
    [
        (SimulatedDevice(itertools.repeat(0.01)), {}, "converged"),
        (Launched(itertools.repeat(1e-4)), {"target": 0.0, "max_samples": 60}, "samples"),
        (Launched(itertools.repeat(1e-5)), {"target": 0.0, "max_samples": 60}, "samples"),
        (SimulatedDevice(itertools.cycle([1e-3, 2e-3])), {"target": 0.0, "max_samples": 10**4}, "plateau"),
        (SimulatedDevice(itertools.cycle([0.04, 0.05])), {"target": 0.0}, "budget"),
    ],
)
def test_samples_span_their_share_of_the_budget_whatever_ends_them(
    device: SimulatedDevice, policy: dict[str, Any], reason: str
) -> None:
    result = run(device, **policy)
    assert result.stop_reason == reason
    assert result.timed_s >= 0.95 * timing.LEAST_SHARE


@pytest.mark.parametrize("single", [False, True])
def test_the_device_is_looked_at_once_a_sample_and_read_after_it(single: bool) -> None:
    done: list[str] = []

    def read() -> Reading:
        done.append("read")
        return CALM

    device = SimulatedDevice(itertools.repeat(1e-3))
    work, policy = Workload(run=lambda: None, single=single), Policy(target=0.01, budget_s=1.0)
    result = measure(work, device, policy, read, now=device.now, look=lambda: done.append("look"))
    assert done == ["look", "read"] * len(result.samples[""])


@given(st.lists(st.floats(min_value=1e-6, max_value=1e3), min_size=6, max_size=60), st.floats(1e-3, 1e3))
def test_half_width_is_relative_and_blind_to_order(values: list[float], scale: float) -> None:
    width = half_width(values)
    assert width >= 0
    assert half_width(sorted(values, reverse=True)) == width
    assert math.isclose(half_width([value * scale for value in values]), width, rel_tol=1e-6, abs_tol=1e-9)
    assert half_width(values[:5]) == math.inf, "fewer than six have no interval"


def test_half_width_brackets_the_median_as_often_as_it_says() -> None:
    chance, covered = random.Random(3), 0
    for _ in range(2000):
        ordered = sorted(chance.expovariate(1.0) for _ in range(25))
        # The same order statistics that half_width takes.
        low, high = ordered[math.floor((25 - 1.96 * 5) / 2)], ordered[math.ceil((25 + 1.96 * 5) / 2)]
        assert half_width(ordered) == pytest.approx((high - low) / 2 / ordered[12])
        covered += low <= math.log(2) <= high
    assert covered / 2000 > 0.94


def test_operands_go_on_from_sample_to_sample() -> None:
    """A call a sample must not mean the same operands, and a warm cache, every time."""
    used: list[int] = []
    work = Workload(run=[lambda index=index: used.append(index) for index in range(3)])
    for calls in (1, 1, 2, 3):
        CpuDevice().time(work, calls)
    assert used == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("clock", ["device", "host"])
@pytest.mark.parametrize("device", [CpuDevice(), SecondCpu()])
def test_seconds_are_those_that_pass(device: Device, clock: Any) -> None:
    begun = time.perf_counter()
    (spent,) = device.time(Workload(run=lambda: time.sleep(0.01), clock=clock), 3)
    assert 0.01 <= spent <= (time.perf_counter() - begun) / 3
