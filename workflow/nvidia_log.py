"""Log clock, power and temperature of NVIDIA GPUs with nvidia-smi during a run.

The log cross-checks the sample columns, and keeps the driver loaded between measuring processes. nvidia-smi computes
nothing on the GPU, so it causes no flags.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from contract import child_processes

PERIOD_MS = 500
# Field name for throttle reasons, and its name in drivers before 535.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def start_log(log: Path) -> None:
    """Append nvidia-smi's output to `log` until this process ends; do nothing without nvidia-smi.

    Prints a note to standard error if the log cannot be written, since the log is optional.
    """
    tool = shutil.which("nvidia-smi")
    # Only Linux can end the program with its parent.
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
