"""Describe the processor from lscpu, kernel files and macOS's sysctl, with every field validated.

A field missing in all sources is omitted and listed in `unknown`.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import topology
from experiments.lscpu import (
    first_values,
    lscpu_fields,
    parse_count,
    parse_text,
    read_output,
    split_by_core_kind,
    sysctl_fields,
)
from experiments.topology import CPUS, ROOT, parse_cpu_list, parse_cpu_mask, read_text

# Instruction set extensions that determine a core's multiply-adds per cycle, by lscpu's names.
_SIMD = re.compile(
    r"^(sse2|sse4_2|avx|avx2|fma|f16c|avx512\w+|avx_vnni|avx512_\w+|amx_\w+|asimd\w*|sve\w*|sme|sme2|sme_\w+|bf16|i8mm)\Z"
)
_LEVELS = ("L1d", "L1i", "L2", "L3", "L4")
# Cache sizes in the formats of lscpu ("2 MiB (2 instances)", "256K") and of the kernel ("48K"). Before version 2.34,
# lscpu prints the size of one cache; since 2.34, the total size of all instances; since 2.37, also their number.
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(B|[KMG](?:i?B)?)(?:\s*\(([0-9]{1,6}) instances?\))?")
_UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# Prefix for Arm extension flags on macOS.
_MAC_FEATURE = "hw.optional.arm.FEAT_"
# Upper limits from the schema of the node record; larger values are rejected.
MOST_CORES, _MOST_BYTES, _MOST_SOCKETS, _MOST_THREADS, _MOST_KINDS, _MOST_FLAGS = 10**5, 2**53, 1000, 16, 20, 200

Ask = Callable[..., bytes]


def usable_cores(cpus: Collection[int], quota: float | None = None, root: Path = ROOT) -> int:
    """Count the physical cores among `cpus`, but at most the quota, rounded down; at least 1.

    cpus: logical CPUs. quota: number of cores granted by a cgroup; None without a quota.
    """
    cores = _count_physical_cores(cpus, root)
    return max(1, min(cores, int(quota)) if quota is not None else cores)


def _count_physical_cores(cpus: Collection[int], root: Path) -> int:
    cores = topology.physical_cores(frozenset(cpus), root)
    if not cores.known and platform.system() != "Linux":
        import psutil

        # Other systems than Linux report only the machine's number of cores, and have no CPU affinity.
        return min(psutil.cpu_count(logical=False) or len(cpus), len(cpus))
    return len(cores.groups)


@dataclass(frozen=True)
class _Sources:
    """Processor data from the system.

    fields: lscpu's fields, in order. sections: the same fields, split by core kind. info: /proc/cpuinfo by logical
    CPU. mac: fields from macOS's sysctl. cpus: the machine's logical CPUs. cores: the physical cores of `cpus`, as the
    kernel reports them.
    """

    fields: Sequence[tuple[str, str]]
    sections: Sequence[Mapping[str, str]]
    info: Mapping[int, Mapping[str, str]]
    mac: Mapping[str, str]
    cpus: frozenset[int]
    cores: topology.Cores
    root: Path

    @classmethod
    def read(cls, cpus: frozenset[int], root: Path, ask: Ask) -> _Sources:
        """Read all sources. ask: runs a command."""
        fields = lscpu_fields(ask("lscpu", "-J")) or lscpu_fields(ask("lscpu"))
        info = topology.cpuinfo(root)
        mac = {} if fields or info else sysctl_fields(ask("sysctl", "hw", "machdep.cpu"))
        # In a container, the list of online CPUs may be renumbered, so add the CPUs in this process's affinity.
        every = topology.online_cpus(root) | cpus
        return cls(fields, split_by_core_kind(fields), info, mac, every, topology.physical_cores(every, root), root)

    @property
    def lscpu_cpus(self) -> int:
        """CPU count according to lscpu; 0 if unknown."""
        listed = first_values(self.fields, "On-line CPU(s) list", "CPU(s)")
        return (
            len(parse_cpu_list(listed.get("On-line CPU(s) list", "")))
            or parse_count(listed.get("CPU(s)"), MOST_CORES)
            or 0
        )

    @property
    def kernel_knows(self) -> bool:
        """True if the kernel maps CPUs to cores for at least as many CPUs as lscpu lists."""
        return self.cores.known and len(self.cpus) >= self.lscpu_cpus

    @property
    def is_arm(self) -> bool:
        """True on Arm, where the kernel's packages may be clusters in one socket."""
        return any("cpu implementer" in about for about in self.info.values())


def describe(
    cpus: Collection[int], quota: float | None = None, root: Path = ROOT, ask: Ask = read_output
) -> dict[str, Any]:
    """Return the known keys for a record's `hardware.cpu`, and the names without a value in `unknown`.

    cpus: logical CPUs this process may use. quota: cores granted by a cgroup. ask: runs a command.
    """
    sources = _Sources.read(frozenset(cpus), root, ask)
    about, mac = _vendor_and_model(sources), sources.mac
    simd, kinds, usable = _simd_extensions(sources), _core_kinds(sources, cpus), _count_physical_cores(cpus, root)
    caches, counted = _read_caches(sources)
    facts: dict[str, Any] = {
        "model": parse_text(" + ".join(dict.fromkeys(_model_names(sources)))) or None,
        "vendor": about.get("Vendor ID") or mac.get("machdep.cpu.vendor"),
        "family": about.get("CPU family") or mac.get("machdep.cpu.family"),
        "model_number": about.get("Model") or mac.get("machdep.cpu.model"),
        "architecture": parse_text(platform.machine()) or None,
        "sockets": _sockets(sources),
        "cores": _machine_cores(sources),
        "usable_cores": usable_cores(cpus, quota, root),
        "threads_per_core": _threads_per_core(sources),
        "simd": simd,
        "matrix": simd and [flag for flag in simd if flag.startswith(("amx", "sme", "avx512_bf16"))],
        "caches": caches,
        "virtual": _is_virtual(sources),
    }
    unknown = [key for key, value in facts.items() if value is None]
    unknown += [] if counted else ["number of caches"]
    known = topology.physical_cores(frozenset(cpus), root).known or platform.system() != "Linux"
    unknown += [] if known else ["CPUs that share a core"]
    # The record requires a model name.
    facts["model"] = facts["model"] or parse_text(platform.processor()) or facts["architecture"] or "unknown"
    return {
        **{key: value for key, value in facts.items() if value is not None},
        **({"kinds": kinds} if kinds else {}),
        **({"quota": round(quota, 3)} if quota is not None and quota < usable else {}),
        **({"unknown": unknown} if unknown else {}),
    }


def _vendor_and_model(sources: _Sources) -> dict[str, str]:
    """Return vendor, family and model number, with lscpu's names as keys.

    On x86, values that lscpu does not report are from /proc/cpuinfo.
    """
    x86 = next((about for about in sources.info.values() if "vendor_id" in about), {})
    names = {"Vendor ID": "vendor_id", "CPU family": "cpu family", "Model": "model"}
    return {key: parse_text(x86.get(name, "")) for key, name in names.items()} | first_values(sources.fields, *names)


def _model_names(sources: _Sources) -> list[str]:
    """Return the model names per core kind, from lscpu, else from the kernel, else from macOS."""
    names = [parse_text(section.get("Model name", "")) for section in sources.sections]
    names = [name for name in names if name] or list(map(parse_text, topology.cpu_models(sources.root).values()))
    return [name for name in names if name] or [sources.mac.get("machdep.cpu.brand_string", "")]


def _lscpu_cores(section: Mapping[str, str]) -> int | None:
    """Count the cores in an lscpu section: cores per socket (or cluster) times the socket (or cluster) count."""
    if cores := parse_count(section.get("Core(s) per socket"), MOST_CORES):
        number = parse_count(section.get("Socket(s)") or section.get("Socket(s) per book"), MOST_CORES) or 1
        for outer in ("Book(s) per drawer", "Book(s)", "Drawer(s)"):
            number *= parse_count(section.get(outer), _MOST_SOCKETS) or 1
        return cores * number
    cores = parse_count(section.get("Core(s) per cluster"), MOST_CORES)
    return cores and cores * (parse_count(section.get("Cluster(s)"), MOST_CORES) or 1)


def _machine_cores(sources: _Sources) -> int | None:
    """Count the machine's physical cores, from the kernel, or from lscpu if lscpu sees more cores."""
    if sources.mac:
        return parse_count(sources.mac.get("hw.physicalcpu_max", sources.mac.get("hw.physicalcpu")), MOST_CORES)
    least = len(sources.cores.groups) if sources.cores.known else 0
    section_cores = [_lscpu_cores(section) for section in sources.sections]
    cores = sum(filter(None, section_cores)) if all(section_cores) and not sources.kernel_knows else 0
    # Do not accept more cores than logical CPUs: on s390, lscpu counts the cores in all books and drawers, although
    # this system may have only some of them.
    return cores if least < cores <= max(sources.lscpu_cpus, len(sources.cpus)) else least or None


def _sockets(sources: _Sources) -> int | None:
    if sources.mac:
        return parse_count(sources.mac.get("hw.packages"), _MOST_SOCKETS)
    packages = topology.count_sockets(sources.cpus, sources.root)
    kernel_count = None if sources.is_arm else parse_count(packages, _MOST_SOCKETS)
    if kernel_count and len(sources.cpus) >= sources.lscpu_cpus:
        return kernel_count
    # Each core kind has its own section, but all kinds share the sockets, so take the maximum. If lscpu lists clusters,
    # it may print `-` for the sockets: then their number is unknown.
    section_sockets = [parse_count(section.get("Socket(s)"), _MOST_SOCKETS) for section in sources.sections]
    clusters = any("Cluster(s)" in section for section in sources.sections)
    return max(filter(None, section_sockets), default=None if clusters else kernel_count)


def _threads_per_core(sources: _Sources) -> int | None:
    """Return the thread count of the core with the most threads."""
    if sources.mac:
        cores = parse_count(sources.mac.get("hw.physicalcpu"), MOST_CORES)
        threads = parse_count(sources.mac.get("hw.logicalcpu"), MOST_CORES)
        return parse_count(threads // cores, _MOST_THREADS) if cores and threads else None
    section_threads = [parse_count(section.get("Thread(s) per core"), _MOST_THREADS) for section in sources.sections]
    kernel_count = parse_count(max(map(len, sources.cores.groups)), _MOST_THREADS) if sources.cores.known else None
    return kernel_count if sources.kernel_knows else max(filter(None, section_threads), default=kernel_count)


def _simd_extensions(sources: _Sources) -> list[str] | None:
    """List the extensions common to all cores."""
    lines = [section["Flags"] for section in sources.sections if parse_text(section.get("Flags", ""))]
    lines = lines or [about.get("flags") or about.get("features") or "" for about in sources.info.values()]
    if mac := sources.mac:
        words = " ".join(mac.get(f"machdep.cpu.{name}features", "") for name in ("", "leaf7_", "ext"))
        arm = [name.rpartition("_")[2] for name in mac if name.startswith(_MAC_FEATURE) and mac[name] == "1"]
        arm += ["asimd"] if mac.get("hw.optional.AdvSIMD") == "1" else []
        lines = [" ".join([words.replace("AVX1.0", "avx").replace(".", "_"), *arm]).lower()]
    if not any(lines):
        return None
    common = set.intersection(*(set(line.split()) for line in lines))
    return sorted(flag for flag in common if _SIMD.match(flag) and len(flag) <= 50)[:_MOST_FLAGS]


def _core_kinds(sources: _Sources, cpus: Collection[int]) -> list[dict[str, Any]]:
    """For each kind of core, count the cores in the machine and those that this process may use.

    Return an empty list if all cores are equal.
    """
    kinds = topology.core_kinds(sources.cpus, sources.root)
    core_counts: list[dict[str, Any]] = [
        {
            "name": parse_text(name) or "unnamed",
            "cores": len(topology.physical_cores(members, sources.root).groups),
            "usable_cores": len(topology.physical_cores(members.intersection(cpus), sources.root).groups),
        }
        for name, members in kinds.items()
    ]
    if len(core_counts) < 2:
        names = [(parse_text(section.get("Model name", "")), _lscpu_cores(section)) for section in sources.sections]
        names += [
            (sources.mac.get(f"hw.perflevel{level}.name", f"level {level}"), parse_count(cores, MOST_CORES))
            for level in range(_MOST_KINDS)
            if (cores := sources.mac.get(f"hw.perflevel{level}.physicalcpu"))
        ]
        core_counts = [
            {"name": name or "unnamed", **({"cores": cores} if cores else {})} for name, cores in names if cores
        ]
    return core_counts[:_MOST_KINDS] if len(core_counts) > 1 else []


def _is_virtual(sources: _Sources) -> bool | None:
    """True for a virtual machine; None if unknown."""
    flags = [about["flags"].split() for about in sources.info.values() if "flags" in about]
    # lscpu names only hypervisors that it knows.
    if any("hypervisor" in line for line in flags):
        return True
    fields = dict(sources.fields)
    if "Hypervisor vendor" in fields:
        return bool(parse_text(fields["Hypervisor vendor"])) or None
    if first_values(sources.fields, "Architecture", "CPU(s)"):
        return False
    return False if flags else None


def _read_caches(sources: _Sources) -> tuple[dict[str, dict[str, int]] | None, bool]:
    """Return total bytes and instances per cache level, and True if every instance count is known."""
    caches, counted = _mac_caches(sources.mac), True
    names = {level: (f"{level} cache", level) for level in _LEVELS}
    size_texts = first_values(sources.fields, *(name for both in names.values() for name in both))
    sizes = {
        level: _SIZE.fullmatch(size_texts.get(long) or size_texts.get(short, ""))
        for level, (long, short) in names.items()
    }
    if (not sources.mac and not all(size[3] for size in sizes.values() if size)) or not any(sizes.values()):
        caches |= _kernel_caches(sources.cpus, sources.root)
    for level, size in sizes.items():
        if size and (size[3] or level not in caches):
            count = parse_count(size[3] or 1, MOST_CORES)
            amount = float(size[1]) * _UNITS[size[2][0]]
            if count and 1 <= amount <= _MOST_BYTES:
                caches[level] = {"bytes": int(amount), "instances": count}
                counted &= size[3] is not None
    return caches or None, counted


def _kernel_caches(cpus: Iterable[int], root: Path) -> dict[str, dict[str, int]]:
    """Read the caches from sysfs; count a shared cache once."""
    sizes: dict[tuple[str, frozenset[int]], int] = {}
    for cpu in cpus:
        for folder in (root / CPUS / f"cpu{cpu}/cache").glob("index*"):
            size = _SIZE.fullmatch(read_text(folder / "size"))
            letter = {"Data": "d", "Instruction": "i"}.get(read_text(folder / "type"), "")
            name = f"L{read_text(folder / 'level')}{letter}"
            shared = frozenset(
                parse_cpu_list(read_text(folder / "shared_cpu_list"))
                or parse_cpu_mask(read_text(folder / "shared_cpu_map"))
            )
            if name in _LEVELS and size and cpu in shared:
                sizes[name, shared] = int(float(size[1]) * _UNITS[size[2][0]])
    return _sum_caches((name, bytes_, 1) for (name, _), bytes_ in sizes.items())


def _mac_caches(mac: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Read the caches on a Mac with several core kinds; on other Macs sysctl has no cache counts."""
    caches = []
    for level, name in (("L1d", "l1dcachesize"), ("L1i", "l1icachesize"), ("L2", "l2cachesize"), ("L3", "l3cachesize")):
        for kind in range(_MOST_KINDS):
            prefix = f"hw.perflevel{kind}"
            cores = parse_count(mac.get(f"{prefix}.physicalcpu"), MOST_CORES)
            sharing = parse_count(mac.get(f"{prefix}.cpusper{level.lower()}", 1), MOST_CORES)
            size = parse_count(mac.get(f"{prefix}.{name}"), _MOST_BYTES)
            if cores and sharing and size:
                caches.append((level, size, -(-cores // sharing)))
    return _sum_caches(caches)


def _sum_caches(caches: Iterable[tuple[str, int, int]]) -> dict[str, dict[str, int]]:
    """Sum (level, bytes per cache, instances) by level; drop totals above the schema's limit."""
    totals: dict[str, dict[str, int]] = {}
    for level, size, instances in sorted(caches):
        total = totals.setdefault(level, {"bytes": 0, "instances": 0})
        total["bytes"] += size * instances
        total["instances"] += instances
    return {level: total for level, total in totals.items() if 0 < total["bytes"] <= _MOST_BYTES}
