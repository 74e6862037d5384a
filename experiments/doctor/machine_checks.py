"""Checks of the processor, and of other work, memory, power and room. A check without an answer here gives None."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from experiments import counters, hardware, machine_state
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

# Seconds for which others' work is watched, and share of a core from which a process is named.
WATCH_S, _NAMED_SHARE = 1.0, 0.05
# Others' share of all cores, and the hypervisor's since the start, for a note.
_SOME_LOAD, _SOME_STEAL = 0.03, 0.005
# Share of the memory below which little is available.
_FEW_MEMORY = 0.3
# Seconds until a connection within the machine counts as refused.
CONNECT_S = 2.0
# Samples, tables and figures of a few nodes, many times over.
_ROOM_BYTES = 2**30
# Drivers that choose the clock in hardware: their "powersave" goes up to the highest clock under load.
_ACTIVE = ("intel_pstate", "amd-pstate-epp")
# Clock sources that the kernel reads without leaving user space.
_FAST = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


# ------------------------------------------------------------------ the processor


def processor_facts(unknown: Sequence[str]) -> Finding:
    """The system's description of the processor. unknown: names of the facts that it does not tell."""
    if not unknown:
        return ok("processor", "model, cores and caches are known")
    why = "The record of the machine does without. Cores whose CPUs are not known are counted as one for each CPU."
    return note("processor", f"not known: {', '.join(unknown)}", why)


def governor(root: Path) -> Finding | None:
    """The kernel's choice of the clock."""
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
        return note("governor", seen, "The clock follows the load: the first calls after a pause run slower.", mend)
    return warning("governor", seen, "The clock follows the load, late or never: times jump with it.", mend)


def boost(root: Path) -> Finding | None:
    """Permission to clock above the rated frequency: users have it."""
    no_turbo, generic = read_number(root / CPUS / "intel_pstate/no_turbo"), read_number(root / CPUS / "cpufreq/boost")
    if no_turbo is None and generic is None:
        return None
    if no_turbo == 0 or (no_turbo is None and generic):
        return ok("boost", "on")
    mend = "0 | sudo tee /{}/intel_pstate/no_turbo" if no_turbo is not None else "1 | sudo tee /{}/cpufreq/boost"
    return note("boost", "off", "Steady times, below what this processor can do.", f"echo {mend.format(CPUS)}")


def heat(root: Path) -> Finding | None:
    """Heat that has lowered the clock, or soon will."""
    thermometer, times = counters.find_temperature_sensor(root), counters.count_heat_throttles(root)
    warmth = read_number(thermometer) if thermometer else None
    limit = read_number(thermometer.with_name("temp1_crit")) if thermometer else None
    if warmth is None and not times:
        return None
    seen = [f"{warmth / 1000:.0f} °C"] if warmth is not None else []
    if warmth is not None and limit and warmth > limit - 10_000:
        seen += [f"the limit is {limit / 1000:.0f} °C"]
        why = "At its limit the processor lowers its clock."
        return warning("heat", ", ".join(seen), why, "let it cool down, and see to its fans and dust")
    if times:
        seen += [f"the clock was lowered {times:.0f} times since the start"]
        mend = "see to cooling; samples in which it happens are flagged"
        return note("heat", ", ".join(seen), "Long all-core points may be slower than short ones.", mend)
    return ok("heat", seen[0])


def quota(root: Path) -> Finding | None:
    """A cgroup that stops the process when it has used its share."""
    granted = counters.cpu_quota(root)
    if granted is None:
        return ok("quota", "no cgroup limits CPU time") if counters.cgroup_folders(root) else None
    periods, hits = counters.quota_periods(root)
    cores = physical_cores(allowed_cpus(), root).groups[: max(1, round(granted))]
    whole = format_cpu_list(core[0] for core in cores)
    stopped = f"; it has stopped its tasks in {hits / periods:.0%} of its periods" if periods and hits else ""
    why = "Who uses it up is stopped until the next period: times come in steps of tens of milliseconds."
    mend = f"(docker run --cpuset-cpus={whole}, without --cpus; systemd: AllowedCPUs, not CPUQuota)"
    return warning("quota", f"a cgroup grants {granted:g} cores{stopped}", why, f"give whole cores instead {mend}")


def affinity(allowed: Collection[int], online: int, root: Path = Path("/")) -> Finding:
    """The CPUs to which the process is confined."""
    if len(allowed) >= online:
        return ok("affinity", f"all {online} logical CPUs")
    cores = len(physical_cores(frozenset(allowed), root).groups)
    seen = f"{len(allowed)} of {online} logical CPUs, on {cores} {'core' if cores == 1 else 'cores'}"
    return note("affinity", seen, "The node is measured as a machine of that size; others may still use these CPUs.")


def kinds_of_cores(root: Path, allowed: Collection[int]) -> Finding | None:
    """Cores that differ."""
    kinds = core_kinds(frozenset(allowed), root)
    if not kinds:
        return None
    seen = "; ".join(f"{name}: CPUs {format_cpu_list(members)}" for name, members in kinds.items())
    why = "A point that uses all cores waits for the slowest kind, and fewer threads may run on any."
    mend = " or ".join(f"taskset -c {format_cpu_list(members)} …" for members in kinds.values())
    return note("kinds of core", seen, why, f"{mend} for one kind")


def isolated_cpus(root: Path, allowed: Collection[int]) -> Finding | None:
    """CPUs that the scheduler leaves alone."""
    path = root / CPUS / "isolated"
    if not path.exists():
        return None
    kept = parse_cpu_list(read_text(path))
    used = len(kept.intersection(allowed))
    if used > 1:
        why = "The scheduler does not spread threads over isolated CPUs: they pile up on one."
        mend = "taskset -c 0-3 … with CPUs that are not isolated, or boot without isolcpus"
        return warning("isolated", f"{used} of the CPUs that may be used are isolated", why, mend)
    if kept:
        seen = f"{len(kept)} CPUs are isolated and not used"
        return note("isolated", seen, "They are missing from the node's cores.")
    return ok("isolated", "no isolated CPUs")


def numa(root: Path) -> Finding | None:
    """Memory at different distances."""
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    if nodes < 2:
        return ok("NUMA", "one node") if nodes else None
    moved = read_number(root / "proc/sys/kernel/numa_balancing")
    seen = f"{nodes} nodes" + ("; the kernel moves pages between them" if moved else "")
    why = "Memory of another node is slower, and pages may lie there: rounds differ by where they landed."
    mend = "numactl --cpunodebind=0 --membind=0 … for one node"
    return note("NUMA", seen, why, mend + (", sudo sysctl kernel.numa_balancing=0 for both" if moved else ""))


def virtualization(machine: bool | None) -> Finding | None:
    """A hypervisor below. machine: true for a virtual one; None if the system does not say."""
    if machine is None:
        return None
    if not machine:
        return ok("virtual", "no hypervisor")
    why = (
        "Neighbours on the host take time, caches and bandwidth unseen, and clock, temperature and power cannot be read"
    )
    return note("virtual", "this is a virtual machine", f"{why}: rounds differ more than on a machine of your own.")


def clock_source(root: Path) -> Finding | None:
    """The kernel's source of the time."""
    folder = root / "sys/devices/system/clocksource/clocksource0"
    source = read_text(folder / "current_clocksource")
    if not source:
        return None
    if source in _FAST:
        return ok("clock source", source)
    mend = "see dmesg for why the kernel gave up the TSC"
    if "tsc" in read_text(folder / "available_clocksource").split():
        mend = f"echo tsc | sudo tee /{folder.relative_to(root)}/current_clocksource"
    why = "Each reading of the clock enters the kernel and takes a microsecond or more."
    return warning("clock source", source, why, mend)


# ------------------------------------------------------------------ other work, memory, power, room


@dataclass(frozen=True)
class Watched:
    """Others' work for a while: totals at its ends; the busiest processes by name, with their share of a core."""

    before: Totals
    after: Totals
    busiest: list[tuple[str, float]]

    def shares(self, cores: int) -> tuple[float, float]:
        """Others' load and steal, as shares of all cores."""
        values, _ = machine_state.compare_totals(self.before, self.after, cores)
        return values["other_load"] or 0.0, values["steal"] or 0.0


def watch_others(seconds: float) -> Watched:
    """Look at all processes before and after a pause in which this one does nothing."""
    own = psutil.Process()
    spent = _process_times()
    before = counters.read_totals(own)
    time.sleep(seconds)
    after = counters.read_totals(own)
    used: defaultdict[str, float] = defaultdict(float)
    for pid, (name, total) in _process_times().items():
        if pid != own.pid:
            # A new process has spent all its time since.
            used[name] += (total - spent.get(pid, (name, 0.0))[1]) / (after.at - before.at)
    busiest = sorted(((name, share) for name, share in used.items() if share > _NAMED_SHARE), key=lambda one: -one[1])
    return Watched(before, after, busiest[:3])


def _process_times() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of every process that we may look at."""
    times = ((one.pid, one.info["name"], one.info["cpu_times"]) for one in psutil.process_iter(["name", "cpu_times"]))
    return {pid: (name or "?", used.user + used.system) for pid, name, used in times if used is not None}


def load(watched: Watched, cores: int) -> Finding:
    """Others' work on this machine now."""
    share, _ = watched.shares(cores)
    names = ", ".join(f"{name} {used:.0%} of a core" for name, used in watched.busiest)
    seen = f"others take {share:.0%} of all cores" + (f": {names}" if names else "")
    if share > machine_state.BUSY_SHARE or any(used > 0.5 for _, used in watched.busiest):
        why = "They take cores, caches and memory bandwidth; a point that uses all cores waits for the slowest."
        return warning("load", seen, why, "stop them, or wait until they have ended")
    return note("load", seen, "Samples are flagged from 10% on.") if share > _SOME_LOAD else ok("load", seen)


def steal(watched: Watched, cores: int) -> Finding | None:
    """This machine's CPU time that the hypervisor gives to others."""
    if not hasattr(psutil.cpu_times(), "steal"):
        return None
    _, now = watched.shares(cores)
    since = _steal_since_start()
    seen = f"{now:.0%} now, {since:.1%} since the machine started"
    if now > machine_state.STEAL_SHARE:
        why = "The hypervisor runs others in this machine's place: times lengthen by what it takes."
        return warning("steal", seen, why, "a machine with dedicated cores, or another hour")
    if since > _SOME_STEAL:
        return note("steal", seen, "Neighbours on the host have taken time, and may again: rounds will differ.")
    return ok("steal", seen)


def _steal_since_start() -> float:
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0) / max(sum(times), 1.0)


def available_memory(available: float, total: float, stalled: float | None, machine: float = 0.0) -> Finding:
    """Room for the points.

    total: bytes that this process may use. stalled: share of the watched time that work waited for memory.
    machine: bytes that the machine has, where a cgroup may grant less.
    """
    seen = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB available"
    limited = total < machine
    if limited:
        seen += f", by the limit of a cgroup (the machine has {machine / 2**30:.1f} GiB)"
    if stalled is not None and stalled > machine_state.MEMORY_SHARE:
        seen += f", work waits for memory {stalled:.0%} of the time"
    elif available > _FEW_MEMORY * total:
        return ok("memory", seen)
    why = "Points that need more than is available are skipped, and the system may swap during others."
    mend = "end what holds the memory" + (", or raise the limit (docker run --memory)" if limited else "")
    return warning("memory", seen, why, mend)


def battery(plugged: bool | None, profile: str) -> Finding | None:
    """Saving of power. plugged: None without a battery; profile: the firmware's, '' if none."""
    if plugged is False:
        why = "On battery a machine lowers its clock and its power limits."
        return warning("power", "on battery", why, "plug it in")
    if profile in ("low-power", "quiet", "cool"):
        why = "The firmware holds clock and power down."
        return warning("power", f"profile {profile}", why, "powerprofilesctl set performance")
    seen = ["plugged in"] * bool(plugged) + [f"profile {profile}"] * bool(profile)
    return ok("power", ", ".join(seen)) if seen else None


def disk_space(free: float, place: str) -> Finding:
    """Room for results on the disk."""
    seen = f"{free / 2**30:.1f} GiB free for {place}"
    if free > _ROOM_BYTES:
        return ok("disk", seen)
    return warning("disk", seen, "A run that cannot write its results stops.", "free some space")


def loopback(refusal: str) -> Finding:
    """A connection between programs of this machine. refusal: the system's, '' if they can."""
    if not refusal:
        return ok("loopback", "connects")
    return warning("loopback", f"127.0.0.1: {refusal}", "`serving` cannot ask its server.", "sudo ip link set lo up")


def connect_to_self() -> str:
    """Connect to a socket of this process: the system's refusal, '' if it connects."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=CONNECT_S),
        ):
            return ""
    except OSError as refusal:
        return (refusal.strerror or str(refusal)).lower()


def examine(root: Path, results: Path) -> list[Finding | None]:
    """All checks of this module."""
    cores, about, allowed = os.cpu_count() or 1, hardware.cpu(), allowed_cpus()
    watched = watch_others(WATCH_S)
    before, after = watched.before, watched.after
    stalled = None
    if before.stalled is not None and after.stalled is not None:
        stalled = (after.stalled - before.stalled) / (after.at - before.at)
    supply = getattr(psutil, "sensors_battery", lambda: None)()
    place = next(folder for folder in (results, *results.parents) if folder.is_dir())
    return [
        load(watched, cores),
        steal(watched, cores),
        available_memory(available_bytes(root), total_bytes(root), stalled, psutil.virtual_memory().total),
        battery(supply.power_plugged if supply else None, read_text(root / "sys/firmware/acpi/platform_profile")),
        disk_space(shutil.disk_usage(place).free, str(results)),
        loopback(connect_to_self()),
        processor_facts(about.get("unknown", [])),
        *(check(root) for check in (governor, boost, heat, quota, numa, clock_source)),
        affinity(allowed, cores, root),
        kinds_of_cores(root, allowed),
        isolated_cpus(root, allowed),
        virtualization(about.get("virtual")),
    ]
