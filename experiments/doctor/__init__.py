"""`doctor`: report problems on this machine that affect results, with reasons and fixes. `doctor` changes nothing."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from contract.errors import StudyError
from experiments.doctor import cuda_checks, library_checks, machine_checks, plan_checks
from experiments.doctor.finding import Finding, Level, findings_json, format_findings, note

ROOT = Path("/")


def examine(device: str | None = None, results: Path = Path("results"), root: Path = ROOT) -> list[Finding]:
    """Run all checks, for all devices or for one; the machine and its CPU are always checked.

    The checks take a few seconds; during one of these seconds, `doctor` only observes how much CPU time other
    processes use. Raises StudyError for an invalid device name.
    """
    if device is not None and not re.fullmatch(r"cpu|mps|(cuda|xpu):\d+", device):
        raise StudyError(f"--device {device}: not a device name. Use cpu, cuda:0, cuda:1, …, xpu:0, mps")
    # Check the machine first: the other checks import libraries, and the imports would make the machine look busy.
    findings = [
        *machine_checks.examine(root, results),
        plan_checks.predictions(results),
        plan_checks.server_load(results),
        *library_checks.examine(),
    ]
    if device is None or device.startswith("cuda"):
        findings += cuda_checks.examine(root, device)
    elif device != "cpu":
        findings.append(note(device, "not an NVIDIA GPU", "Its state is neither checked nor recorded."))
    if platform.system() != "Linux":
        why = "It does not report clock, quotas, pressure or heat as Linux does: these checks are skipped."
        findings.append(note("system", platform.system(), why))
    return [finding for finding in findings if finding is not None]


__all__ = ["Finding", "Level", "examine", "findings_json", "format_findings"]
