"""Check processor, other processes, memory, power and disk space.

A check returns None if the system does not provide the data for the check.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from contract.errors import StudyError
from contract.node import utc_time
from contract.study_dates import check_clock
from experiments import counters, hardware, machine_state, power_state
from experiments.counters import Totals, read_number
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.memory_limit import available_bytes, total_bytes
from experiments.topology import (
    CPUS,
    allowed_cpus,
    core_kinds,
    format_cpu_list,
    parse_cpu_list,
    physical_cores,
    read_text,
)

# WATCH_S: seconds during which the CPU time of other processes is observed.
# _NAMED_SHARE: a finding names a process only if the process uses more than this share of a core.
WATCH_S, _NAMED_SHARE = 1.0, 0.05
# _SOME_LOAD: above this share of all cores, a note reports the load from other processes.
# _SOME_STEAL: above this share of the time since boot, a note reports the time stolen by the hypervisor.
_SOME_LOAD, _SOME_STEAL = 0.03, 0.005
# A warning is shown if at most this share of the memory is available.
_FEW_MEMORY = 0.3
# Timeout in seconds for a loopback connection.
CONNECT_S = 2.0
# Free disk space to require, in bytes. The samples, tables and figures of a few nodes need far less.
_ROOM_BYTES = 2**30
# With these drivers, the hardware controls the clock: even "powersave" reaches the highest clock under load.
_ACTIVE = ("intel_pstate", "amd-pstate-epp")
# Ways to leave a mode that saves power, by operating system.
_PERFORMANCE = {"Darwin": "sudo pmset -a lowpowermode 0", "Windows": "powercfg /setactive SCHEME_BALANCED"}
# The kernel's clock sources that a process can read without a system call.
_FAST = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


# ------------------------------------------------------------------ checks of the processor


def processor_facts(unknown: Sequence[str]) -> Finding:
    """Report the facts about the processor that the system does not provide. unknown: the names of these facts."""
    if not unknown:
        return ok("processor", "model, cores and caches are known")
    why = "They are missing from the machine's record. Without core data, every logical CPU counts as a core."
    return note("processor", f"unknown: {', '.join(unknown)}", why)


def governor(root: Path) -> Finding | None:
    folders = sorted((root / CPUS).glob("cpu[0-9]*/cpufreq"))
    chosen = sorted({read_text(folder / "scaling_governor") for folder in folders} - {""})
    drivers = {read_text(folder / "scaling_driver") for folder in folders}
    if not chosen:
        return None
    seen = f"{', '.join(chosen)} ({', '.join(sorted(drivers - {''})) or 'driver unknown'})"
    if chosen == ["performance"]:
        return ok("governor", seen)
    mend = "sudo cpupower frequency-set -g performance"
    if drivers <= set(_ACTIVE) and "powersave" in chosen:
        return note("governor", seen, "The clock follows the load: the first calls after a pause are slower.", mend)
    return warning("governor", seen, "The clock follows the load late or not at all, so times vary.", mend)


def boost(root: Path) -> Finding | None:
    """Check that the processor's boost (turbo) clocks are enabled, since without them the processor is slower."""
    no_turbo, generic = read_number(root / CPUS / "intel_pstate/no_turbo"), read_number(root / CPUS / "cpufreq/boost")
    if no_turbo is None and generic is None:
        return None
    if no_turbo == 0 or (no_turbo is None and generic):
        return ok("boost", "on")
    mend = "0 | sudo tee /{}/intel_pstate/no_turbo" if no_turbo is not None else "1 | sudo tee /{}/cpufreq/boost"
    return note("boost", "off", "Times are steady, but slower than this processor's best.", f"echo {mend.format(CPUS)}")


def heat(root: Path, rise: float = 0.0, limit_share: float = 1.0) -> Finding | None:
    """Check the processor's temperature, and report if heat lowers the processor's clock, or has done so since boot.

    rise: number of times heat lowered the clock while others were watched. limit_share: share of the processor's speed
    that heat leaves (`power_state.speed_limit`).
    """
    mend = "let it cool down, and check fans and dust"
    if rise or limit_share < 1 or power_state.is_cooled_by_clock(root):
        left = f" to {limit_share:.0%} of its speed" if limit_share < 1 else ""
        return warning("heat", f"heat lowers the clock now{left}", "Times get longer as the machine warms up.", mend)
    thermometer, times = counters.find_temperature_sensor(root), counters.count_heat_throttles(root)
    warmth = read_number(thermometer) if thermometer else None
    limit = read_number(thermometer.with_name("temp1_crit")) if thermometer else None
    if warmth is None and not times:
        return None
    seen = [f"{warmth / 1000:.0f} °C"] if warmth is not None else []
    if warmth is not None and limit and warmth > limit - 10_000:
        seen += [f"the limit is {limit / 1000:.0f} °C"]
        why = "At this limit the processor lowers its clock."
        return warning("heat", ", ".join(seen), why, mend)
    if times:
        seen += [f"heat lowered the clock {times:.0f} times since boot"]
        mend = "check the cooling; affected samples are flagged"
        return note("heat", ", ".join(seen), "Long all-core points may be slower than short ones.", mend)
    return ok("heat", seen[0])


def quota(root: Path) -> Finding | None:
    """Check for a cgroup CPU quota, which pauses processes when it is used up."""
    granted = counters.cpu_quota(root)
    if granted is None:
        return ok("quota", "no cgroup limits CPU time") if counters.cgroup_folders(root) else None
    periods, hits = counters.quota_periods(root)
    cores = physical_cores(allowed_cpus(), root).groups[: max(1, round(granted))]
    whole = format_cpu_list(core[0] for core in cores)
    stopped = f"; it paused its tasks in {hits / periods:.0%} of its periods" if periods and hits else ""
    why = "A process that uses up its quota is paused until the next period: times jump by tens of milliseconds."
    mend = f"(docker run --cpuset-cpus={whole}, without --cpus; systemd: AllowedCPUs, not CPUQuota)"
    return warning("quota", f"a cgroup grants {granted:g} cores{stopped}", why, f"assign whole cores instead {mend}")


def affinity(allowed: Collection[int], online: int, root: Path = Path("/")) -> Finding:
    if len(allowed) >= online:
        return ok("affinity", f"all {online} logical CPUs")
    cores = len(physical_cores(frozenset(allowed), root).groups)
    seen = f"{len(allowed)} of {online} logical CPUs, on {cores} {'core' if cores == 1 else 'cores'}"
    return note("affinity", seen, "Only these CPUs are measured; other processes may still use them.")


def kinds_of_cores(root: Path, allowed: Collection[int]) -> Finding | None:
    """Report the core kinds if the processor has more than one."""
    kinds = core_kinds(frozenset(allowed), root)
    if not kinds:
        return None
    seen = "; ".join(f"{name}: CPUs {format_cpu_list(members)}" for name, members in kinds.items())
    why = "A point on all cores waits for the slowest kind; fewer threads may run on any kind."
    mend = " or ".join(f"taskset -c {format_cpu_list(members)} …" for members in kinds.values())
    return note("kinds of core", seen, why, f"{mend} to use one kind")


def isolated_cpus(root: Path, allowed: Collection[int]) -> Finding | None:
    """Check for CPUs that are isolated from the scheduler, since it does not spread threads over such CPUs."""
    path = root / CPUS / "isolated"
    if not path.exists():
        return None
    isolated = parse_cpu_list(read_text(path))
    used = len(isolated.intersection(allowed))
    if used > 1:
        why = "The scheduler does not spread threads over isolated CPUs: all run on one of them."
        mend = "taskset -c 0-3 … with CPUs that are not isolated, or boot without isolcpus"
        return warning("isolated", f"{used} of this process's CPUs are isolated", why, mend)
    if isolated:
        seen = f"{len(isolated)} CPUs are isolated and unused"
        return note("isolated", seen, "They do not count as the node's cores.")
    return ok("isolated", "no isolated CPUs")


def numa(root: Path) -> Finding | None:
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    if nodes < 2:
        return ok("NUMA", "one node") if nodes else None
    moved = read_number(root / "proc/sys/kernel/numa_balancing")
    seen = f"{nodes} nodes" + ("; the kernel moves pages between them" if moved else "")
    why = "Memory on another node is slower: rounds differ by the placement of their pages."
    mend = "numactl --cpunodebind=0 --membind=0 … to use one node"
    return note("NUMA", seen, why, mend + (", sudo sysctl kernel.numa_balancing=0 to use all" if moved else ""))


def virtualization(machine: bool | None) -> Finding | None:
    """Report a virtual machine. machine: True on a virtual machine; None if the system does not tell."""
    if machine is None:
        return None
    if not machine:
        return ok("virtual", "no hypervisor")
    why = (
        "Other guests use the host's time, caches and bandwidth unseen, and clock, temperature and power cannot be read"
    )
    return note("virtual", "this is a virtual machine", f"{why}: rounds vary more than on a physical machine.")


def clock_source(root: Path) -> Finding | None:
    folder = root / "sys/devices/system/clocksource/clocksource0"
    source = read_text(folder / "current_clocksource")
    if not source:
        return None
    if source in _FAST:
        return ok("clock source", source)
    mend = "dmesg shows why the kernel does not use the TSC"
    if "tsc" in read_text(folder / "available_clocksource").split():
        mend = f"echo tsc | sudo tee /{folder.relative_to(root)}/current_clocksource"
    why = "Each clock reading needs a system call and takes a microsecond or more."
    return warning("clock source", source, why, mend)


def date(synchronized: bool | None) -> Finding:
    """Check the date on the clock. synchronized: True if a time server sets the clock; None if unknown."""
    seen = utc_time()[:10] + {True: ", synchronized", False: ", not synchronized", None: ""}[synchronized]
    mend = "sudo timedatectl set-ntp true"
    try:
        fault = check_clock()
    except StudyError as impossible:
        fault = str(impossible)
    if fault:
        return warning("date", seen, f"{fault.partition(':')[0]}: rounds with wrong dates are refused.", mend)
    if synchronized is False:
        return note("date", seen, "If the date is ahead, the node is refused when it is handed in.", mend)
    return ok("date", seen)


def is_synchronized() -> bool | None:
    """Return if a time server sets this system's clock; None if the system does not tell."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (AttributeError, OSError, TypeError):
        return None
    # adjtimex returns TIME_ERROR, 5, if no time server sets the clock.
    return None if state < 0 else state != 5


# ------------------------------------------------------------------ checks of other processes, memory, power and disk


@dataclass(frozen=True)
class Watched:
    """The use of CPU time during an interval.

    before, after: the system's counters at the interval's beginning and end.
    busiest: the busiest other processes as (name, used share of a core).
    """

    before: Totals
    after: Totals
    busiest: list[tuple[str, float]]

    def shares(self, cores: int) -> tuple[float, float]:
        """Return the CPU time of other processes and the stolen CPU time, as shares of the time of all `cores`."""
        values, _ = machine_state.compare_totals(self.before, self.after, cores)
        return values["other_load"] or 0.0, values["steal"] or 0.0


def watch_others(seconds: float) -> Watched:
    """Observe the CPU time that other processes use while this process sleeps for `seconds`."""
    own = psutil.Process()
    spent = _process_times()
    before = counters.read_totals(own)
    time.sleep(seconds)
    after = counters.read_totals(own)
    used: defaultdict[str, float] = defaultdict(float)
    for pid, (name, total) in _process_times().items():
        if pid != own.pid:
            # A process that started during the sleep has no earlier reading: all its CPU time is from the sleep.
            used[name] += (total - spent.get(pid, (name, 0.0))[1]) / (after.time_s - before.time_s)
    busiest = sorted(
        ((name, share) for name, share in used.items() if share > _NAMED_SHARE), key=lambda entry: -entry[1]
    )
    return Watched(before, after, busiest[:3])


def _process_times() -> dict[int, tuple[str, float]]:
    """Return (name, CPU seconds) by process id, for every process whose times can be read."""
    times = (
        (entry.pid, entry.info["name"], entry.info["cpu_times"]) for entry in psutil.process_iter(["name", "cpu_times"])
    )
    return {pid: (name or "?", used.user + used.system) for pid, name, used in times if used is not None}


def load(watched: Watched, cores: int) -> Finding:
    """Check the current load from other processes."""
    share, _ = watched.shares(cores)
    names = ", ".join(f"{name} {used:.0%} of a core" for name, used in watched.busiest)
    seen = f"other processes use {share:.0%} of all cores" + (f": {names}" if names else "")
    if share > machine_state.BUSY_SHARE or any(used > 0.5 for _, used in watched.busiest):
        why = "They use cores, caches and memory bandwidth; a point on all cores waits for the slowest core."
        return warning("load", seen, why, "stop them, or wait until they end")
    return note("load", seen, "Samples are flagged above 10%.") if share > _SOME_LOAD else ok("load", seen)


def steal(watched: Watched, cores: int) -> Finding | None:
    """Check the CPU time that the hypervisor gives to other guests."""
    if not hasattr(psutil.cpu_times(), "steal"):
        return None
    _, now = watched.shares(cores)
    since = _steal_since_start()
    seen = f"{now:.0%} now, {since:.1%} since boot"
    if now > machine_state.STEAL_SHARE:
        why = "The hypervisor runs other guests on this machine's cores, so times get longer."
        return warning("steal", seen, why, "use a machine with dedicated cores, or measure at another time")
    if since > _SOME_STEAL:
        return note(
            "steal", seen, "Other guests on the host have taken CPU time and may do so again: rounds will vary."
        )
    return ok("steal", seen)


def _steal_since_start() -> float:
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0) / max(sum(times), 1.0)


def available_memory(available: float, total: float, stalled: float | None, machine: float = 0.0) -> Finding:
    """Check the available memory.

    available: bytes that this process can still get. total: bytes that this process may use at most. stalled: share of
    the observed time during which some task waited for memory; None if unknown. machine: the machine's memory in bytes,
    which exceeds `total` under a cgroup limit.
    """
    seen = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB available"
    limited = total < machine
    if limited:
        seen += f", limited by a cgroup (the machine has {machine / 2**30:.1f} GiB)"
    if stalled is not None and stalled > machine_state.MEMORY_SHARE:
        seen += f", processes wait for memory {stalled:.0%} of the time"
    elif available > _FEW_MEMORY * total:
        return ok("memory", seen)
    why = "Points that need more memory are skipped, and the system may swap during other points."
    mend = "stop processes that use much memory" + (", or raise the limit (docker run --memory)" if limited else "")
    return warning("memory", seen, why, mend)


def battery(plugged: bool | None, profile: str) -> Finding | None:
    """Check that no power-saving mode is active.

    plugged: True on mains power, False on battery power, None if the machine has no battery.
    profile: the power profile (`power_state`); '' if the system has none.
    """
    if plugged is False:
        why = "On battery a machine lowers its clock and its power limits."
        return warning("power", "on battery", why, "plug it in")
    if power_state.saves_power(profile):
        why = "The system limits clock and power."
        mend = _PERFORMANCE.get(platform.system(), "powerprofilesctl set performance (in WSL2: Windows' power mode)")
        return warning("power", f"profile {profile}", why, mend)
    seen = ["plugged in"] * bool(plugged) + [f"profile {profile}"] * bool(profile)
    return ok("power", ", ".join(seen)) if seen else None


def disk_space(free: float, place: str) -> Finding:
    seen = f"{free / 2**30:.1f} GiB free for {place}"
    if free > _ROOM_BYTES:
        return ok("disk", seen)
    return warning("disk", seen, "A run stops if it cannot write its results.", "free some disk space")


def loopback(refusal: str) -> Finding:
    """Check network connections within this machine. refusal: the system's error; '' if a connection was possible."""
    if not refusal:
        return ok("loopback", "connects")
    return warning(
        "loopback", f"127.0.0.1: {refusal}", "`serving` cannot connect to its server.", "sudo ip link set lo up"
    )


def connect_to_self() -> str:
    """Connect to a socket in this process; return the system's error, '' on success."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=CONNECT_S),
        ):
            return ""
    except OSError as refusal:
        return (refusal.strerror or str(refusal)).lower()


def examine(root: Path, results: Path) -> list[Finding | None]:
    """Run all checks in this module."""
    cores, about, allowed = os.cpu_count() or 1, hardware.cpu(), allowed_cpus()
    watched = watch_others(WATCH_S)
    before, after = watched.before, watched.after
    stalled = None
    if before.stalled_s is not None and after.stalled_s is not None:
        stalled = (after.stalled_s - before.stalled_s) / (after.time_s - before.time_s)
    place = next(folder for folder in (results, *results.parents) if folder.is_dir())
    return [
        load(watched, cores),
        steal(watched, cores),
        available_memory(available_bytes(root), total_bytes(root), stalled, psutil.virtual_memory().total),
        battery(power_state.is_plugged_in(), power_state.desktop_profile(root) or power_state.power_profile(root)),
        disk_space(shutil.disk_usage(place).free, str(results)),
        loopback(connect_to_self()),
        processor_facts(about.get("unknown", [])),
        date(is_synchronized()),
        heat(root, after.heat_throttles - before.heat_throttles, power_state.speed_limit()),
        *(check(root) for check in (governor, boost, quota, numa, clock_source)),
        affinity(allowed, cores, root),
        kinds_of_cores(root, allowed),
        isolated_cpus(root, allowed),
        virtualization(about.get("virtual")),
    ]
