"""Pauses of a process are told from its work by clocks; here these are simulated."""

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
    """A process's clocks, which a test moves; its heart beats in time."""

    def __init__(self) -> None:
        self.at = self.worked = self.asleep = 0.0
        self.other_stopped = False
        self.running = RunningTime(
            waits_for=lambda: self.other_stopped, clock=lambda: self.at, with_sleep=lambda: self.at + self.asleep,
            cpu=lambda: self.worked,
        )  # fmt: skip

    def passes(self, seconds: float, share: float = 0.0, alone: bool = False) -> None:
        """Time goes by of which the main thread works a share; alone: it lets no other thread look at the clock."""
        while seconds > 0:
            step = seconds if alone else min(seconds, TICK_S)
            self.at, self.worked, seconds = self.at + step, self.worked + step * share, seconds - step
            self.running.now()


@given(
    st.lists(
        st.tuples(st.floats(0, 6), st.floats(0, 1), st.sampled_from(["runs", "alone", "stands", "sleeps"])), max_size=9
    ),
)
def test_whatever_comes_in_whatever_order_only_pauses_are_left_out(events: list[tuple[float, float, str]]) -> None:
    clocks, pauses, ran, asleep = Clocks(), 0, 0.0, 0.0
    for seconds, share, how in events:
        if how == "stands":
            clocks.at += seconds
            pauses += 1
        elif how == "sleeps":
            clocks.asleep += seconds
            asleep += seconds
        else:
            # A thread that keeps all others out computes.
            clocks.passes(seconds, 1.0 if how == "alone" else share, alone=how == "alone")
            ran += seconds
        clocks.running.now()
    assert ran - pauses * TICK_S - 1e-6 <= clocks.running.now() <= ran + pauses * (TICK_S + LATE_S) + 1e-6
    assert clocks.running.stood_s() - clocks.running.lost_s() <= asleep + 1e-6


def test_a_pause_of_another_process_that_is_waited_for_counts_too() -> None:
    clocks = Clocks()
    clocks.passes(3.0)
    clocks.other_stopped = True
    clocks.passes(20.0)
    clocks.other_stopped = False
    clocks.passes(3.0)
    assert clocks.running.now() == pytest.approx(6.0, abs=TICK_S)


def test_a_machine_that_slept_has_stood_though_its_clock_did_not_go_on() -> None:
    clocks = Clocks()
    clocks.passes(2.0)
    clocks.asleep = 3600.0
    assert (clocks.running.now(), clocks.running.stood_s(), clocks.running.lost_s()) == (2.0, 3600.0, 0.0)


def test_a_process_has_one_clock_and_its_forks_none() -> None:
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
def test_a_system_that_lacks_a_clock_still_has_a_running_time(
    monkeypatch: pytest.MonkeyPatch, lacking: Exception
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise lacking

    monkeypatch.setattr(time, "clock_gettime", refuse)
    running = RunningTime()
    assert (running.with_sleep, running.cpu) == (time.perf_counter, time.process_time)
    assert running.now() <= running.now() and running.stood_s() == 0.0


def test_long_calls_of_every_kind_are_no_pause() -> None:
    with RunningTime(tick_s=0.05) as clock:
        end = time.perf_counter() + 0.8
        numbers: Any = range(10**7)
        time.sleep(0.7)
        while time.perf_counter() < end:
            sum(numbers)  # keeps all other threads out
        assert clock.stood_s() == 0.0
