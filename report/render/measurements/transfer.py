"""Copies between the host and a GPU: rate and time by size, and from which size on a copy is worth its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.estimates import Estimates
from report.formatting import several, with_unit
from report.quantities.memory import TO_AND_FROM
from report.render import sweep
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, filled, rates, records, series, stated, times
from report.render.words import LEVEL, size

_WAYS = {
    "host_to_device": "to the device",
    "device_to_host": "to the host",
    "both": "both ways at once",
    "device_to_device": "within the device",
    "peer": "to another GPU",
}
_MEMORIES = {"pinned": "pinned host memory", "pageable": "pageable host memory"}
# Metric and host memory of what a copy takes, as it is called in the figure, and in words.
_TIMES = {
    ("request_time", "pageable"): ("pageable", "pageable memory, until the copy has arrived"),
    ("request_time", "pinned"): ("pinned", "pinned memory, until the copy has arrived"),
    ("request_time.enqueue", "pinned"): ("pinned, call", "pinned memory, until the call returns"),
    ("graph_time", "pinned"): ("pinned, link", "pinned memory, one after the other without the host"),
}


def show(view: View) -> Iterable[Exhibit]:
    """Two figures per device: rate, and time."""
    for device in view.devices():
        moved = view.of("transfer", device=device)
        if not len(moved):
            continue
        yield Exhibit(_reading(view, device), _rates(view, device, moved), wide=True)
        yield Exhibit(drawing=_times(view, device), wide=True)


def _rates(view: View, device: str, moved: pd.DataFrame) -> Drawing | None:
    moved["x"] = moved["size"].astype(float)
    looks = colours(list(_WAYS))
    panels = []
    for memory, title in _MEMORIES.items():
        part = moved[moved["host_memory"] == memory]
        lines = [
            series(rates(line, "bytes"), name, looks[way])
            for way, name in _WAYS.items()
            if len(line := part[part["direction"] == way])
        ]
        if lines:
            panels.append({"title": title, "series": filled(lines)})
    if not panels:
        return None
    shows = {
        "panels": panels,
        "along": "size",
        "x": "size of a copy",
        "y": "rate",
        "unit": "B/s",
        "base": 2,
        "sizes": True,
    }
    caption = f"Rate of copies one after the other by their size, with {LEVEL} intervals."
    return sweep.drawing(view.name("transfer-rate", device), shows, caption, view.where(device))


def _times(view: View, device: str) -> Drawing | None:
    looks = colours(list(_TIMES))
    panels = []
    for way in TO_AND_FROM:
        lines = []
        for (metric, memory), (label, told) in _TIMES.items():
            taken = view.of("transfer", metric, device)
            taken = taken[(taken["direction"] == way) & (taken["host_memory"] == memory)] if len(taken) else taken
            if len(taken):
                taken["x"] = taken["size"].astype(float)
                lines.append(series(times(taken), label, looks[metric, memory], told=told))
        if lines:
            panels.append({"title": _WAYS[way], "series": filled(lines)})
    if not panels:
        return None
    shows = {
        "panels": panels,
        "along": "size",
        "x": "size of a copy",
        "y": "time",
        "unit": "s",
        "base": 2,
        "sizes": True,
    }
    caption = (
        f"Time of one copy by its size, until it has arrived, with {LEVEL} intervals; call: until the call returns and "
        "the host can go on; link: of short copies one after the other without the host."
    )
    return sweep.drawing(view.name("transfer-time", device), shows, caption, view.where(device))


def _reading(view: View, device: str) -> list[str]:
    """From which size on the link is half used, what the smallest copy takes, what pinning gains, and other ways."""
    lines = [tell(view, device) for tell in (_half, _smallest, _pinning, _duplex, _elsewhere)]
    return [view.say(line, device) for line in lines if line]


def _half(view: View, device: str) -> str:
    cells = view.quantity("transfer.half_rate_size", device=device, host_memory="pinned", direction=list(TO_AND_FROM))
    told = [
        f"{_WAYS[one['direction']]} from {size(one['estimate'])} on "
        f"(between {size(one['low'])} and {size(one['high'])}; {one['detail']})"
        for one in _in_order(cells)
    ]
    return f"Copies of pinned memory reach half of their best rate {several(told)}." if told else ""


def _smallest(view: View, device: str) -> str:
    cells = view.quantity("transfer.latency", device=device, host_memory="pinned", direction="host_to_device")
    waits = {one["clock"]: one for one in records(cells)}
    if "host" not in waits:
        return ""
    text = (
        f"A copy of {size(float(waits['host']['size']))} of pinned memory to the device takes "
        f"{stated(waits['host'], 's')} until it has arrived"
    )
    text += f"; without the host, {with_unit(waits['device']['estimate'], 's')}" if "device" in waits else ""
    return f"{text}."


def _pinning(view: View, device: str) -> str:
    cells = view.quantity("transfer.rate", device=device, direction=list(TO_AND_FROM))
    if not len(cells):
        return ""
    pinned, pageable = (cells.only(host_memory=name).without("host_memory") for name in ("pinned", "pageable"))
    told = _largest(pinned / pageable if len(pinned) and len(pageable) else Estimates.empty())
    gains = [f"{stated(one, '1')} times as fast {_WAYS[one['direction']]}" for one in told]
    return f"At {size(float(told[0]['size']))}, pinned memory is {several(gains)} as pageable memory." if gains else ""


def _duplex(view: View, device: str) -> str:
    told = _largest(view.quantity("transfer.duplex_gain", device=device, host_memory="pinned"))
    if not told:
        return ""
    return (
        f"Copies both ways at once move {stated(told[0], '1')} times what the faster way does alone, at "
        f"{size(float(told[0]['size']))}."
    )


def _elsewhere(view: View, device: str) -> str:
    told = _largest(view.quantity("transfer.rate", device=device, host_memory="none"))
    rates = [f"{_WAYS[one['direction']]} move {stated(one, 'B/s')}" for one in told]
    return f"At {size(float(told[0]['size']))}, copies {several(rates)}, without the host." if rates else ""


def _largest(cells: Estimates) -> list[dict[str, Any]]:
    """The cells of the largest size."""
    return _in_order(cells.only(size=cells.frame["size"].max())) if len(cells) else []


def _in_order(cells: Estimates) -> list[dict[str, Any]]:
    def place(cell: Mapping[str, Any]) -> int:
        return list(_WAYS).index(str(cell.get("direction", "both")))

    return sorted(records(cells), key=place)


FAMILY = Family("transfer", "Between the host and the GPU", show)
