"""An invalid clock reading or a stopped process may cost a reading, but never a whole point."""

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


class UnsteadyClock(SecondCpu):
    """GPU on which a call takes `call_s` by its clock, and `launch_s` on the host. Some clock readings are replaced.

    single: a replacement for each reading of a single call; None keeps the right reading
    rows: the same for each reading of several calls in a row
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
        replacement = next(self.single if calls == 1 else self.rows)
        return [each if replacement is None else replacement]


def measure_flagged(
    device: UnsteadyClock, work: Workload | None = None, policy: Policy = POLICY
) -> tuple[Measurement, list[Flag]]:
    """Measure a point; return the measurement and the flags on its samples."""
    flags: list[Flag] = []

    def read(*new_flags: Flag) -> Reading:
        flags.extend(new_flags)
        return Reading(0.0)

    return measure(work or Workload(run=do_nothing), device, policy, read, now=device.now), flags


def bad_once_per_period(period: int, bad: Sequence[float | None]) -> Iterator[float | None]:
    """Return replacements: the next value in `bad` for the last of every `period` readings, and None for all others."""
    turns = itertools.cycle(bad)
    return (next(turns) if index % period == period - 1 else None for index in itertools.count())


def calls_with_a_right_clock(**times: float) -> int:
    return measure_flagged(UnsteadyClock(itertools.repeat(None), **times))[0].calls


@given(
    st.lists(st.none() | BAD, min_size=1, max_size=12).filter(lambda row: 3 * (len(row) - row.count(None)) <= len(row)),
    st.sampled_from([(5e-6, 8e-6), (5e-6, 1e-6), (5e-6, 2e-5), (3e-4, 8e-6), (4e-3, 8e-6), (0.05, 8e-6)]),
    st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_calls_per_sample_are_right_with_a_third_bad_readings(
    readings: list[float | None], times: tuple[float, float], slow: int
) -> None:
    call_s, launch_s = times
    first = itertools.repeat(20 * call_s, slow)
    device = UnsteadyClock(
        itertools.chain(first, itertools.cycle(readings)), itertools.cycle(readings), call_s, launch_s
    )
    result, _ = measure_flagged(device)
    assert 1 / 1.5 <= result.calls / calls_with_a_right_clock(call_s=call_s, launch_s=launch_s) <= 1.5
    alone, in_a_row = call_s, max(call_s, launch_s)
    assert set(result.samples[""]) <= ({in_a_row} if result.calls > 1 else {alone, 20 * call_s})
    assert device.clock <= 2 * POLICY.budget_s + 6 * call_s * slow


def test_clock_too_coarse_for_one_call_times_calls_in_a_row() -> None:
    device = UnsteadyClock(itertools.repeat(0.0))
    assert measure_flagged(device)[0].calls == calls_with_a_right_clock(call_s=LAUNCH_S), (
        "in a row, each call takes as long as its launch"
    )


def test_invalid_readings_are_dropped_and_flagged_on_the_next_sample() -> None:
    result, flags = measure_flagged(
        UnsteadyClock(itertools.repeat(None), bad_once_per_period(3, [-1.8e-6]), call_s=1e-4)
    )
    assert set(result.samples[""]) == {1e-4}
    assert len(result.readings) == len(result.samples[""])
    first, *later = map(str, flags)
    assert first == "unreadable: 3 of 15 readings of the clock were no time", "with the readings in warm-up"
    assert {*later} == {"unreadable: 1 of 2 readings of the clock were no time"}
    assert len(flags) == pytest.approx(len(result.samples[""]) / 2, abs=1)


@pytest.mark.parametrize(
    ("value", "gave"), [(0.0, "0 us"), (-1.8e-6, "-1.8 us"), (math.nan, "not numbers"), (math.inf, "not numbers")]
)
@pytest.mark.parametrize("call_s", [5e-6, 10.0])
def test_clock_without_valid_readings_fails_the_point_by_name(value: float, gave: str, call_s: float) -> None:
    device = UnsteadyClock(itertools.repeat(value), itertools.repeat(value), call_s=call_s)
    with pytest.raises(NoTimeError, match=f"the clock of simulated is unusable here: .* not valid times .{gave}"):
        measure_flagged(device)
    assert device.clock <= max(3 * POLICY.budget_s, 3.1 * call_s)


@pytest.mark.parametrize(
    ("right", "call_s", "most_s"), [(6, CALL_S, 2 * POLICY.budget_s), (1, 0.2, 4.1 * 0.2)], ids=["fast", "slow"]
)
def test_clock_that_fails_after_warm_up_fails_the_point(right: int, call_s: float, most_s: float) -> None:
    """After one right reading, a slow call is timed at most three more times."""
    times = itertools.chain([None] * right, itertools.repeat(0.0))
    device = UnsteadyClock(times if call_s > CALL_S else itertools.repeat(None), times, call_s)
    with pytest.raises(NoTimeError, match="are not valid times"):
        measure_flagged(device)
    assert device.clock <= most_s


class TwoPhases(UnsteadyClock):
    """Device that returns the items in `parts` in turn, one per timing. Each item has the readings for two phases."""

    def __init__(self, *parts: list[float]) -> None:
        super().__init__(itertools.repeat(None))
        self.parts = itertools.cycle(parts)

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float]:
        super().time(work, calls, meanwhile)
        return next(self.parts)


def test_phase_time_may_be_zero_but_not_negative() -> None:
    work = Workload(phases=[("copy", do_nothing), ("compute", do_nothing)])
    result, flags = measure_flagged(TwoPhases([0.0, 1e-5], [-1e-6, 1e-5], [math.nan, 1e-5]), work)
    assert set(result.samples["copy"]) == {0.0}
    assert set(result.samples["compute"]) == {1e-5}
    assert {flag.name for flag in flags} == {"unreadable"}
    assert not are_times([0.0, 0.0])


class FixedLaunchTimes(SecondCpu):
    """Device that reports these times for its launches, in turn."""

    def __init__(self, *times: float) -> None:
        super().__init__("simulated")
        self.times = times

    def time_launches(self, launches: Sequence[Callable[[], object]], meanwhile: Any = do_nothing) -> list[float]:
        return [float(time_s) for time_s, _ in zip(itertools.cycle(self.times), launches)]


def test_swapped_stamps_between_phases_cancel_and_lost_stamps_are_skipped() -> None:
    work = Workload(phases=[("copy", do_nothing), ("compute", do_nothing)])
    assert FixedLaunchTimes(3e-6, 5e-6, 10e-6, -2e-6).time(work, 2) == pytest.approx([6.5e-6, 1.5e-6])
    assert FixedLaunchTimes(3e-6, 5e-6, math.nan, 5e-6, 3e-6, 5e-6).time(work, 3) == pytest.approx([3e-6, 5e-6])
    assert math.isnan(FixedLaunchTimes(math.nan, 5e-6).time(work, 4)[0])


def test_budget_and_graph_decisions_need_more_than_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reading of 0 or less must not let a call of days fit the budget, or let a call of 1 s count as short."""
    slow = UnsteadyClock(bad_once_per_period(2, [0.0]), call_s=1.0)
    ladder = {10**6: {"n": 1}, 1: None}
    experiment = Experiment(
        "known", lambda device, n: Workload(run=do_nothing), {"n": int}, lambda params: ladder[params["n"]], None, None,
        ("gpu",), lambda params: {},
    )  # fmt: skip
    with pytest.raises(worker.Skipped, match="one call is predicted to take 1e"):
        worker._require_budget(experiment, {"n": 10**6}, slow, POLICY)
    assert not worker._is_short(Workload(run=do_nothing), UnsteadyClock(bad_once_per_period(2, [-1.8e-6]), call_s=1.0))
    assert worker._is_short(Workload(run=do_nothing), UnsteadyClock(bad_once_per_period(3, [-1.8e-6]), call_s=2e-5))


def test_call_time_is_the_median_reading() -> None:
    device = UnsteadyClock(iter([1.0, 0.0, 3.0, 2.0, -1.0, 9.0, 2.5]))
    assert call_s(Timer(Workload(run=do_nothing), device), 100.0, 100.0, now=device.now) == 2.5


ROOT = Path(__file__).parents[2]
# POINT_S: seconds per point
# ROUND_S: limit for a round in seconds
# HANG_S: seconds without an answer after which a worker counts as hung
# PAUSE_S: seconds for which processes are stopped
POINT_S, ROUND_S, HANG_S, PAUSE_S = 0.25, 2.0, 1.5, 2.5
WORKER = """
import os, pathlib, sys, time
for number, line in enumerate(sys.stdin):
    if number == 1:
        pathlib.Path({pid_file!r}).write_text(str(os.getpid()))
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


def wait_for_worker(pid_file: Path, process: subprocess.Popen[str]) -> int:
    """Wait until the worker is at its first point; return its process id."""
    end = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text(encoding="utf-8")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    return int(pid_file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("stop", "stopped"),
    [(signal.SIGSTOP, ["round"]), (signal.SIGSTOP, ["worker"]), (signal.SIGTSTP, ["round", "worker"])],
)
def test_stopped_round_still_measures_every_point(stop: int, stopped: list[str], tmp_path: Path) -> None:
    pid_file = tmp_path / "worker"
    worker = WORKER.format(pid_file=str(pid_file), point_s=POINT_S)
    program = ROUND.format(worker=worker, hang_s=HANG_S, round_s=ROUND_S)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            pids = {"round": process.pid, "worker": wait_for_worker(pid_file, process)}
            for name in stopped:
                os.kill(pids[name], stop)
            time.sleep(PAUSE_S)
            for name in stopped:
                os.kill(pids[name], signal.SIGCONT)
            output, log = process.communicate(timeout=60)
        finally:
            process.kill()
    reasons, stood_s = json.loads(output)
    assert reasons == ["was asked"] * 4
    assert PAUSE_S - 1.5 < stood_s < PAUSE_S + 1.0 and " s of standing still" in log


class PausingProcess(UnsteadyClock):
    """Device whose process stops during some samples, which makes them long by the host clock."""

    def __init__(self, pauses: Iterator[bool], call_s: float) -> None:
        super().__init__(iter(()), call_s=call_s, launch_s=0.0)
        self.pauses, self.stood = pauses, 0.0

    def time(self, work: Workload, calls: int, meanwhile: Callable[[], object] = lambda: None) -> list[float]:
        self.clock += calls * self.call_s
        pause = 15.0 if next(self.pauses) else 0.0
        self.stood += pause
        return [self.call_s + pause / calls]


def measure_with_pauses(pauses: Iterator[bool], call_s: float) -> tuple[Measurement, PausingProcess]:
    device = PausingProcess(pauses, call_s)
    policy = Policy(target=0.02, budget_s=1.0, max_samples=50)
    measurement = measure(
        Workload(run=lambda: None),
        device,
        policy,
        lambda *_: Reading(0.0),
        now=device.now,
        stood_s=lambda: device.stood,
    )
    return measurement, device


@pytest.mark.parametrize("call_s", [0.001, 0.3, 1.2])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 7, 9])
def test_pause_neither_ends_a_point_early_nor_changes_its_times(place: int, call_s: float) -> None:
    calm, _ = measure_with_pauses(itertools.repeat(False), call_s)
    measurement, device = measure_with_pauses((index == place for index in itertools.count()), call_s)
    assert max(measurement.samples[""]) == pytest.approx(call_s)
    assert len(measurement.samples[""]) >= len(calm.samples[""]) - 2
    assert measurement.stood_s == device.stood
    assert measurement.timed_s + measurement.warmup_s < 4.0


def test_points_end_and_times_add_up_if_every_sample_pauses() -> None:
    measurement, _ = measure_with_pauses(itertools.repeat(True), 1.2)
    assert len(measurement.samples[""]) == 1 and measurement.total_calls == 1 + MOST_REPEATS
    assert sum(measurement.samples[""]) * measurement.calls <= measurement.timed_s
    # Pauses do not count towards a point's budget.
    assert len(measure_with_pauses(itertools.repeat(True), 0.01)[0].samples[""]) > 5


def test_window_with_a_pause_is_flagged_with_its_length() -> None:
    before = machine_state.counters.Totals(time_s=0.0)
    now = machine_state.counters.Totals(time_s=16.0, paused_s=15.04, stops=1.0)
    assert [str(flag) for flag in machine_state.compare_totals(before, now, 4)[1]] == [
        "stopped: stood still for 15.0 s"
    ]
    assert Flag("stopped", "stood still for 15.0 s").figure == 15.0
