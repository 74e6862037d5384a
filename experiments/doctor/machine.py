"""Checks of what else goes on: others' work, memory, power supply, room on the disk."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil

from experiments import counters, state
from experiments.counters import Totals
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.memory import available_bytes, total_bytes
from experiments.topology import read_text

# How long others' work is watched.
WATCH_S = 1.0
# A process is named from this share of a core on.
_NAMED_SHARE = 0.05
# Others' share of all cores, and the hypervisor's since the start, that are worth a word.
_SOME_LOAD = 0.03
_SOME_STEAL = 0.005
# Shares of the memory: little left, and much swapped.
_FEW_MEMORY = 0.3
_MUCH_SWAP = 0.05
# Seconds until a connection within the machine counts as refused.
CONNECT_S = 2.0
# Samples, tables and figures of a few nodes, many times over.
_ROOM_BYTES = 2**30


@dataclass(frozen=True)
class Watched:
    """What others did for a while: totals at its ends; the busiest processes by name, with their share of a core."""

    before: Totals
    after: Totals
    busiest: list[tuple[str, float]]

    def shares(self, cores: int) -> tuple[float, float]:
        """Others' load and steal, as shares of all cores."""
        values, _ = state.between(self.before, self.after, cores)
        return values["other_load"] or 0.0, values["steal"] or 0.0


def watch(seconds: float) -> Watched:
    """Look at all processes before and after a pause; this one does nothing in between."""
    own = psutil.Process()
    spent = _spent()
    before = counters.read_totals(own)
    time.sleep(seconds)
    after = counters.read_totals(own)
    used: defaultdict[str, float] = defaultdict(float)
    for pid, (name, total) in _spent().items():
        if pid != own.pid:
            # What was not there before has spent all its time since.
            used[name] += (total - spent.get(pid, (name, 0.0))[1]) / (after.at - before.at)
    busiest = sorted(((name, share) for name, share in used.items() if share > _NAMED_SHARE), key=lambda one: -one[1])
    return Watched(before, after, busiest[:3])


def _spent() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of every process that we may look at."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        used = process.info["cpu_times"]
        if used is not None:
            found[process.pid] = (process.info["name"] or "?", used.user + used.system)
    return found


def load(watched: Watched, cores: int) -> Finding:
    """Whether others work on this machine now."""
    share, _ = watched.shares(cores)
    names = ", ".join(f"{name} {used:.0%} of a core" for name, used in watched.busiest)
    seen = f"others take {share:.0%} of all cores" + (f": {names}" if names else "")
    if share > state.BUSY_SHARE or any(used > 0.5 for _, used in watched.busiest):
        return warning(
            "load",
            seen,
            "They take cores, caches and memory bandwidth; a point that uses all cores waits for the slowest.",
            "stop them, or wait until they have ended",
        )
    if share > _SOME_LOAD:
        return note("load", seen, "Samples are flagged from 10% on.")
    return ok("load", seen)


def steal(watched: Watched, cores: int) -> Finding | None:
    """Whether the hypervisor gives this machine's CPU time to others."""
    if not hasattr(psutil.cpu_times(), "steal"):
        return None
    _, now = watched.shares(cores)
    since = _steal_since_start()
    seen = f"{now:.0%} now, {since:.1%} since the machine started"
    if now > state.STEAL_SHARE:
        return warning(
            "steal",
            seen,
            "The hypervisor runs others in this machine's place: times lengthen by what it takes.",
            "a machine with dedicated cores, or another hour",
        )
    if since > _SOME_STEAL:
        return note("steal", seen, "Neighbours on the host have taken time, and may again: rounds will differ.")
    return ok("steal", seen)


def _steal_since_start() -> float:
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0) / max(sum(times), 1.0)


def memory(available: float, total: float, stalled: float | None, machine: float = 0.0) -> Finding:
    """Check the room for the points.

    total: bytes that this process may use. stalled: share of the watched time that work waited for memory.
    machine: bytes that the machine has, where a cgroup may grant less.
    """
    seen = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB available"
    limited = total < machine
    if limited:
        seen += f", by the limit of a cgroup (the machine has {machine / 2**30:.1f} GiB)"
    if stalled is not None and stalled > state.MEMORY_SHARE:
        seen += f", work waits for memory {stalled:.0%} of the time"
    elif available > _FEW_MEMORY * total:
        return ok("memory", seen)
    return warning(
        "memory",
        seen,
        "Points that need more than is available are skipped, and the system may swap during others.",
        "end what holds the memory" + (", or raise the limit (docker run --memory)" if limited else ""),
    )


def swap(used: float, total: float) -> Finding:
    """Whether memory of this machine lies on a disk."""
    if not total:
        return ok("swap", "none")
    seen = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB used"
    if used < _MUCH_SWAP * total:
        return ok("swap", seen)
    return note("swap", seen, "Memory was short at some time; what was swapped comes back from the disk when used.",
                "sudo swapoff -a && sudo swapon -a, with enough memory available")  # fmt: skip


def huge_pages(root: Path) -> Finding | None:
    """Whether the kernel makes large pages of small ones."""
    words = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = words.partition("[")[2].partition("]")[0]
    if not chosen:
        return None
    if chosen == "madvise":
        return ok("huge pages", "where a program asks for them")
    mend = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    if chosen == "always":
        why = "Large arrays get large pages when there are some free: how many there are differs between rounds."
        return note("huge pages", "always", why, mend)
    return note("huge pages", chosen, "Large arrays miss the address cache more often than on other systems.", mend)


def battery(plugged: bool | None, profile: str) -> Finding | None:
    """Whether the machine saves power. plugged: None without a battery; profile: the firmware's, '' if none."""
    if plugged is False:
        return warning(
            "power", "on battery", "On battery a machine lowers its clock and its power limits.", "plug it in"
        )
    if profile in ("low-power", "quiet", "cool"):
        return warning(
            "power",
            f"profile {profile}",
            "The firmware holds clock and power down.",
            "powerprofilesctl set performance",
        )
    if plugged is None and not profile:
        return None
    return ok(
        "power", ", ".join(filter(None, ["plugged in" if plugged else "", f"profile {profile}" if profile else ""]))
    )


def room(free: float, place: str) -> Finding:
    """Whether results can be written."""
    seen = f"{free / 2**30:.1f} GiB free for {place}"
    if free > _ROOM_BYTES:
        return ok("disk", seen)
    return warning("disk", seen, "A run that cannot write its results stops.", "free some space")


def loopback(refusal: str) -> Finding:
    """A connection between programs of this machine. refusal: the system's, '' if they can."""
    if not refusal:
        return ok("loopback", "connects")
    why = "`serving` cannot ask its server."
    return warning("loopback", f"127.0.0.1: {refusal}", why, "sudo ip link set lo up")


def connect_to_self() -> str:
    """Connect to a socket of this process: the system's refusal, '' if it connects."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=CONNECT_S),
        ):
            return ""
    except OSError as refusal:
        return (refusal.strerror or str(refusal)).lower()


def examine(root: Path, results: Path) -> list[Finding | None]:
    """All checks of this module on this machine."""
    cores = os.cpu_count() or 1
    watched = watch(WATCH_S)
    now, swapped = psutil.virtual_memory(), psutil.swap_memory()
    before, after = watched.before, watched.after
    stalled = None
    if before.stalled is not None and after.stalled is not None:
        stalled = (after.stalled - before.stalled) / (after.at - before.at)
    supply = getattr(psutil, "sensors_battery", lambda: None)()
    place = next(folder for folder in (results, *results.parents) if folder.is_dir())
    return [
        load(watched, cores),
        steal(watched, cores),
        memory(available_bytes(root), total_bytes(root), stalled, now.total),
        swap(swapped.used, swapped.total),
        huge_pages(root),
        battery(supply.power_plugged if supply else None, read_text(root / "sys/firmware/acpi/platform_profile")),
        room(shutil.disk_usage(place).free, str(results)),
        loopback(connect_to_self()),
    ]
