"""Processes for load and server: start-up and core assignment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from experiments import hardware, topology
from experiments.children import Child
from experiments.workload import Unsupported

_PACKAGE = "experiments.serving"


def start_process(module: str, orders: Mapping[str, Any]) -> Child:
    """Start a module in this package as a process, and send it these orders. Raises ChildError."""
    child = Child(module.replace("_", " "), [sys.executable, "-u", "-m", f"{_PACKAGE}.{module}"])
    child.send(orders)
    return child


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until `done` returns True, and return True; return False after `seconds`. `done` is polled every 50 ms."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def split_cores(cores: int) -> tuple[list[int], list[int]]:
    """Split logical CPUs into (server, clients): one CPU per physical core for the server, the rest for clients.

    cores: physical cores for the server, 0 for all. The second list is empty if clients and server share cores. Both
    lists are empty if the system cannot pin processes and the server may use all cores. Raises Unsupported if there are
    too few cores, or the system cannot pin the server to some of them.
    """
    usable = hardware.usable_cores()
    if cores > usable:
        raise Unsupported(f"a server on {cores} cores needs {cores}, and this process may use {usable}")
    if not hasattr(os, "sched_setaffinity"):
        if 0 < cores < usable:
            raise Unsupported(f"this system cannot pin a process to {cores} of {usable} cores")
        return [], []
    physical = topology.physical_cores(topology.allowed_cpus()).groups
    server, others = (physical[: cores or len(physical)], physical[cores or len(physical) :])
    # Clients share the server's cores if the server takes all usable cores, even if other physical cores are free. A
    # CPU quota then makes the usable cores fewer, and it applies to all processes together, so clients would get no
    # additional CPU time on the free cores.
    shared = (cores or usable) >= usable
    return [core[0] for core in server], [] if shared else [cpu for core in others for cpu in core]
