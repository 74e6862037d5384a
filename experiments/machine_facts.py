"""Read facts about the machine that nobody can add to a node record afterwards.

Each fact has a reader. If the system does not tell a fact, the record has the reason under `unreadable`. The sources
are the machine's files and programs, so every text becomes one short line, and a text that may identify the machine or
a person is withheld. Serial numbers, UUIDs, asset tags and addresses are never read.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contract.cgroups import ROOT, cgroup_folders, cpu_quota, parse_decimal
from contract.microarchitecture import microarchitecture
from experiments import memory_limit, topology
from experiments.lscpu import first_values, lscpu_fields, parse_text, read_output
from experiments.processor import Ask
from experiments.topology import CPUS

# Maximum bytes to read from a file.
_MOST = 2**16
_DMI, _PAGES = "sys/class/dmi/id", "sys/kernel/mm/transparent_hugepage/enabled"
_CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
# UUIDs, MAC and IP addresses, and long numbers, which may be serial numbers.
_IDENTITY = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-|([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|(?<![\d.])\d{1,3}(\.\d{1,3}){3}(?![\d.])|\b[0-9a-f]{12,}\b|@",
    re.IGNORECASE,
)
# Memory types by their number in SMBIOS (DMTF DSP0134, 7.18.2).
_MEMORY_TYPES = {
    0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR", 0x1C: "LPDDR2", 0x1D: "LPDDR3", 0x1E: "LPDDR4", 0x20: "HBM",
    0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3",
}  # fmt: skip


class UnreadableError(Exception):
    """Reason why a fact cannot be read."""


@dataclass(frozen=True)
class Machine:
    """Sources of facts.

    cpu: the record's `hardware.cpu`. root: the folder with the kernel's files. ask: runs a command.
    """

    cpu: Mapping[str, Any]
    root: Path = ROOT
    ask: Ask = read_output

    def content(self, name: str) -> bytes:
        """Return the first bytes of a file. Raises UnreadableError."""
        try:
            with (self.root / name).open("rb") as file:
                return file.read(_MOST)
        except FileNotFoundError:
            raise UnreadableError(f"no /{name}") from None
        except OSError as refusal:
            raise UnreadableError(f"/{name}: {refusal.strerror}") from None

    def text(self, name: str) -> str:
        """Return a file's text as one line. Raises UnreadableError."""
        return clean(self.content(name).decode("utf-8", "replace"), f"/{name}")

    def matches(self, pattern: str) -> list[str]:
        """List the files that match a pattern. Raises UnreadableError if there are none."""
        names = sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return list(require(names, f"no /{pattern}"))

    def number(self, name: str) -> float:
        """Return the number in a file. Raises UnreadableError."""
        if (value := parse_decimal(self.text(name))) is None or not 0 <= value < 2**53:
            raise UnreadableError(f"/{name} has no number")
        return value

    def cpuinfo(self, key: str) -> list[str]:
        """List a key's values in /proc/cpuinfo. Raises UnreadableError if it has none."""
        values = [about[key] for about in topology.cpuinfo(self.root).values() if about.get(key)]
        return list(require(values, f"no {key!r} in /proc/cpuinfo"))

    def search(self, name: str, pattern: str) -> str:
        """Return the first group of a pattern's first match in a file. Raises UnreadableError if there is none."""
        match = re.search(pattern, self.content(name).decode("utf-8", "replace"))
        return clean(require(match, f"/{name} does not tell it")[1], f"/{name}")


def clean(text: str, where: str) -> str:
    """Return a text from outside as one line. Raises UnreadableError if it is empty or may identify the machine."""
    line = str(require(parse_text(text), f"{where} is empty"))
    names = {platform.node(), *platform.node().split(".")[:1], _user_name()}
    if _IDENTITY.search(line) or any(len(name) > 3 and name in line for name in names):
        raise UnreadableError(f"{where} is withheld, because it may identify the machine")
    return line


def _user_name() -> str:
    with suppress(Exception):  # the user may have no name
        return getpass.getuser()
    return ""


def require(value: Any, reason: str) -> Any:
    """Return a value. Raises UnreadableError with the reason if the value is empty or false."""
    if not value:
        raise UnreadableError(reason)
    return value


def _common(values: Iterable[str], where: str) -> str:
    """Return the only text, or all distinct texts as one. Raises UnreadableError if there are none."""
    return str(require(", ".join(sorted({value for value in values if value}))[:200], f"{where} has none"))


def _microarchitecture(machine: Machine) -> str:
    if any("cpu part" in about for about in topology.cpuinfo(machine.root).values()):
        return _common(map(parse_text, topology.cpu_models(machine.root).values()), "the kernel")
    known = ", ".join(f"{key} {machine.cpu.get(key, 'unknown')}" for key in ("vendor", "family", "model_number"))
    return str(require(microarchitecture(machine.cpu), f"not in the table: {known}"))


def _smt(machine: Machine) -> str:
    with suppress(UnreadableError, KeyError):
        return {0.0: "off", 1.0: "on"}[machine.number(f"{CPUS}/smt/active")]
    cores = topology.physical_cores(topology.online_cpus(machine.root), machine.root)
    require(cores.known and cores.groups, "the kernel does not tell the CPUs that share a core")
    return "on" if any(len(group) > 1 for group in cores.groups) else "off"


def _boost(machine: Machine) -> bool:
    with suppress(UnreadableError):
        return machine.number(f"{CPUS}/intel_pstate/no_turbo") == 0
    return machine.number(f"{CPUS}/cpufreq/boost") != 0


def _cpufreq_texts(name: str) -> Callable[[Machine], str]:
    pattern = f"{CPUS}/cpu[0-9]*/cpufreq/{name}"
    return lambda machine: _common(map(machine.text, machine.matches(pattern)), f"/{pattern}")


def _cpufreq_mhz(name: str, choose: Callable[[Iterable[float]], float]) -> Callable[[Machine], float]:
    pattern = f"{CPUS}/cpu[0-9]*/cpufreq/{name}"
    return lambda machine: _check_mhz(choose(map(machine.number, machine.matches(pattern))) / 1000)


def _check_mhz(value: float) -> float:
    return float(require(0 < value <= 1e5 and value, f"{value:g} MHz is no clock"))


def _nominal_mhz(machine: Machine) -> float:
    with suppress(UnreadableError):
        return _check_mhz(machine.number(f"{CPUS}/cpu0/acpi_cppc/nominal_freq"))
    return _cpufreq_mhz("base_frequency", max)(machine)


def _memory_modules(table: bytes) -> Iterable[dict[str, Any]]:
    """Yield type, speed and channel for each memory module in an SMBIOS table (DMTF DSP0134, 7.18).

    Serial numbers and asset tags are skipped. channel: text up to the channel's name; empty if the table names none.
    """
    at = 0
    while at + 4 <= len(table) and (size := table[at + 1]) >= 4 and (end := table.find(b"\0\0", at + size)) >= 0:
        body, texts = table[at : at + size], table[at + size : end].split(b"\0")
        if body[0] == 17 and size >= 0x17 and struct.unpack_from("<H", body, 0x0C)[0] not in (0, 0xFFFF):
            speeds = [struct.unpack_from("<H", body, place)[0] for place in (0x20, 0x15) if place + 2 <= size]
            # Bank locator or device locator, such as "P0 CHANNEL A".
            locators = [texts[index - 1] for index in (body[0x11], body[0x10]) if 0 < index <= len(texts)]
            channels = (re.match(rb"(?i).{0,50}?channel[ _-]?[a-z0-9]+", locator) for locator in locators)
            yield {
                "size": True,
                "type": _MEMORY_TYPES.get(body[0x12], ""),
                "speed": next((speed for speed in speeds if speed not in (0, 0xFFFF)), 0),
                "channel": next((channel[0] for channel in channels if channel), b""),
            }
        at = end + 2


def _memory_values(machine: Machine, key: str) -> list[Any]:
    """List a value for each memory module. Raises UnreadableError if one is unknown."""
    modules = list(_memory_modules(machine.content("sys/firmware/dmi/tables/DMI")))
    require(modules, "the firmware's table (DMI) has no memory module with a size")
    require(all(module[key] for module in modules), f"the firmware's table (DMI) does not tell each module's {key}")
    return [module[key] for module in modules]


def _hypervisor(machine: Machine) -> str:
    fields = lscpu_fields(machine.ask("lscpu", "-J")) or lscpu_fields(machine.ask("lscpu"))
    if name := first_values(fields, "Hypervisor vendor").get("Hypervisor vendor"):
        return clean(name, "lscpu's hypervisor vendor")
    return machine.text("sys/hypervisor/type")


def _instance_type(machine: Machine) -> str:
    product, vendor = machine.text(f"{_DMI}/product_name"), machine.text(f"{_DMI}/sys_vendor")
    is_told = vendor == "Amazon EC2" and re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", product)
    return str(require(is_told and product, "this provider's firmware (DMI) does not tell it"))


def _cpu_quota(machine: Machine) -> float | None:
    require(cgroup_folders(machine.root), "no cgroup of this process is mounted")
    quota = cpu_quota(machine.root)
    return None if quota is None else round(min(quota, 1e5), 3)


def _memory_limit(machine: Machine) -> int | None:
    require(cgroup_folders(machine.root, "memory"), "no memory cgroup of this process is mounted")
    limit = memory_limit.total_bytes(machine.root)
    return limit if limit < psutil.virtual_memory().total else None


def _distribution(machine: Machine) -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}"
    lines = machine.content("etc/os-release").decode("utf-8", "replace").splitlines()
    values = {key: value.strip("\"' ") for key, _, value in (line.partition("=") for line in lines)}
    return clean(f"{values.get('NAME', '')} {values.get('VERSION_ID', '')}", "/etc/os-release")


# Reader for each fact, by the fact's place in the record.
FACTS: dict[str, Callable[[Machine], Any]] = {
    "hardware.cpu.microarchitecture": _microarchitecture,
    "hardware.cpu.microcode": lambda machine: _common(map(parse_text, machine.cpuinfo("microcode")), "/proc/cpuinfo"),
    "hardware.cpu.smt": _smt,
    "hardware.cpu.governor": _cpufreq_texts("scaling_governor"),
    "hardware.cpu.driver": _cpufreq_texts("scaling_driver"),
    "hardware.cpu.boost": _boost,
    "hardware.cpu.nominal_mhz": _nominal_mhz,
    "hardware.cpu.min_mhz": _cpufreq_mhz("cpuinfo_min_freq", min),
    "hardware.cpu.max_mhz": _cpufreq_mhz("cpuinfo_max_freq", max),
    "hardware.cpu.cpuinfo_mhz": lambda machine: _check_mhz(
        max(parse_decimal(value) or 0.0 for value in machine.cpuinfo("cpu mhz"))
    ),
    "hardware.memory.machine_bytes": lambda _: psutil.virtual_memory().total,
    "hardware.memory.type": lambda machine: _common(_memory_values(machine, "type"), "DMI"),
    "hardware.memory.speed_mt_s": lambda machine: min(_memory_values(machine, "speed")),
    "hardware.memory.modules": lambda machine: len(_memory_values(machine, "size")),
    "hardware.memory.channels": lambda machine: len(set(_memory_values(machine, "channel"))),
    "hardware.numa_nodes": lambda machine: len(machine.matches("sys/devices/system/node/node[0-9]*")),
    "hardware.huge_pages.transparent": lambda machine: machine.search(_PAGES, r"\[([a-z+_-]{1,50})\]"),
    "hardware.huge_pages.reserved": lambda machine: int(machine.number("proc/sys/vm/nr_hugepages")),
    "hardware.huge_pages.size_kb": lambda machine: int(machine.search("proc/meminfo", r"Hugepagesize: *(\d{1,9}) kB")),
    "hardware.clock_source": lambda machine: machine.text(_CLOCK),
    "hardware.hypervisor": _hypervisor,
    "hardware.vendor": lambda machine: machine.text(f"{_DMI}/sys_vendor"),
    "hardware.product": lambda machine: machine.text(f"{_DMI}/product_name"),
    "hardware.instance_type": _instance_type,
    "hardware.limits.cpu_quota": _cpu_quota,
    "hardware.limits.cpus": lambda _: topology.format_cpu_list(topology.allowed_cpus())[:4000],
    "hardware.limits.memory_bytes": _memory_limit,
    "software.distribution": _distribution,
    "software.mitigations": lambda machine: {
        clean(Path(name).name, "a name"): machine.text(name)
        for name in machine.matches(f"{CPUS}/vulnerabilities/*")[:100]
    },
}


def read_facts(machine: Machine) -> tuple[dict[str, Any], dict[str, str]]:
    """Return all readable facts, and the reason for each unreadable fact; both by their place in the record."""
    facts, unreadable = {}, {}
    for place, read in FACTS.items():
        try:
            facts[place] = read(machine)
        except UnreadableError as reason:
            unreadable[place] = parse_text(reason) or "unknown"
        except Exception as fault:  # a kernel's files may have any content
            unreadable[place] = type(fault).__name__
    return facts, unreadable


def add_facts(record: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Put facts into a record, each at its place."""
    for place, value in facts.items():
        *groups, key = place.split(".")
        part = record
        for group in groups:
            part = part.setdefault(group, {})
        part[key] = value


def load_average() -> dict[str, float]:
    """Return the load average over one minute, if the system has one."""
    with suppress(OSError, AttributeError):
        return {"load_1min": round(os.getloadavg()[0], 2)}
    return {}
