"""Clock, power and temperature of NVIDIA's GPUs, as their driver's own tool logs them beside a run.

It is a second witness of the samples' columns, and keeps the driver loaded between two measuring processes. It computes
nothing on a GPU, so that no sample is flagged for it.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from contract import child_processes

PERIOD_MS = 500
# The reason for a lower clock has another name in drivers before 535.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def start(log: Path) -> None:
    """Have nvidia-smi write to the end of `log` until this process ends, however that happens; without it, nothing.

    Where the log cannot be written, a note on standard error says so: a run does not need it.
    """
    tool = shutil.which("nvidia-smi")
    # Elsewhere the system does not end a program with the one that started it.
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
