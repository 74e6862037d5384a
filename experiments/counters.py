"""Read system counters. They only rise, so the difference between two readings describes the time between them.

The counters are in a few small kernel files. All are read between samples, in less than a millisecond.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from contract import running_time
from contract.cgroups import ROOT, cgroup_folders, cpu_quota, parse_decimal, read_number  # noqa: F401
from contract.sample_flags import Flag
from experiments import nvml, topology

# Bytes per page in psutil's count of swapped bytes: on Linux psutil assumes 4 kiB, elsewhere it asks the system.
_PAGE = 4096 if sys.platform == "linux" else mmap.PAGESIZE
# The kernel's names for temperature sensors inside processors.
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")

# Minimum seconds of work for which an energy counter gives the energy within a few percent: on a CPU (RAPL), and on an
# NVIDIA GPU (NVML). RAPL updates its counter every millisecond, NVML every 20 to 100 ms (PETSc manual, section on
# energy).
RAPL_LEAST_S, NVML_LEAST_S = 0.5, 3.0

Values = dict[str, float | None]


@dataclass(frozen=True)
class Totals:
    """Totals since the machine or this process started, in seconds unless noted; 0 if there is no counter.

    time_s: the monotonic clock.
    busy_s: CPU time used by all processes, on all cores.
    allowed_busy_s: CPU time used by all processes on the CPUs in this process's affinity.
    own_s: CPU time used by this process and its children.
    stolen_s: CPU time withheld by the hypervisor; None if the system does not count it.
    queued_s: time during which some task waited for a core.
    stalled_s: time during which some task waited for memory; None if the kernel has no pressure stall information.
    pages: number of pages moved to and from disk for lack of memory; 0 if `stalled_s` is known.
    periods: number of cgroup quota periods.
    quota_hits: number of quota periods in which tasks were throttled.
    heat_throttles: number of times heat lowered the processor clock.
    stops: number of times this process was continued after SIGSTOP, since the call of `count_stops`.
    paused_s: time during which this process was suspended, according to `running_time`.
    """

    time_s: float
    busy_s: float = 0.0
    allowed_busy_s: float = 0.0
    own_s: float = 0.0
    stolen_s: float | None = 0.0
    queued_s: float = 0.0
    stalled_s: float | None = None
    pages: float = 0.0
    periods: float = 0.0
    quota_hits: float = 0.0
    heat_throttles: float = 0.0
    stops: float = 0.0
    paused_s: float = 0.0


_stops = 0
# Process ids of fork servers. The system adds an ended worker's CPU time to its fork server, not to this process.
_servers: set[int] = set()


def count_stops() -> None:
    """Start to count how often this process continues after a stop (SIGCONT), since no other counter shows stops."""

    def count_continue(*_: object) -> None:
        global _stops
        _stops += 1

    if hasattr(signal, "SIGCONT"):
        signal.signal(signal.SIGCONT, count_continue)


def read_totals(process: psutil.Process) -> Totals:
    node = psutil.cpu_times()
    busy = _busy_s(node)
    stalled = pressure("memory")
    periods, hits = quota_periods()
    return Totals(
        time_s=time.perf_counter(),
        busy_s=busy,
        allowed_busy_s=_allowed_busy_s(busy),
        own_s=_own_cpu_s(process),
        stolen_s=getattr(node, "steal", None),
        queued_s=pressure("cpu") or 0.0,
        stalled_s=stalled,
        pages=_pages_moved() if stalled is None else 0.0,
        periods=periods,
        quota_hits=hits,
        heat_throttles=count_heat_throttles(),
        stops=_stops,
        paused_s=running_time.paused_s(),
    )


def _busy_s(times: Any) -> float:
    """Sum the non-idle seconds in psutil's CPU times."""
    # Subtract guest time too: on Linux, user and nice time already include it.
    idle = times.idle + sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice", "steal"))
    return float(sum(times) - idle)


def _allowed_busy_s(everywhere: float) -> float:
    """Sum the busy seconds on this process's CPUs. everywhere: the busy seconds on all CPUs."""
    online, allowed = sorted(topology.online_cpus()), topology.allowed_cpus()
    if allowed.issuperset(online):
        return everywhere
    each = psutil.cpu_times(percpu=True)
    if len(each) != len(online):
        return everywhere
    return sum(_busy_s(times) for cpu, times in zip(online, each, strict=True) if cpu in allowed)


def _own_cpu_s(process: psutil.Process) -> float:
    """Sum the CPU seconds used by a process, its ended children, its workers and their fork servers."""
    if process.pid != os.getpid():
        return float(sum(process.cpu_times()[:4]))
    # On macOS, psutil does not count the time of ended children.
    spent = sum(os.times()[:4])
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
    """Read a file with `key value` lines; empty if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}


def quota_periods(root: Path = ROOT) -> tuple[float, float]:
    """Return the number of quota periods in this process's cgroups, and the number of periods with throttled tasks."""
    stats = [read_key_values(folder / "cpu.stat") for folder in cgroup_folders(root)]
    return (
        sum(parse_decimal(stat.get("nr_periods", "")) or 0.0 for stat in stats),
        sum(parse_decimal(stat.get("nr_throttled", "")) or 0.0 for stat in stats),
    )


def pressure(kind: str, root: Path = ROOT) -> float | None:
    """Return the seconds during which some task waited for `kind` (cpu, memory), from PSI; None without PSI.

    The value for this process's cgroup is preferred: on a machine with many cores, tasks that wait in other groups do
    not disturb this process.
    Source: the kernel's Documentation/accounting/psi.rst.
    """
    for path in (*(folder / f"{kind}.pressure" for folder in cgroup_folders(root)[:1]), root / "proc/pressure" / kind):
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(path.read_text(encoding="ascii").splitlines()[0].rpartition("total=")[2]) * 1e-6
    return None


def _pages_moved() -> float:
    """Return the larger of two counts that overlap: swapped pages, and this process's major page faults."""
    swap = psutil.swap_memory()
    faults = 0
    with contextlib.suppress(ImportError):
        import resource

        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return max((swap.sin + swap.sout) / _PAGE, float(faults))


def count_heat_throttles(root: Path = ROOT) -> float:
    """Sum how often heat lowered the clock of each socket and of its first core; 0 without counters in the kernel."""
    files = (folder / f"{scope}_throttle_count" for folder in _heat_counters(root) for scope in ("core", "package"))
    return sum(read_number(file) or 0.0 for file in files)


@cache
def _heat_counters(root: Path) -> tuple[Path, ...]:
    """List the folder with the counters for the first CPU in each socket."""
    folders: dict[float | None, Path] = {}
    for cpu in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")):
        folders.setdefault(read_number(cpu.with_name("topology") / "physical_package_id"), cpu)
    return tuple(folders.values())


def find_temperature_sensor(root: Path = ROOT) -> Path | None:
    """Find the file with the processor temperature in thousandths of a degree."""
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        with contextlib.suppress(OSError):
            if (chip / "name").read_text(encoding="ascii").strip() in _SENSORS and (chip / "temp1_input").exists():
                return chip / "temp1_input"
    return None


def find_energy_counters(root: Path = ROOT) -> list[Path]:
    """Find the RAPL energy counter for each socket, in microjoules."""
    counter_files = []
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        with contextlib.suppress(OSError):
            # Skip core, dram and psys domains: they would count energy twice.
            if (zone / "name").read_text(encoding="ascii").startswith("package"):
                counter_files.append(zone / "energy_uj")
    return counter_files


@dataclass(frozen=True)
class Counters:
    """Functions to read one device's current state.

    values: returns clocks, temperature, power and utilisation, by the names in `machine_state.Reading`.
    flags: returns a flag for each present disturbance.
    joules: returns the energy used since a fixed past time; None without a counter.
    least_s: minimum seconds of work for a usable energy reading, since the counter is updated only now and then.
    """

    values: Callable[[], Values] = dict
    flags: Callable[[], Sequence[Flag]] = list
    joules: Callable[[], float | None] = lambda: None
    least_s: float = RAPL_LEAST_S


def cpu_counters(process: psutil.Process, root: Path = ROOT) -> Counters:
    """Return counters for the processor's clock, temperature, power and energy, as far as they are readable."""
    energy: list[tuple[float, float]] = []
    # Find the files only once, since going through all sensors can take milliseconds.
    thermometer, meters = find_temperature_sensor(root), find_energy_counters(root)

    def joules() -> float | None:
        """Sum the energy over all sockets; None if one cannot be read."""
        values = [read_number(meter) for meter in meters]
        return sum(value * 1e-6 for value in values if value is not None) if values and None not in values else None

    def power() -> float | None:
        """Return the mean power since the last call."""
        energies = joules()
        if energies is None:
            return None
        energy.append((time.perf_counter(), energies))
        if len(energy) < 2:
            return None
        (then, before), (now, after) = energy[-2:]
        del energy[:-1]
        # The counter wraps around every few minutes to hours; for an interval with a wrap, the power is unknown.
        return (after - before) / (now - then) if after > before else None

    def read() -> Values:
        # Read the clock of the core that this process just ran on, since other cores may be asleep.
        core = process.cpu_num() if hasattr(process, "cpu_num") else 0
        # Only cpufreq shows a measured clock: in a virtual machine, /proc/cpuinfo shows the nominal clock.
        kilohertz = read_number(root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq")
        warmth = read_number(thermometer) if thermometer else None
        return {
            "clock_mhz": kilohertz / 1000 if kilohertz else None,
            "temperature_c": warmth / 1000 if warmth is not None else None,
            "power_w": power(),
        }

    return Counters(values=read, joules=joules)


def gpu_counters(device: str, library: Any = None) -> Counters:
    """Return NVML counters for a GPU's clocks, temperature, power, utilisation, energy and disturbances.

    The counters are empty if NVML does not answer or cannot identify the device. For a MIG slice, only clocks,
    temperature and throttling are read, since all slices share these. library: pynvml, or a fake in tests.
    """
    library = library or nvml.load_pynvml()
    lookup = nvml.find_device(device, library)
    handle, is_whole_gpu = lookup.handle, lookup.unwatched is None
    if handle is None:
        return Counters()

    def values() -> Values:
        clocks = {
            name: nvml.ask_number(library, "nvmlDeviceGetClockInfo", handle, getattr(library, domain, None))
            for name, domain in (("clock_mhz", "NVML_CLOCK_SM"), ("memory_clock_mhz", "NVML_CLOCK_MEM"))
        }
        celsius = getattr(library, "NVML_TEMPERATURE_GPU", None)
        use = nvml.ask(library, "nvmlDeviceGetUtilizationRates", handle) if is_whole_gpu else None
        busy = getattr(use, "gpu", None)
        return {
            **{name: float(clock) if clock else None for name, clock in clocks.items()},
            "temperature_c": nvml.ask_number(library, "nvmlDeviceGetTemperature", handle, celsius, most=1000),
            "power_w": nvml.read_power_w(handle, library) if is_whole_gpu else None,
            "utilisation": busy / 100 if isinstance(busy, int) and 0 <= busy <= 100 else None,
        }

    def flags() -> list[Flag]:
        throttled = [Flag("throttled", reason) for reason in nvml.throttle_reasons(handle, library)]
        count = nvml.count_other_processes(handle, library) if is_whole_gpu else 0
        return [*throttled, Flag("busy", f"{count} other on the GPU")] if count else throttled

    def joules() -> float | None:
        question = "nvmlDeviceGetTotalEnergyConsumption"
        millijoules = nvml.ask_number(library, question, handle, most=2.0**63) if is_whole_gpu else None
        return millijoules * 1e-3 if millijoules is not None else None

    return Counters(values, flags, joules, NVML_LEAST_S)
