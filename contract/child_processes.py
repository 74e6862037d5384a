"""Make child processes end when their parent ends.

`python contract/child_processes.py COMMAND` runs any program in this way.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

R = TypeVar("R")
# Environment variable with the workflow's process ID. Commands that the workflow starts end when the workflow ends.
COORDINATOR = "STUDY_COORDINATOR_PID"
# Seconds that a command has to clean up before it and its children are killed.
GRACE_S = 3.0
# Signals that end a run.
INTERRUPTS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, a prctl option
_POLL_S = 1.0
_SESSION_HEAD = "--head-of-session"


def interrupt_on_signal() -> None:
    """Raise KeyboardInterrupt when a signal arrives or the coordinator ends.

    If this process still runs GRACE_S later, it is killed with its children.
    """

    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            return
        interrupted = True
        # Ignore further signals at exit only: if SIG_IGN replaces this handler while a second signal is pending,
        # Python prints a traceback.
        atexit.register(_ignore_signals)
        # Signal the children at exit, because this process may exit before the `forward_signals` thread does it.
        atexit.register(_signal_children, signal.SIGTERM)
        raise KeyboardInterrupt

    for number in INTERRUPTS:
        # A signal that nohup or a background shell has set to be ignored stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    forward_signals(int(os.environ.get(COORDINATOR, 0)), GRACE_S)


def forward_signals(coordinator: int = 0, grace_s: float | None = None) -> None:
    """Terminate the children when this process handles a signal, or when its coordinator ends.

    coordinator: ID of the process, such as the workflow, with which this process must end; 0 if there is none.
    grace_s: seconds from the signal until this process and its children are killed, or None to never kill them.
    """
    if os.name != "posix":
        return
    # Treat a closed terminal as Ctrl-C, because the default action would end the process without cleanup.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    # A thread waits for signals, because Python runs signal handlers only after a running library call has returned.
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_forward_signals, args=(read_end, coordinator, grace_s), daemon=True).start()


def _forward_signals(read_end: int, coordinator: int, grace_s: float | None) -> None:
    if not _wait_for_signal(read_end, coordinator):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    _signal_children(signal.SIGTERM)
    if grace_s is None:
        return
    time.sleep(grace_s)
    _signal_children(signal.SIGKILL)
    os._exit(130)


def _ignore_signals() -> None:
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)


def _signal_children(number: int) -> None:
    """Send a signal to all descendants of this process."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.send_signal(number)


def _wait_for_signal(read_end: int, coordinator: int) -> bool:
    """Wait until a signal arrives (True) or the coordinator ends (False)."""
    with selectors.DefaultSelector() as selector:
        selector.register(read_end, selectors.EVENT_READ)
        with suppress(OSError):
            if coordinator and sys.platform == "linux":
                # A pidfd becomes readable when the coordinator ends, so no polling is needed.
                selector.register(os.pidfd_open(coordinator), selectors.EVENT_READ)
                coordinator = 0
        while True:
            for key, _ in selector.select(_POLL_S if coordinator else None):
                if key.fd != read_end:
                    return False
                if os.read(read_end, 1)[0] in INTERRUPTS:
                    return True
            if coordinator:
                import psutil

                if not psutil.pid_exists(coordinator):
                    return False


def end_with_parent(_: int = 0) -> None:
    """Make this process end when its parent ends.

    On Linux, the kernel kills this process. Under a fork server, and on other systems, a thread ends this process.
    """
    # Import inside the function, here and in `worker_pool`, so that this file starts fast when it runs as a program.
    import multiprocessing

    before, parent = os.getppid(), multiprocessing.parent_process()
    if sys.platform == "linux" and (parent is None or parent.pid == before):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == before:
            return
    # Under a fork server, the system regards the server as the parent, so a thread waits for the real parent.
    threading.Thread(target=_exit_after_parent, args=(parent, before), daemon=True).start()


def _exit_after_parent(parent: Any, number: int) -> None:
    if parent is not None:
        parent.join()
    while parent is None and os.getppid() == number:
        time.sleep(_POLL_S)
    os._exit(1)


def available_cpus() -> int:
    """Count the logical CPUs that this process may use.

    These are the CPUs in its affinity mask, or all CPUs if the system has no affinity masks. If the cgroup quota,
    rounded up, is smaller, it is returned instead.
    """
    # Import inside the function, because this file also runs as a program, which cannot import its own package.
    from contract.cgroups import cpu_quota

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = cpu_quota()
    return min(cpus, math.ceil(granted)) if granted else cpus


@contextmanager
def worker_pool(workers: int, context: Any) -> Iterator[ProcessPoolExecutor]:
    """Open a process pool whose workers end with this process."""
    from concurrent.futures import ProcessPoolExecutor

    blocked_signals: set[signal.Signals] = {signal.SIGINT} if os.name == "posix" else set()
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as processes:
        # Block SIGINT. The workers inherit the block, so that only this process reports Ctrl-C.
        if blocked_signals:
            blocked_signals -= set(signal.pthread_sigmask(signal.SIG_BLOCK, blocked_signals))
        try:
            yield processes
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            if blocked_signals:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked_signals)


def map_parallel(work: Callable[..., R], *parts: Sequence[Any], processes: int) -> Iterator[R]:
    """Call `work` with the items in `parts`, like `map`, but in parallel; yield the results in order.

    work: a function at module level. processes: number of workers to start; with 1, this process does the work itself.
    If the system allows no process pool, for instance without /dev/shm, this process prints a note and does the work.
    """
    import multiprocessing

    begun = False
    try:
        if processes > 1:
            with worker_pool(processes, multiprocessing.get_context("spawn")) as workers:
                results = workers.map(work, *parts)
                begun = True
                yield from results
                return
    except (OSError, ImportError, NotImplementedError) as refusal:
        if begun:
            raise
        where = "/dev/shm: " if lock_error() else ""
        reason = getattr(refusal, "strerror", None) or refusal
        print(f"note: one process works in place of {processes} ({where}{reason})", file=sys.stderr)
    yield from map(work, *parts)


def lock_error() -> OSError | None:
    """Try to create a multiprocessing lock, which on Linux needs /dev/shm; return the error, or None on success."""
    import multiprocessing

    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as refusal:
        return refusal
    return None


def run_program(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program like `subprocess.run`, with text output. The program and its children end with this process."""
    with session(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace", **options
    ) as child:
        stdout, stderr = child.communicate()
    return subprocess.CompletedProcess(words, child.returncode, stdout, stderr)


@contextmanager
def session(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program in its own session, and kill the whole session when the `with` block ends."""
    # In isolated mode (-I), Python imports nothing from this file's folder or the working folder.
    order = [sys.executable, "-I", __file__, _SESSION_HEAD, *words]
    with subprocess.Popen(order, start_new_session=True, **options) as child:
        try:
            yield child
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def _run_session_head(words: Sequence[str]) -> int:
    """Run a program in the session that this process leads; kill the session if this process's parent ends."""
    parent = os.getppid()
    child = subprocess.Popen(words)
    while True:
        try:
            return child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                os.killpg(0, signal.SIGKILL)


def _main(words: Sequence[str]) -> int:
    """Run a program in its own session. The session ends with this process, and this process ends with its parent."""
    if words[0] == _SESSION_HEAD:
        return _run_session_head(words[1:])
    end_with_parent()
    try:
        with session(words) as child:
            return child.wait()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
