"""The sampling loop gives exactly known results on a device with a simulated clock."""

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
    """A second CPU with its own clock, on which calls take the given times."""

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


def test_steady_times_converge_after_the_shortest_span() -> None:
    result = run(SimulatedDevice(itertools.repeat(0.01)))
    assert (result.stop_reason, set(result.samples[""])) == ("converged", {0.01})
    assert result.timed_s >= timing.LEAST_SHARE * 1.0 - 0.02
    assert len(result.readings) == len(result.samples[""])
    assert result.total_calls == result.calls * len(result.samples[""])
    assert result.warmup_s < 0.2


def test_warm_up_lasts_while_times_fall_and_is_discarded() -> None:
    # Times fall for about 70 calls, many more than the warm-up compares with each other.
    falling = (max(0.01, 0.02 * 0.99**call) for call in itertools.count())
    assert max(run(SimulatedDevice(falling), budget_s=10).samples[""]) == pytest.approx(0.01)
    # If times never stop falling, the warm-up ends after a third of the budget. The budget is 1 s.
    ever_faster = (0.03 * 0.97 ** (call / 3) for call in itertools.count())
    assert run(SimulatedDevice(ever_faster)).warmup_s == pytest.approx(1 / 3, abs=0.04)


def alternating_times(widths: Callable[[int], float]) -> Iterator[float]:
    """Return times alternately above and below 1 ms.

    widths: function from a call's number to the relative distance of its time from 1 ms
    """
    return (1e-3 * (1 + (-1) ** call * widths(call)) for call in itertools.count())


def van_der_corput(call: int) -> float:
    """Return the element at index `call` in van der Corput's sequence, rescaled to fill -1 to 1 evenly."""
    return 2 * sum(int(bit) / 2 ** (place + 1) for place, bit in enumerate(f"{call:b}"[::-1])) - 1


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        pytest.param(alternating_times(lambda call: 0.01), "plateau", id="two modes, whose interval never narrows"),
        pytest.param(
            alternating_times(lambda call: 0.01 * (call + 1) ** -0.07), "plateau", id="by a twentieth in twice the time"
        ),
        pytest.param(
            (1e-3 * (1 + 0.2 * van_der_corput(call)) for call in itertools.count()), "budget", id="as noise does"
        ),
    ],
)
def test_interval_that_stops_narrowing_is_a_plateau(times: Iterator[float], reason: str) -> None:
    result = run(SimulatedDevice(times), max_samples=1000, target=1e-4)
    assert result.stop_reason == reason
    assert half_width(result.samples[""]) > 1e-4


def test_slow_point_has_one_sample_and_stops_at_its_budget() -> None:
    result = run(SimulatedDevice(itertools.repeat(5.0)), budget_s=1.0)
    assert (len(result.samples[""]), result.stop_reason) == (1, "budget")


def test_budget_holds_without_convergence() -> None:
    rng = random.Random(2)
    device = SimulatedDevice(rng.lognormvariate(-5, 2) for _ in itertools.count())
    result = run(device, budget_s=2.0, target=1e-6, max_samples=10_000)
    assert result.stop_reason in ("budget", "plateau")
    assert device.clock < 2.0 + max(result.samples[""]) * 2


def test_short_calls_are_grouped_until_clock_overhead_is_negligible() -> None:
    result = run(SimulatedDevice(itertools.repeat(2e-6), overhead_s=5e-8))
    assert result.calls * 2e-6 >= 5e-8 / timing.OVERHEAD_SHARE
    assert result.samples[""][0] == pytest.approx(2e-6)


def test_sample_is_the_sum_of_its_phases() -> None:
    work = Workload(phases=[("forward", lambda: None), ("backward", lambda: None)])
    result = run(SimulatedDevice(itertools.cycle([0.001, 0.003])), work)
    assert list(result.samples) == ["", "forward", "backward"]
    assert all(sample == pytest.approx((0.004, 0.001, 0.003)) for sample in zip(*result.samples.values(), strict=True))
    assert result.calls > 1  # short work with phases is also averaged over several calls


@pytest.mark.parametrize(
    "times",
    [
        # After slow first calls, the loop predicts samples that are too long.
        pytest.param(itertools.chain([0.014] * 5, itertools.repeat(0.01)), id="cold at first"),
        pytest.param((0.01 * (1 + call / 10_000) for call in itertools.count()), id="slowing down"),
    ],
)
def test_lasting_work_is_sampled_from_cold_until_its_budget_ends(times: Iterator[float]) -> None:
    device = SimulatedDevice(times)
    result = run(device, Workload(run=lambda: None, lasting=True), budget_s=100.0, target=0.5)
    assert result.stop_reason == "budget"
    assert result.warmup_s == pytest.approx(5 * 0.012, rel=0.2)
    assert len(result.samples[""]) <= 100
    assert 95 < device.clock < 100 + 2 * result.samples[""][-1] * result.calls


def test_single_requests_are_samples_and_requests_between_are_not() -> None:
    # Every tenth call is slow. Means over many calls would all be equal and hide this.
    device = SimulatedDevice(itertools.cycle([1e-5] * 9 + [1e-3]))
    result = run(device, Workload(run=lambda: None, single=True), max_samples=200, target=0.5)
    assert (result.stop_reason, result.calls, len(result.samples[""])) == ("samples", 1, 200)
    assert set(map(float, result.samples[""])) == {1e-5, 1e-3}
    assert result.timed_s == pytest.approx(timing.LEAST_SHARE, rel=0.02)  # as long as without `single`
    assert result.total_calls == pytest.approx(result.timed_s / 1.09e-4, rel=0.02)


class LaunchBoundDevice(SimulatedDevice):
    """A GPU on which calls in a row overlap with launches; a single call does not and takes three times as long."""

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
        (LaunchBoundDevice(itertools.repeat(1e-4)), {"target": 0.0, "max_samples": 60}, "samples"),
        (LaunchBoundDevice(itertools.repeat(1e-5)), {"target": 0.0, "max_samples": 60}, "samples"),
        (SimulatedDevice(itertools.cycle([1e-3, 2e-3])), {"target": 0.0, "max_samples": 10**4}, "plateau"),
        (SimulatedDevice(itertools.cycle([0.04, 0.05])), {"target": 0.0}, "budget"),
    ],
)
def test_samples_span_their_budget_share_for_every_stop_reason(
    device: SimulatedDevice, policy: dict[str, Any], reason: str
) -> None:
    result = run(device, **policy)
    assert result.stop_reason == reason
    assert result.timed_s >= 0.95 * timing.LEAST_SHARE


@pytest.mark.parametrize("single", [False, True])
def test_device_is_polled_once_per_sample_and_read_afterwards(single: bool) -> None:
    events: list[str] = []

    def read() -> Reading:
        events.append("read")
        return CALM

    device = SimulatedDevice(itertools.repeat(1e-3))
    work, policy = Workload(run=lambda: None, single=single), Policy(target=0.01, budget_s=1.0)
    result = measure(work, device, policy, read, now=device.now, look=lambda: events.append("look"))
    assert events == ["look", "read"] * len(result.samples[""])


@given(st.lists(st.floats(min_value=1e-6, max_value=1e3), min_size=6, max_size=60), st.floats(1e-3, 1e3))
def test_half_width_is_relative_and_ignores_order(values: list[float], scale: float) -> None:
    width = half_width(values)
    assert width >= 0
    assert half_width(sorted(values, reverse=True)) == width
    assert math.isclose(half_width([value * scale for value in values]), width, rel_tol=1e-6, abs_tol=1e-9)
    assert half_width(values[:5]) == math.inf, "fewer than six have no interval"


def test_half_width_has_its_stated_coverage() -> None:
    rng, covered = random.Random(3), 0
    for _ in range(2000):
        ordered = sorted(rng.expovariate(1.0) for _ in range(25))
        # The limits of the interval are the order statistics that `half_width` uses.
        low, high = ordered[math.floor((25 - 1.96 * 5) / 2)], ordered[math.ceil((25 + 1.96 * 5) / 2)]
        assert half_width(ordered) == pytest.approx((high - low) / 2 / ordered[12])
        covered += low <= math.log(2) <= high
    assert covered / 2000 > 0.94


def test_operands_rotate_across_samples() -> None:
    """Without rotation, samples of one call each would use the same operands, which would then be in the cache."""
    used: list[int] = []
    work = Workload(run=[lambda index=index: used.append(index) for index in range(3)])
    for calls in (1, 1, 2, 3):
        CpuDevice().time(work, calls)
    assert used == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("clock", ["device", "host"])
@pytest.mark.parametrize("device", [CpuDevice(), SecondCpu()])
def test_device_times_match_the_wall_clock(device: Device, clock: Any) -> None:
    begun = time.perf_counter()
    (spent,) = device.time(Workload(run=lambda: time.sleep(0.01), clock=clock), 3)
    assert 0.01 <= spent <= (time.perf_counter() - begun) / 3
