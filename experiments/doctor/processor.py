"""Checks of the processor: clock, cores that may be used, timer. Each answers None where the system says nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from experiments import counters
from experiments.counters import number
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.topology import (
    CPUS,
    ROOT,
    allowed_cpus,
    cpu_list,
    kinds_of_core,
    physical_cores,
    read_text,
    written_list,
)

# Drivers that choose the clock in hardware: their "powersave" goes up to the highest clock under load.
_ACTIVE = ("intel_pstate", "amd-pstate-epp")
# Clock sources that the kernel reads without leaving user space.
_FAST = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
# Reading the clock above this costs more than many kernels take.
_SLOW_CLOCK_S = 1e-6


def governor(root: Path) -> Finding | None:
    """Whether the kernel holds the clock up."""
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
    """Whether the clock may rise above the rated one."""
    no_turbo, generic = number(root / CPUS / "intel_pstate/no_turbo"), number(root / CPUS / "cpufreq/boost")
    if no_turbo is None and generic is None:
        return None
    if no_turbo == 0 or (no_turbo is None and generic):
        path, value = ("intel_pstate/no_turbo", 1) if no_turbo is not None else ("cpufreq/boost", 0)
        return note(
            "boost",
            "on",
            "What users get, but the clock then depends on heat and on how many cores work.",
            f"for steadier, slower times: echo {value} | sudo tee /{CPUS}/{path}",
        )
    path, value = ("intel_pstate/no_turbo", 0) if no_turbo is not None else ("cpufreq/boost", 1)
    return note(
        "boost", "off", "Steady times, below what this processor can do.", f"echo {value} | sudo tee /{CPUS}/{path}"
    )


def smt(root: Path) -> Finding | None:
    """Whether cores are shared by hardware threads."""
    active = number(root / CPUS / "smt/active")
    if active is None:
        return None
    if not active:
        return ok("SMT", "one hardware thread a core")
    return note(
        "SMT",
        "on",
        "Threads are counted by cores, but the system may put two on one core, or others' work beside yours.",
        f"echo off | sudo tee /{CPUS}/smt/control",
    )


def quota(root: Path) -> Finding | None:
    """Whether a cgroup stops the process when it has used its share."""
    granted = counters.quota(root)
    if granted is None:
        return ok("quota", "no cgroup limits CPU time") if counters.cgroups(root) else None
    periods, hits = counters.quota_periods(root)
    cores = physical_cores(allowed_cpus(), root).groups[: max(1, round(granted))]
    whole = written_list(core[0] for core in cores)
    stopped = f"; it has stopped its tasks in {hits / periods:.0%} of its periods" if periods and hits else ""
    return warning(
        "quota",
        f"a cgroup grants {granted:g} cores{stopped}",
        "Who uses it up is stopped until the next period: times come in steps of tens of milliseconds.",
        f"give whole cores instead (docker run --cpuset-cpus={whole}, without --cpus; "
        "systemd: AllowedCPUs, not CPUQuota)",
    )


def affinity(allowed: Collection[int], online: int, root: Path = ROOT) -> Finding:
    """Whether the process is confined to some CPUs."""
    if len(allowed) >= online:
        return ok("affinity", f"all {online} logical CPUs")
    cores = len(physical_cores(frozenset(allowed), root).groups)
    return note(
        "affinity",
        f"{len(allowed)} of {online} logical CPUs, on {cores} {'core' if cores == 1 else 'cores'}",
        "The node is measured as a machine of that size; others may still use these CPUs.",
    )


def kinds_of_cores(root: Path, allowed: Collection[int]) -> Finding | None:
    """A note if the cores that may be used differ."""
    kinds = kinds_of_core(frozenset(allowed), root)
    if not kinds:
        return None
    return note(
        "kinds of core",
        "; ".join(f"{name}: CPUs {written_list(members)}" for name, members in kinds.items()),
        "A point that uses all cores waits for the slowest kind, and fewer threads may run on any.",
        " or ".join(f"taskset -c {written_list(members)} …" for members in kinds.values()) + " for one kind",
    )


def isolated(root: Path, allowed: Collection[int]) -> Finding | None:
    """CPUs that the scheduler leaves alone."""
    path = root / CPUS / "isolated"
    if not path.exists():
        return None
    kept = cpu_list(read_text(path))
    if not kept:
        return ok("isolated", "no isolated CPUs")
    if len(kept.intersection(allowed)) > 1:
        return warning(
            "isolated",
            f"{len(kept.intersection(allowed))} of the CPUs that may be used are isolated",
            "The scheduler does not spread threads over isolated CPUs: they pile up on one.",
            "taskset -c 0-3 … with CPUs that are not isolated, or boot without isolcpus",
        )
    return note("isolated", f"{len(kept)} CPUs are isolated and not used", "They are missing from the node's cores.")


def numa(root: Path) -> Finding | None:
    """Whether memory lies at different distances."""
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    if nodes < 2:
        return ok("NUMA", "one node") if nodes else None
    moved = number(root / "proc/sys/kernel/numa_balancing")
    return note(
        "NUMA",
        f"{nodes} nodes" + ("; the kernel moves pages between them" if moved else ""),
        "Memory of another node is slower, and pages may lie there: rounds differ by where they landed.",
        "numactl --cpunodebind=0 --membind=0 … for one node"
        + (", sudo sysctl kernel.numa_balancing=0 for both" if moved else ""),
    )


def described(unknown: Sequence[str]) -> Finding:
    """Check that the system describes the processor. unknown: names of the facts that it does not tell."""
    if not unknown:
        return ok("processor", "model, cores and caches are known")
    return note(
        "processor",
        f"not known: {', '.join(unknown)}",
        "The record of the machine does without. Cores whose CPUs are not known are counted as one for each CPU.",
    )


def virtual(machine: bool | None) -> Finding | None:
    """A note on a hypervisor. machine: true for a virtual one; None if the system does not say."""
    if machine is None:
        return None
    if not machine:
        return ok("virtual", "no hypervisor")
    return note(
        "virtual",
        "this is a virtual machine",
        "Neighbours on the host take time, caches and bandwidth unseen, and clock, temperature and power cannot be "
        "read: rounds differ more than on a machine of your own.",
    )


def clock_source(root: Path) -> Finding | None:
    """Where the kernel gets the time from."""
    folder = root / "sys/devices/system/clocksource/clocksource0"
    source = read_text(folder / "current_clocksource")
    if not source:
        return None
    if source in _FAST:
        return ok("clock source", source)
    has = "tsc" in read_text(folder / "available_clocksource").split()
    return warning(
        "clock source",
        source,
        "Each reading of the clock enters the kernel and takes a microsecond or more.",
        f"echo tsc | sudo tee /{folder.relative_to(root)}/current_clocksource"
        if has
        else "see dmesg for why the kernel gave up the TSC",
    )


def clock_cost(overhead_s: float, step_s: float) -> Finding:
    """What it costs to read the clock, and its smallest step."""
    seen = f"read twice in {overhead_s * 1e9:.0f} ns, steps of {step_s * 1e9:.0f} ns"
    if max(overhead_s, step_s) < _SLOW_CLOCK_S:
        return ok("clock", seen)
    return note("clock", seen, "Short calls are timed in long blocks, which hides how single calls vary.")


def heat(root: Path) -> Finding | None:
    """Whether heat has lowered the clock, or soon will."""
    thermometer, times = counters.sensor(root), counters.heat_stops(root)
    warmth = number(thermometer) if thermometer else None
    limit = number(thermometer.with_name("temp1_crit")) if thermometer else None
    if warmth is None and not times:
        return None
    seen = [f"{warmth / 1000:.0f} °C"] if warmth is not None else []
    if warmth is not None and limit and warmth > limit - 10_000:
        return warning(
            "heat",
            f"{seen[0]}, the limit is {limit / 1000:.0f} °C",
            "At its limit the processor lowers its clock.",
            "let it cool down, and see to its fans and dust",
        )
    if times:
        return note(
            "heat",
            ", ".join([*seen, f"the clock was lowered {times:.0f} times since the start"]),
            "Long all-core points may be slower than short ones.",
            "see to cooling; samples in which it happens are flagged",
        )
    return ok("heat", seen[0])


def perf(root: Path) -> Finding | None:
    """Whether there are hardware counters: the study needs none, since its clock is calibrated by a kernel."""
    if not (root / "sys/bus/event_source").exists():
        return None
    devices = (root / "sys/bus/event_source/devices").glob("*")
    has = any(entry.name.startswith(("cpu", "armv")) for entry in devices)
    return ok("counters", "hardware counters are there" if has else "no hardware counters; none are needed")
