"""Matrix products by size: rate of each library, a panel per number format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.formatting import several, with_unit
from report.quantities.gemm import METRICS
from report.quantities.ladder import LOOPS
from report.render import sweep
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import (
    colours,
    fewest_and_most,
    filled,
    formats,
    hollow,
    rates,
    records,
    series,
    stated,
    who,
)
from report.render.words import LEVEL

# Lines of so many libraries can be told apart; of more, the fastest and the default are, and the rest is grey.
MOST_NAMED = 4
DEFAULT = "torch"


def show(view: View) -> Iterable[Exhibit]:
    """For each device its products by size, what a search over shapes found, and products in batches."""
    for device in view.devices():
        for shown in (_sizes(view, device), _searched(view, device), _batches(view, device)):
            if shown:
                yield shown


def called(view: View, experiment: str, device: str) -> pd.DataFrame:
    """The points of an experiment as they were called: one by one and, under a name that says so, in a graph."""
    parts = [view.of(experiment, metric, device) for metric in METRICS]
    named = [
        part.assign(backend=[name.format(backend) for backend in part["backend"]])
        for part, name in zip(parts, METRICS.values(), strict=True)
    ]
    return pd.concat([part for part in named if len(part)] or named[:1])


def _sizes(view: View, device: str) -> Exhibit | None:
    """A panel per number format. Plain loops stand on the ladder, other numbers of threads under scaling."""
    products = called(view, "gemm", device)
    products = fewest_and_most(products[~products["backend"].isin(LOOPS)])
    if not len(products):
        return None
    products["x"] = (products["m"] * products["n"] * products["k"]).astype(float) ** (1 / 3)
    products["square"] = (products["m"] == products["n"]) & (products["n"] == products["k"])
    named = notable(products)
    peaks = view.of("peak", device=device)
    by_format = {dtype: products[products["dtype"] == dtype] for dtype in formats(products["dtype"])}
    # One size makes no sweep, and its panel would be bare: it is told in words.
    lone = [dtype for dtype, part in by_format.items() if part["x"].nunique() == 1 and len(by_format) > 1]
    panels = [
        {"title": dtype, "series": _series(part, named), "limits": limits(peaks, dtype)}
        for dtype, part in by_format.items()
        if dtype not in lone
    ]
    shows = {"panels": panels, "along": "size", "x": "cube root of m·n·k", "y": "rate", "unit": "FLOP/s", "base": 2}
    caption = (
        f"Rate of matrix products by size and library{hollow(products)}, with {LEVEL} intervals; lines join square "
        "shapes, lone marks are the shapes of transformers, level lines the measured peak of fused multiply-adds"
    )
    if len(view.of("gemm", "graph_time", device)):
        caption += "; graph: many calls that were captured and are started as one"
    if set(products["backend"]) > set(named):
        caption += "; grey: all other libraries"
    reading = [view.say(f"{_told(dtype, by_format[dtype])}.", device) for dtype in lone]
    reading += _graph_gain(view, device)
    drawing = sweep.drawing(view.name("gemm", device), shows, f"{caption}.", view.where(device)) if panels else None
    return Exhibit(reading, drawing, wide=True)


def _graph_gain(view: View, device: str) -> list[str]:
    """A sentence on the product that gains most from a graph."""
    gains = [gain for gain in records(view.quantity("gemm.graph_gain", device=device)) if gain["low"] > 1]
    if not gains:
        return []
    top = max(gains, key=lambda gain: float(gain["estimate"]))
    return [
        view.say(
            f"The host starts small products more slowly than they run: one of {top['shape']} in {top['dtype']} takes "
            f"{stated(top, '1')} times as long as the same in a captured graph, which no other exceeds.",
            device,
        )
    ]


def _searched(view: View, device: str) -> Exhibit | None:
    """The fastest product that a search found in each number format, beside the fastest of those above."""
    found = view.quantity("gemm.achievable_rate", device=device)
    if not len(found):
        return None
    found = found.at(list(found.frame.groupby("dtype")["estimate"].idxmax()))
    best = {row["dtype"]: row for row in records(view.quantity("gemm.rate", device=device, backend="best"))}
    cells = {row["dtype"]: row for row in records(found)}
    rows = []
    for dtype in formats(cells):
        listed = best.get(dtype)
        shape = str(listed["detail"]).rpartition(", ")[2] if listed else NOTHING
        listed_rate = stated(listed, "FLOP/s") if listed else NOTHING
        rows.append([dtype, str(cells[dtype]["detail"]), stated(cells[dtype], "FLOP/s"), shape, listed_rate])
    top = max(cells.values(), key=lambda row: float(row["estimate"]))
    reading = view.say(
        f"The fastest product that a search over shapes found runs at {stated(top, 'FLOP/s')}, "
        f"in {top['dtype']} ({top['detail']}).",
        device,
    )
    head = ["Format", "Shape found, m × n × k", "Rate", "Best of the shapes above", "Rate"]
    caption = f"Fastest matrix products by number format, with {LEVEL} intervals, {view.where(device)}."
    return Exhibit([reading], table=Table(caption, head, rows, "llrlr", [15, 25, 25, 20, 25]))


def _batches(view: View, device: str) -> Exhibit | None:
    """Products in batches by the length of their sides: a panel per number format, a line per size of batch."""
    points = called(view, "batched", device)
    if not len(points):
        return None
    points = points.assign(x=points["m"].astype(float))
    lines = sorted({(int(one["batch"]), one["backend"]) for one in points.to_dict("records")})
    looks = colours([f"{batch} at once, {backend}" for batch, backend in lines])
    panels = []
    for dtype in formats(points["dtype"]):
        part = points[points["dtype"] == dtype]
        drawn = []
        for (batch, backend), (name, look) in zip(lines, looks.items(), strict=True):
            line = part[(part["batch"] == batch) & (part["backend"] == backend)]
            drawn.append(series(rates(line, "flop"), name, look))
        panels.append({"title": dtype, "series": filled(drawn)})
    top = points.sort_values("flop_per_s").iloc[-1]
    m, n, k = (f"{int(top[name]):,}" for name in ("m", "n", "k"))
    reading = view.say(
        f"Small products in batches reach {with_unit(float(top['flop_per_s']), 'FLOP/s')}: {int(top['batch'])} of "
        f"{m} × {k} by {k} × {n} at once, in {top['dtype']} with {top['backend']}.",
        device,
    )
    if points["x"].nunique() == 1:
        return Exhibit([reading])
    shows = {"panels": panels, "along": "size", "x": "m = n", "y": "rate", "unit": "FLOP/s", "base": 2}
    caption = "Rate of matrix products in batches, as attention multiplies them, by the length of their sides"
    drawing = sweep.drawing(
        view.name("batched", device), shows, f"{caption}, with {LEVEL} intervals.", view.where(device)
    )
    return Exhibit([reading], drawing, wide=True)


def _told(dtype: str, part: pd.DataFrame) -> str:
    """The points of a number format at its one size."""
    points = part.sort_values(["threads", "backend"]).to_dict("records")
    speeds = [f"{with_unit(one['flop_per_s'], 'FLOP/s')} with {who(one['backend'], one['threads'])}" for one in points]
    m, n, k = (f"{int(points[0][name]):,}" for name in ("m", "n", "k"))
    return f"{dtype} was measured at one size, {m} × {k} by {k} × {n}: {several(speeds)}"


def notable(products: pd.DataFrame) -> list[str]:
    """The libraries to be told apart: all, if they are few; else the default, and those that win most often."""
    every = sorted(set(products["backend"]))
    if len(every) <= MOST_NAMED:
        return every
    places = products.groupby(["dtype", "threads", "m", "n", "k"])["flop_per_s"].idxmax()
    wins = products.loc[places, "backend"].value_counts()
    order = sorted(every, key=lambda name: (name != DEFAULT, -int(wins.get(name, 0)), name))
    return sorted(order[:MOST_NAMED])


def _series(part: pd.DataFrame, named: list[str]) -> list[dict[str, Any]]:
    looks = colours(named)
    lines = []
    for (backend, threads), line in part.groupby(["backend", "threads"], sort=True):
        square = line["square"]
        if backend not in looks:
            lines.append({**series(rates(line[square], "flop"), "", ["", ""]), "grey": True})
            continue
        name, look, single = who(backend, threads), looks[backend], bool(threads == 1)
        lines.append(series(rates(line[square], "flop"), str(backend), look, single, told=name))
        # Other shapes have no order along the axis: nothing lies between them to interpolate.
        others = rates(line[~square], "flop")
        lines.append(series(others, "", look, single, joined=False, told=f"{name}, other shapes"))
    return filled(lines)


def limits(peaks: pd.DataFrame, dtype: Any) -> list[dict[str, Any]]:
    """The measured peak FMA rate of a number format, for each number of threads."""
    if not len(peaks):
        return []
    fma = peaks[(peaks["dtype"] == dtype) & (peaks["kernel"] == "fma")]
    best = fma.groupby("threads", sort=True)["flop_per_s"].max()
    return [{"y": float(rate), "label": who("peak", threads)} for threads, rate in zip(best.index, best, strict=True)]


FAMILY = Family("products", "Matrix products by size", show)
