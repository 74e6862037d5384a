"""The latency ladder: time of one dependent load over the footprint, and where the caches end by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.formatting import several, with_unit
from report.render import sweep
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.caches import bands, caches, steps
from report.render.measurements.marks import colours, filled, multiple, over, series, stated, times
from report.render.words import LEVEL, size


def show(view: View) -> Iterable[Exhibit]:
    """A figure per device, and beside it a table of the levels."""
    for device in view.devices():
        points = view.of("sequential", "step_time", device)
        points = points[points["kernel"] == "chase"].copy() if len(points) else points
        if not len(points):
            continue
        points["x"] = points["footprint"].astype(float)
        levels = _levels(view, device)
        walks = {"one": "one walk", "full": "all at once"}
        looks = colours(list(walks))
        many = points["chains"].nunique() > 1
        lines = [
            series(times(line), name if many else "", looks[chains], told=name)
            for chains, name in walks.items()
            if len(line := points[points["chains"] == chains])
        ]
        marks = [{"x": level["told"], "label": level["level"]} for level in levels if level["told"]]
        marks += bands(level for level in levels if level["estimate"])
        panel = {"title": "", "series": filled(lines), "marks": marks}
        shows = {
            "panels": [panel], "along": "footprint", "x": "footprint", "y": "time of a load", "unit": "s", "base": 2,
            "sizes": True, "narrow": True,
        }  # fmt: skip
        caption = f"Time of a load whose address is the last one's value, over the footprint, with {LEVEL} intervals"
        if any(level["told"] for level in levels):
            caption += "; dashed: sizes that the system tells, one instance each"
        if any(level["estimate"] for level in levels):
            caption += "; bands: sizes found from the curve"
        yield Exhibit(
            _reading(view, points, levels),
            sweep.drawing(view.name("latency", device), shows, f"{caption}.", view.where(device)),
            _table(view, device, levels, points) if levels else None,
        )


def _levels(view: View, device: str) -> list[dict[str, Any]]:
    """Every cache level: its size as the system tells it (`told`), and the step of the curve that is nearest to it.

    A step that no level is near to (within a factor of 2) stands for itself: it may be the reach of a TLB.
    """
    levels: list[dict[str, Any]] = [
        {"level": level, "told": each, "estimate": None, "low": None, "high": None}
        for level, each, _ in (caches(view.record) if device == "cpu" else [])
    ]
    for step in steps(view, device):
        near = [one for one in levels if one["told"] and not one["estimate"] and _apart(one, step) <= 1]
        if near:
            min(near, key=lambda one: _apart(one, step)).update(step)
        else:
            levels.append({"level": "step", "told": None, **step})
    return sorted(levels, key=_end)


def _apart(level: Mapping[str, Any], step: Mapping[str, Any]) -> float:
    return abs(math.log2(float(level["told"]) / float(step["estimate"])))


def _inside(points: pd.DataFrame, level: dict[str, Any], below: float) -> dict[str, Any] | None:
    """The point with the largest footprint that the level surely holds, and the one below it does not."""
    end = level["low"] or level["estimate"] or level["told"]
    alone = points[points["chains"] == "one"]
    held = alone[(alone["x"] <= end) & (alone["x"] > below)].sort_values("x")
    return dict(held.iloc[-1]) if len(held) else None


def _end(level: dict[str, Any]) -> float:
    return float(level["estimate"] or level["told"])


def _table(view: View, device: str, levels: Sequence[dict[str, Any]], points: pd.DataFrame) -> Table:
    rows, below = [], 0.0
    for level in levels:
        point = _inside(points, level, below)
        below = _end(level)
        rows.append([level["level"], size(level["told"]) if level["told"] else NOTHING, _found(level), _time(point)])
    beyond = points[(points["chains"] == "one") & (points["x"] > 2 * below)].sort_values("x")
    if len(beyond):
        rows.append(["beyond", NOTHING, NOTHING, _time(dict(beyond.iloc[-1]))])
    return Table(
        f"Cache levels: size of one instance as the system tells it and as the curve does, and the time of a load "
        f"from the largest footprint that was measured within; {view.where(device)}",
        ["Level", "Told", "Found", "Time of a load"],
        rows,
        "lrrr",
        [16, 18, 33, 33],
    )


def _found(level: dict[str, Any]) -> str:
    """A found size with the ends between which it lies; the unit once if all share it."""
    if not level["estimate"]:
        return NOTHING
    told = [size(level[name]) for name in ("estimate", "low", "high") if level[name] is not None]
    if len(told) < 3:
        return told[0]
    numbers, units = zip(*(one.split(" ") for one in told), strict=True)
    if len(set(units)) == 1:
        return f"{numbers[0]} [{numbers[1]}, {numbers[2]}] {units[0]}"
    return f"{told[0]} [{told[1]}, {told[2]}]"


def _time(point: dict[str, Any] | None) -> str:
    return stated(point, "s") if point else NOTHING


def _reading(view: View, points: pd.DataFrame, levels: Sequence[dict[str, Any]]) -> list[str]:
    """From the first level to the largest footprint; and which levels the curve and the system tell differently."""
    alone = points[points["chains"] == "one"].sort_values("x")
    if len(alone) < 2:
        return []
    first, last = (dict(alone.iloc[place]) for place in (0, -1))
    text = (
        f"A load that has to wait for the one before takes {with_unit(first['estimate'], 's')} at a footprint of "
        f"{size(first['x'])} and {with_unit(last['estimate'], 's')} at {size(last['x'])}: "
        f"{multiple(over(last, first))} as long."
    )
    return [view.say(text), *map(view.say, _compared(levels))]


def _compared(levels: Sequence[dict[str, Any]]) -> list[str]:
    """Where the curve and the system disagree on the end of a cache; nothing where no step was found."""
    if not any(one["estimate"] for one in levels):
        return []
    lines = []
    other = [one for one in levels if one["told"] and one["low"] is not None and not _holds(one)]
    if other:
        told = [f"{one['level']} ends at {_found(one)}, not at {size(one['told'])}" for one in other]
        lines.append(f"By the curve, {several(told)} as the system tells.")
    missing = [f"{one['level']} ({size(one['told'])})" for one in levels if one["told"] and not one["estimate"]]
    extra = [_found(one) for one in levels if not one["told"]]
    if missing and extra:
        lines.append(f"The curve has no step near the told size of {several(missing)}, but one at {several(extra)}.")
    elif missing:
        lines.append(f"The curve has no step near the told size of {several(missing)}.")
    elif extra:
        lines.append(f"The curve has a further step at {several(extra)}, which may be the reach of a TLB.")
    return lines or ["Every cache ends where the system says it does, within the interval."]


def _holds(level: dict[str, Any]) -> bool:
    return float(level["low"]) <= float(level["told"]) <= float(level["high"])


FAMILY = Family("latency", "Latency, and where the caches end", show)
