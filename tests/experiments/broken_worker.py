"""A measuring process with experiments that end it, hang, or fail: for tests of what survives them."""

from __future__ import annotations

import os
import signal
import time
from typing import Literal

from experiments import worker
from experiments.devices import Device
from experiments.registry import experiment
from experiments.work import Observed, Threads, Unsupported, Work

How = Literal[
    "right",
    "killed",
    "hangs",
    "raises",
    "no memory",
    "wrong",
    "nan",
    "unsupported",
    "prints",
    "tells its environment",
    "is told",
    "observes three",
    "observes no number",
    "observes a share of two",
]


def broken(device: Device, how: How, index: int, backend: Literal["llvm"], threads: Threads) -> Work:
    """A point that goes wrong in the way that `how` says."""

    def call() -> None:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            time.sleep(3600)
        if how == "raises":
            raise ZeroDivisionError("index out of luck")
        if how == "no memory":
            raise MemoryError
        if how == "prints":
            os.write(1, b"a library's chatter on standard output\n")

    if how == "unsupported":
        raise Unsupported("not on this planet")
    if how in ("tells its environment", "is told"):
        raise Unsupported(" ".join(os.environ))
    if how == "observes a share of two":
        return Work(observe=lambda: {"whole_share": (2.0, "1")})
    if how.startswith("observes"):
        seen = [1.0, 2.0, 4.0] if how == "observes three" else [1.0, float("nan")]

        def observe() -> dict[str, Observed]:
            time.sleep(0.05)
            return {"latency": (seen, "s"), "failed_share": (0.0, "1")}

        return Work(observe=observe)
    error = {"wrong": 0.5, "nan": float("nan")}.get(how, 0.0)
    return Work(run=call, flop=1.0, check=lambda: error, tolerance=0.1)


if __name__ == "__main__":
    # Only in the measuring process: the suite that the tests see is the real one.
    experiment("broken")(broken)
    worker.serve()
