"""Read a device's clock; drop and count unusable readings (zero, negative or not finite).

Drivers return small negative times for short kernels, and may swap the timestamps around short intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median_low

from contract import running_time
from experiments.devices.base import Device, do_nothing
from experiments.workload import Workload

# READINGS: number of usable readings that `call_s` takes by default.
# ATTEMPTS: maximum number of attempts, as a multiple of the number of readings.
READINGS, ATTEMPTS = 5, 3
# `call_s` makes at least this many attempts, even after its time limit.
LEAST_ATTEMPTS = 3
# While at least half of the readings are unusable, multiply the number of calls in a row per reading by GROWTH, up to
# MOST_CALLS.
GROWTH, MOST_CALLS = 4, 2**20


class NoTimeError(Exception):
    """The device's clock returned no usable time."""


def are_times(seconds: list[float]) -> bool:
    """True if all times are finite and non-negative, and their sum is positive."""
    return all(0 <= second < math.inf for second in seconds) and sum(seconds) > 0


class Timer:
    """Time a workload on a device; count all readings, and those that are unusable."""

    def __init__(self, work: Workload, device: Device) -> None:
        self.work, self.device = work, device
        self.readings = self.unreadable = 0
        self._least, self._most = math.inf, -math.inf

    def take(self, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float] | None:
        """Return what `Device.time` returns for these arguments (seconds per call), or None if a time is unusable."""
        parts = self.device.time(self.work, calls, meanwhile)
        self.readings += 1
        if are_times(parts):
            return parts
        self.unreadable += 1
        if all(map(math.isfinite, parts)):
            self._least, self._most = min(self._least, *parts), max(self._most, min(parts))
        return None

    def failure(self) -> NoTimeError:
        """Return an error that reports the range of the unusable readings."""
        values = "not numbers" if self._least > self._most else f"{self._least * 1e6:.3g} us"
        if self._least < self._most:
            values += f" to {self._most * 1e6:.3g} us"
        return NoTimeError(
            f"the clock of {self.device.name} is unusable here: {self.unreadable} of {self.readings} readings are "
            f"not valid times ({values})"
        )


def call_s(
    timer: Timer,
    enough_s: float,
    most_s: float,
    now: Callable[[], float] = running_time.now,
    count: int = READINGS,
    minimum: int = 1,
) -> float:
    """Return seconds per warm call: the low median of several readings, since the first readings may be slow.

    Takes `count` usable readings, but after `enough_s` seconds, `minimum` usable readings suffice. If at least half of
    the readings are unusable, starts again with more calls in a row per reading.
    Raises NoTimeError if no reading is usable within `most_s` seconds.
    """
    started, calls = now(), 1
    while True:
        times: list[float] = []
        since = now()
        for attempt in range(1, count * ATTEMPTS + 1):
            if (parts := timer.take(calls)) is not None:
                times.append(sum(parts))
            spent, over = now() - since, now() - started > most_s
            if len(times) >= count or (len(times) >= minimum and spent > enough_s):
                break
            if over and attempt >= LEAST_ATTEMPTS:
                break
        # Do not start again if an attempt already takes longer than `enough_s`: more calls would take even longer.
        last = over or calls * GROWTH > MOST_CALLS or spent > enough_s * attempt
        if times and (last or 2 * len(times) > attempt):
            return median_low(times)
        if last:
            raise timer.failure()
        calls *= GROWTH
