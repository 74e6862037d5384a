"""This machine: its name for the adviser, and a measured point from the study."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from report import ROOT
from report.advice.answers import Answer, answer
from report.advice.choices import read_words
from report.advice.jobs import WORK, Job

# This machine's name on the command line.
THIS = "this"


def machine_text(name: str) -> str:
    """Return a machine's name as it is; for THIS, name this machine's GPU or processor."""
    return name if name != THIS else _nvidia_text() or _processor_text()


def _nvidia_text() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        number = pynvml.nvmlDeviceGetCount()
        chip = str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))) if number else ""
    except Exception:
        return ""
    return f"{number}x {chip}" if number > 1 else chip


def _processor_text() -> str:
    import psutil

    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GB"
    cores = f"{psutil.cpu_count(logical=False) or psutil.cpu_count()} cores"
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return f"{subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()} {memory}"
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.is_file() else None
    return f"{match[1] if match else platform.processor()} {cores} {memory}"


@dataclass(frozen=True)
class MeasuredPoint:
    """A point measured here. expected: the adviser's answer to the same job; seconds: measured, for one item."""

    expected: Answer
    seconds: float

    @property
    def is_inside(self) -> bool:
        """Tell whether the measured time lies in the expected range."""
        time = self.expected.time
        return time is not None and time.low <= self.seconds <= time.high

    @property
    def factor(self) -> float:
        """Measured time over the expected middle."""
        return self.seconds / self.expected.time.middle if self.expected.time else float("nan")


def measure_here(kind: str, hardware: str, calibration: Mapping[str, Any]) -> MeasuredPoint:
    """Measure the study's point for a kind on this machine.

    Raises StudyError if the study has no such point, or it could not be measured or predicted.
    """
    points = read_words()["measure"]
    if kind not in points:
        raise StudyError(
            f"advise: the study has no point of two minutes for {kind}; it has some for {', '.join(points)}"
        )
    point = points[kind]
    work = {name: float(point["job"]["work"][name]) if name in point["job"]["work"] else None for name in WORK}
    stated = {name: point["job"].get(name) for name in ("precision", "software")}
    expected = answer(
        Job(id="", kind=kind, hardware=hardware, model=point["job"]["model"], work=work, **stated), calibration
    )
    if expected.time is None:
        raise StudyError(f"advise: the point cannot be predicted: {expected.refused}")
    return MeasuredPoint(expected, _median_seconds(point) / float(point["items"]))


def _median_seconds(point: Mapping[str, Any]) -> float:
    import pandas as pd

    sweep = [{"value": 1, "cases": [point["params"]], "grid": {"threads": ["all"]}}]
    preset = {
        "rounds": 1,
        "point_s": 3,
        "target": 0.05,
        "round_s": 600,
        "max_samples": 30,
        "experiments": {point["experiment"]: {"sweep": sweep}},
    }
    with tempfile.TemporaryDirectory() as folder:
        settings, out, log = (Path(folder) / name for name in ("point.yaml", "samples.parquet", "log"))
        settings.write_text(json.dumps(preset), encoding="utf-8")
        command = [sys.executable, "-m", "experiments", "run", point["experiment"]]
        files = ["--preset", str(settings), "--out", str(out), "--log", str(log)]
        finished = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
        if finished.returncode or not out.is_file():
            last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
            raise StudyError(f"advise: the point was not measured: {last}")
        samples = pd.read_parquet(out)
    times = samples[(samples["metric"] == "time") & (samples["status"] == "ok")]["value"]
    if times.empty:
        raise StudyError(f"advise: the point was not measured: {samples['reason'].iloc[0]}")
    return float(times.median())
