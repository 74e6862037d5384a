"""The processes of a load and its server: how they are started, and the cores that they get."""

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
    """Start a module of this package as a process with these orders. Raises ChildError."""
    child = Child(module.replace("_", " "), [sys.executable, "-u", "-m", f"{_PACKAGE}.{module}"])
    child.send(orders)
    return child


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
