"""Running time: seconds in which this process is not paused.

A process pauses when a signal stops it, its container is frozen, or the machine sleeps. Most system clocks continue
during a pause, so that a pause would use up a budget.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

# TICK_S: seconds between two clock updates.
# LATE_S: if an update is late by more than these seconds, and the main thread did not use a CPU in this time, then the
# process was paused. A busy machine delays a thread by less.
TICK_S, LATE_S = 0.5, 0.5


def _main_thread_s() -> Callable[[], float]:
    """Return a clock for the main thread's CPU time, or for the process's CPU time if the system has no thread clocks.

    Work in the main thread may delay the thread that updates RunningTime. CPU time shows that this is no pause.
    """
    with suppress(AttributeError, OSError):
        return _working_clock(time.pthread_getcpuclockid(threading.main_thread().ident or 0))
    return time.process_time


def _clock_with_sleep() -> Callable[[], float]:
    """Return a steady clock that continues while the machine sleeps, if the system has one."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        with suppress(AttributeError, OSError):
            return _working_clock(getattr(time, name))
    return time.perf_counter


def _working_clock(number: int) -> Callable[[], float]:
    """Return a system clock by number. Raises OSError if the kernel or a sandbox lacks it."""
    time.clock_gettime(number)
    return lambda: time.clock_gettime(number)


@dataclass
class RunningTime:
    """Clock that stops while this process is paused. Within a `with` block, the function `now` reads this clock.

    A thread updates the clock every `tick_s` seconds. waits_for: returns True while this process waits for another
    process that is stopped, because this time counts as a pause, too.

    Tests replace the system's clocks, which return seconds. clock: a steady clock. with_sleep: a clock that continues
    while the machine sleeps. cpu: the main thread's CPU time.
    """

    tick_s: float = TICK_S
    waits_for: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.perf_counter
    with_sleep: Callable[[], float] = field(default_factory=_clock_with_sleep)
    cpu: Callable[[], float] = field(default_factory=_main_thread_s)

    def __post_init__(self) -> None:
        self._lock, self._end = threading.Lock(), threading.Event()
        self._lost = self._slept = 0.0
        self._at, self._worked, self._ahead = self.clock(), self.cpu(), self.with_sleep() - self.clock()
        self._before: RunningTime | None = None

    def now(self) -> float:
        """Return the seconds on the clock without pauses."""
        with self._lock:
            return self._look() - self._lost

    def stood_s(self) -> float:
        """Return the seconds for which this process was paused or the machine asleep since this clock was made."""
        with self._lock:
            self._look()
            return self._lost + self._slept

    def lost_s(self) -> float:
        """Return the paused seconds that `clock` includes and `now` excludes."""
        with self._lock:
            self._look()
            return self._lost

    def _look(self) -> float:
        at, worked = self.clock(), self.cpu()
        ahead = self.with_sleep() - at
        gap, busy = at - self._at, worked - self._worked
        if gap - busy > self.tick_s + LATE_S:
            # The pause began at an unknown time between two updates. Assume that it began in the middle.
            self._lost += gap - max(busy, self.tick_s / 2)
        elif self.waits_for():
            self._lost += gap
        if ahead - self._ahead > LATE_S:
            self._slept += ahead - self._ahead
        self._at, self._worked, self._ahead = at, worked, ahead
        return at

    def _tick(self) -> None:
        while not self._end.wait(self.tick_s):
            self.now()

    def start(self) -> RunningTime:
        """Start the thread that updates the clock."""
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __enter__(self) -> RunningTime:
        global _process_clock
        self._before, _process_clock = _process_clock, self
        return self.start()

    def __exit__(self, *_: object) -> None:
        global _process_clock
        _process_clock = self._before
        self._end.set()


_process_clock: RunningTime | None = None


def now() -> float:
    """Return the running time in seconds within a RunningTime `with` block, and time.perf_counter() elsewhere."""
    return _process_clock.now() if _process_clock is not None else time.perf_counter()


def paused_s() -> float:
    """Return `RunningTime.stood_s` of the clock whose `with` block is active, or 0 without such a clock."""
    return _process_clock.stood_s() if _process_clock is not None else 0.0


def _reset_in_child() -> None:
    """Drop the clock in a forked process, because the thread that updates the clock does not run there."""
    global _process_clock
    _process_clock = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
