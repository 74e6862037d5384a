"""Work in which every step waits for the last one: one chain alone, and as many as the device holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from report.estimates import Estimates
from report.formatting import with_unit
from report.quantities.sequential import device_steps, steps
from report.render import dots
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, mark, records, stated
from report.render.words import LEVEL

# The walk through memory has a section of its own.
_KERNELS = {"chain": "arithmetic", "branches": "branches", "states": "state machine"}


def show(view: View) -> Iterable[Exhibit]:
    """One figure for all devices of the node, so that they stand side by side."""
    kinds = {
        "one chain, time of a step": _smallest(view.pick(steps(view.data), chains="one", kernel=list(_KERNELS))),
        "all chains at once, time of a step over their number": _smallest(
            view.pick(device_steps(view.data), kernel=list(_KERNELS))
        ),
    }
    shown = {title: cells for title, cells in kinds.items() if len(cells)}
    if not shown:
        return
    devices = [device for device in view.devices() if any(device in set(c.frame["device"]) for c in shown.values())]
    looks = colours(devices)
    groups = []
    for title, cells in shown.items():
        rows: dict[str, list[dict[str, Any]]] = {}
        for cell in sorted(records(cells), key=_order):
            rows.setdefault(_name(cell), []).append(cell)
        drawn = [
            {
                "label": name,
                "marks": [mark(cell, looks[cell["device"]]) for cell in same],
                "told": " / ".join(with_unit(cell["estimate"], "s") for cell in same),
            }
            for name, same in rows.items()
        ]
        groups.append({"title": title, "rows": drawn})
    several = len(devices) > 1
    shows = {
        "groups": groups, "x": "time of a step", "unit": "s", "scale": "log",
        "legend": [{"label": device, "look": look} for device, look in looks.items()] if several else [],
    }  # fmt: skip
    caption = (
        f"Time of one step where each needs the last one's result, with {LEVEL} intervals"
        f"{', ' + ' / '.join(devices) if several else ''}; {view.label}."
    )
    yield Exhibit(_reading(view, devices), dots.drawing(view.name("sequential"), shows, caption, caption))


def _smallest(cells: Estimates) -> Estimates:
    """Of several footprints the smallest, and of several numbers of threads the largest."""
    if not len(cells):
        return cells
    order = cells.frame.assign(size=cells.frame["footprint"].astype(float), many=-cells.frame["threads"].astype(float))
    first = order.sort_values(["many", "size"], kind="stable").groupby(["device", "kernel", "data"]).head(1)
    return cells.at(sorted(first.index))


def _order(cell: dict[str, Any]) -> tuple[int, str, bool, str]:
    return list(_KERNELS).index(cell["kernel"]), str(cell["data"]), cell["device"] != "cpu", str(cell["device"])


def _name(cell: dict[str, Any]) -> str:
    kernel = _KERNELS[str(cell["kernel"])]
    return f"{kernel}, {cell['data']}" if cell["kernel"] == "branches" else kernel


def _reading(view: View, devices: list[str]) -> list[str]:
    """What a branch costs that cannot be guessed, device by device."""
    lines = []
    for device in devices:
        gains = records(view.quantity("sequential.prediction_gain", device=device, chains="one"))
        if gains:
            gain = min(gains, key=lambda cell: float(cell["footprint"]))
            text = f"A step whose branch nothing can guess takes {stated(gain, '1')} times as long as one whose branch "
            text += f"follows a pattern on {_spelt(device)}"
            costs = records(view.quantity("sequential.mispredict_cycles", device=device, footprint=gain["footprint"]))
            text += f": {stated(costs[0], 'cycles')} for each wrong guess" if costs else ""
            lines.append(view.say(f"{text}."))
    for name, told in (("one_thread", "One thread of the GPU"), ("full_chip", "The whole GPU")):
        ratios = records(view.quantity(f"sequential.gpu_over_cpu_{name}", kernel=list(_KERNELS)))
        if ratios:
            worst, best = (end(ratios, key=lambda cell: float(cell["estimate"])) for end in (min, max))
            against = "one core" if name == "one_thread" else "all cores"
            ends = [f"{stated(cell, '1')} ({_name(cell)})" for cell in (worst, best)]
            span = ends[0] if ends[0] == ends[1] else " to ".join(ends)
            lines.append(view.say(f"{told} does {span} times the steps per second of {against} of the CPU."))
    return lines


def _spelt(device: str) -> str:
    return "the CPU" if device == "cpu" else device


FAMILY = Family("sequential", "One step after another", show)
