"""Whether a process stood still while it was at work: stopped, frozen, or left without a core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds between two beats (more often, they would show in the CPU time of rare requests); seconds without one, and
# the share of a core used in them below which nothing ran.
PERIOD_S, LEAST_S, USED_SHARE = 0.25, 0.5, 0.1


class Pulse:
    """Beats on an event loop. A gap in which the process used next to no CPU time is one in which it stood still.

    stood_s: seconds of all gaps. A gap with CPU time in it is a busy process, which is no pause. A suspended machine
    leaves no gap: the monotonic clock of Linux and macOS, by which requests time out, stands still as well.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self.stood_s = 0.0
        self._now, self._used = now, used
        self._last = now(), used()

    def beat(self) -> None:
        """Look at the time since the last beat."""
        (then, before), self._last = self._last, (self._now(), self._used())
        gap, used = self._last[0] - then, self._last[1] - before
        if gap >= LEAST_S and used < USED_SHARE * gap:
            self.stood_s += gap

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            self.beat()
