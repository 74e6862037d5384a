"""Record the machine's state beside each sample, and flag disturbances.

Time is divided into windows without gaps. A window ends with the first sample that ends at least WINDOW_S after the
window began. Each sample gets the state during its window; a point's first sample also gets the flags for the set-up
before the sample.

GPU counters are read while the GPU works, since between samples they would show an idle GPU at a low clock. On a GPU,
a window therefore ends with the first sample that begins after the window's minimum length.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from contract.sample_flags import Flag, format_flags, worst_flags
from experiments import counters, power_state, processor, topology
from experiments.counters import Totals, Values

# Flag samples if other processes use more than this share of all cores. A smaller share would cause false flags: on a
# machine with few cores, rounding the CPU times to ticks alone changes the share by several percent in a short window.
BUSY_SHARE = 0.10
# If a point's threads need all cores, flag samples if other processes use more than this many cores. A process that
# shares a core with a thread takes half of that core, which exceeds this threshold.
CROWDED_CORES = 0.4
# Flag samples if a disturbance exceeds these shares of the time, or of the highest clock. Presets require medians
# within 5% or better, so the shares are 5%. They are 2% for steal and memory, which stop all threads at once.
QUEUED_SHARE = 0.05
CLOCK_DROP = 0.05
STEAL_SHARE = 0.02
MEMORY_SHARE = 0.02
# On systems without a counter for memory stalls, flag samples if more pages than this are moved to and from disk per
# second. At 0.1 ms per page, these pages take 2% of the time.
PAGES_PER_S = 200
# Minimum seconds per window. In a shorter window, CPU times would be too inexact, since the kernel counts them in ticks
# of 10 ms.
WINDOW_S = 0.25
# Minimum seconds per window on a GPU, since drivers average over up to a second. A point's first window may be as short
# as WINDOW_S, so that short points have a window too.
GPU_WINDOW_S = 1.0


@dataclass
class Reading:
    """The machine's state around one sample; a value is None if the machine has no counter for it."""

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
    """The energy in joules that the device has used since a fixed time, measured by two methods.

    counted: the value of the device's energy counter; None if the device has no such counter.
    summed: the sum of power times window length over all windows.
    """

    counted: float | None
    summed: float


@dataclass(frozen=True)
class EnergyUse:
    """Energy used, in joules. method: `energy` if it was read from an energy counter, else `energy_from_power`."""

    joules: float
    method: str


@dataclass(frozen=True)
class State:
    """State of the machine during one window: the counters' values, and a flag for each disturbance."""

    values: Values
    flags: tuple[Flag, ...] = ()


class Watch:
    """Read the counters for the node and one device, at most every WINDOW_S seconds."""

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
        """Start a new point, whose set-up has just ended.

        The point's first sample also gets the flags for the time between the last point and this call.
        threads: number of CPU threads in the point's workload.
        """
        self._waiting.clear()
        self._threads = 0 if self._on_gpu else threads
        self._window_s, self._first, self._seen = WINDOW_S, True, None
        if self._window_is_over():
            self._close_window(self._read_device())
        # Forget the last point's clock and threads, since this point may run at another clock or with other threads.
        self._highest_mhz = 0.0
        flags = [flag for flag in self._state.flags if flag.name not in ("clock", "crowded")]
        flags += crowding_flags(*self._window, self._threads) if self._window else []
        self._state = State(self._state.values, tuple(worst_flags(flags)))
        self._before = self._state.flags

    def look(self) -> None:
        """Read the GPU's counters during a point's first sample and whenever a window is over; do nothing on a CPU.

        The caller calls this method while the GPU works on a sample.
        """
        if self._on_gpu and (self._first or self._window_is_over()):
            self._seen, self._first = self._read_device(), False

    def read(self, *sample_flags: Flag) -> Reading:
        """Return the state around the sample that ends now. sample_flags: flags for this sample alone.

        At first, the reading contains the state during the last closed window. The call that closes the current window
        replaces this with the current window's state, in all the point's readings since the window began. On a GPU, the
        reading for a point's first sample contains at once the GPU's state that `look` read during the sample.
        """
        reading = Reading(time.perf_counter() - self._begun)
        self._waiting.append((reading, (*self._before, *sample_flags)))
        self._before = ()
        device_state, self._seen = self._seen, None
        if self._window_is_over() and (device_state or not self._on_gpu):
            self._close_window(device_state or self._read_device())
            for waiting, before in self._waiting:
                self._write_state(waiting, before)
            self._waiting.clear()
            return reading
        if device_state:
            self._state = State(
                {**self._state.values, **device_state.values},
                tuple(worst_flags([*self._state.flags, *device_state.flags])),
            )
        self._write_state(*self._waiting[-1])
        return reading

    def energy(self) -> Energy:
        """Return the energy that the device has used until now."""
        running = (self._state.values.get("power_w") or 0.0) * (time.perf_counter() - self._totals.time_s)
        return Energy(self._device.joules(), self._summed + running)

    def energy_since(self, then: Energy) -> EnergyUse | None:
        """Return the energy used since `then`; None if neither energy nor power is known, or the counter was reset."""
        now = self.energy()
        if now.counted is not None and then.counted is not None:
            joules, method = now.counted - then.counted, "energy"
        else:
            joules, method = now.summed - then.summed, "energy_from_power"
        return EnergyUse(joules, method) if joules > 0 else None

    @property
    def energy_least_s(self) -> float:
        """Seconds that work must last for a usable energy reading."""
        return self._device.least_s

    def _write_state(self, reading: Reading, before: tuple[Flag, ...]) -> None:
        vars(reading).update(self._state.values, flags=format_flags(worst_flags([*before, *self._state.flags])))

    def _window_is_over(self) -> bool:
        return time.perf_counter() - self._totals.time_s >= self._window_s

    def _close_window(self, device: State) -> None:
        before, self._totals = self._totals, self._read_totals()
        values, flags = compare_totals(before, self._totals, os.cpu_count() or 1)
        self._window = before, self._totals
        flags += crowding_flags(*self._window, self._threads)
        self._summed += (device.values.get("power_w") or 0.0) * (self._totals.time_s - before.time_s)
        self._state = State({**device.values, **values}, tuple(worst_flags([*flags, *device.flags])))
        self._window_s = GPU_WINDOW_S if self._on_gpu else WINDOW_S

    def _read_device(self) -> State:
        values = self._device.values()
        clock = values.get("clock_mhz") or 0.0
        self._highest_mhz = max(self._highest_mhz, clock)
        flags = (*self._device.flags(), *power_state.power_flags(), *clock_flags(clock, self._highest_mhz))
        return State(values, flags)

    def _read_totals(self) -> Totals:
        return counters.read_totals(self._process)


def compare_totals(before: Totals, now: Totals, cores: int) -> tuple[Values, list[Flag]]:
    """Compare the counters' totals at the beginning and end of an interval.

    Returns two values, and a flag for each disturbance in the interval. The values are the CPU time of other processes
    and the time stolen by the hypervisor (None if the system does not count it), as shares of the time of all `cores`.
    """

    def rise(name: str) -> float:
        # A difference can be slightly negative, since the kernel rounds times to ticks.
        then, later = getattr(before, name), getattr(now, name)
        return max(0.0, later - then) if then is not None and later is not None else 0.0

    seconds = now.time_s - before.time_s
    other = max(0.0, now.busy_s - before.busy_s - (now.own_s - before.own_s)) / (seconds * cores)
    steal = rise("stolen_s") / (seconds * cores)
    queued, stalled, pages = (rise(name) / seconds for name in ("queued_s", "stalled_s", "pages"))
    flags = []
    if other > BUSY_SHARE:
        flags.append(Flag("busy", f"{other:.0%} other load"))
    if paused_s := rise("paused_s"):
        flags.append(pause_flag(paused_s))
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
    if rise("heat_throttles"):
        flags.append(Flag("throttled", "heat"))
    if stalled > MEMORY_SHARE:
        flags.append(Flag("memory", f"stalled {min(stalled, 1.0):.0%} of the time"))
    elif pages > PAGES_PER_S:
        flags.append(Flag("memory", f"{pages:,.0f} pages a second from or to the disk"))
    return {"other_load": other, "steal": None if now.stolen_s is None else steal}, flags


def crowding_flags(before: Totals, now: Totals, threads: int) -> list[Flag]:
    """Flag a window in which other processes took cores from the point's threads. If `threads` is 0, flag nothing.

    On many cores, one other process is only a small share of the load, but synchronized threads all wait for the
    thread that shares a core with it.
    """
    cpus = topology.allowed_cpus()
    # If the point has more threads than there are physical cores, count logical CPUs instead of physical cores.
    cores = processor.usable_cores(cpus)
    room = cores if threads <= cores else len(cpus)
    other_cores = max(0.0, now.allowed_busy_s - before.allowed_busy_s - (now.own_s - before.own_s)) / (
        now.time_s - before.time_s
    )
    if not threads or min(threads, room) + other_cores <= room + CROWDED_CORES:
        return []
    free = max(0.0, room - other_cores)
    sharing = (
        f"{threads} threads shared {free:.1f} free cores" if threads > 1 else f"1 thread had {free:.1f} free cores"
    )
    return [Flag("crowded", f"others had {other_cores:.1f} cores, so that {sharing}")]


def pause_flag(seconds: float) -> Flag:
    """Return the flag for a measurement during which the process was suspended."""
    return Flag("stopped", f"stood still for {seconds:,.1f} s")


def clock_flags(clock_mhz: float, highest_mhz: float) -> list[Flag]:
    """Flag a clock well below the highest clock seen so far; flag nothing if the clock is unknown (0)."""
    drop = 1 - clock_mhz / highest_mhz if clock_mhz and highest_mhz else 0.0
    return [Flag("clock", f"{drop:.0%} below the highest seen")] if drop > CLOCK_DROP else []
