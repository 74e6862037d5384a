"""Group logical CPUs into physical cores and core kinds, from kernel files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from contract.cgroups import ROOT, read_text

CPUS = "sys/devices/system/cpu"
# Ranges of more CPUs are rejected as invalid: they far exceed the kernel's limit on x86, which is 8,192 CPUs.
_MOST_CPUS = 2**16

# Common cores by Arm's implementer and part (Linux, arch/arm64/include/asm/cputype.h).
_ARM_PARTS = {
    "0x41": {
        "0xc07": "Cortex-A7", "0xc09": "Cortex-A9", "0xc0f": "Cortex-A15", "0xd03": "Cortex-A53",
        "0xd04": "Cortex-A35", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72",
        "0xd09": "Cortex-A73", "0xd0a": "Cortex-A75", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse-N1",
        "0xd0d": "Cortex-A77", "0xd40": "Neoverse-V1", "0xd41": "Cortex-A78", "0xd42": "Cortex-A78AE",
        "0xd44": "Cortex-X1", "0xd46": "Cortex-A510", "0xd47": "Cortex-A710", "0xd48": "Cortex-X2",
        "0xd49": "Neoverse-N2", "0xd4d": "Cortex-A715", "0xd4e": "Cortex-X3", "0xd4f": "Neoverse-V2",
        "0xd80": "Cortex-A520", "0xd81": "Cortex-A720", "0xd82": "Cortex-X4", "0xd84": "Neoverse-V3",
        "0xd85": "Cortex-X925", "0xd87": "Cortex-A725", "0xd8e": "Neoverse-N3",
    },
    "0x46": {"0x001": "A64FX"},
    "0x48": {"0xd01": "TaiShan-v110"},
    "0x51": {"0x001": "Oryon"},
    "0xc0": {"0xac3": "Ampere-1", "0xac4": "Ampere-1a"},
}  # fmt: skip
# Intel's core kinds, by the kernel's names for their event counters.
_INTEL_KINDS = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low-power"}


class Cores(NamedTuple):
    """Physical cores. groups: each core's logical CPUs. known: True if the kernel maps every CPU to a core."""

    groups: tuple[tuple[int, ...], ...]
    known: bool


def parse_cpu_list(words: str) -> set[int]:
    """Parse the kernel's CPU list format: '0-2,5' is {0, 1, 2, 5}; an invalid list gives an empty set."""
    cpus: set[int] = set()
    for part in filter(None, words.strip().split(",")):
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part.strip())
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last < first + _MOST_CPUS:
            return set()
        cpus |= set(range(first, last + 1))
    return cpus


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Format CPUs for taskset and docker: {0, 1, 2, 5} gives '0-2,5'."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def parse_cpu_mask(words: str) -> set[int]:
    """Parse the kernel's CPU mask format: '00000001,00000003' is {0, 1, 32}; an invalid mask gives an empty set."""
    digits = words.replace(",", "")
    mask = int(digits, 16) if re.fullmatch("[0-9a-fA-F]{1,16384}", digits) else 0
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def allowed_cpus() -> frozenset[int]:
    """Return the logical CPUs in this process's affinity, or all CPUs on systems without affinity."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


@cache
def online_cpus(root: Path = ROOT) -> frozenset[int]:
    """Return the machine's online logical CPUs; empty if the kernel lists none."""
    return frozenset(parse_cpu_list(read_text(root / CPUS / "online")) or cpuinfo(root).keys())


@cache
def cpuinfo(root: Path = ROOT) -> dict[int, dict[str, str]]:
    """Parse /proc/cpuinfo by logical CPU, with lowercase keys; empty outside Linux."""
    by_cpu: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in read_text(root / "proc/cpuinfo").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        # s390 puts each processor on one line: "processor 0: version = FF, …".
        number = re.fullmatch(r"processor\s*([0-9]{1,6})?", key)
        if number and (number[1] or re.fullmatch("[0-9]{1,6}", value)):
            current = by_cpu.setdefault(int(number[1] or value), {})
        elif key:
            current.setdefault(key.lower(), value)
    return by_cpu


@cache
def physical_cores(cpus: frozenset[int], root: Path = ROOT) -> Cores:
    """Group logical CPUs by physical core, in the order of their numbers.

    Sources: the kernel's Documentation/admin-guide/cputopology.rst; /proc/cpuinfo where sysfs is hidden.
    A CPU in neither source counts as a core.
    """
    groups: dict[object, list[int]] = {}
    known = True
    for cpu in sorted(cpus):
        core = _core_key(cpu, root)
        known &= core is not None
        groups.setdefault(cpu if core is None else core, []).append(cpu)
    return Cores(tuple(map(tuple, groups.values())), known)


def _core_key(cpu: int, root: Path) -> object | None:
    """Return a key for the logical CPU's physical core; None if unknown."""
    folder = root / CPUS / f"cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        siblings = parse_cpu_list(read_text(folder / name))
        if cpu in siblings:
            return frozenset(siblings)
    ids = [read_text(folder / f"{name}_id") for name in ("physical_package", "core", "die", "cluster")]
    if not all(map(str.isdecimal, ids[:2])):
        about = cpuinfo(root).get(cpu, {})
        ids = [about.get("physical id", ""), about.get("core id", "")]
    return tuple(ids) if all(map(str.isdecimal, ids[:2])) else None


def count_sockets(cpus: Iterable[int], root: Path = ROOT) -> int | None:
    """Count the sockets that contain these logical CPUs; None if the kernel does not tell the socket of each CPU."""
    about = cpuinfo(root)
    ids = {
        read_text(root / CPUS / f"cpu{cpu}/topology/physical_package_id") or about.get(cpu, {}).get("physical id", "")
        for cpu in cpus
    }
    return len(ids) if ids and all(map(str.isdecimal, ids)) else None


def cpu_models(root: Path = ROOT) -> dict[int, str]:
    """Return the model per logical CPU from /proc/cpuinfo; CPUs without a model are missing."""
    models = {}
    for cpu, about in cpuinfo(root).items():
        maker, part = about.get("cpu implementer", "").lower(), about.get("cpu part", "").lower()
        name = next((about[key] for key in ("model name", "cpu model", "cpu", "uarch") if about.get(key)), "")
        if part:
            unnamed = f"Arm part {part}" if maker == "0x41" else f"part {part} of implementer {maker or 'unknown'}"
            name = _ARM_PARTS.get(maker, {}).get(part, unnamed)
        if name:
            models[cpu] = name
    return models


def core_kinds(cpus: frozenset[int], root: Path = ROOT) -> dict[str, frozenset[int]]:
    """Group logical CPUs by core kind on hybrid processors and big.LITTLE; empty if all cores are equal."""
    folders = [*(root / "sys/devices").glob("cpu_*"), *(root / "sys/bus/event_source/devices").glob("cpu_*")]
    cpus_by_pmu = {folder.name: frozenset(parse_cpu_list(read_text(folder / "cpus"))) for folder in folders}
    kinds = {_INTEL_KINDS[name]: cpus_by_pmu[name] for name in _INTEL_KINDS if cpus_by_pmu.get(name)}
    if len(kinds) < 2:
        names = cpu_models(root)
        kinds = {name: frozenset(cpu for cpu in names if names[cpu] == name) for name in dict.fromkeys(names.values())}
    kinds = {name: members & cpus for name, members in kinds.items() if members & cpus}
    return kinds if len(kinds) > 1 else {}
