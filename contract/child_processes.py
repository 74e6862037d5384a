"""End child processes with their parent: `python contract/child_processes.py COMMAND` does so for any program."""

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
# The environment's word for the process that a command works for: the workflow.
COORDINATOR = "STUDY_COORDINATOR_PID"
# Seconds that a command has to leave nothing behind before it and its children are killed.
GRACE_S = 3.0
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_POLL_S = 1.0
_SESSION_HEAD = "--head-of-session"


def interrupt_on_signal() -> None:
    """Have a command raise KeyboardInterrupt on a signal or once its coordinator is gone, and killed GRACE_S later."""

    def interrupt(*_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # It may have ended before the thread that waits for signals has come to it.
        atexit.register(_signal_children, signal.SIGTERM)
        raise KeyboardInterrupt

    for number in _SIGNALS:
        # Signals that nohup, or a shell for its background, ignores stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    forward_signals(int(os.environ.get(COORDINATOR, 0)), GRACE_S)


def forward_signals(coordinator: int = 0, grace_s: float | None = None) -> None:
    """Once a signal that this process handles, or its coordinator's end, tells it to end, tell its children.

    coordinator: a process, 0 for none. grace_s: seconds after which this process and its children are killed;
    None leaves that to it.
    """
    if os.name != "posix":
        return
    # A terminal that is closed ends it as Ctrl-C does; without a handler nothing could be tidied up.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    # Not in the handler itself: that waits until whatever library is at work has returned.
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_forward_signals, args=(told, coordinator, grace_s), daemon=True).start()


def _forward_signals(told: int, coordinator: int, grace_s: float | None) -> None:
    if not _wait_for_signal(told, coordinator):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    _signal_children(signal.SIGTERM)
    if grace_s is None:
        return
    time.sleep(grace_s)
    _signal_children(signal.SIGKILL)
    os._exit(130)


def _signal_children(number: int) -> None:
    """Send a signal to all that this process has started, and what that has."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.send_signal(number)


def _wait_for_signal(told: int, coordinator: int) -> bool:
    """Wait until a signal arrives (True) or the coordinator, if there is one, is gone (False)."""
    with selectors.DefaultSelector() as selector:
        selector.register(told, selectors.EVENT_READ)
        with suppress(OSError):
            if coordinator and sys.platform == "linux":
                # It can be read once the process is gone: no time is spent looking.
                selector.register(os.pidfd_open(coordinator), selectors.EVENT_READ)
                coordinator = 0
        while True:
            for key, _ in selector.select(_POLL_S if coordinator else None):
                if key.fd != told:
                    return False
                if os.read(told, 1)[0] in _SIGNALS:
                    return True
            if coordinator:
                import psutil

                if not psutil.pid_exists(coordinator):
                    return False


def end_with_parent(_: int = 0) -> None:
    """Kill this process once its parent is gone. Linux does it, whatever is at work; elsewhere a thread waits."""
    # Imported here, as in `worker_pool`: to run a program needs neither, and hundreds are run.
    import multiprocessing

    before, parent = os.getppid(), multiprocessing.parent_process()
    if sys.platform == "linux" and (parent is None or parent.pid == before):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == before:
            return
    # Where a server forks for it, the parent is not the one that the system names.
    threading.Thread(target=_exit_after_parent, args=(parent, before), daemon=True).start()


def _exit_after_parent(parent: Any, number: int) -> None:
    if parent is not None:
        parent.join()
    while parent is None and os.getppid() == number:
        time.sleep(_POLL_S)
    os._exit(1)


def available_cpus() -> int:
    """Number of logical CPUs to keep busy: those of this process's affinity, else all, and no more than its quota."""
    # Here: this file also runs as a program, without its package.
    from contract.cgroups import cpu_quota

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = cpu_quota()
    return min(cpus, math.ceil(granted)) if granted else cpus


@contextmanager
def worker_pool(workers: int, context: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that share the work of this one and end with it."""
    from concurrent.futures import ProcessPoolExecutor

    held: set[signal.Signals] = {signal.SIGINT} if os.name == "posix" else set()
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as processes:
        # They inherit this: Ctrl-C, which reaches a whole group, is for this process to put into words.
        if held:
            held -= set(signal.pthread_sigmask(signal.SIG_BLOCK, held))
        try:
            yield processes
        except BaseException:
            # Nobody wants what is not begun.
            processes.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            if held:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def map_parallel(work: Callable[..., R], *parts: Sequence[Any], processes: int) -> Iterator[R]:
    """Results of `work`, a function of a module, for each part, in order, by so many processes; 1: by this one.

    Where the system allows no others (without /dev/shm, say) this one does all the work, and says so.
    """
    import multiprocessing

    begun = False
    try:
        if processes > 1:
            with worker_pool(processes, multiprocessing.get_context("spawn")) as workers:
                made = workers.map(work, *parts)
                begun = True
                yield from made
                return
    except (OSError, ImportError, NotImplementedError) as refusal:
        if begun:
            raise
        where = "/dev/shm: " if lock_error() else ""
        reason = getattr(refusal, "strerror", None) or refusal
        print(f"note: one process works in place of {processes} ({where}{reason})", file=sys.stderr)
    yield from map(work, *parts)


def lock_error() -> OSError | None:
    """The system's refusal to make a lock between processes, which Linux keeps in /dev/shm; None where it makes one."""
    import multiprocessing

    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as refusal:
        return refusal
    return None


def run_program(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run another program as `subprocess.run` does, its output as text; it and what it starts end with this process."""
    with session(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace", **options
    ) as child:
        said, complained = child.communicate()
    return subprocess.CompletedProcess(words, child.returncode, said, complained)


@contextmanager
def session(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, of which nothing is left at the end."""
    # Isolated: nothing of ours or of the working folder's is imported.
    order = [sys.executable, "-I", __file__, _SESSION_HEAD, *words]
    with subprocess.Popen(order, start_new_session=True, **options) as child:
        try:
            yield child
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def _run_session_head(words: Sequence[str]) -> int:
    """As the head of a session of its own: run a program, and kill all of the session once the parent is gone."""
    parent = os.getppid()
    child = subprocess.Popen(words)
    while True:
        try:
            return child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                os.killpg(0, signal.SIGKILL)


def _main(words: Sequence[str]) -> int:
    """Run a program that ends, with all that it starts, with this process, and this one with its parent."""
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
