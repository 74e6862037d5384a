"""Clock, power and temperature of NVIDIA's GPUs, as their driver's own tool logs them beside a run.

It is a second witness of the samples' columns, and keeps the driver loaded between two measuring processes. It computes
nothing on a GPU, so that no sample is flagged for it. As a program: `python workflow/witness.py NVIDIA-SMI PARENT`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

PERIOD_MS = 500
# Seconds that the tool may take to answer once: a driver that is not loaded has to start first.
ASK_S = 20.0
# What holds the clock back has another name in drivers before 535.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def start(log: Path) -> None:
    """Have nvidia-smi write to the end of `log` until this process ends, however that happens; without it, nothing.

    Where the log cannot be written, a note on standard error says so: a run does not need it.
    """
    tool = shutil.which("nvidia-smi")
    # Elsewhere the system does not end a program with the one that started it.
    if tool is None or sys.platform != "linux":
        return
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            words = [sys.executable, __file__, tool, str(os.getpid())]
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    except OSError as refusal:
        print(f"note: {log}: {refusal.strerror}: the run goes on without nvidia-smi's log", file=sys.stderr)


def _query(reasons: str) -> list[str]:
    return [f"--query-gpu=timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,{reasons}", "--format=csv"]


def end_with(parent: int) -> None:
    """End this process with the one of this number, which started it, even if that has ended already."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from contract.ending import end_with_parent

    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def main(tool: str, parent: int) -> None:
    """Become `tool`, which then ends with the process that started this one; else say what it answered."""
    end_with(parent)
    asks = partial(end_with, os.getpid())
    complaint = ""
    for reasons in REASONS:
        order = [tool, *_query(reasons)]
        try:
            # A driver in trouble may never answer.
            subprocess.run(order, capture_output=True, check=True, timeout=ASK_S, preexec_fn=asks)
            os.execv(tool, [*order, f"--loop-ms={PERIOD_MS}"])
        except subprocess.CalledProcessError as failure:
            said = (failure.stdout + failure.stderr).decode("utf-8", "replace").split("\n")[0]
            complaint = said or str(failure)
        except (OSError, subprocess.SubprocessError) as failure:
            complaint = str(failure)
    print(f"error: {tool}: {complaint}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
