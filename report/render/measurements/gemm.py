"""Matrix products by size: rate of each library, a panel per number format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.quantities.ladder import LOOPS
from report.render import sweep
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, fewest_and_most, filled, formats, hollow, rates, series, who
from report.wording import several, with_unit

# Lines of so many libraries can be told apart; of more, the fastest and the default are, and the rest is grey.
MOST_NAMED = 4
DEFAULT = "torch"


def show(view: View) -> Iterable[Exhibit]:
    """A figure per device. Plain loops stand on the ladder, other numbers of threads under scaling."""
    for device in view.devices():
        products = view.of("gemm", device=device)
        products = fewest_and_most(products[~products["backend"].isin(LOOPS)])
        if not len(products):
            continue
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
        shows = {"panels": panels, "x": "cube root of m·n·k", "y": "rate", "unit": "FLOP/s", "base": 2}
        caption = (
            f"Rate of matrix products by size and library{hollow(products)}, with 95% intervals; lines join square "
            "shapes, lone marks are the shapes of transformers, level lines the measured peak of fused multiply-adds"
        )
        if set(products["backend"]) > set(named):
            caption += "; grey: all other libraries"
        reading = [view.say(f"{_told(dtype, by_format[dtype])}.", device) for dtype in lone]
        drawing = sweep.drawing(view.name("gemm", device), shows, f"{caption}.", view.where(device)) if panels else None
        yield Exhibit(reading, drawing, wide=True)


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
