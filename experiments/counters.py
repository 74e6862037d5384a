"""What the system counts: totals that only rise, whose differences say what a window of time saw.

Each reading is a few small files of the kernel (under a millisecond in all), made between samples.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contract import running_time
from contract.cgroups import ROOT, cgroups, decimal, number, quota  # noqa: F401 - quota is one of the counters
from contract.sample_flags import Flag
from experiments import nvml, topology

_PAGE = 4096
# The kernel's names of the sensors inside processors.
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")

# Seconds of work whose energy a counter tells to a few percent: RAPL moves every millisecond, and is read beside other
# work; NVML's moves every 20 to 100 ms (PETSc's manual, section on energy).
RAPL_LEAST_S, NVML_LEAST_S = 0.5, 3.0

Values = dict[str, float | None]


@dataclass(frozen=True)
class Totals:
    """Seconds, unless said otherwise, since the machine or this process started; 0 where nothing counts.

    at: the monotonic clock. busy, own, stolen: CPU time of everybody, of this
    process with its children, and withheld by the hypervisor, over all cores. here: of
    everybody, on the CPUs that this process may use. queued: in which some
    task waited for a core. stalled: in which some task waited for memory; None
    where the kernel has no pressure stall information (PSI). paged: pages moved to
    and from the disk for want of memory. periods, quota_hits: periods of cgroup quotas,
    and those in which one stopped its tasks. hot: times that heat lowered the processor's clock.
    stops: times that this process went on after it had been stopped (SIGSTOP), once `count_stops` was called.
    stood: in which this process stood still, as far as its running time tells.
    """

    at: float
    busy: float = 0.0
    here: float = 0.0
    own: float = 0.0
    stolen: float = 0.0
    queued: float = 0.0
    stalled: float | None = None
    paged: float = 0.0
    periods: float = 0.0
    quota_hits: float = 0.0
    hot: float = 0.0
    stops: float = 0.0
    stood: float = 0.0


_stops = 0
# Processes that fork workers for this one. The system counts workers that ended with them, and not with this process.
_servers: set[int] = set()


def count_stops() -> None:
    """From now on, count how often this process goes on after having been stopped: no other counter shows that."""

    def went_on(*_: object) -> None:
        global _stops
        _stops += 1

    if hasattr(signal, "SIGCONT"):
        signal.signal(signal.SIGCONT, went_on)


def read_totals(process: psutil.Process) -> Totals:
    """All totals now."""
    node = psutil.cpu_times()
    stolen = getattr(node, "steal", 0.0)
    busy = _busy_s(node)
    stalled = pressure("memory")
    periods, hits = quota_periods()
    return Totals(
        at=time.perf_counter(),
        busy=busy,
        here=_allowed_busy_s(busy),
        own=_own_cpu_s(process),
        stolen=stolen,
        queued=pressure("cpu") or 0.0,
        stalled=stalled,
        paged=_pages_moved() if stalled is None else 0.0,
        periods=periods,
        quota_hits=hits,
        hot=count_heat_throttles(),
        stops=_stops,
        stood=running_time.stood_s(),
    )


def _busy_s(times: Any) -> float:
    """Seconds of psutil's CPU times that somebody used."""
    # On Linux user and nice contain the guests' time already.
    idle = times.idle + sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice", "steal"))
    return float(sum(times) - idle)


def _allowed_busy_s(everywhere: float) -> float:
    """Seconds that somebody used on the CPUs that this process may use; those of all where it may use all."""
    online, allowed = sorted(topology.online_cpus()), topology.allowed_cpus()
    if allowed.issuperset(online):
        return everywhere
    each = psutil.cpu_times(percpu=True)
    if len(each) != len(online):
        return everywhere
    return sum(_busy_s(times) for cpu, times in zip(online, each, strict=True) if cpu in allowed)


def _own_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process, of its children that ended, of its workers, and of servers that fork these for it."""
    spent = sum(process.cpu_times()[:4])
    if process.pid != os.getpid():
        return float(spent)
    for child in multiprocessing.active_children():
        with contextlib.suppress(psutil.Error):
            worker = psutil.Process(child.pid)
            spent += sum(worker.cpu_times()[:4])
            parent = worker.ppid()
            if parent != process.pid and psutil.Process(parent).ppid() == process.pid:
                _servers.add(parent)
    for server in _servers:
        with contextlib.suppress(psutil.Error):
            spent += sum(psutil.Process(server).cpu_times()[:4])
    return float(spent)


def read_key_values(path: Path) -> dict[str, str]:
    """A file of lines `key value`; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}


def quota_periods(root: Path = ROOT) -> tuple[float, float]:
    """Periods in which quotas of this process's cgroups were counted, and those in which one stopped its tasks."""
    seen = [read_key_values(folder / "cpu.stat") for folder in cgroups(root)]
    return (
        sum(decimal(one.get("nr_periods", "")) or 0.0 for one in seen),
        sum(decimal(one.get("nr_throttled", "")) or 0.0 for one in seen),
    )


def pressure(kind: str, root: Path = ROOT) -> float | None:
    """Seconds in which some task waited for `kind` (cpu, memory), by PSI; None where the kernel has none.

    Of this process's cgroup where it counts them: others that wait for each other on a
    machine with many cores do not disturb this one.
    Source: the kernel's Documentation/accounting/psi.rst.
    """
    for path in (*(folder / f"{kind}.pressure" for folder in cgroups(root)[:1]), root / "proc/pressure" / kind):
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(path.read_text(encoding="ascii").splitlines()[0].rpartition("total=")[2]) * 1e-6
    return None


def _pages_moved() -> float:
    """Pages that were swapped, or that this process waited for: the larger, since one holds part of the other."""
    swap = psutil.swap_memory()
    faults = 0
    with contextlib.suppress(ImportError):
        import resource

        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return max((swap.sin + swap.sout) / _PAGE, float(faults))


def count_heat_throttles(root: Path = ROOT) -> float:
    """How often heat has lowered the clock of the first socket or its first core; 0 where nobody counts."""
    folder = root / "sys/devices/system/cpu/cpu0/thermal_throttle"
    return sum(number(folder / f"{who}_throttle_count") or 0.0 for who in ("core", "package"))


def find_temperature_sensor(root: Path = ROOT) -> Path | None:
    """The file that holds the processor's temperature in thousandths of a degree."""
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        with contextlib.suppress(OSError):
            if (chip / "name").read_text(encoding="ascii").strip() in _SENSORS and (chip / "temp1_input").exists():
                return chip / "temp1_input"
    return None


def find_energy_counters(root: Path = ROOT) -> list[Path]:
    """The energy counters (RAPL) of all sockets, in millionths of a joule; the parts of one are counted in it."""
    found = []
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        with contextlib.suppress(OSError):
            # Others are a core's or a memory's, or the whole machine's, which holds the packages once more.
            if (zone / "name").read_text(encoding="ascii").startswith("package"):
                found.append(zone / "energy_uj")
    return found


@dataclass(frozen=True)
class Counters:
    """What is asked of one device, each answer as things are when it is asked.

    values: its clocks, temperature, power and utilisation. flags: what disturbs it.
    joules: energy since some moment in the past, None where nothing counts it. least_s: seconds of work below
    which its energy is too uncertain to tell: the counter moves only now and then.
    """

    values: Callable[[], Values] = dict
    flags: Callable[[], Sequence[Flag]] = list
    joules: Callable[[], float | None] = lambda: None
    least_s: float = RAPL_LEAST_S


def cpu_counters(process: psutil.Process, root: Path = ROOT) -> Counters:
    """The processor's clock, temperature, power and energy, where the system lets us."""
    energy: list[tuple[float, float]] = []
    # Found once: asking every sensor of the machine each time can take milliseconds.
    thermometer, meters = find_temperature_sensor(root), find_energy_counters(root)

    def joules() -> float | None:
        """All sockets together; None where one cannot be read."""
        counted = [number(meter) for meter in meters]
        return sum(one * 1e-6 for one in counted if one is not None) if counted and None not in counted else None

    def power() -> float | None:
        """Mean power since the last reading."""
        counted = joules()
        if counted is None:
            return None
        energy.append((time.perf_counter(), counted))
        if len(energy) < 2:
            return None
        (then, before), (now, after) = energy[-2:]
        del energy[:-1]
        # The counter wraps around every few minutes to hours.
        return (after - before) / (now - then) if after > before else None

    def read() -> Values:
        # The core that this process just worked on: another may be asleep.
        core = process.cpu_num() if hasattr(process, "cpu_num") else 0
        # Only a governor's file is a reading: /proc/cpuinfo in a virtual machine shows the nominal clock.
        kilohertz = number(root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
        warmth = number(thermometer) if thermometer else None
        return {
            "clock_mhz": kilohertz / 1000 if kilohertz else None,
            "temperature_c": warmth / 1000 if warmth is not None else None,
            "power_w": power(),
        }

    return Counters(values=read, joules=joules)


def gpu_counters(device: str, library: Any = None) -> Counters:
    """A GPU's clocks, temperature, power, use and energy, and what disturbs it, by NVML.

    Says nothing where NVML does not answer, or cannot tell which GPU the device is; of a slice of a GPU
    (MIG) only what all slices share: clocks, temperature and throttling. library: stands in for pynvml.
    """
    library = library or nvml.load_pynvml()
    found = nvml.find_device(device, library)
    handle, whole = found.handle, found.unwatched is None
    if handle is None:
        return Counters()

    def values() -> Values:
        clocks = {
            name: nvml.ask_number(library, "nvmlDeviceGetClockInfo", handle, getattr(library, domain, None))
            for name, domain in (("clock_mhz", "NVML_CLOCK_SM"), ("memory_clock_mhz", "NVML_CLOCK_MEM"))
        }
        celsius = getattr(library, "NVML_TEMPERATURE_GPU", None)
        use = nvml.ask(library, "nvmlDeviceGetUtilizationRates", handle) if whole else None
        busy = getattr(use, "gpu", None)
        return {
            **{name: float(clock) if clock else None for name, clock in clocks.items()},
            "temperature_c": nvml.ask_number(library, "nvmlDeviceGetTemperature", handle, celsius, most=1000),
            "power_w": nvml.read_power_w(handle, library) if whole else None,
            "utilisation": busy / 100 if isinstance(busy, int) and 0 <= busy <= 100 else None,
        }

    def flags() -> list[Flag]:
        found = [Flag("throttled", reason) for reason in nvml.throttle_reasons(handle, library)]
        others = nvml.count_other_processes(handle, library) if whole else 0
        return [*found, Flag("busy", f"{others} other on the GPU")] if others else found

    def joules() -> float | None:
        question = "nvmlDeviceGetTotalEnergyConsumption"
        counted = nvml.ask_number(library, question, handle, most=2.0**63) if whole else None
        return counted * 1e-3 if counted is not None else None

    return Counters(values, flags, joules, NVML_LEAST_S)
