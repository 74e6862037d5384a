"""The processes that measure: started when they are needed, and again after they died."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from contract import running_time
from contract.files import held_lock, remove_left
from experiments import environment
from experiments.jobs import HANG_S
from experiments.own import FILES

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

    def started_with(self, device: str, asked: Mapping[str, str]) -> Worker:
        """The child whose environment has the variables that a device needs, and those that a point asks for."""
        variables = environment.device_variables(device) | dict(asked)
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
        self._child: subprocess.Popen[bytes] | None = None
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

        What there is to do besides is done now, so that nothing of it runs beside a measurement.
        """
        self.started += 1
        self._leave()
        self._scratch = Scratch()
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("ab")) if self._log else None
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment.clean(), **self._scratch.variables, **self._variables},
                # Ctrl-C reaches a whole group: it is ours to answer, and the child is ended with the round.
                process_group=0,
            )
        return self._answer({**order, "prepare": True}, limit_s, self._meanwhile)

    def _answer(
        self, order: dict[str, Any], limit: float, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(order).encode() + b"\n")
            child.stdin.flush()
            self._at_work = True
            meanwhile()
            line = _line_within(child, limit)
        except BrokenPipeError:
            line = b""
        finally:
            self._at_work = False
        if line is None:
            self.stop()
            return {"status": "timeout", "reason": f"no answer within {limit:.0f} s"}
        if not line:
            code = child.wait()
            self._child = None
            return {"status": "failed", "reason": _death(code)}
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                if answer.get("last"):
                    self.stop()
                return answer
        # Its next line may not be an answer either.
        self.stop()
        return {"status": "failed", "reason": "the measuring process said what is no answer"}

    def is_stopped(self) -> bool:
        """True if the child has something to do, and a signal keeps it from that."""
        child = self._child
        with contextlib.suppress(psutil.Error):
            return self._at_work and child is not None and psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        return False

    @property
    def runs(self) -> bool:
        """True if there is a child that has not ended."""
        return self._child is not None and self._child.poll() is None

    def stop(self) -> None:
        """End the child, whatever it does."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        self._leave()

    def _leave(self) -> None:
        """Remove the files that an ended child has left."""
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
        remove_left(locks, lambda lock: shutil.rmtree(lock.parent, ignore_errors=True))
        self.path = Path(tempfile.mkdtemp(prefix=self.PREFIX))
        self._lock = held_lock(self.path / "lock")
        # Kernels that inductor compiled are found again by the next process.
        kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(common / f"torchinductor-{os.getuid()}")
        self.variables = {"TMPDIR": str(self.path), "TORCHINDUCTOR_CACHE_DIR": kept}

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _line_within(child: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """The child's next line, b'' if it has ended, None once it has had that much running time."""
    assert child.stdout is not None
    end = running_time.now() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not selector.select(max(0.0, end - running_time.now())):
            if running_time.now() >= end:
                return None
    return child.stdout.readline()


def _death(code: int) -> str:
    """The end of a measuring process in words, by its exit code."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"the measuring process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"the measuring process ended with exit code {code}"


def unreadable(fault: Exception) -> dict[str, Any]:
    """The outcome of a point without an answer, or with an answer that rows cannot be made of."""
    return {"status": "failed", "reason": f"no answer that could be read ({type(fault).__name__}: {fault})"}


def start_s(
    device: str,
    backend: str = "torch",
    command: Sequence[str] = COMMAND,
    then: Callable[[Worker], object] | None = None,
) -> float | None:
    """Seconds until a process that measures on `device` by a library is ready; None if it does not get there.

    then: what to ask of it besides.
    """
    # Its parent loads meanwhile the library that writes rows, and that may take longer.
    words = [sys.executable, "-c", "import contract.tables"]
    variables = environment.device_variables(device)
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


def core_flops(worker: Worker) -> dict[str, float]:
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
