"""Children that take orders and answer in lines of JSON, and end with this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from contract import running_time
from contract.child_processes import end_with_parent
from experiments import worker_environment
from experiments.workload import HarnessError, Unsupported

# An answer with one of these keys is a refusal, whose text is raised so.
_REFUSALS: dict[str, type[Exception]] = {
    "unsupported": Unsupported, "harness": HarnessError, "oom": MemoryError, "raised": RuntimeError,
}  # fmt: skip
_CHUNK_BYTES = 1 << 16


class ChildError(HarnessError):
    """A child did not start, ended, kept silent, or sent no JSON object. status: outcome of its point."""

    def __init__(self, reason: str, status: str = "failed") -> None:
        super().__init__(reason)
        self.status = status


class Child:
    """A process with orders on its standard input and answers on its standard output. name: used in errors."""

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
                # Ctrl-C reaches a whole group: this process answers it, and ends the child.
                process_group=0,
            )
        except OSError as refusal:  # no more processes, files or memory
            raise ChildError(f"the {name} could not be started: {refusal.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        _CHILDREN.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def send(self, order: Mapping[str, Any]) -> None:
        """Give an order. `answer` tells of a child that has ended before."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()

    def answer(self, seconds: float | None) -> dict[str, Any]:
        """The next answer, within so many seconds of running time; None: without limit.

        Raises ChildError, after which the child is gone, and what a refusal stands for.
        """
        line = self._read_line(seconds)
        if line is None:
            self.stop()
            raise ChildError(f"no answer within {seconds:.0f} s from the {self.name}", "timeout")
        if not line:
            code = self._process.wait()
            self.stop()
            raise ChildError(f"the {self.name} {_describe_exit(code)}")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # The next line may be no answer either.
            self.stop()
            raise ChildError(f"no answer from the {self.name}: its line is no JSON object")
        for key in _REFUSALS.keys() & answer.keys():
            self.stop()
            raise _REFUSALS[key](str(answer[key]))
        return answer

    def _read_line(self, seconds: float | None) -> bytes | None:
        """The next line; b'' at the end of the output; None if it does not come in time."""
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
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        _CHILDREN.discard(self)


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()


@atexit.register
def stop_all() -> None:
    """End every child of this process."""
    for child in list(_CHILDREN):
        child.stop()


def collect_answers(children: Sequence[Child]) -> list[dict[str, Any]]:
    """One answer of each child, in their order. Raises what `answer` raises for the first one that fails."""
    found: dict[int, dict[str, Any]] = {}
    with selectors.DefaultSelector() as selector:
        for number, child in enumerate(children):
            selector.register(child._answers, selectors.EVENT_READ, number)
        while len(found) < len(children):
            for key, _ in selector.select():
                found[key.data] = children[key.data].answer(None)
                selector.unregister(key.fileobj)
    return [found[number] for number in range(len(children))]


def _describe_exit(code: int) -> str:
    """The end of a process in words, by its exit code."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"ended with exit code {code}"


# ------------------------------------------------------------------ in a child


def answer_sender() -> Callable[[Mapping[str, Any]], None]:
    """Keep standard output for answers, and return a function that sends one; other output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(told: Mapping[str, Any]) -> None:
        answers.write(json.dumps(told, allow_nan=False) + "\n")
        answers.flush()

    return answer


def read_order() -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], None]]:
    """The orders of this process, which ends with its parent from now on, and a function that answers.

    It is held to the logical CPUs `cpus` of its orders, if they name some.
    """
    answer, line = answer_sender(), b""
    # Not through sys.stdin: at the end, a thread that waits on it would hold its buffer.
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 20)
        if not piece:
            os._exit(0)
        line += piece
    asked: dict[str, Any] = json.loads(line)
    # Before a second thread starts, and before PyTorch starts its own: each thread is held where its maker is.
    if cpus := asked.get("cpus"):
        os.sched_setaffinity(0, cpus)
    end_with_parent()
    # A parent that ended earlier has closed its end of the pipe.
    pipe = select.poll()
    pipe.register(0, 0)
    if pipe.poll(0):
        os._exit(0)
    return asked, answer
