"""Children that answer in lines of JSON and end with their parent, whatever ends it.

A child is given its orders in one line on standard input. No server outlives the process that measures it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from contract.ending import end_with_parent
from experiments import environment, hardware, topology
from experiments.work import HarnessError, Unsupported

_PACKAGE = "experiments.serving"
# Seconds that a process may take to end after it has closed its answers.
_ENDS_S = 5.0
# Seconds of one wait for an answer: as much as a pause of this process can take from the whole.
_STEP_S = 0.5


class ChildError(HarnessError):
    """A child did not start, ended, or kept silent, before it had answered; the message says which."""


class Child:
    """A module of this package, started as a process with these orders."""

    def __init__(self, module: str, orders: Mapping[str, Any]) -> None:
        self.name = module
        command = [sys.executable, "-u", "-m", f"{_PACKAGE}.{module}"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment.clean()
            )
        except OSError as refusal:  # no more processes, files or memory
            raise ChildError(f"the {module} could not be started: {refusal.strerror}") from None
        _ALL.append(self)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(orders).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it says why it ended when it is asked for its answer

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def answer(self, seconds: float) -> dict[str, Any]:
        """The child's next line.

        Raises ChildError if there is none after this process has waited so long (not the wall clock: both may have
        been stopped); Unsupported or HarnessError if that is what the child says.
        """
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            steps = max(1, round(seconds / _STEP_S))
            if not any(selector.select(min(seconds, _STEP_S)) for _ in range(steps)):
                self.stop()
                raise ChildError(f"the {self.name} did not answer within {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            wait_until(lambda: not self.alive, _ENDS_S)
            self.stop()
            raise ChildError(f"the {self.name} ended with code {self._process.returncode} before it answered")
        told: dict[str, Any] = json.loads(line)
        if "unsupported" in told:
            self.stop()
            raise Unsupported(str(told["unsupported"]))
        if "harness" in told:
            self.stop()
            raise HarnessError(str(told["harness"]))
        return told

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        if self in _ALL:
            _ALL.remove(self)


_ALL: list[Child] = []


@atexit.register
def stop_all() -> None:
    """End every child of this process."""
    for child in list(_ALL):
        child.stop()


def orders() -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], None]]:
    """In a child: its orders, and a function that answers. It ends when its parent does.

    It is held to the logical CPUs `cpus` of its orders.
    """
    # Libraries print to descriptor 1 as they like: the answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    line = b""
    # Not through sys.stdin, whose buffer a thread that waits on it would hold at the end.
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 20)
        if not piece:
            os._exit(0)
        line += piece
    asked: dict[str, Any] = json.loads(line)
    # Before there is a second thread, and before PyTorch starts its own: each is held where its maker is.
    pin(asked["cpus"])
    end_with_parent()

    def answer(told: Mapping[str, Any]) -> None:
        answers.write(json.dumps(told, allow_nan=False) + "\n")
        answers.flush()

    return asked, answer


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Whether it was done within so many seconds; asked twenty times a second."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def split_cores(cores: int) -> tuple[list[int], list[int]]:
    """Logical CPUs for a server on `cores` physical cores (0: all), one of each core, and those left for its clients.

    The second list is empty where clients and server share their cores. Both are empty where a
    process cannot be held to some cores and need not be. Raises Unsupported.
    """
    usable = hardware.usable_cores()
    if cores > usable:
        raise Unsupported(f"a server on {cores} cores needs {cores}, and this process may use {usable}")
    if not hasattr(os, "sched_setaffinity"):
        if 0 < cores < usable:
            raise Unsupported(f"this system cannot hold a process to {cores} of {usable} cores")
        return [], []
    physical = topology.physical_cores(topology.allowed_cpus()).groups
    mine, others = (physical[: cores or len(physical)], physical[cores or len(physical) :])
    # A quota is shared by whatever the processes are pinned to.
    shared = (cores or usable) >= usable
    return [core[0] for core in mine], [] if shared else [one for core in others for one in core]


def pin(cpus: list[int]) -> None:
    """Hold this process, and what it starts from now on, to these logical CPUs; an empty list leaves it alone."""
    if cpus:
        os.sched_setaffinity(0, cpus)
