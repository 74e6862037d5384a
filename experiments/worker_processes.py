"""Start measuring processes on demand, and restart them after a crash."""

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

# The option -u turns off buffering, since a buffered line would look like a hang.
COMMAND = (sys.executable, "-u", "-m", "experiments.worker")
# Timeout in seconds for a start. It is long, since torch alone can take a minute to load from a slow disk.
START_LIMIT_S = 300.0


class Workers:
    """Measuring processes, one per environment; only one works at a time."""

    def __init__(self, command: Sequence[str], log: Path | None, meanwhile: Callable[[], object]) -> None:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        self._command, self._log, self._meanwhile = command, log, meanwhile
        self._all: dict[tuple[tuple[str, str], ...], Worker] = {}

    def get_worker(self, device: str, environment: Mapping[str, str]) -> Worker:
        """Return the worker for a device and a point's environment variables; create the worker if needed."""
        variables = worker_environment.device_variables(device) | dict(environment)
        key = tuple(sorted(variables.items()))
        if key not in self._all:
            self._all[key] = Worker(self._command, self._log, variables, self._meanwhile)
        return self._all[key]

    def are_stopped(self) -> bool:
        """True if a signal (such as SIGSTOP) has stopped a measuring process that is handling an order."""
        return any(worker.is_stopped() for worker in list(self._all.values()))

    @property
    def environments(self) -> list[dict[str, str]]:
        """Each worker's environment variables, except FILES, which contains the user's file paths."""
        return [{name: value for name, value in key if name != FILES} for key in self._all]

    def stop(self) -> int:
        """Stop all workers; return the number of processes started."""
        for worker in self._all.values():
            worker.stop()
        return sum(worker.started for worker in self._all.values())


class Worker:
    """One measuring process, started on demand and restarted after a crash."""

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
        """Measure a point; return the child's answer, or an outcome after a crash or a timeout."""
        if self._child is None:
            answer = self.start(order)
            if "status" in answer:
                return answer
        return self._answer(order, limit_s)

    def start(self, order: dict[str, Any], limit_s: float = START_LIMIT_S) -> dict[str, Any]:
        """Start the child and load what the order needs; return {ready: true} or an outcome.

        `meanwhile` is called during the start, so that its work does not disturb a measurement.
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
        """True if a signal (such as SIGSTOP) has stopped the child while it was handling an order."""
        child = self._child
        with contextlib.suppress(psutil.Error):
            return self._at_work and child is not None and psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        return False

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.is_alive

    def stop(self) -> None:
        """Kill the child and remove its temporary files."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


class Scratch:
    """A folder for a measuring process's temporary files (gigabytes for some models).

    The parent removes the folder, since the measuring process is killed and cannot. If the parent is killed too, the
    next `Scratch` finds the folder's lock free and removes the folder.
    """

    PREFIX = "study-scratch-"

    def __init__(self) -> None:
        common = Path(tempfile.gettempdir())
        locks = common.glob(f"{self.PREFIX}*/lock")
        remove_leftovers(locks, lambda lock: shutil.rmtree(lock.parent, ignore_errors=True))
        self.path = Path(tempfile.mkdtemp(prefix=self.PREFIX))
        self._lock = acquire_lock(self.path / "lock")
        # Share inductor's compiled kernels between processes.
        cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(common / f"torchinductor-{os.getuid()}")
        self.variables = {"TMPDIR": str(self.path), "TORCHINDUCTOR_CACHE_DIR": cache}

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def unreadable_answer(fault: Exception) -> dict[str, Any]:
    """Return the outcome for a missing or unreadable answer."""
    return {"status": "failed", "reason": f"no answer that could be read ({type(fault).__name__}: {fault})"}


def measure_start_s(
    device: str,
    backend: str = "torch",
    command: Sequence[str] = COMMAND,
    then: Callable[[Worker], object] | None = None,
) -> float | None:
    """Time the start of a measuring process for a device and a backend, in seconds; None if the start fails.

    then: if given, called with the worker after the timing, before the worker is stopped.
    """
    # As in a round, load the library that writes the samples during the start, since loading this library may take
    # longer than the start.
    loading = [sys.executable, "-c", "import contract.sample_table"]
    variables = worker_environment.device_variables(device)
    worker = Worker(command, None, variables, lambda: subprocess.run(loading, check=False, stderr=subprocess.DEVNULL))
    with running_time.RunningTime(waits_for=worker.is_stopped) as clock:
        started = clock.now()
        try:
            answer = worker.start({"device": device, "experiment": "", "params": {"backend": backend, "threads": 1}})
            seconds = clock.now() - started
            if "ready" not in answer:
                return None
            if then:
                then(worker)
            return seconds
        finally:
            worker.stop()


def measure_core_flops(worker: Worker) -> dict[str, float]:
    """Measure a core's FLOP/s in matrix products.

    Returns PyTorch's rate by number format, and the rate of an interpreted loop under the key `python`. A rate that
    cannot be measured is missing.
    """
    rates = {}
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
            rates[name] = 2.0 * m * n * n / statistics.median(answer["parts"][0]["series"][0]["values"])
    return rates
