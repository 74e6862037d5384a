"""Checks of one NVIDIA GPU through NVML. `Card.library` is pynvml, or its stand-in in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments import nvml
from experiments.doctor.finding import Finding, note, ok, warning

# More memory than a driver keeps for itself.
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
        """The beginning of a command that sets something on this GPU."""
        return "sudo nvidia-smi" + ("" if self.index is None else f" -i {self.index}")


def persistence(card: Card) -> Finding | None:
    """The driver between processes."""
    mode = card.ask("PersistenceMode")
    if mode is None or mode:
        return None if mode is None else ok("persistence", "on")
    why = "The driver is unloaded between processes: the first call of every round pays for it, from a cold clock."
    return note("persistence", "off", why, f"{card.smi} -pm 1")


def clocks(card: Card) -> Finding | None:
    """The clock that somebody has set."""
    sm = card.library.NVML_CLOCK_SM
    given, usual = card.ask("ApplicationsClock", sm), card.ask("DefaultApplicationsClock", sm)
    if given is None:
        return None
    highest = card.ask("MaxClockInfo", sm)
    seen = f"{given} MHz" + (f" of {highest} at most" if highest else "")
    if not usual or given >= usual:
        return ok("clocks", seen)
    seen += f"; the default is {usual}"
    return warning("clocks", seen, "The GPU is held below what it does.", f"{card.smi} -rac")


def power_limit(card: Card) -> Finding | None:
    """A power limit below the default."""
    limit, usual = card.ask("PowerManagementLimit"), card.ask("PowerManagementDefaultLimit")
    if limit is None or not usual:
        return None
    seen = f"{limit / 1000:.0f} W"
    if limit >= usual:
        return ok("power limit", seen)
    seen += f", the default is {usual / 1000:.0f} W"
    why = "Under load the clock falls until the power fits."
    return warning("power limit", seen, why, f"{card.smi} -pl {usual // 1000}")


def throttling(card: Card) -> Finding:
    """Reasons for which the clock is held back now."""
    reasons = nvml.throttle_reasons(card.handle, card.library)
    warmth = card.ask("Temperature", card.library.NVML_TEMPERATURE_GPU)
    seen = ", ".join([*(reasons or ["none"]), *([] if warmth is None else [f"{warmth} °C"])])
    if not reasons:
        return ok("throttling", seen)
    if reasons == ["power limit"]:
        why = "A card at full work runs at its power limit, which is no fault of it; one without work should not."
        return note("throttling", seen, why, "see what else runs on it: nvidia-smi")
    mend = "see to its cooling and its power supply, and to what runs on it (nvidia-smi -q -d PERFORMANCE)"
    return warning("throttling", seen, "The clock is held back before anything is measured.", mend)


def other_processes(card: Card) -> Finding:
    """Other processes on the GPU, by name only."""
    pids = nvml.process_ids(card.handle, card.library) - {os.getpid()}
    names = sorted({_process_name(card.library, pid) for pid in pids})
    use, memory = card.ask("UtilizationRates"), card.ask("MemoryInfo")
    seen = [f"{len(pids)} ({', '.join(names)})" if pids else "none"]
    if memory is not None:
        seen.append(f"{memory.used / 2**30:.1f} of {memory.total / 2**30:.0f} GiB in use")
    if use is not None:
        seen.append(f"{use.gpu}% busy")
    said = ", ".join(seen)
    if pids or (memory is not None and memory.used > max(_SOME_MEMORY, memory.total / 20)) or (use and use.gpu > 5):
        why = "They share its cores, memory and power: times lengthen, and large points are left out."
        return warning("others on it", said, why, "nvidia-smi names them: stop them, or choose another GPU")
    return ok("others on it", said)


def _process_name(library: Any, pid: int) -> str:
    """A process's name without its path; '?' outside this container."""
    return (nvml.ask_text(library, "nvmlSystemGetProcessName", pid) or "?").split("/")[-1].split(" ")[0]


def compute_mode(card: Card) -> Finding | None:
    """Permission to compute on the GPU."""
    mode = card.ask("ComputeMode")
    if mode == card.library.NVML_COMPUTEMODE_PROHIBITED:
        return warning("compute mode", "prohibited", "No process may compute on it.", f"{card.smi} -c DEFAULT")
    return None if mode is None else ok("compute mode", "processes may compute on it")


def mig(card: Card) -> Finding | None:
    """A GPU that is cut into slices."""
    modes = card.ask("MigMode")
    if modes is None or not modes[0]:
        return None if modes is None else ok("MIG", "off")
    why = "torch sees a slice of the GPU: its rates are not those of the card by whose name they are recorded."
    return warning("MIG", "on", why, f"{card.smi} -mig 0")


def link(card: Card) -> Finding | None:
    """The width and speed of the link to the host."""
    width, widest = card.ask("CurrPcieLinkWidth"), card.ask("MaxPcieLinkWidth")
    generation, latest = card.ask("CurrPcieLinkGeneration"), card.ask("MaxPcieLinkGeneration")
    if not width or not widest:
        return None
    seen = f"PCIe {generation} x{width}"
    if width < widest:
        why = "Copies between host and GPU take longer by that factor."
        mend = "seat the card in a slot with all lanes, without a riser, and look at the firmware's lane settings"
        return warning("link", f"{seen}, it could be x{widest}", why, mend)
    if generation and latest and generation < latest:
        why = "An idle GPU lowers it to save power: look again under load."
        return note("link", f"{seen}, it could be PCIe {latest}", why, f"nvidia-smi -i {card.index} -q -d PCIE")
    return ok("link", seen)


_CHECKS = (persistence, clocks, power_limit, throttling, other_processes, compute_mode, mig, link)


def examine_card(card: Card, several: bool) -> list[Finding]:
    """All checks of one GPU; with its number where there are several."""
    named = f"GPU {card.index} " if several and card.index is not None else "GPU "
    # An answer that makes no sense costs its check alone.
    findings = (nvml.try_question(partial(check, card))[0] for check in _CHECKS)
    return [replace(finding, name=named + finding.name) for finding in findings if finding is not None]
