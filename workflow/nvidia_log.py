"""Use nvidia-smi to log the clock, power and temperature of NVIDIA GPUs during a run.

The log is a second source for the clock, power and temperature in the samples. While nvidia-smi runs, the driver stays
loaded between measuring processes. nvidia-smi computes nothing on the GPU, so it causes no flags on samples.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from contract import child_processes

PERIOD_MS = 500
# Names of the field with the throttling reasons: the current name, and the name in drivers before version 535.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def start_log(log: Path) -> None:
    """Append nvidia-smi's output to `log` until this process ends.

    Does nothing without nvidia-smi or on systems other than Linux. The log is optional: if it cannot be written, only a
    note is printed to standard error.
    """
    tool = shutil.which("nvidia-smi")
    # Only Linux can end nvidia-smi when this process ends.
    if tool is None or sys.platform != "linux":
        return
    fields = "timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu"
    orders = [
        shlex.join([tool, f"--query-gpu={fields},{reasons}", "--format=csv", f"--loop-ms={PERIOD_MS}"])
        for reasons in REASONS
    ]
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            words = [sys.executable, child_processes.__file__, "sh", "-c", " || ".join(orders)]
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    except OSError as refusal:
        print(f"note: {log}: {refusal.strerror}: the run goes on without nvidia-smi's log", file=sys.stderr)
