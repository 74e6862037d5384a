"""Bandwidth level by level: of a processor's caches and memory, of a GPU's cache, memory and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from report.estimates import Estimates
from report.formatting import count
from report.render.central.chosen import accelerators
from report.render.measurements.base import View
from report.render.measurements.caches import caches, steps
from report.render.measurements.marks import records
from report.render.words import size

CORE, CORES, GPU = "one core", "all cores", "GPU"
MEMORY = "memory"
LINKS = {"host_to_device": "from the host", "device_to_host": "to the host", "peer": "to another GPU"}
# The study's own kernels, whose stores stay in the caches.
_KERNELS = ["llvm", "cupy"]
_FAR = "arrays far larger than any cache"

Place = tuple[str, str]  # node and device


@dataclass(frozen=True)
class Level:
    """A level of a machine: what it is called, and its rates by who asks for them. key: memory, or a way of LINKS.

    A rate is a record of a cell in B/s, whose `where` says with which arrays or copies it was measured. bytes: how much
    the level holds, in words.
    """

    place: Place
    name: str
    key: str
    rates: Mapping[str, dict[str, Any]]
    bytes: str = ""


def of_node(view: View) -> Iterator[Level]:
    """The levels of a node's processor and of its GPUs that were measured, from the nearest on."""
    yield from _of_processor(view)
    for device in accelerators(view):
        yield from _of_card(view, device)


def _of_processor(view: View) -> Iterator[Level]:
    """Caches by the sizes that the system tells, where it tells none by the steps of the latency; then memory."""
    moved = _moved(view, "cpu")
    if not len(moved):
        return
    most = int(moved.frame["threads"].max())
    who = {1: CORE, **({most: CORES} if most > 1 else {})}
    told = sorted(caches(view.record), key=lambda one: one[1])
    told = told or [(f"up to {size(at)}", at, 1) for step in steps(view, "cpu") if (at := step["estimate"])]
    before = dict.fromkeys(who, 0.0)
    for name, each, instances in told:
        rates = {}
        for threads, called in who.items():
            # One core reaches one instance of a cache; all of them reach as many as there are.
            reach = each * min(instances, threads)
            found = _plateau(moved.only(threads=threads), before[threads], reach)
            before[threads] = max(before[threads], reach)
            if found:
                rates[called] = found
        if rates:
            yield Level((view.node, "cpu"), name, "", rates, _held(each, instances))
    rates = {called: found for threads, called in who.items() if (found := _memory(view, "cpu", threads))}
    if rates:
        yield Level((view.node, "cpu"), MEMORY, MEMORY, rates, _whole(view, "cpu"))


def _of_card(view: View, device: str) -> Iterator[Level]:
    """The cache that a GPU tells of, its memory, and its links."""
    place = (view.node, device)
    told = next((one.get("l2_bytes") for one in view.record.get("devices", ()) if one["id"] == device), None)
    cache = float(told or 0.0)
    near = _plateau(_moved(view, device), 0.0, cache)
    if near:
        yield Level(place, "L2", "", {GPU: near}, _held(cache, 1))
    memory = _memory(view, device, 0)
    if memory:
        yield Level(place, MEMORY, MEMORY, {GPU: memory}, _whole(view, device))
    for way, name in LINKS.items():
        cells = view.quantity("transfer.rate", device=device, direction=way, host_memory=["pinned", "none"])
        for cell in records(cells.best(["node", "device"], of=["size"])):
            # `detail` is the size of the fastest copy.
            yield Level(place, name, way, {GPU: {**cell, "where": f"copies of {size(float(cell['detail']))}"}})


def _held(each: float, instances: int) -> str:
    """What a cache holds: '1 MiB in each of 2'."""
    return f"{size(each)} in each of {instances}" if instances > 1 else size(each)


def _whole(view: View, device: str) -> str:
    """What a device's memory holds, where it tells."""
    told = next((one.get("memory_bytes") for one in view.record.get("devices", ()) if one["id"] == device), None)
    return size(float(told)) if told else ""


def _moved(view: View, device: str) -> Estimates:
    """Bytes per second of triad by footprint, by the study's own kernels where these were measured."""
    cells = view.cells("bandwidth", value="bytes_per_s", device=device, op="triad")
    own = cells.only(backend=_KERNELS) if len(cells) else cells
    return own if len(own) else cells


def _plateau(cells: Estimates, lower: float, upper: float) -> dict[str, Any] | None:
    """The rate at the footprint that lies deepest in a cache: too large for those before it, not for this one.

    `where` says which footprint, and with how many of those that lie there its interval overlaps.
    """
    if not len(cells):
        return None
    footprint = pd.to_numeric(cells.frame["footprint"])
    held = cells.at(((footprint > lower) & (footprint <= upper)).to_numpy(bool))
    if not len(held):
        return None
    middle = math.sqrt(lower * upper) if lower else upper / 2
    each = records(held.best(["node", "device", "footprint"], of=["backend", "dtype"]))
    each.sort(key=lambda one: (abs(math.log(float(one["footprint"]) / middle)), float(one["footprint"])))
    first, *others = each
    similar = 1 + sum(one["low"] <= first["high"] and first["low"] <= one["high"] for one in others)
    where = f"arrays of {size(float(first['footprint']))}"
    where += f"; {similar} of {count(len(each), 'size')} that lie there agree" if others else ""
    return {**first, "where": where}


def _memory(view: View, device: str, threads: int) -> dict[str, Any] | None:
    cells = view.quantity("bandwidth.rate", device=device, op="triad", backend="best", threads=threads)
    found = records(cells.best(["node", "device"], of=["dtype"]))
    return {**found[0], "where": _FAR} if found else None
