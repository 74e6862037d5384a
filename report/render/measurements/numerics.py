"""Order and rounding: how far results lie apart, and whether the same call gives the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.estimates import Estimates, concat
from report.formatting import count, number, several
from report.quantities.numerics import ACROSS, WITHIN
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, formats, mark, records

_METHODS = {
    "cell_order": "cells in another order",
    "permuted": "rows, columns moved",
    "threads": "other threads",
    "libraries": "PyTorch or library",
    "split_k": "sum in parts",
    "summation": "sum in another order",
}
SAME = "same bits"


def show(view: View) -> Iterable[Exhibit]:
    """A figure of spreads and a table of determinism per device."""
    for device in view.devices():
        spreads = _deepest(view, device)
        table = _determinism(view, device)
        if len(spreads):
            yield Exhibit(
                [view.say(line, device) for line in _reading(view, device, spreads)],
                _drawing(view, device, spreads),
                table,
            )
        elif table:
            yield Exhibit((), None, table)


def _deepest(view: View, device: str) -> Estimates:
    """Spreads of every method at its deepest sum."""
    names = ("numerics.spread_across_cells_ulp", "numerics.spread_within_cell_ulp")
    parts = [cells for name in names if len(cells := view.quantity(name, device=device))]
    if not parts:
        return Estimates.empty()
    cells = concat(parts)
    depth = cells.frame["k"].astype(float)
    deepest = depth.groupby([cells.frame[name] for name in ("method", "dtype", "backend")]).transform("max")
    return cells.at((depth == deepest).to_numpy(bool))


def _drawing(view: View, device: str, spreads: Estimates) -> Drawing:
    looks = colours(spreads.frame["backend"])
    drawn = []
    for dtype in formats(spreads.frame["dtype"]):
        rows = []
        for method, label in _METHODS.items():
            these = records(spreads.only(dtype=dtype, method=method))
            if these:
                marks = [mark(cell, looks[cell["backend"]]) for cell in these]
                rows.append({"label": label, "marks": marks, "told": _ulp([cell["estimate"] for cell in these])})
        drawn.append({"title": str(dtype), "rows": rows})
    shows = {
        "groups": drawn, "x": "largest difference in a cell", "unit": "ulp", "scale": "zero", "none": "0",
        "legend": [{"label": str(name), "look": look} for name, look in looks.items()],
    }  # fmt: skip
    caption = (
        "Largest difference between two results of one product, in units in the last place of the result's root mean "
        f"square, by what was changed; at 0 all bits are the same; {view.where(device)}."
    )
    return dots.drawing(view.name("numerics", device), shows, caption, caption)


def _ulp(values: Sequence[float]) -> str:
    low, high = (SAME if value == 0 else number(value, 2) for value in (min(values), max(values)))
    if low == high:
        return low
    return f"0 to {high}" if low == SAME else f"{low} to {high}"


def _reading(view: View, device: str, spreads: Estimates) -> list[str]:
    lines = []
    for what, methods in (
        ("where the cells stand or when they are computed", ACROSS),
        ("how a cell is added up", WITHIN),
    ):
        told = records(spreads.only(method=methods))
        if told:
            same = [cell for cell in told if cell["estimate"] == 0]
            text = f"Changing {what} leaves every bit the same in {len(same)} of {len(told)} cases"
            most = max(told, key=lambda cell: cell["estimate"])
            if most["estimate"] > 0:
                text += (
                    f"; the most it moves a cell is {number(most['estimate'])} ulp "
                    f"({_METHODS[str(most['method'])]}, {most['backend']}, {most['dtype']})"
                )
            lines.append(f"{text}.")
    errors = records(view.quantity("numerics.error_ulp", device=device, method=list(spreads.frame["method"].unique())))
    if errors:
        worst = [max((e for e in errors if e["dtype"] == dtype), key=lambda cell: cell["estimate"])
                 for dtype in dict.fromkeys(e["dtype"] for e in errors)]  # fmt: skip
        named = [f"{number(cell['estimate'], 2)} ulp in {cell['dtype']}" for cell in worst]
        lines.append(f"Against an exact result, the worst of these orders errs by {several(named)}.")
    return lines


def _determinism(view: View, device: str) -> Table | None:
    """Different results of one product, library by library: from call to call, from process to process, by threads."""
    cells = view.quantity("numerics.determinism", device=device)
    if not len(cells):
        return None
    moved = view.cells("numerics", "differing_share", device=device, method="threads")
    rows = []
    for backend, dtype in dict.fromkeys(zip(cells.frame["backend"], cells.frame["dtype"], strict=True)):
        mine = {"backend": backend, "dtype": dtype}
        calls, rounds = (records(cells.only(over=over, **mine)) for over in ("calls", "rounds"))
        shares = records(moved.only(**mine)) if len(moved) else []
        rows.append(
            [
                f"{backend}, {dtype}",
                _results(calls),
                _results(rounds),
                _share(shares[0]["estimate"]) if shares else NOTHING,
            ]
        )
    return Table(
        f"Different results of the same product, bit by bit: among repeated calls, among processes, and the share of "
        f"cells that change with the number of threads; {view.where(device)}",
        ["Library, format", "Calls", "Processes", "Cells that threads change"],
        rows,
        "lrrr",
        [37, 19, 21, 23],
    )


def _results(cells: Sequence[dict[str, Any]]) -> str:
    """The most different results that any shape gave."""
    if not cells:
        return NOTHING
    most = max(float(cell["estimate"]) for cell in cells)
    return count(int(most), "result") if most.is_integer() else f"{number(most)} results"


def _share(value: float) -> str:
    return "none" if value == 0 else f"{number(100 * value, 2)}%"


FAMILY = Family("numerics", "The order of the work, and the bits of the result", show)
