"""What is in the matrices: rate, and power where a counter tells it, against random normal data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import capital, number, several
from report.quantities.content import BASE, of
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, formats, mark, records, stated, who
from report.render.words import LEVEL

_WHAT = {"rate": "content.speed_ratio", "power": "content.power_ratio"}
_UNITS = {"rate": "FLOP/s", "power": "W"}


def show(view: View) -> Iterable[Exhibit]:
    """A figure of rates per device, and one of power where it was read."""
    for device in view.devices():
        for what, quantity in _WHAT.items():
            cells = _largest(view.quantity(quantity, device=device))
            if len(cells):
                reading = _reading(view, device, what, cells) + (_flushed(view, device) if what == "rate" else [])
                yield Exhibit([view.say(line, device) for line in reading], _drawing(view, device, what, cells))


def _largest(cells: Estimates) -> Estimates:
    """The largest shape only."""
    if not len(cells):
        return cells
    size = cells.frame["m"].astype(float) * cells.frame["n"].astype(float) * cells.frame["k"].astype(float)
    return cells.at((size == size.max()).to_numpy(bool))


def _groups(cells: Estimates) -> dict[tuple[str, int], list[dict[str, Any]]]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for cell in records(cells):
        groups.setdefault((str(cell["dtype"]), int(cell["threads"])), []).append(cell)
    order = formats(dtype for dtype, _ in groups)
    return dict(sorted(groups.items(), key=lambda one: (order.index(one[0][0]), one[0][1])))


def _drawing(view: View, device: str, what: str, cells: Estimates) -> Drawing:
    looks = colours(cells.frame["backend"])
    drawn: list[dict[str, Any]] = []
    for (dtype, threads), group in _groups(cells).items():
        rows = []
        for content in dict.fromkeys(str(cell["content"]) for cell in group):
            these = [cell for cell in group if cell["content"] == content]
            marks = [mark(cell, looks[cell["backend"]]) for cell in these]
            rows.append({"label": content, "marks": marks, "told": _range([cell["estimate"] for cell in these])})
        title = who(dtype, threads)
        drawn.append(
            {"title": title, "rows": rows, "lines": [{"x": 1.0, "label": "" if drawn else f"as on {BASE} data"}]}
        )
    values = cells.frame["estimate"].astype(float)
    shows = {
        "groups": drawn, "x": f"{what} over that on random {BASE} data", "unit": "1",
        "scale": "log" if values.max() / values.min() > 4 else "linear",
        "legend": [{"label": str(name), "look": look} for name, look in looks.items()] if len(looks) > 1 else [],
    }  # fmt: skip
    shape = f"{cells.frame['m'].iloc[0]:,} × {cells.frame['k'].iloc[0]:,} by {cells.frame['n'].iloc[0]:,}"
    caption = (
        f"{capital(what)} of a product ({shape}) by what its matrices hold, over that on random {BASE} data, with "
        f"{LEVEL} intervals; {view.where(device)}."
    )
    return dots.drawing(view.name(f"content-{what}", device), shows, caption, caption)


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _reading(view: View, device: str, what: str, cells: Estimates) -> list[str]:
    """The largest effect either way, with what was measured on either side, and how many are told apart from none."""
    told = records(cells)
    apart = [cell for cell in told if cell["low"] > 1 or cell["high"] < 1]
    text = f"The {what} differs from that on random {BASE} data, interval and all, in {len(apart)} of {len(told)} cases"
    if not apart:
        return [f"{text}."]
    ends = [min(apart, key=lambda cell: cell["estimate"]), max(apart, key=lambda cell: cell["estimate"])]
    ends = ends if ends[0]["estimate"] < 1 < ends[1]["estimate"] else [max(ends, key=_effect)]
    sides = view.pick(of(view.data, what), device=device)
    named = [f"{stated(cell, '1')} times on {_case(cell)}: {_sides(cell, sides, what)}" for cell in ends]
    return [f"{text}; the furthest: {'; '.join(named)}."]


def _sides(cell: dict[str, Any], sides: Estimates, what: str) -> str:
    """'98.1 [97.0, 99.2] GFLOP/s against 90.2 [89.1, 91.3] GFLOP/s': on this content, and on the base."""
    same = sides.only(**{name: cell[name] for name in ("dtype", "backend", "threads", "m", "n", "k")})
    unit = _UNITS[what]
    return " against ".join(stated(records(same.only(content=name))[0], unit) for name in (cell["content"], BASE))


def _effect(cell: dict[str, Any]) -> float:
    return max(float(cell["estimate"]), 1 / float(cell["estimate"]))


def _case(cell: dict[str, Any]) -> str:
    return f"{cell['content']} ({cell['backend']}, {who(cell['dtype'], cell['threads'])})"


def _flushed(view: View, device: str) -> list[str]:
    """Which libraries take denormal numbers for zero."""
    cells = view.cells("content", "flushed_share", device=device)
    names = [f"{cell['backend']} in {cell['dtype']}" for cell in records(cells) if cell["estimate"] > 0]
    names = list(dict.fromkeys(names))
    return [f"Denormal numbers are taken for zero by {several(names)}."] if names else []


FAMILY = Family("content", "What is in the matrices", show)
