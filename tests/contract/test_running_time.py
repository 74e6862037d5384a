"""Test with simulated clocks that pauses are distinguished from work."""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import running_time
from contract.running_time import LATE_S, TICK_S, RunningTime


class Clocks:
    """Simulated clocks for a process that updates its running time without delay."""

    def __init__(self) -> None:
        self.at = self.worked = self.asleep = 0.0
        self.other_stopped = False
        self.running = RunningTime(
            waits_for=lambda: self.other_stopped, clock=lambda: self.at, with_sleep=lambda: self.at + self.asleep,
            cpu=lambda: self.worked,
        )  # fmt: skip

    def passes(self, seconds: float, share: float = 0.0, alone: bool = False) -> None:
        """Advance the clocks.

        share: fraction of the time in which the main thread works. alone: True if the main thread blocks the thread
        that updates the time.
        """
        while seconds > 0:
            step = seconds if alone else min(seconds, TICK_S)
            self.at, self.worked, seconds = self.at + step, self.worked + step * share, seconds - step
            self.running.now()


@given(
    st.lists(
        st.tuples(st.floats(0, 6), st.floats(0, 1), st.sampled_from(["runs", "alone", "stands", "sleeps"])), max_size=9
    ),
)
def test_clock_leaves_out_only_pauses(events: list[tuple[float, float, str]]) -> None:
    clocks, pauses, ran, asleep = Clocks(), 0, 0.0, 0.0
    for seconds, share, how in events:
        if how == "stands":
            clocks.at += seconds
            pauses += 1
        elif how == "sleeps":
            clocks.asleep += seconds
            asleep += seconds
        else:
            # A main thread that blocks the updating thread works all the time, so its share is 1.
            clocks.passes(seconds, 1.0 if how == "alone" else share, alone=how == "alone")
            ran += seconds
        clocks.running.now()
    assert ran - pauses * TICK_S - 1e-6 <= clocks.running.now() <= ran + pauses * (TICK_S + LATE_S) + 1e-6
    assert clocks.running.stood_s() - clocks.running.lost_s() <= asleep + 1e-6


def test_pause_of_awaited_process_counts() -> None:
    clocks = Clocks()
    clocks.passes(3.0)
    clocks.other_stopped = True
    clocks.passes(20.0)
    clocks.other_stopped = False
    clocks.passes(3.0)
    assert clocks.running.now() == pytest.approx(6.0, abs=TICK_S)


def test_sleep_counts_as_pause() -> None:
    clocks = Clocks()
    clocks.passes(2.0)
    clocks.asleep = 3600.0
    assert (clocks.running.now(), clocks.running.stood_s(), clocks.running.lost_s()) == (2.0, 3600.0, 0.0)


def test_process_has_one_clock_and_forks_none() -> None:
    assert (abs(running_time.now() - time.perf_counter()) < 1.0, running_time.paused_s()) == (True, 0.0)
    with RunningTime() as clock:
        clock._lost += 1000.0
        assert running_time.now() == pytest.approx(time.perf_counter() - 1000.0, abs=1.0)
        assert running_time.paused_s() == pytest.approx(1000.0, abs=1.0)
        if not (child := os.fork()):
            os._exit(int(running_time.paused_s() != 0.0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert running_time.paused_s() == 0.0


@pytest.mark.parametrize("lacking", [AttributeError, OSError(22, "Invalid argument")])
def test_running_time_works_without_optional_clocks(monkeypatch: pytest.MonkeyPatch, lacking: Exception) -> None:
    def refuse(*_: object) -> NoReturn:
        raise lacking

    monkeypatch.setattr(time, "clock_gettime", refuse)
    running = RunningTime()
    assert (running.with_sleep, running.cpu) == (time.perf_counter, time.process_time)
    assert running.now() <= running.now() and running.stood_s() == 0.0


def test_long_calls_are_no_pause() -> None:
    with RunningTime(tick_s=0.05) as clock:
        end = time.perf_counter() + 0.8
        numbers: Any = range(10**7)
        time.sleep(0.7)
        while time.perf_counter() < end:
            sum(numbers)  # one long call, which blocks all other threads
        assert clock.stood_s() == 0.0
