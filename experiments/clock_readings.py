"""Readings of a device's clock, of which some may be no time: 0 or less, or no number.

Drivers give small negative times for short kernels, and stamps of short intervals may be swapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median_low

from contract import running_time
from experiments.devices.base import Device, do_nothing
from experiments.workload import Workload

# Readings of one call that are asked for, and attempts for each of them.
READINGS, ATTEMPTS = 5, 3
# Attempts that a point has even where its time is over.
LEAST_ATTEMPTS = 3
# Calls in a row multiply by this until the clock resolves them; what it does not resolve then, it never will.
GROWTH, MOST_CALLS = 4, 2**20


class NoTimeError(Exception):
    """The device's clock gives no time for the work."""


def are_times(seconds: list[float]) -> bool:
    """True if a reading, or those of the phases of a call, are times: finite, the sum positive, no phase negative."""
    return all(0 <= second < math.inf for second in seconds) and sum(seconds) > 0


class Timer:
    """Times a work on a device, and counts the readings: all of them, and those that are no time."""

    def __init__(self, work: Workload, device: Device) -> None:
        self.work, self.device = work, device
        self.readings = self.unreadable = 0
        self._least, self._most = math.inf, -math.inf

    def take(self, calls: int, meanwhile: Callable[[], object] = do_nothing) -> list[float] | None:
        """Seconds of one call, as `Device.time` gives them, or None where that is no time."""
        parts = self.device.time(self.work, calls, meanwhile)
        self.readings += 1
        if are_times(parts):
            return parts
        self.unreadable += 1
        if all(map(math.isfinite, parts)):
            self._least, self._most = min(self._least, *parts), max(self._most, min(parts))
        return None

    def failure(self) -> NoTimeError:
        """The error that says what the clock gave."""
        gave = "no numbers" if self._least > self._most else f"{self._least * 1e6:.3g} us"
        if self._least < self._most:
            gave += f" to {self._most * 1e6:.3g} us"
        return NoTimeError(
            f"the clock of {self.device.name} is unusable here: {self.unreadable} of {self.readings} readings are "
            f"no time ({gave})"
        )


def call_s(
    timer: Timer,
    enough_s: float,
    most_s: float,
    now: Callable[[], float] = running_time.now,
    wanted: int = READINGS,
    least: int = 1,
) -> float:
    """Seconds of one warm call: the middle of `wanted` readings, or of `least` or more once they took `enough_s`.

    The first readings may be slow, some may be no time. Where half of them are none, calls in a row are timed, ever
    more of them. Raises NoTimeError where `most_s` seconds give none.
    """
    begun, calls = now(), 1
    while True:
        seen: list[float] = []
        since = now()
        for attempt in range(1, wanted * ATTEMPTS + 1):
            if (parts := timer.take(calls)) is not None:
                seen.append(sum(parts))
            spent, over = now() - since, now() - begun > most_s
            if len(seen) >= wanted or (len(seen) >= least and spent > enough_s):
                break
            if over and attempt >= LEAST_ATTEMPTS:
                break
        # A slow call is not made several times in a row because some readings were lost.
        last = over or calls * GROWTH > MOST_CALLS or spent > enough_s * attempt
        if seen and (last or 2 * len(seen) > attempt):
            return median_low(seen)
        if last:
            raise timer.failure()
        calls *= GROWTH
