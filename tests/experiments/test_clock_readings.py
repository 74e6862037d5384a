"""Clocks that give no time now and then, and processes that stand still: they cost their readings, and no point."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.sample_flags import Flag
from experiments import machine_state, worker
from experiments.clock_readings import NoTimeError, Timer, are_times, call_s
from experiments.devices.base import do_nothing
from experiments.machine_state import Reading
from experiments.registry import Experiment
from experiments.timing import MOST_REPEATS, Measurement, Policy, measure
from experiments.workload import Workload
from tests.experiments.second_device import SecondCpu

CALL_S, LAUNCH_S, WAIT_S = 5e-6, 8e-6, 20e-6
POLICY = Policy(target=0.02, budget_s=0.3, max_samples=100)
BAD = st.sampled_from([0.0, -1.8e-6, -1.0, math.nan, math.inf, -math.inf])


class Unsteady(SecondCpu):
    """A GPU whose calls take `call_s` by its clock, and `launch_s` of the host. Single readings are replaced in turn.

    single: what stands in for readings of a single call, None for the right one. rows: the same for calls in a row.
    """

    def __init__(
        self,
        single: Iterator[float | None],
        rows: Iterator[float | None] | None = None,
        call_s: float = CALL_S,
        launch_s: float = LAUNCH_S,
    ) -> None:
        super().__init__("simulated")
        self.single, self.rows = single, rows or itertools.repeat(None)
        self.call_s, self.launch_s = call_s, launch_s
        self.clock, self.taken = 0.0, 0

    def now(self) -> float:
        return self.clock

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        each = max(self.call_s, self.launch_s if calls > 1 else 0.0)
        self.clock += WAIT_S + calls * max(self.call_s, self.launch_s)
        self.taken += 1
        given = next(self.single if calls == 1 else self.rows)
        return [each if given is None else given]


def measured(device: Unsteady, work: Workload | None = None, policy: Policy = POLICY) -> tuple[Measurement, list[Flag]]:
    """A point of that device, and the flags of its samples."""
    flags: list[Flag] = []

    def read(*seen: Flag) -> Reading:
        flags.extend(seen)
        return Reading(0.0)

    return measure(work or Workload(run=do_nothing), device, policy, read, now=device.now), flags


def every(period: int, bad: Sequence[float | None]) -> Iterator[float | None]:
    """Bad readings in turn, one in each period."""
    turns = itertools.cycle(bad)
    return (next(turns) if place % period == period - 1 else None for place in itertools.count())


def right_calls(**times: float) -> int:
    return measured(Unsteady(itertools.repeat(None), **times))[0].calls


@given(
    st.lists(st.none() | BAD, min_size=1, max_size=12).filter(lambda one: 3 * (len(one) - one.count(None)) <= len(one)),
    st.sampled_from([(5e-6, 8e-6), (5e-6, 1e-6), (5e-6, 2e-5), (3e-4, 8e-6), (4e-3, 8e-6), (0.05, 8e-6)]),
    st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_calls_of_a_sample_are_right_whichever_third_of_the_readings_is_bad(
    readings: list[float | None], times: tuple[float, float], slow: int
) -> None:
    call_s, launch_s = times
    first = itertools.repeat(20 * call_s, slow)
    device = Unsteady(itertools.chain(first, itertools.cycle(readings)), itertools.cycle(readings), call_s, launch_s)
    result, _ = measured(device)
    assert 1 / 1.5 <= result.calls / right_calls(call_s=call_s, launch_s=launch_s) <= 1.5
    alone, in_a_row = call_s, max(call_s, launch_s)
    assert set(result.samples[""]) <= ({in_a_row} if result.calls > 1 else {alone, 20 * call_s})
    assert device.clock <= 2 * POLICY.budget_s + 6 * call_s * slow


def test_a_clock_too_coarse_for_one_call_times_calls_in_a_row() -> None:
    device = Unsteady(itertools.repeat(0.0))
    assert measured(device)[0].calls == right_calls(call_s=LAUNCH_S), "in a row each takes as long as its launch"


def test_readings_that_are_no_time_are_dropped_and_told_with_the_next_sample() -> None:
    result, flags = measured(Unsteady(itertools.repeat(None), every(3, [-1.8e-6]), call_s=1e-4))
    assert set(result.samples[""]) == {1e-4}
    assert len(result.readings) == len(result.samples[""])
    first, *others = map(str, flags)
    assert first == "unreadable: 3 of 15 readings of the clock were no time", "those of warm-up as well"
    assert {*others} == {"unreadable: 1 of 2 readings of the clock were no time"}
    assert len(flags) == pytest.approx(len(result.samples[""]) / 2, abs=1)


@pytest.mark.parametrize(
    ("value", "gave"), [(0.0, "0 us"), (-1.8e-6, "-1.8 us"), (math.nan, "not numbers"), (math.inf, "not numbers")]
)
@pytest.mark.parametrize("call_s", [5e-6, 10.0])
def test_a_clock_without_any_time_fails_the_point_and_is_blamed(value: float, gave: str, call_s: float) -> None:
    device = Unsteady(itertools.repeat(value), itertools.repeat(value), call_s=call_s)
    with pytest.raises(NoTimeError, match=f"the clock of simulated is unusable here: .* not valid times .{gave}"):
        measured(device)
    assert device.clock <= max(3 * POLICY.budget_s, 3.1 * call_s)


@pytest.mark.parametrize(
    ("right", "call_s", "most_s"), [(6, CALL_S, 2 * POLICY.budget_s), (1, 0.2, 4.1 * 0.2)], ids=["fast", "slow"]
)
def test_a_clock_that_fails_after_warm_up_ends_the_point(right: int, call_s: float, most_s: float) -> None:
    """A slow call is tried three times more."""
    times = itertools.chain([None] * right, itertools.repeat(0.0))
    device = Unsteady(times if call_s > CALL_S else itertools.repeat(None), times, call_s)
    with pytest.raises(NoTimeError, match="are not valid times"):
        measured(device)
    assert device.clock <= most_s


class Stepping(Unsteady):
    """Its work has two phases, of which readings are given."""

    def __init__(self, *parts: list[float]) -> None:
        super().__init__(itertools.repeat(None))
        self.parts = itertools.cycle(parts)

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        super().time(work, calls, meanwhile)
        return next(self.parts)


def test_a_phase_may_take_nothing_but_not_less() -> None:
    work = Workload(phases=[("copy", do_nothing), ("compute", do_nothing)])
    result, flags = measured(Stepping([0.0, 1e-5], [-1e-6, 1e-5], [math.nan, 1e-5]), work)
    assert set(result.samples["copy"]) == {0.0}
    assert set(result.samples["compute"]) == {1e-5}
    assert {flag.name for flag in flags} == {"unreadable"}
    assert not are_times([0.0, 0.0])


class Stamped(SecondCpu):
    """Gives these times to the launches between two stamps."""

    def __init__(self, *times: float) -> None:
        super().__init__("simulated")
        self.times = times

    def time_launches(self, launches: Sequence[Callable[[], object]], meanwhile: Any = do_nothing) -> list[float]:
        return [float(one) for one, _ in zip(itertools.cycle(self.times), launches)]


def test_swapped_stamps_between_phases_cancel_and_lost_ones_are_left_out() -> None:
    work = Workload(phases=[("copy", do_nothing), ("compute", do_nothing)])
    assert Stamped(3e-6, 5e-6, 10e-6, -2e-6).time(work, 2) == pytest.approx([6.5e-6, 1.5e-6])
    assert Stamped(3e-6, 5e-6, math.nan, 5e-6, 3e-6, 5e-6).time(work, 3) == pytest.approx([3e-6, 5e-6])
    assert math.isnan(Stamped(math.nan, 5e-6).time(work, 4)[0])


def test_budgets_and_graphs_do_not_believe_a_single_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zero would let a point of hours through, and a step of a second be captured in a graph."""
    slow = Unsteady(every(2, [0.0]), call_s=1.0)
    ladder = {10**6: {"n": 1}, 1: None}
    made = Experiment(
        "known", lambda device, n: Workload(run=do_nothing), {"n": int}, lambda params: ladder[params["n"]], None, None,
        ("gpu",), lambda params: {},
    )  # fmt: skip
    with pytest.raises(worker.Skipped, match="one call is predicted to take 1e"):
        worker._require_budget(made, {"n": 10**6}, slow, POLICY)
    assert not worker._is_short(Workload(run=do_nothing), Unsteady(every(2, [-1.8e-6]), call_s=1.0))
    assert worker._is_short(Workload(run=do_nothing), Unsteady(every(3, [-1.8e-6]), call_s=2e-5))


def test_of_readings_the_middle_one_counts() -> None:
    device = Unsteady(iter([1.0, 0.0, 3.0, 2.0, -1.0, 9.0, 2.5]))
    assert call_s(Timer(Workload(run=do_nothing), device), 100.0, 100.0, now=device.now) == 2.5


ROOT = Path(__file__).parents[2]
# Seconds of one point, of the round, of a hang, and of the pause.
POINT_S, ROUND_S, HANG_S, PAUSE_S = 0.25, 2.0, 1.5, 2.5
WORKER = """
import os, pathlib, sys, time
for number, line in enumerate(sys.stdin):
    if number == 1:
        pathlib.Path({place!r}).write_text(str(os.getpid()))
    time.sleep({point_s} if number else 0.0)
    print('{{"status": "unsupported", "reason": "was asked"}}' if number else '{{"ready": true}}', flush=True)
"""
ROUND = """
import json, sys
from experiments import rounds
from experiments.jobs import Job, Point
points = tuple(Point.from_params("stand-in", {{"index": index}}) for index in range(4))
job = Job("stand-in", "cpu", "cpu", 0.1, {round_s}, 6, points, hang_s={hang_s})
measured = rounds.Round(job, 1, 1, command=[sys.executable, "-c", {worker!r}])
measured.run()
print(json.dumps([[row["reason"] for row in measured.rows], measured.stood_s]))
"""


def begun(place: Path, process: subprocess.Popen[str]) -> int:
    """The measuring process, once it is at its first point and has written its number."""
    end = time.monotonic() + 60
    while not (place.exists() and place.read_text(encoding="utf-8")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    return int(place.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("stop", "who"),
    [(signal.SIGSTOP, ["round"]), (signal.SIGSTOP, ["worker"]), (signal.SIGTSTP, ["round", "worker"])],
)
def test_a_round_that_stood_still_measures_every_point(stop: int, who: list[str], tmp_path: Path) -> None:
    place = tmp_path / "worker"
    worker = WORKER.format(place=str(place), point_s=POINT_S)
    program = ROUND.format(worker=worker, hang_s=HANG_S, round_s=ROUND_S)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            pids = {"round": process.pid, "worker": begun(place, process)}
            for name in who:
                os.kill(pids[name], stop)
            time.sleep(PAUSE_S)
            for name in who:
                os.kill(pids[name], signal.SIGCONT)
            told, shown = process.communicate(timeout=60)
        finally:
            process.kill()
    reasons, stood_s = json.loads(told)
    assert reasons == ["was asked"] * 4
    assert PAUSE_S - 1.5 < stood_s < PAUSE_S + 1.0 and " s of standing still" in shown


class Pausing(Unsteady):
    """Its process stands still in some of the samples: a long one, which its host's clock holds."""

    def __init__(self, pauses: Iterator[bool], call_s: float) -> None:
        super().__init__(iter(()), call_s=call_s, launch_s=0.0)
        self.pauses, self.stood = pauses, 0.0

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = lambda: None) -> list[float]:
        self.clock += calls * self.call_s
        pause = 15.0 if next(self.pauses) else 0.0
        self.stood += pause
        return [self.call_s + pause / calls]


def paused(pauses: Iterator[bool], call_s: float) -> tuple[Measurement, Pausing]:
    device = Pausing(pauses, call_s)
    policy = Policy(target=0.02, budget_s=1.0, max_samples=50)
    made = measure(
        Workload(run=lambda: None),
        device,
        policy,
        lambda *_: Reading(0.0),
        now=device.now,
        stood_s=lambda: device.stood,
    )
    return made, device


@pytest.mark.parametrize("call_s", [0.001, 0.3, 1.2])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 7, 9])
def test_a_pause_ends_no_point_early_and_decides_no_number(place: int, call_s: float) -> None:
    calm, _ = paused(itertools.repeat(False), call_s)
    made, device = paused((at == place for at in itertools.count()), call_s)
    assert max(made.samples[""]) == pytest.approx(call_s)
    assert len(made.samples[""]) >= len(calm.samples[""]) - 2
    assert made.stood_s == device.stood
    assert made.timed_s + made.warmup_s < 4.0


def test_a_machine_that_always_stands_still_ends_its_points_and_their_times_add_up() -> None:
    made, _ = paused(itertools.repeat(True), 1.2)
    assert len(made.samples[""]) == 1 and made.made == 1 + MOST_REPEATS
    assert sum(made.samples[""]) * made.calls <= made.timed_s
    # Pauses are no part of a point's budget.
    assert len(paused(itertools.repeat(True), 0.01)[0].samples[""]) > 5


def test_a_window_in_which_the_process_stood_still_says_for_how_long() -> None:
    before = machine_state.counters.Totals(time_s=0.0)
    now = machine_state.counters.Totals(time_s=16.0, paused_s=15.04, stops=1.0)
    assert [str(flag) for flag in machine_state.compare_totals(before, now, 4)[1]] == [
        "stopped: stood still for 15.0 s"
    ]
    assert Flag("stopped", "stood still for 15.0 s").figure == 15.0
