"""The processes that measure: started when they are needed, and again after they died."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from contract import running_time
from contract.files import acquire_lock, remove_leftovers
from experiments import worker_environment
from experiments.children import Child, ChildError
from experiments.jobs import HANG_S
from experiments.user_models import FILES

# -u: a line that waits in a buffer would look like a hang.
COMMAND = (sys.executable, "-u", "-m", "experiments.worker")
# A process that is not ready by then never will be: torch alone can take a minute from a slow disk.
START_LIMIT_S = 300.0


class Workers:
    """The children that measure: one for each environment that some point asks for, each idle while another works."""

    def __init__(self, command: Sequence[str], log: Path | None, meanwhile: Callable[[], object]) -> None:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        self._command, self._log, self._meanwhile = command, log, meanwhile
        self._all: dict[tuple[tuple[str, str], ...], Worker] = {}

    def get_worker(self, device: str, asked: Mapping[str, str]) -> Worker:
        """The child whose environment has the variables that a device needs, and those that a point asks for."""
        variables = worker_environment.device_variables(device) | dict(asked)
        key = tuple(sorted(variables.items()))
        if key not in self._all:
            self._all[key] = Worker(self._command, self._log, variables, self._meanwhile)
        return self._all[key]

    def are_stopped(self) -> bool:
        """True if a child that is at work has been stopped by a signal."""
        return any(worker.is_stopped() for worker in list(self._all.values()))

    @property
    def environments(self) -> list[dict[str, str]]:
        """The variables of each child that was asked for, without folders of the user's own."""
        return [{name: value for name, value in key if name != FILES} for key in self._all]

    def stop(self) -> int:
        """End all children; returns how many were started."""
        for worker in self._all.values():
            worker.stop()
        return sum(worker.started for worker in self._all.values())


class Worker:
    """The child that measures, started when needed and again after it died."""

    def __init__(
        self, command: Sequence[str], log: Path | None, variables: Mapping[str, str], meanwhile: Callable[[], object]
    ) -> None:
        self.started = 0
        self._command, self._meanwhile = list(command), meanwhile
        self._log, self._variables = log, variables
        self._child: Child | None = None
        self._scratch: Scratch | None = None
        self._at_work = False

    def measure(self, order: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The child's answer; an outcome if it dies over this point, or gives no answer within the limit."""
        if self._child is None:
            ready = self.start(order)
            if "status" in ready:
                return ready
        return self._answer(order, limit_s)

    def start(self, order: dict[str, Any], limit_s: float = START_LIMIT_S) -> dict[str, Any]:
        """Start the child and wait until all that this order needs is loaded: {ready: true}, or an outcome.

        `meanwhile` is called now, so that nothing of it runs beside a measurement.
        """
        self.started += 1
        self._remove_scratch()
        self._scratch = Scratch()
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("ab")) if self._log else None
            self._child = Child("measuring process", self._command, {**self._scratch.variables, **self._variables}, log)
        return self._answer({**order, "prepare": True}, limit_s, self._meanwhile)

    def _answer(
        self, order: dict[str, Any], limit_s: float, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        assert self._child is not None
        try:
            self._child.send(order)
            self._at_work = True
            meanwhile()
            answer = self._child.answer(limit_s)
        except ChildError as fault:
            self.stop()
            return {"status": fault.status, "reason": str(fault)}
        finally:
            self._at_work = False
        if answer.get("last"):
            self.stop()
        return answer

    def is_stopped(self) -> bool:
        """True if the child has something to do, and a signal keeps it from that."""
        child = self._child
        with contextlib.suppress(psutil.Error):
            return self._at_work and child is not None and psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        return False

    @property
    def is_alive(self) -> bool:
        """True if there is a child that has not ended."""
        return self._child is not None and self._child.alive

    def stop(self) -> None:
        """End the child, whatever it does, and remove the files that it has left."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


class Scratch:
    """A folder for temporary files of a process that is killed once it has measured: gigabytes of models, say.

    A folder whose parent was killed as well is removed by the next: nobody holds its lock.
    """

    PREFIX = "study-scratch-"

    def __init__(self) -> None:
        common = Path(tempfile.gettempdir())
        locks = common.glob(f"{self.PREFIX}*/lock")
        remove_leftovers(locks, lambda lock: shutil.rmtree(lock.parent, ignore_errors=True))
        self.path = Path(tempfile.mkdtemp(prefix=self.PREFIX))
        self._lock = acquire_lock(self.path / "lock")
        # Kernels that inductor compiled are found again by the next process.
        kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(common / f"torchinductor-{os.getuid()}")
        self.variables = {"TMPDIR": str(self.path), "TORCHINDUCTOR_CACHE_DIR": kept}

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def unreadable_answer(fault: Exception) -> dict[str, Any]:
    """The outcome of a point without an answer, or with an answer that rows cannot be made of."""
    return {"status": "failed", "reason": f"no answer that could be read ({type(fault).__name__}: {fault})"}


def measure_start_s(
    device: str,
    backend: str = "torch",
    command: Sequence[str] = COMMAND,
    then: Callable[[Worker], object] | None = None,
) -> float | None:
    """Seconds until a process that measures on `device` by a library is ready; None if it does not get there.

    then: what to ask of it besides.
    """
    # Its parent loads meanwhile the library that writes rows, and that may take longer.
    words = [sys.executable, "-c", "import contract.sample_table"]
    variables = worker_environment.device_variables(device)
    worker = Worker(command, None, variables, lambda: subprocess.run(words, check=False, stderr=subprocess.DEVNULL))
    with running_time.RunningTime(waits_for=worker.is_stopped) as clock:
        begun = clock.now()
        try:
            ready = worker.start({"device": device, "experiment": "", "params": {"backend": backend, "threads": 1}})
            seconds = clock.now() - begun
            if "ready" not in ready:
                return None
            if then:
                then(worker)
            return seconds
        finally:
            worker.stop()


def measure_core_flops(worker: Worker) -> dict[str, float]:
    """FLOP/s of a core in a product, from a moment of each: by format with PyTorch, and `python`, of a plain loop.

    Without those that give no result.
    """
    found = {}
    for name, dtype, backend, m, n in (
        ("float32", "float32", "torch", 512, 512),
        ("float64", "float64", "torch", 512, 512),
        ("bfloat16", "bfloat16", "torch", 512, 512),
        ("python", "float64", "python", 4, 256),
    ):
        order = {
            "experiment": "gemm", "device": "cpu",
            "params": {"m": m, "n": n, "k": n, "dtype": dtype, "backend": backend, "threads": 1},
            "policy": {"target": 0.1, "budget_s": 0.5, "max_samples": 6},
        }  # fmt: skip
        answer = worker.measure(order, HANG_S)
        if answer["status"] == "ok":
            found[name] = 2.0 * m * n * n / statistics.median(answer["parts"][0]["series"][0]["values"])
    return found
