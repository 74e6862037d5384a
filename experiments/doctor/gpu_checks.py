"""Check one NVIDIA GPU through NVML. `Card.library` is pynvml, or a fake in tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments import nvml
from experiments.doctor.finding import Finding, note, ok, warning

# The driver itself uses some GPU memory, so up to this many bytes in use do not indicate another process.
_SOME_MEMORY = 2**30


@dataclass(frozen=True)
class Card:
    """One GPU. index: its NVML index; None for a MIG slice."""

    index: int | None
    handle: Any
    library: Any

    def ask(self, question: str, *arguments: Any) -> Any:
        """Call `nvmlDeviceGet<question>` for this GPU; None if the call fails."""
        return nvml.ask(self.library, f"nvmlDeviceGet{question}", self.handle, *arguments)

    @property
    def smi(self) -> str:
        """Command prefix to change this GPU's settings."""
        return "sudo nvidia-smi" + ("" if self.index is None else f" -i {self.index}")


def persistence(card: Card) -> Finding | None:
    mode = card.ask("PersistenceMode")
    if mode is None or mode:
        return None if mode is None else ok("persistence", "on")
    why = "The driver is unloaded between processes: each round's first call reloads it, at an idle clock."
    return note("persistence", "off", why, f"{card.smi} -pm 1")


def clocks(card: Card) -> Finding | None:
    sm = card.library.NVML_CLOCK_SM
    clock, usual = card.ask("ApplicationsClock", sm), card.ask("DefaultApplicationsClock", sm)
    if clock is None:
        return None
    highest = card.ask("MaxClockInfo", sm)
    seen = f"{clock} MHz" + (f" of {highest} at most" if highest else "")
    if not usual or clock >= usual:
        return ok("clocks", seen)
    seen += f"; the default is {usual}"
    return warning("clocks", seen, "The GPU is limited to less than its default clock.", f"{card.smi} -rac")


def power_limit(card: Card) -> Finding | None:
    """Check that the power limit is not below its default."""
    limit, usual = card.ask("PowerManagementLimit"), card.ask("PowerManagementDefaultLimit")
    if limit is None or not usual:
        return None
    seen = f"{limit / 1000:.0f} W"
    if limit >= usual:
        return ok("power limit", seen)
    seen += f", the default is {usual / 1000:.0f} W"
    why = "Under load the clock falls until the power is within the limit."
    return warning("power limit", seen, why, f"{card.smi} -pl {usual // 1000}")


def throttling(card: Card) -> Finding:
    reasons = nvml.throttle_reasons(card.handle, card.library)
    warmth = card.ask("Temperature", card.library.NVML_TEMPERATURE_GPU)
    seen = ", ".join([*(reasons or ["none"]), *([] if warmth is None else [f"{warmth} °C"])])
    if not reasons:
        return ok("throttling", seen)
    if reasons == ["power limit"]:
        why = "A GPU at full load runs at its power limit, which is normal; an idle one should not."
        return note("throttling", seen, why, "nvidia-smi lists the processes that use it")
    mend = "check its cooling, power supply and other processes (nvidia-smi -q -d PERFORMANCE)"
    return warning("throttling", seen, "The clock is already reduced before measuring.", mend)


def other_processes(card: Card) -> Finding:
    """Check for other processes on the GPU; report their number and names, but no command lines."""
    pids = nvml.process_ids(card.handle, card.library) - {os.getpid()}
    names = sorted({_process_name(card.library, pid) for pid in pids})
    use, memory = card.ask("UtilizationRates"), card.ask("MemoryInfo")
    seen = [f"{len(pids)} ({', '.join(names)})" if pids else "none"]
    if memory is not None:
        seen.append(f"{memory.used / 2**30:.1f} of {memory.total / 2**30:.0f} GiB in use")
    if use is not None:
        seen.append(f"{use.gpu}% busy")
    summary = ", ".join(seen)
    if pids or (memory is not None and memory.used > max(_SOME_MEMORY, memory.total / 20)) or (use and use.gpu > 5):
        why = "They share its cores, memory and power: times get longer, and large points are skipped."
        return warning("other processes", summary, why, "nvidia-smi lists them: stop them, or choose another GPU")
    return ok("other processes", summary)


def _process_name(library: Any, pid: int) -> str:
    """Return a process's name without its path; '?' if the process runs outside this container."""
    return (nvml.ask_text(library, "nvmlSystemGetProcessName", pid) or "?").split("/")[-1].split(" ")[0]


def compute_mode(card: Card) -> Finding | None:
    mode = card.ask("ComputeMode")
    if mode == card.library.NVML_COMPUTEMODE_PROHIBITED:
        return warning("compute mode", "prohibited", "No process can compute on it.", f"{card.smi} -c DEFAULT")
    return None if mode is None else ok("compute mode", "allows computing")


def mig(card: Card) -> Finding | None:
    modes = card.ask("MigMode")
    if modes is None or not modes[0]:
        return None if modes is None else ok("MIG", "off")
    why = "torch sees only a slice: the rates are recorded under the whole card's name, but are lower."
    return warning("MIG", "on", why, f"{card.smi} -mig 0")


def link(card: Card) -> Finding | None:
    width, widest = card.ask("CurrPcieLinkWidth"), card.ask("MaxPcieLinkWidth")
    generation, latest = card.ask("CurrPcieLinkGeneration"), card.ask("MaxPcieLinkGeneration")
    if not width or not widest:
        return None
    seen = f"PCIe {generation} x{width}"
    if width < widest:
        why = "Copies between host and GPU are slower by that factor."
        mend = "use a slot with all lanes, without a riser, and check the lane settings in the firmware"
        return warning("link", f"{seen}, it could be x{widest}", why, mend)
    if generation and latest and generation < latest:
        why = "An idle GPU lowers it to save power: check again under load."
        return note("link", f"{seen}, it could be PCIe {latest}", why, f"nvidia-smi -i {card.index} -q -d PCIE")
    return ok("link", seen)


_CHECKS = (persistence, clocks, power_limit, throttling, other_processes, compute_mode, mig, link)


def examine_card(card: Card, several: bool) -> list[Finding]:
    """Run all checks for one GPU.

    several: True if the machine has several GPUs; the findings' names then contain the GPU's index.
    """
    prefix = f"GPU {card.index} " if several and card.index is not None else "GPU "
    # If an invalid answer from NVML makes a check raise an error, skip only that check.
    findings = (nvml.try_question(partial(check, card))[0] for check in _CHECKS)
    return [replace(finding, name=prefix + finding.name) for finding in findings if finding is not None]
