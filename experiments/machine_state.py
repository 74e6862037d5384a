"""Record the machine's state beside each sample, and flag disturbances.

Time is divided into windows without gaps. A window ends with the first sample that ends at least WINDOW_S after the
window began. A sample gets the state during its window; a point's first sample also gets the flags for the set-up
before it.

GPU counters are read while the GPU works, since between samples they would show an idle GPU at a low clock. On a GPU,
a window therefore ends with the first sample that begins after the window's minimum length.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from contract.sample_flags import Flag, format_flags, worst_flags
from experiments import counters, processor, topology
from experiments.counters import Totals, Values

# Flag samples if other processes use more than this share of all cores. On few cores, tick rounding alone causes
# several percent in a short window.
BUSY_SHARE = 0.10
# If a point's threads need all cores, flag samples if other processes use more than this many cores. A process that
# shares a core with a thread takes half of it.
CROWDED_CORES = 0.4
# Thresholds as shares of time or clock. Presets require medians within 5% or better, so disturbances are flagged at 5%.
# Disturbances that stop all threads at once are flagged at a smaller share.
QUEUED_SHARE = 0.05
CLOCK_DROP = 0.05
STEAL_SHARE = 0.02
MEMORY_SHARE = 0.02
# Threshold on systems without stall counters: 2% of the time, if a page from disk takes 0.1 ms.
PAGES_PER_S = 200
# Shorter windows would mean little, since the kernel counts CPU time in ticks of 10 ms.
WINDOW_S = 0.25
# Windows on a GPU are longer, since drivers average over up to a second. Only a point's first window lasts WINDOW_S, so
# that short points have a window too.
GPU_WINDOW_S = 1.0


@dataclass
class Reading:
    """The machine's state around one sample; a value is None if it has no counter."""

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
    """The device's joules since a fixed time. counted: from its energy counter. summed: power times window lengths."""

    counted: float | None
    summed: float


@dataclass(frozen=True)
class EnergyUse:
    """Joules used, and the method's name: `energy` (from the counter) or `energy_from_power`."""

    joules: float
    method: str


@dataclass(frozen=True)
class State:
    """State during one window."""

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
        """Start a new point after its set-up. Its first sample also gets the flags since the last point.

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
        """Read the counters while the GPU works on a point's first sample, or on the first after the window's end."""
        if self._on_gpu and (self._first or self._window_is_over()):
            self._seen, self._first = self._read_device(), False

    def read(self, *sample_flags: Flag) -> Reading:
        """Return the state around the sample that ends now. sample_flags: flags for this sample alone.

        The reading holds the last window's state until a later call closes the current window and updates it.
        On a GPU, a point's first sample already includes the device state read meanwhile.
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
        """Return the device energy until now."""
        running = (self._state.values.get("power_w") or 0.0) * (time.perf_counter() - self._totals.time_s)
        return Energy(self._device.joules(), self._summed + running)

    def energy_since(self, then: Energy) -> EnergyUse | None:
        """Return the energy used since `then`; None without a counter, or after a counter reset."""
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
        return State(values, (*self._device.flags(), *clock_flags(clock, self._highest_mhz)))

    def _read_totals(self) -> Totals:
        return counters.read_totals(self._process)


def compare_totals(before: Totals, now: Totals, cores: int) -> tuple[Values, list[Flag]]:
    """Return the load from other processes and the stolen time between two totals, as shares of `cores`, and flags."""

    def rise(name: str) -> float:
        # Tick rounding can make a difference slightly negative.
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
    return {"other_load": other, "steal": steal}, flags


def crowding_flags(before: Totals, now: Totals, threads: int) -> list[Flag]:
    """Flag a window in which other processes took cores from the point's threads; 0 threads are never flagged.

    On many cores, one other process is only a small share of the load, but synchronized threads all wait for the
    thread that shares a core with it.
    """
    cpus = topology.allowed_cpus()
    # With more threads than cores, count hardware threads.
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
    """Flag a clock below the highest clock seen so far; without a clock counter, nothing is flagged."""
    drop = 1 - clock_mhz / highest_mhz if clock_mhz and highest_mhz else 0.0
    return [Flag("clock", f"{drop:.0%} below the highest seen")] if drop > CLOCK_DROP else []
