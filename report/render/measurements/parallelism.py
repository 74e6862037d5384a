"""Parallelism: throughput over the threads in flight, what it costs if they part ways, and plain products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.formatting import count, number, several, with_unit
from report.quantities.parallelism import PRODUCTS
from report.render import dots, sweep
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, filled, known, mark, ratio, records, series, stated
from report.render.words import LEVEL

_PRODUCTS = {"naive": "plain", "tiled": "by tiles", "library": "library"}
# Everything relative to one path is 1 there.
_ONE = {"estimate": 1.0, "low": 1.0, "high": 1.0}


def show(view: View) -> Iterable[Exhibit]:
    """For each GPU its threads and its products; the cost of paths for all devices together."""
    for device in view.devices():
        yield from _threads(view, device)
    yield from _paths(view)
    for device in view.devices():
        yield from _products(view, device)


def _line(cells: Iterable[Mapping[str, Any]], along: str) -> dict[str, list[Any]]:
    ordered = sorted(cells, key=lambda cell: float(cell[along]))
    return {
        "xs": [float(cell[along]) for cell in ordered],
        "y": [float(cell["estimate"]) for cell in ordered],
        "low": [known(cell["low"]) for cell in ordered],
        "high": [known(cell["high"]) for cell in ordered],
    }


def _threads(view: View, device: str) -> Iterable[Exhibit]:
    line = _line(records(view.quantity("parallelism.throughput", device=device)), "in_flight")
    if len(line["xs"]) < 2:
        return
    first, best = line["xs"][0], max(line["y"])
    each = line["y"][0] / first
    enough = records(view.quantity("parallelism.threads_for_90_percent", device=device))
    held = view.of("parallelism", "threads_held", device)["estimate"]
    marks = [{"x": float(held.max()), "label": "full"}] if len(held) else []
    marks += [
        {"x": cell["estimate"], "low": cell["low"], "high": cell["high"], "label": ""}
        for cell in enough
        if known(cell["low"])
    ]
    look = colours([device])[device]
    guide = {"xs": [first, best / each], "ys": [line["y"][0], best], "label": ""}
    shows = {
        "panels": [{"title": "", "series": [series(line, "", look, told="chains")], "marks": marks,
                    "guides": [guide]}],
        "along": "threads", "x": "threads in flight", "y": "throughput", "unit": "FLOP/s", "base": 10, "narrow": True,
    }  # fmt: skip
    caption = (
        "Throughput of multiply-adds of which every thread does one after the other, each with the last one's "
        f"result, over the threads in flight, with {LEVEL} intervals; dashed: in proportion to the fewest threads"
    )
    caption += "; the band is where nine tenths of the best are reached" if marks and "low" in marks[-1] else ""
    caption += "; full: as many threads as the GPU holds at once" if len(held) else ""
    reading = [view.say(text, device) for text in _reading(view, device, line, enough)]
    yield Exhibit(reading, sweep.drawing(view.name("threads", device), shows, f"{caption}.", view.where(device)))


def _reading(view: View, device: str, line: Mapping[str, list[Any]], enough: list[dict[str, Any]]) -> Iterable[str]:
    """How many threads it takes, and how far throughput grows with them."""
    top = line["y"].index(max(line["y"]))
    best = with_unit(line["y"][top], "FLOP/s")
    for cell in enough:
        yield f"Nine tenths of the best throughput, {best}, take {stated(cell, 'threads')} in flight."
    side = sorted(
        records(view.quantity("parallelism.linearity", device=device)), key=lambda cell: int(cell["in_flight"])
    )
    if side:
        worst = min(side, key=lambda cell: float(cell["estimate"]))
        fewest = "one alone does" if line["xs"][0] == 1 else f"one of {line['xs'][0]:,.0f} does"
        yield (
            f"Up to {count(int(side[-1]['in_flight']), 'thread')}, each does at least {stated(worst, '1')} times what "
            f"{fewest}."
        )


def _paths(view: View) -> Iterable[Exhibit]:
    cells = records(view.quantity("parallelism.divergence_cost"))
    devices = [device for device in view.devices() if any(cell["device"] == device for cell in cells)]
    if not devices:
        return
    looks = colours(devices)
    lines = [
        series(
            _line([{**_ONE, "paths": 1}, *(cell for cell in cells if cell["device"] == device)], "paths"),
            _spelt(device),
            looks[device],
        )
        for device in devices
    ]
    most = max(int(cell["paths"]) for cell in cells)
    guide = {"xs": [1.0, float(most)], "ys": [1.0, float(most)], "label": ""}
    shows = {
        "panels": [{"title": "", "series": filled(lines), "guides": [guide]}],
        "along": "paths", "x": "different paths in a group of 32", "y": "time over that of one path",
        "unit": "1", "base": 2, "narrow": True,
    }  # fmt: skip
    caption = (
        "Time of the same work if the threads of a group take different paths through a program, over that with one "
        f"path, with {LEVEL} intervals; dashed: as many times as paths"
    )
    if "cpu" in devices:
        caption += "; on the CPU, one core and the fastest of vectors with masks and element by element"
    ends = [
        f"{stated(cell, '1')} times as long on {'the CPU' if device == 'cpu' else device}"
        for device in devices
        for cell in cells
        if cell["device"] == device and int(cell["paths"]) == most
    ]
    reading = f"The same work takes {several(ends)} if a group of 32 takes {most} different paths."
    alone = [
        f"{stated(cell, 's')} on {'the CPU' if cell['device'] == 'cpu' else cell['device']}"
        for cell in records(view.quantity("parallelism.path_time", paths=1))
    ]
    plain = f"With one path it takes {several(alone)}."
    yield Exhibit(
        [view.say(reading), view.say(plain)], sweep.drawing(view.name("paths"), shows, f"{caption}.", view.label)
    )


def _spelt(device: str) -> str:
    return "CPU" if device == "cpu" else device


def _products(view: View, device: str) -> Iterable[Exhibit]:
    cells = view.quantity("parallelism.product_rate", device=device)
    found = records(cells)
    if not found:
        return
    looks = colours(PRODUCTS)
    rows: dict[int, list[dict[str, Any]]] = {}
    for cell in sorted(found, key=lambda cell: (int(cell["n"]), PRODUCTS.index(cell["kernel"]))):
        rows.setdefault(int(cell["n"]), []).append(cell)
    drawn = [
        {
            "label": f"{n:,} × {n:,}",
            "marks": [mark(cell, looks[cell["kernel"]]) for cell in same],
            "told": " / ".join(number(cell["estimate"] / 1e12) for cell in same) + " TFLOP/s",
        }
        for n, same in rows.items()
    ]
    names = [name for name in PRODUCTS if any(cell["kernel"] == name for cell in found)]
    shows = {
        "groups": [{"title": "", "rows": drawn}], "x": "rate", "unit": "FLOP/s", "scale": "log",
        "legend": [{"label": _PRODUCTS[name], "look": looks[name]} for name in names],
    }  # fmt: skip
    caption = (
        f"Products of square matrices in float32, with {LEVEL} intervals, "
        f"{' / '.join(_PRODUCTS[name] for name in names)}: one thread computes one cell, from memory or from tiles "
        f"that its block shares, and the library's; {view.where(device)}."
    )
    largest = max(rows)
    at = {cell["kernel"]: place for place, cell in enumerate(found) if int(cell["n"]) == largest}
    gains = [
        f"{said} {stated(ratio(cells, at[over], at[under]), '1')}"
        for over, under, said in (
            ("tiled", "naive", "tiles multiply the rate of the plain kernel by"),
            ("library", "tiled", "the library multiplies that of tiles by"),
        )
        if over in at and under in at
    ]
    reading = [view.say(f"For matrices of {largest:,} × {largest:,}, {several(gains)}.", device)] if gains else []
    yield Exhibit(reading, dots.drawing(view.name("products", device), shows, caption, caption))


FAMILY = Family("parallelism", "Side by side", show)
