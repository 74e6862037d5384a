"""Which library multiplies fastest: square products on one core, a group of rows per number format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import count, number, several, with_unit
from report.quantities.ladder import LOOPS
from report.render import dots
from report.render.figures import MARKERS, SERIES, Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.gemm import DEFAULT
from report.render.measurements.marks import formats, mark, ratio, records, stated
from report.render.words import LEVEL

MOST_SIZES = 3


def show(view: View) -> Iterable[Exhibit]:
    """One figure and one table per device that has several libraries."""
    for device in view.devices():
        cells = view.cells("gemm", value="flop_per_s", device=device)
        if not len(cells):
            continue
        frame = cells.frame
        square = (frame["m"] == frame["n"]) & (frame["n"] == frame["k"]) & ~frame["backend"].isin(LOOPS)
        cells = cells.at((square & (frame["threads"] == frame["threads"].min())).to_numpy(bool))
        groups = {dtype: one for dtype in formats(cells.frame["dtype"]) if len(one := _of_format(cells, dtype))}
        if groups:
            peaks = _peaks(view, device)
            reading = [view.say(_reading(dtype, one, peaks), device) for dtype, one in groups.items()]
            every = view.cells("gemm", value="flop_per_s", device=device)
            yield Exhibit(reading, _drawing(view, device, groups, peaks), _table(view, device, groups, every))


def _of_format(cells: Estimates, dtype: str) -> Estimates:
    """Cells at the sizes that most libraries have measured, if they are several libraries."""
    these = cells.only(dtype=dtype)
    shared = these.frame.groupby("n")["backend"].nunique()
    sizes = sorted(shared[shared == shared.max()].index)[-MOST_SIZES:]
    these = these.only(n=sizes)
    return these if these.frame["backend"].nunique() > 1 else Estimates.empty()


def _peaks(view: View, device: str) -> dict[str, float]:
    """The measured peak of one core, or of the device, per number format."""
    rows = view.of("peak", device=device)
    rows = rows[rows["kernel"] == "fma"] if len(rows) else rows
    rows = rows[rows["threads"] == rows["threads"].min()]
    return {str(dtype): float(part["flop_per_s"].max()) for dtype, part in rows.groupby("dtype")}


def _sizes(groups: Mapping[str, Estimates]) -> list[int]:
    return sorted({int(n) for one in groups.values() for n in one.frame["n"]})


def _ranked(cells: Estimates) -> list[tuple[str, list[dict[str, Any]]]]:
    """Libraries with their cells by size, the fastest at the largest size first."""
    each: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(records(cells), key=lambda cell: cell["n"]):
        each.setdefault(str(cell["backend"]), []).append(cell)
    return sorted(each.items(), key=lambda item: -item[1][-1]["estimate"])


def _drawing(view: View, device: str, groups: Mapping[str, Estimates], peaks: Mapping[str, float]) -> Drawing:
    sizes = _sizes(groups)
    looks = {n: [SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]] for i, n in enumerate(sizes)}
    drawn = []
    for dtype, cells in groups.items():
        rows = [
            {
                "label": backend,
                "marks": [mark(cell, looks[int(cell["n"])]) for cell in each],
                "told": with_unit(each[-1]["estimate"], "FLOP/s"),
                "strong": backend == DEFAULT,
            }
            for backend, each in _ranked(cells)
        ]
        line = [{"x": peaks[dtype], "label": f"peak {with_unit(peaks[dtype], 'FLOP/s')}"}] if dtype in peaks else []
        drawn.append({"title": dtype, "rows": rows, "lines": line})
    shows = {
        "groups": drawn, "x": "rate", "unit": "FLOP/s", "scale": "log",
        "legend": [{"label": f"n = {n:,}", "look": look} for n, look in looks.items()],
    }  # fmt: skip
    caption = (
        f"Rate of square products by library{_on_one(device)}, with {LEVEL} intervals; the number is that of the "
        "largest size, bold is what PyTorch does by itself, and the dashed lines are the measured peak; "
        f"{view.where(device)}."
    )
    about = f"Libraries by their rate at the largest size on {view.where(device)}."
    return dots.drawing(view.name("libraries", device), shows, caption, about)


def _on_one(device: str) -> str:
    return " on one core" if device == "cpu" else ""


def _reading(dtype: str, cells: Estimates, peaks: Mapping[str, float]) -> str:
    """Which library won at the largest size, by how much over the next and over the default."""
    largest = int(cells.frame["n"].max())
    cells = cells.only(n=largest)
    cells = cells.at(list(cells.frame.sort_values("estimate", ascending=False, kind="stable").index))
    told = records(cells)
    text = (
        f"In {dtype} at n = {largest:,} the fastest of {count(len(told), 'choice')} is {told[0]['backend']} at "
        f"{with_unit(told[0]['estimate'], 'FLOP/s')}"
    )
    if dtype in peaks:
        text += f", {number(100 * told[0]['estimate'] / peaks[dtype], 2)}% of the measured peak"
    default = next((i for i, one in enumerate(told) if one["backend"] == DEFAULT), 0)
    against = []
    for place in sorted({1, default} - {0}):
        gain = ratio(cells, 0, place)
        who = "PyTorch's own choice" if told[place]["backend"] == DEFAULT else told[place]["backend"]
        against.append(f"{stated(gain, '1')} times {who}{'' if gain['low'] > 1 else ', too close to call'}")
    return f"{text}: {several(against)}." if against else f"{text}."


def _table(view: View, device: str, groups: Mapping[str, Estimates], every: Estimates) -> Table | None:
    """Beside one core, what all cores do with the largest size; no table where there is but one number of threads."""
    most = int(every.frame["threads"].max())
    if most <= int(every.frame["threads"].min()):
        return None
    rows = []
    for dtype, cells in groups.items():
        largest = int(cells.frame["n"].max())
        for backend, each in _ranked(cells):
            all_cores = records(every.only(dtype=dtype, backend=backend, m=largest, n=largest, k=largest, threads=most))
            rows.append([dtype, backend, *_rates([each[-1], *all_cores])])
    return Table(
        f"Rates at the largest size, by library and threads; {view.where(device)}",
        ["Format", "Library", "1 thread", count(most, "thread")],
        rows,
        "llrr",
        [21, 33, 23, 23],
    )


def _rates(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    told = [with_unit(cell["estimate"], "FLOP/s") for cell in cells]
    return [*told, *[NOTHING] * (2 - len(told))]


FAMILY = Family("libraries", "The same product by different libraries", show)
