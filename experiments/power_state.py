"""Read the states that lower a processor's clock: battery power, a mode that saves power, and heat."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

import psutil

from contract.cgroups import ROOT, read_number
from contract.sample_flags import Flag
from experiments.lscpu import read_output
from experiments.processor import Ask
from experiments.topology import CPUS, read_text

# SAVING_PROFILES: profiles of the firmware that save power (the kernel's sysfs-platform_profile).
# SAVING_PREFERENCES: settings of cpufreq that prefer power to speed (energy_performance_preference).
SAVING_PROFILES, SAVING_PREFERENCES = ("low-power", "quiet", "cool"), ("power", "balance_power")
# The scheme "Power saver" of Windows (powercfg /aliases, SCHEME_MAX).
_POWER_SAVER = b"a1841308-3541-4fab-bc81-f71556f20b4a"


def is_plugged_in() -> bool | None:
    """Tell if the machine has mains power; None if it has no battery, or does not tell."""
    state = getattr(psutil, "sensors_battery", lambda: None)()
    return state.power_plugged if state else None


def power_profile(root: Path = ROOT) -> str:
    """Return the firmware's profile, or else the cores' preference for power or speed; '' if the kernel has neither."""
    preferences = {read_text(path / "energy_performance_preference") for path in _cpufreq_folders(root)}
    saving = [preference for preference in SAVING_PREFERENCES if preference in preferences]
    profile = read_text(root / "sys/firmware/acpi/platform_profile")
    return saving[0] if saving and profile not in SAVING_PROFILES else profile


def saves_power(profile: str) -> bool:
    """Tell if a name from `power_profile` or `desktop_profile` limits clock and power."""
    return profile in (*SAVING_PROFILES, *SAVING_PREFERENCES)


def desktop_profile(root: Path = ROOT, ask: Ask = read_output, system: str | None = None) -> str:
    """Return "low-power" if macOS or Windows (also around WSL2) saves power, else ''. Starts a program there."""
    system = system or platform.system()
    if system == "Darwin":
        return "low-power" if re.search(rb"^\s*lowpowermode\s+1\b", ask("pmset", "-g"), re.MULTILINE) else ""
    if system == "Windows" or "microsoft" in read_text(root / "proc/sys/kernel/osrelease").lower():
        return "low-power" if _POWER_SAVER in ask("powercfg.exe", "/getactivescheme").lower() else ""
    return ""


def speed_limit(ask: Ask = read_output, system: str | None = None) -> float:
    """Return the share of its speed to which heat limits the processor, according to macOS; 1 elsewhere."""
    if (system or platform.system()) != "Darwin":
        return 1.0
    limit = re.search(rb"CPU_Speed_Limit\s*=\s*(\d{1,3})\b", ask("pmset", "-g", "therm"))
    return int(limit[1]) / 100 if limit else 1.0


def is_cooled_by_clock(root: Path = ROOT) -> bool:
    """Tell if the kernel lowers the processor's clock now, because a thermal zone is too hot."""
    return any(read_number(path / "cur_state") for path in _cooling_devices(root))


def power_flags(root: Path = ROOT) -> list[Flag]:
    """Return a flag for each state that lowers the processor's clock now."""
    reasons = {
        "battery power": is_plugged_in() is False,
        "saving of power": saves_power(power_profile(root)),
        "heat": is_cooled_by_clock(root),
    }
    return [Flag("throttled", reason) for reason, holds in reasons.items() if holds]


@cache
def _cpufreq_folders(root: Path) -> tuple[Path, ...]:
    """List a cpufreq folder for each setting that cores share: the first and the last, of hybrid processors too."""
    folders = sorted(
        (root / CPUS).glob("cpu[0-9]*/cpufreq"), key=lambda path: int(path.parent.name.removeprefix("cpu"))
    )
    return tuple(dict.fromkeys([*folders[:1], *folders[-1:]]))


@cache
def _cooling_devices(root: Path) -> tuple[Path, ...]:
    """List the kernel's means to cool a processor by a lower clock."""
    return tuple(
        path
        for path in sorted((root / "sys/class/thermal").glob("cooling_device*"))
        if re.match(r"Processor$|(thermal-)?cpufreq", read_text(path / "type"))
    )
