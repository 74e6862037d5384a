"""`doctor`: tell what on this machine will spoil results, why, and how to mend it. It changes nothing itself."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from contract.errors import StudyError
from experiments.doctor import cuda_checks, library_checks, machine_checks, plan_checks
from experiments.doctor.finding import Finding, Level, findings_json, format_findings, note

ROOT = Path("/")


def examine(device: str | None = None, results: Path = Path("results"), root: Path = ROOT) -> list[Finding]:
    """All checks, of all devices or of one; the CPU feeds any GPU.

    Takes a few seconds, one of them to watch what others do. Raises StudyError for a device of another form.
    """
    if device is not None and not re.fullmatch(r"cpu|mps|(cuda|xpu):\d+", device):
        raise StudyError(f"--device {device}: not a device. Devices are named cpu, cuda:0, cuda:1, …, xpu:0, mps")
    # The machine first: loading libraries keeps cores busy.
    found = [
        *machine_checks.examine(root, results),
        plan_checks.predictions(results),
        plan_checks.server_load(results),
        *library_checks.examine(),
    ]
    if device is None or device.startswith("cuda"):
        found += cuda_checks.examine(root, device)
    elif device != "cpu":
        found.append(note(device, "not NVIDIA's", "Its state is neither checked nor recorded."))
    if platform.system() != "Linux":
        why = "It does not show clock, quotas, pressure or heat as Linux does: those checks are left out."
        found.append(note("system", platform.system(), why))
    return [finding for finding in found if finding is not None]


__all__ = ["Finding", "Level", "examine", "findings_json", "format_findings"]
