"""The state of the machine before and beside each sample, and what of it may have spoilt the sample.

Time is cut into windows that follow each other without a gap, each closed by the first sample that ends
WINDOW_S after the one before. A sample has the state of the window that it lies in; a point's first sample
has the worse of that and of the time since the last point, in which this one was set up.

A GPU's counters are read while it works, not in the pause between two samples: it would show as idleness, and
the clock as that of a GPU at rest. So a window ends there with the first sample that begins after its time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from contract.sample_flags import Flag, text, worst
from experiments import counters, processor, topology
from experiments.counters import Totals, Values

# Others' share of all cores above which a sample is flagged. The kernel's ticks alone make
# several percent of it on a few cores in a short window.
BUSY_SHARE = 0.10
# Cores of others from which on threads that need all cores share some: a neighbour on a thread's core gets half of it.
CROWDED_CORES = 0.4
# Shares of the time, and of the clock. A preset asks for medians to within 5% at the least: what
# may take that much of a sample is said; what stops all threads at once, from less.
QUEUED_SHARE = 0.05
CLOCK_DROP = 0.05
STEAL_SHARE = 0.02
MEMORY_SHARE = 0.02
# Where stalls are not counted: at 0.1 ms to fetch a page from a disk, 2% of the time.
PAGES_PER_S = 200
# The kernel counts CPU time in ticks of 10 ms: shorter windows say nothing.
WINDOW_S = 0.25
# Of a GPU's windows, a point's first is as short, since many points are; but its driver averages over up to a second.
GPU_WINDOW_S = 1.0


@dataclass
class Reading:
    """What was seen around one sample; None where no counter exists."""

    elapsed_s: float
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    utilisation: float | None = None
    other_load: float | None = None
    steal: float | None = None
    flags: str = ""


@dataclass(frozen=True)
class Energy:
    """Joules of the device since some moment: by its own counter, and by its power over the windows' time."""

    counted: float | None
    summed: float


@dataclass(frozen=True)
class EnergyUse:
    """Joules that were used, and how they are known: energy (counted) or energy_from_power."""

    joules: float
    method: str


@dataclass(frozen=True)
class State:
    """What one window saw."""

    values: Values
    flags: tuple[Flag, ...] = ()


class Watch:
    """Reads the node's and one device's counters, at most every WINDOW_S seconds."""

    def __init__(self, device: str) -> None:
        self._begun = time.perf_counter()
        self._process = psutil.Process()
        self._on_gpu = device != "cpu"
        self._device = counters.gpu_counters(device) if self._on_gpu else counters.cpu_counters(self._process)
        self._summed = 0.0
        self._totals = self._read_totals()
        self._highest_mhz = 0.0
        self._threads = 0
        self._window: tuple[Totals, Totals] | None = None
        self._window_s = WINDOW_S
        self._first = False
        self._seen: State | None = None
        self._state = State({})
        self._before: tuple[Flag, ...] = ()
        self._waiting: list[tuple[Reading, tuple[Flag, ...]]] = []

    def begin(self, threads: int = 0) -> None:
        """A point is set up and will be sampled next: what was seen since the last one is its state before.

        threads: those of its work on the CPU.
        """
        self._waiting.clear()
        self._threads = 0 if self._on_gpu else threads
        self._window_s, self._first, self._seen = WINDOW_S, True, None
        if self._window_is_over():
            self._close_window(self._read_device())
        # Another point's work may have another clock, and other threads: only within a point is a lower one a loss.
        self._highest_mhz = 0.0
        kept = [flag for flag in self._state.flags if flag.name not in ("clock", "crowded")]
        kept += crowding_flags(*self._window, self._threads) if self._window else []
        self._state = State(self._state.values, tuple(worst(kept)))
        self._before = self._state.flags

    def look(self) -> None:
        """A GPU works on a sample: read its counters if that is a point's first, or begins when the window is over."""
        if self._on_gpu and (self._first or self._window_is_over()):
            self._seen, self._first = self._read_device(), False

    def read(self, *seen_in_it: Flag) -> Reading:
        """The state around the sample that ends now. seen_in_it: flags of this sample alone.

        It is the last window's until this one is closed, by a later call: then the reading is brought up to date.
        Of a GPU, a point's first sample already has what was seen of it meanwhile.
        """
        reading = Reading(time.perf_counter() - self._begun)
        self._waiting.append((reading, (*self._before, *seen_in_it)))
        self._before = ()
        seen, self._seen = self._seen, None
        if self._window_is_over() and (seen or not self._on_gpu):
            self._close_window(seen or self._read_device())
            for waiting, before in self._waiting:
                self._write_state(waiting, before)
            self._waiting.clear()
            return reading
        if seen:
            self._state = State({**self._state.values, **seen.values}, tuple(worst([*self._state.flags, *seen.flags])))
        self._write_state(*self._waiting[-1])
        return reading

    def energy(self) -> Energy:
        """What the device has used until now."""
        running = (self._state.values.get("power_w") or 0.0) * (time.perf_counter() - self._totals.at)
        return Energy(self._device.joules(), self._summed + running)

    def energy_since(self, then: Energy) -> EnergyUse | None:
        """What the device has used since `then`; None where nothing tells it, or a counter began anew."""
        now = self.energy()
        if now.counted is not None and then.counted is not None:
            joules, method = now.counted - then.counted, "energy"
        else:
            joules, method = now.summed - then.summed, "energy_from_power"
        return EnergyUse(joules, method) if joules > 0 else None

    @property
    def energy_least_s(self) -> float:
        """Seconds of work from which on its energy is told."""
        return self._device.least_s

    def _write_state(self, reading: Reading, before: tuple[Flag, ...]) -> None:
        """Write the last window's state into a reading."""
        vars(reading).update(self._state.values, flags=text(worst([*before, *self._state.flags])))

    def _window_is_over(self) -> bool:
        return time.perf_counter() - self._totals.at >= self._window_s

    def _close_window(self, device: State) -> None:
        before, self._totals = self._totals, self._read_totals()
        values, flags = compare_totals(before, self._totals, os.cpu_count() or 1)
        self._window = before, self._totals
        flags += crowding_flags(*self._window, self._threads)
        self._summed += (device.values.get("power_w") or 0.0) * (self._totals.at - before.at)
        self._state = State({**device.values, **values}, tuple(worst([*flags, *device.flags])))
        self._window_s = GPU_WINDOW_S if self._on_gpu else WINDOW_S

    def _read_device(self) -> State:
        """What the device's own counters tell now."""
        values = self._device.values()
        clock = values.get("clock_mhz") or 0.0
        self._highest_mhz = max(self._highest_mhz, clock)
        return State(values, (*self._device.flags(), *clock_flags(clock, self._highest_mhz)))

    def _read_totals(self) -> Totals:
        return counters.read_totals(self._process)


def compare_totals(before: Totals, now: Totals, cores: int) -> tuple[Values, list[Flag]]:
    """Others' load and steal as shares of `cores` in a window, and the flags that it deserves."""

    def rise(name: str) -> float:
        # Ticks are rounded: a difference of them may come out slightly negative.
        then, later = getattr(before, name), getattr(now, name)
        return max(0.0, later - then) if then is not None and later is not None else 0.0

    seconds = now.at - before.at
    other = max(0.0, now.busy - before.busy - (now.own - before.own)) / (seconds * cores)
    steal = rise("stolen") / (seconds * cores)
    queued, stalled, pages = (rise(name) / seconds for name in ("queued", "stalled", "paged"))
    flags = []
    if other > BUSY_SHARE:
        flags.append(Flag("busy", f"{other:.0%} other load"))
    if stood := rise("stood"):
        flags.append(pause_flag(stood))
    elif rise("stops"):
        flags.append(Flag("stopped", "by a signal, and went on"))
    if queued > QUEUED_SHARE:
        flags.append(Flag("queued", f"waited for a core {min(queued, 1.0):.0%} of the time"))
    if steal > STEAL_SHARE:
        flags.append(Flag("steal", f"{steal:.0%}"))
    if rise("quota_hits"):
        flags.append(
            Flag("throttled", f"cgroup quota in {rise('quota_hits') / max(rise('periods'), 1):.0%} of its periods")
        )
    if rise("hot"):
        flags.append(Flag("throttled", "heat"))
    if stalled > MEMORY_SHARE:
        flags.append(Flag("memory", f"stalled {min(stalled, 1.0):.0%} of the time"))
    elif pages > PAGES_PER_S:
        flags.append(Flag("memory", f"{pages:,.0f} pages a second from or to the disk"))
    return {"other_load": other, "steal": steal}, flags


def crowding_flags(before: Totals, now: Totals, threads: int) -> list[Flag]:
    """A flag if others had cores that `threads` threads of this process needed; none for no threads.

    One neighbour is a small share of many cores. Threads that wait for each other all wait for the one beside it.
    """
    cpus = topology.allowed_cpus()
    # More threads than cores run beside each other on a core's hardware threads.
    cores = processor.usable_cores(cpus)
    room = cores if threads <= cores else len(cpus)
    others = max(0.0, now.here - before.here - (now.own - before.own)) / (now.at - before.at)
    if not threads or min(threads, room) + others <= room + CROWDED_CORES:
        return []
    free = max(0.0, room - others)
    sharing = (
        f"{threads} threads shared {free:.1f} free cores" if threads > 1 else f"1 thread had {free:.1f} free cores"
    )
    return [Flag("crowded", f"others had {others:.1f} cores, so that {sharing}")]


def pause_flag(seconds: float) -> Flag:
    """The flag of what was measured while the process stood still for so many seconds."""
    return Flag("stopped", f"stood still for {seconds:,.1f} s")


def clock_flags(clock_mhz: float, highest_mhz: float) -> list[Flag]:
    """A flag if the clock has fallen from the highest that was seen; none where there is no counter."""
    drop = 1 - clock_mhz / highest_mhz if clock_mhz and highest_mhz else 0.0
    return [Flag("clock", f"{drop:.0%} below the highest seen")] if drop > CLOCK_DROP else []
