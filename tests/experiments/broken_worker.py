"""Worker process with experiments that kill it, hang or fail, to test that its parent process survives this."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal

from contract.errors import StudyError
from experiments import worker
from experiments.devices import Device
from experiments.devices.cpu import CpuDevice
from experiments.machine_state import Watch
from experiments.registry import experiment
from experiments.workload import Observed, Profile, Threads, Unsupported, Workload

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
    "reports its environment",
    "reports a changed environment",
    "observes three",
    "observes no number",
    "observes a share of two",
]
# How the profile of a point ends, on a stand-in for a GPU.
Profiled = Literal["right", "slow to build", "killed", "raises", "no number", "hangs"]


def _fail(how: str) -> None:
    """Die, hang or raise if `how` asks for it."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        time.sleep(3600)
    if how == "raises":
        raise ZeroDivisionError("index out of luck")


def break_point(device: Device, how: How, index: int, backend: Literal["llvm"], threads: Threads) -> Workload:
    """Build a point that fails as `how` names."""

    def call() -> None:
        _fail(how)
        if how == "no memory":
            raise MemoryError
        if how == "prints":
            os.write(1, b"a library's chatter on standard output\n")

    if how == "unsupported":
        raise Unsupported("not on this planet")
    if how in ("reports its environment", "reports a changed environment"):
        raise Unsupported(" ".join(os.environ))
    if how == "observes a share of two":
        return Workload(observe=lambda: {"whole_share": (2.0, "1")})
    if how.startswith("observes"):
        latencies = [1.0, 2.0, 4.0] if how == "observes three" else [1.0, float("nan")]

        def observe() -> dict[str, Observed]:
            time.sleep(0.05)
            return {"latency": (latencies, "s"), "failed_share": (0.0, "1")}

        return Workload(observe=observe)
    error = {"wrong": 0.5, "nan": float("nan")}.get(how, 0.0)
    return Workload(run=call, flop=1.0, check=lambda: error, tolerance=0.1)


_spoilt: list[str] = []


def spoil_process(device: Device, how: str, index: int, backend: Literal["llvm"], threads: Threads) -> Workload:
    """Build a point whose call fails with the message `how`; then all later points in this process fail too.

    With 'right', the call does not fail.
    """
    if _spoilt:
        raise RuntimeError(f"a point that another one spoilt ({_spoilt[0]})")

    def call() -> None:
        if how != "right":
            _spoilt.append(how)
            raise RuntimeError(how) if how[0] != "!" else Unsupported(how)

    if how == "!capture alone":  # the call works, but its capture in a graph fails
        return Workload(run=lambda: None, graph=True)
    return Workload(run=call)


class SpoilableDevice(CpuDevice):
    """CPU that poses as a GPU without torch. After a point of `spoil_process` has failed, it cannot be opened again."""

    kind = "gpu"

    def open(self) -> None:
        if _spoilt:
            raise StudyError("cpu cannot be used")

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        self.spoilt = True
        _spoilt.append("!capture alone")
        raise Unsupported("cannot be captured in a graph")


_built: list[str] = []


def profile_point(device: Device, how: Profiled, index: int, backend: Literal["llvm"], threads: Threads) -> Workload:
    """Build a point whose profile fails as `how` names, or else gives the number of earlier points in this process."""
    before = len(_built)
    _built.append(how)
    if how == "slow to build":
        time.sleep(0.5)

    def measure() -> dict[str, float]:
        _fail(how)
        cupti = float(os.environ.get("TEARDOWN_CUPTI", 0))
        return {"built_before": math.nan if how == "no number" else before, "cupti_share": cupti}

    return Workload(run=lambda: None, profile=Profile({"built_before": "1", "cupti_share": "1"}, measure))


if __name__ == "__main__":
    # Tests import this module too. Register its experiments only in the worker, not in the processes of the tests.
    experiment("broken")(break_point)
    experiment("profiled")(profile_point)
    experiment("spoiling")(spoil_process)
    if "gpu" in sys.argv:
        worker.open_device = lambda name: SpoilableDevice()
        worker.Watch = lambda name: Watch("cpu")  # type: ignore[assignment, misc]
    worker.serve()
