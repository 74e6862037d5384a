"""Child processes that exchange JSON lines with this process and end with it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from contract import running_time
from contract.child_processes import INTERRUPTS, end_with_parent
from experiments import worker_environment
from experiments.workload import HarnessError, Unsupported

# If an answer contains a key from this table, `Child.answer` raises the exception, with the key's value as its message.
_REFUSALS: dict[str, type[Exception]] = {
    "unsupported": Unsupported, "harness": HarnessError, "oom": MemoryError, "raised": RuntimeError,
}  # fmt: skip
_CHUNK_BYTES = 1 << 16
# A signal that ends a run reaches its processes one after the other. If one of INTERRUPTS ended a child, this process
# waits _OWN_SIGNAL_S for its own signal, so that the interrupt is not recorded as the child's failure.
_OWN_SIGNAL_S = 2.0


class ChildError(HarnessError):
    """A child process did not start, ended, timed out or sent invalid JSON.

    status: the status to record for the point that the child process measured.
    """

    def __init__(self, reason: str, status: str = "failed") -> None:
        super().__init__(reason)
        self.status = status


class Child:
    """A child process that reads orders from stdin and writes answers to stdout. name: its name in error messages."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self.name = name
        self._buffer = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**worker_environment.clean_environment(), **(variables or {})},
                # Ctrl-C interrupts every process in a group. The child gets its own group, so that Ctrl-C interrupts
                # only the parent.
                process_group=0,
            )
        except OSError as refusal:  # the system has no processes, files or memory left
            raise ChildError(f"the {name} could not be started: {refusal.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        _CHILDREN.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order. If the child has ended, the next `answer` raises the error."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()

    def answer(self, seconds: float | None) -> dict[str, Any]:
        """Read the next answer.

        seconds: the timeout, without the time during which this process is suspended; None waits forever.
        Raises ChildError, or the exception for a key in `_REFUSALS`, and stops the child before it raises either.
        """
        line = self._read_line(seconds)
        if line is None:
            self.stop()
            raise ChildError(f"no answer within {seconds:.0f} s from the {self.name}", "timeout")
        if not line:
            code = self._process.wait()
            self.stop()
            if -code in INTERRUPTS:
                time.sleep(_OWN_SIGNAL_S)
            raise ChildError(f"the {self.name} {_describe_exit(code)}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # From here on, answers might not belong to the orders sent.
            self.stop()
            raise ChildError(f"the {self.name} sent a line that is not a JSON object")
        for key in _REFUSALS.keys() & answer.keys():
            self.stop()
            raise _REFUSALS[key](str(answer[key]))
        return answer

    def _read_line(self, seconds: float | None) -> bytes | None:
        """Return the next line, b'' if the output has ended, or None after the timeout."""
        end = None if seconds is None else running_time.now() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(end and max(0.0, end - running_time.now())):
                    if end is not None and running_time.now() >= end:
                        return None
                    continue
                piece = os.read(self._answers.fileno(), _CHUNK_BYTES)
                if not piece:
                    return b""
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"

    def stop(self) -> None:
        """Kill the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        _CHILDREN.discard(self)


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()


@atexit.register
def stop_all() -> None:
    for child in list(_CHILDREN):
        child.stop()


def collect_answers(children: Sequence[Child]) -> list[dict[str, Any]]:
    """Wait for one answer per child; return the answers in the order of `children`.

    Raises the first error from `Child.answer`.
    """
    answers_by_child: dict[int, dict[str, Any]] = {}
    with selectors.DefaultSelector() as selector:
        for number, child in enumerate(children):
            selector.register(child._answers, selectors.EVENT_READ, number)
        while len(answers_by_child) < len(children):
            for key, _ in selector.select():
                answers_by_child[key.data] = children[key.data].answer(None)
                selector.unregister(key.fileobj)
    return [answers_by_child[number] for number in range(len(children))]


def _describe_exit(code: int) -> str:
    """Format an exit code: 'ended with exit code 1', 'was ended by SIGKILL (out of memory?)'."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"ended with exit code {code}"


# ------------------------------------------------------------------ functions for the child process to call


def answer_sender() -> Callable[[Mapping[str, Any]], None]:
    """Return a function that sends an answer on stdout, and redirect all other output from stdout to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message, allow_nan=False) + "\n")
        answers.flush()

    return answer


def read_order() -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], None]]:
    """Read the order for this process; return it with a function to send answers.

    If the order has the key `cpus`, this process is pinned to these CPUs. After the call, this process ends when its
    parent ends.
    """
    answer, line = answer_sender(), b""
    # Do not use sys.stdin: a thread that waits in it holds its buffer lock, which crashes the interpreter at exit.
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 20)
        if not piece:
            os._exit(0)
        line += piece
    order: dict[str, Any] = json.loads(line)
    # Set the affinity before any other thread starts, since threads inherit it.
    if cpus := order.get("cpus"):
        os.sched_setaffinity(0, cpus)
    end_with_parent()
    # If the parent ended before `end_with_parent` took effect, the pipe from it is closed: end this process too.
    pipe = select.poll()
    pipe.register(0, 0)
    if pipe.poll(0):
        os._exit(0)
    return order, answer
