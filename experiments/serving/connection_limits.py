"""The system's limits on connections between the load and the server: raised where possible, checked before a load."""

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

# Connections at most: more than this many requests at a time are in a queue, whoever keeps it.
CONNECTIONS = 256
# Files and sockets that a process may open during a load beside its connections.
MARGIN = 32
# Seconds between two looks for a pause; oftener, they would show in the CPU time of rare requests.
TICK_S = 0.25
ROOT = Path("/")
_MORE_FILES = (
    "raise it in the shell that starts the study (ulimit -n 4096; above its hard limit an administrator has to)"
)
_MORE_PORTS = "widen the range (sudo sysctl net.ipv4.ip_local_port_range='32768 60999')"
# Remedies by the number of the system's error.
_MENDS = {errno.EMFILE: _MORE_FILES, errno.EADDRNOTAVAIL: _MORE_PORTS}


class Room(NamedTuple):
    """How many more files a process may open, and its limit."""

    free: int
    limit: int


def file_limits() -> tuple[int, int]:
    """How many files this process may have open: now (soft), and at most without an administrator (hard)."""
    try:
        import resource
    except ImportError:  # Windows counts no sockets
        return sys.maxsize, sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return (sys.maxsize if soft == unlimited else soft), (sys.maxsize if hard == unlimited else hard)


def raise_file_limit(connections: int) -> Room:
    """Raise this process's soft limit until so many connections fit, as far as the system lets us.

    By no more than that: macOS refuses large limits, and `select` knows files below 1024 only.
    """
    soft, hard = file_limits()
    if soft == sys.maxsize:
        return Room(soft, soft)
    try:
        used = psutil.Process().num_fds()
    except (psutil.Error, OSError):  # a system that hides /proc
        used = MARGIN
    wanted = min(used + connections + MARGIN, hard)
    if soft < wanted:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = wanted
    return Room(max(0, soft - used), soft)


def file_shortage(connections: int, room: Room) -> str:
    """Why a process cannot hold so many connections; '' if it can."""
    wanted = connections + MARGIN
    if room.free >= wanted:
        return ""
    free = f"{room.free} of the limit of {room.limit} are free"
    return f"{connections} connections need {wanted} files, {free}: {_MORE_FILES}"


def port_shortage(connections: int, root: Path = ROOT) -> str:
    """Why the system's range of ports is too small for so many connections; '' if it is not, or is not told."""
    place = "proc/sys/net/ipv4/ip_local_port_range"
    try:
        low, high = map(int, (root / place).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return ""
    ports = high - low + 1
    if ports >= connections + MARGIN:
        return ""
    return f"{connections} connections need {connections + MARGIN} ports, the system gives {ports}: {_MORE_PORTS}"


def connection_count(requests: int, root: Path = ROOT) -> int:
    """Connections that the load of so many requests has at most: never more than may wait to be accepted.

    Linux drops what finds this queue full, and the other side tries again a second later. In the load's own queue
    requests wait as well, and are counted from when they were due.
    """
    backlog = counters.read_number(root / "proc/sys/net/core/somaxconn") or socket.SOMAXCONN
    return max(1, min(CONNECTIONS, requests, int(backlog)))


def require_connections(connections: int, side: str, room: Room) -> None:
    """Raise HarnessError where the process of one side, with this room, cannot hold so many connections."""
    if reason := file_shortage(connections, room) or port_shortage(connections):
        raise HarnessError(f"{side}: {reason}")


def describe_refusal(error: BaseException) -> str:
    """The system's refusal in a line, with its remedy where that is known."""
    number = getattr(error, "errno", None) or 0
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    name = errno.errorcode.get(number, type(error).__name__)
    return f"{name}: {said}" + (f"; {_MENDS[number]}" if number in _MENDS else "")
