"""System limits on connections between load and server, raised if possible and checked before a load."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

from experiments import counters
from experiments.workload import HarnessError

# Maximum number of connections; further requests wait in a queue.
CONNECTIONS = 256
# Number of files and ports to leave free for purposes other than connections.
MARGIN = 32
# Seconds between two checks that detect if the process was suspended. With a shorter interval, the checks' CPU time
# would be noticeable when requests are rare.
TICK_S = 0.25
ROOT = Path("/")
_MORE_FILES = (
    "raise it in the shell that starts the study (ulimit -n 4096; above its hard limit an administrator has to)"
)
_MORE_PORTS = "widen the range (sudo sysctl net.ipv4.ip_local_port_range='32768 60999')"
_REMEDIES = {errno.EMFILE: _MORE_FILES, errno.EADDRNOTAVAIL: _MORE_PORTS}


class Room(NamedTuple):
    """Number of free file descriptors in a process, and the process's limit."""

    free: int
    limit: int


def file_limits() -> tuple[int, int]:
    """Return this process's (soft, hard) limits for open files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return sys.maxsize, sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return (sys.maxsize if soft == unlimited else soft), (sys.maxsize if hard == unlimited else hard)


def raise_file_limit(connections: int) -> Room:
    """Raise this process's soft file limit to fit `connections`, as far as the system allows.

    The limit is never raised further than `connections` need, since macOS refuses large limits, and `select` supports
    only descriptors below 1024.
    """
    soft, hard = file_limits()
    if soft == sys.maxsize:
        return Room(soft, soft)
    try:
        used = psutil.Process().num_fds()
    except (psutil.Error, OSError):  # for example if /proc is hidden
        used = MARGIN
    limit = min(used + connections + MARGIN, hard)
    if soft < limit:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = limit
    return Room(max(0, soft - used), soft)


def file_shortage(connections: int, room: Room) -> str:
    """Explain why a process cannot open `connections`; '' if it can."""
    needed = connections + MARGIN
    if room.free >= needed:
        return ""
    free = f"{room.free} of the limit of {room.limit} are free"
    return f"{connections} connections need {needed} files, {free}: {_MORE_FILES}"


def port_shortage(connections: int, root: Path = ROOT) -> str:
    """Explain why the port range is too small for `connections`; '' if it suffices or is unknown."""
    path = "proc/sys/net/ipv4/ip_local_port_range"
    try:
        low, high = map(int, (root / path).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return ""
    ports = high - low + 1
    if ports >= connections + MARGIN:
        return ""
    return f"{connections} connections need {connections + MARGIN} ports, the system gives {ports}: {_MORE_PORTS}"


def connection_count(requests: int, root: Path = ROOT) -> int:
    """Return the maximum connections for a load, which fit into the server's accept queue.

    If this queue is full, Linux drops connection attempts, and clients retry only after a second. Requests beyond
    these connections wait in the load's own queue instead, and their latency still counts from arrival.
    """
    backlog = counters.read_number(root / "proc/sys/net/core/somaxconn") or socket.SOMAXCONN
    return max(1, min(CONNECTIONS, requests, int(backlog)))


def require_connections(connections: int, side: str, room: Room) -> None:
    """Raise HarnessError if a process cannot open `connections`.

    side: the process's name in messages. room: the process's free file descriptors.
    """
    if reason := file_shortage(connections, room) or port_shortage(connections):
        raise HarnessError(f"{side}: {reason}")


def describe_refusal(error: BaseException) -> str:
    """Describe a system error in one line, with a remedy if known."""
    number = getattr(error, "errno", None) or 0
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    name = errno.errorcode.get(number, type(error).__name__)
    return f"{name}: {message}" + (f"; {_REMEDIES[number]}" if number in _REMEDIES else "")
