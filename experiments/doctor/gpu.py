"""Checks of one NVIDIA GPU through NVML. `Card.library` is pynvml, or what stands in for it in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments import nvml
from experiments.doctor.finding import Finding, note, ok, warning

# Memory that a driver keeps for itself, and more.
_SOME_MEMORY = 2**30


@dataclass(frozen=True)
class Card:
    """One GPU and how to ask it. index: its number in NVML; None of a slice (MIG)."""

    index: int | None
    handle: Any
    library: Any

    def ask(self, question: str, *words: Any) -> Any:
        """The answer to NVML's `nvmlDeviceGet<question>`; None where there is none."""
        return nvml.ask(self.library, f"nvmlDeviceGet{question}", self.handle, *words)

    @property
    def smi(self) -> str:
        """How a command that sets something on this GPU begins."""
        return "sudo nvidia-smi" + ("" if self.index is None else f" -i {self.index}")


def persistence(card: Card) -> Finding | None:
    """Whether the driver stays loaded between processes."""
    mode = card.ask("PersistenceMode")
    if mode is None:
        return None
    if mode:
        return ok("persistence", "on")
    why = "The driver is unloaded between processes: the first call of every round pays for it, from a cold clock."
    return note("persistence", "off", why, f"{card.smi} -pm 1")


def ecc(card: Card) -> Finding | None:
    """Whether memory is checked."""
    modes = card.ask("EccMode")
    if modes is None:
        return None
    current, pending = modes
    seen = "on" if current else "off"
    if current != pending:
        return note("ECC", f"{seen}, and changes at the next reboot", "It takes some of the memory bandwidth on GDDR.")
    return ok("ECC", seen)


def clocks(card: Card) -> Finding | None:
    """Whether somebody has set the clock below its highest."""
    sm = card.library.NVML_CLOCK_SM
    given, usual = card.ask("ApplicationsClock", sm), card.ask("DefaultApplicationsClock", sm)
    if given is None:
        return None
    highest = card.ask("MaxClockInfo", sm)
    seen = f"{given} MHz" + (f" of {highest} at most" if highest else "")
    if usual and given < usual:
        return warning(
            "clocks", f"{seen}; the default is {usual}", "The GPU is held below what it does.", f"{card.smi} -rac"
        )
    return ok("clocks", seen)


def power_limit(card: Card) -> Finding | None:
    """Whether the power limit was lowered."""
    limit, usual = card.ask("PowerManagementLimit"), card.ask("PowerManagementDefaultLimit")
    if limit is None or not usual:
        return None
    seen = f"{limit / 1000:.0f} W"
    if limit < usual:
        return warning(
            "power limit",
            f"{seen}, the default is {usual / 1000:.0f} W",
            "Under load the clock falls until the power fits.",
            f"{card.smi} -pl {usual // 1000}",
        )
    return ok("power limit", seen)


def throttled(card: Card) -> Finding:
    """Whether the clock is held back now."""
    reasons = nvml.throttling(card.handle, card.library)
    warmth = card.ask("Temperature", card.library.NVML_TEMPERATURE_GPU)
    seen = f"{warmth} °C" if warmth is not None else ""
    if not reasons:
        return ok("throttling", ", ".join(filter(None, ["none", seen])))
    if reasons == ["power limit"]:
        why = "A card at full work runs at its power limit, which is no fault of it; one without work should not."
        return note(
            "throttling", ", ".join(filter(None, [*reasons, seen])), why, "see what else runs on it: nvidia-smi"
        )
    return warning(
        "throttling",
        ", ".join(filter(None, [*reasons, seen])),
        "The clock is held back before anything is measured.",
        "see to its cooling and its power supply, and to what runs on it (nvidia-smi -q -d PERFORMANCE)",
    )


def others(card: Card) -> Finding:
    """Whether other processes use the GPU, by name only."""
    pids = nvml.processes(card.handle, card.library) - {os.getpid()}
    names = sorted({_name(card.library, pid) for pid in pids})
    use, memory = card.ask("UtilizationRates"), card.ask("MemoryInfo")
    seen = [f"{len(pids)} ({', '.join(names)})" if pids else "none"]
    if memory is not None:
        seen.append(f"{memory.used / 2**30:.1f} of {memory.total / 2**30:.0f} GiB in use")
    if use is not None:
        seen.append(f"{use.gpu}% busy")
    said = ", ".join(seen)
    if pids or (memory is not None and memory.used > max(_SOME_MEMORY, memory.total / 20)) or (use and use.gpu > 5):
        return warning(
            "others on it",
            said,
            "They share its cores, memory and power: times lengthen, and large points are left out.",
            "nvidia-smi names them: stop them, or choose another GPU",
        )
    return ok("others on it", said)


def _name(library: Any, pid: int) -> str:
    """A process's name without its path; '?' outside the container that we are in."""
    return (nvml.ask_text(library, "nvmlSystemGetProcessName", pid) or "?").split("/")[-1].split(" ")[0]


def compute_mode(card: Card) -> Finding | None:
    """Whether processes may use the GPU, and how many."""
    mode = card.ask("ComputeMode")
    if mode is None:
        return None
    if mode == card.library.NVML_COMPUTEMODE_PROHIBITED:
        return warning("compute mode", "prohibited", "No process may compute on it.", f"{card.smi} -c DEFAULT")
    if mode == card.library.NVML_COMPUTEMODE_DEFAULT:
        return ok("compute mode", "default")
    return ok("compute mode", "one process at a time")


def mig(card: Card) -> Finding | None:
    """Whether the GPU is cut into slices."""
    modes = card.ask("MigMode")
    if modes is None:
        return None
    if not modes[0]:
        return ok("MIG", "off")
    return warning(
        "MIG",
        "on",
        "torch sees a slice of the GPU: its rates are not those of the card by whose name they are recorded.",
        f"{card.smi} -mig 0",
    )


def link(card: Card) -> Finding | None:
    """Whether the link to the host is as wide and as fast as it could be."""
    width, widest = card.ask("CurrPcieLinkWidth"), card.ask("MaxPcieLinkWidth")
    generation, latest = card.ask("CurrPcieLinkGeneration"), card.ask("MaxPcieLinkGeneration")
    if not width or not widest:
        return None
    seen = f"PCIe {generation} x{width}"
    if width < widest:
        return warning(
            "link",
            f"{seen}, it could be x{widest}",
            "Copies between host and GPU take longer by that factor.",
            "seat the card in a slot with all lanes, without a riser, and look at the firmware's lane settings",
        )
    if generation and latest and generation < latest:
        why = "An idle GPU lowers it to save power: look again under load."
        return note("link", f"{seen}, it could be PCIe {latest}", why, f"nvidia-smi -i {card.index} -q -d PCIE")
    return ok("link", seen)


_CHECKS = (persistence, ecc, clocks, power_limit, throttled, others, compute_mode, mig, link)


def of_card(card: Card, several: bool) -> list[Finding]:
    """All checks of one GPU; with its number where there are several."""
    named = f"GPU {card.index} " if several and card.index is not None else "GPU "
    # An answer that makes no sense costs its check alone.
    findings = (nvml.try_question(partial(check, card))[0] for check in _CHECKS)
    found = [finding for finding in findings if finding is not None]
    return [Finding(named + one.name, one.level, one.seen, one.why, one.mend) for one in found]
