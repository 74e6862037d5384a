"""Work on tables: rows per second over the number of rows, a panel per operation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.quantities.tabular import DEFAULT
from report.render import sweep
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import (
    colours,
    fewest_and_most,
    filled,
    hollow,
    rates,
    records,
    series,
    stated,
    who,
)
from report.render.words import LEVEL


def show(view: View) -> Iterable[Exhibit]:
    """A figure and a table of the fastest per device."""
    for device in view.devices():
        points = fewest_and_most(view.of("tabular", device=device))
        if not len(points):
            continue
        points["x"] = points["rows"].astype(float)
        looks = colours(points["backend"])
        panels = []
        for op, part in points.groupby("op", sort=True):
            lines = [
                series(
                    rates(line, "rows"),
                    _library(backend, transfers),
                    looks[backend],
                    hollow=transfers == "included" or threads == 1,
                    told=_library(who(backend, threads), transfers),
                )
                for (backend, threads, transfers), line in part.groupby(["backend", "threads", "transfers"], sort=True)
            ]
            panels.append({"title": str(op).replace("_", " "), "series": filled(lines)})
        shows = {"panels": panels, "along": "size", "x": "rows", "y": "rate", "unit": "rows/s", "base": 10}
        caption = f"Rows worked through per second, by operation and library{hollow(points)}, with {LEVEL} intervals."
        yield Exhibit(
            drawing=sweep.drawing(view.name("tabular", device), shows, caption, view.where(device)),
            table=_table(view, device, points),
            wide=True,
        )


def _library(backend: Any, transfers: Any) -> str:
    return str(backend) + ("" if transfers == "none" else f", transfers {transfers}")


def _table(view: View, device: str, points: pd.DataFrame) -> Table:
    """The fastest library for each operation on the largest table, and by how much over what is usual."""
    cells = view.quantity("tabular.rate", device=device)
    usual = view.quantity("tabular.rate", backend=DEFAULT)
    rows = []
    for op, part in points.groupby("op", sort=True):
        most = int(part["rows"].max())
        for best in records(cells.only(op=op, rows=most, backend="best")):
            base = usual.only(op=op, rows=most) if len(usual) else usual
            mine = cells.only(op=op, rows=most, backend="best", transfers=best["transfers"])
            gain = records(mine.by("node") / base.best(["node"])) if len(base) else []
            way = "" if best["transfers"] == "none" else f", transfers {best['transfers']}"
            rows.append(
                [
                    f"{str(op).replace('_', ' ')}{way}", f"{most:,}", str(best["detail"]), stated(best, "rows/s"),
                    stated(gain[0], "1") if gain else NOTHING,
                ]
            )  # fmt: skip
    return Table(
        f"The fastest library on the largest table of each operation, and its rate over that of {DEFAULT}; "
        f"{view.where(device)}",
        ["Operation", "Rows", "Fastest", "Rate", f"Over {DEFAULT}"],
        rows,
        "lrlrr",
        [16, 13, 20, 31, 20],
    )


FAMILY = Family("tabular", "Work on tables", show)
