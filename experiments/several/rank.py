"""One rank of data-parallel training, started by torchrun: checks that the ranks agree, then times its steps.

Its order is a JSON object, its only argument: model, batch (samples of one rank), dtype,
devices (a name for each rank), threads, interconnect, and the folder of the job. The answer
is a line of JSON on standard output: rank 0's {error, step_time, step_time_alone}, or
{failed, reason} of a rank that cannot go on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from contract.errors import StudyError
from experiments.errors import is_out_of_memory
from experiments.work import Unsupported


def main() -> int:
    """Do what the order says; returns the exit code."""
    order = json.loads(sys.argv[1])
    # Libraries print to descriptor 1 as they like.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_launcher, args=(order["folder"],), daemon=True).start()
    try:
        found = _measured(order)
    except Exception as error:
        traceback.print_exc()
        found = {"failed": _kind(error), "reason": f"{(str(error).splitlines() or [type(error).__name__])[0]}"}
    if os.environ["RANK"] == "0" or "failed" in found:
        answers.write(json.dumps(found, allow_nan=False) + "\n")
        answers.flush()
    return int("failed" in found)


def _end_with_launcher(folder: str) -> None:
    """Wait until the pipe on standard input is closed by the end of the process that holds it; then end."""
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _kind(error: Exception) -> str:
    if isinstance(error, Unsupported | StudyError):
        return "unsupported"
    return "oom" if is_out_of_memory(error) else "failed"


def _measured(order: Mapping[str, Any]) -> dict[str, Any]:
    import torch.distributed as dist

    from experiments.devices import open_device
    from experiments.several.replica import Replica
    from experiments.work import Dtype

    rank = int(os.environ["RANK"])
    device = open_device(order["devices"][rank])
    device.set_threads(order["threads"])
    dist.init_process_group(order["interconnect"])
    try:
        replica = Replica(device, order["model"], order["batch"], Dtype(order["dtype"]))
        error = replica.error()
        together, alone, spread = replica.times()
        # Different weights are wrong by as much as they differ, whatever one process would have got.
        return {"error": max(error, spread), "step_time": together, "step_time_alone": alone}
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
