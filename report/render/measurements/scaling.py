"""More cores: the gain over one thread, for products, memory and training steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report.formatting import count, several, with_unit
from report.render import sweep
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, factor, known, records, series, stated
from report.render.words import LEVEL

# With fewer numbers of threads than these there is nothing to draw: a table says it all.
FEWEST_POINTS = 3


@dataclass(frozen=True, eq=False)
class Work:
    """One kind of work: its rates, its gain per thread, and which of their cells are shown as which line."""

    title: str
    rate: str
    unit: str
    lines: tuple[str, ...]
    wanted: Mapping[str, Any]

    @property
    def efficiency(self) -> str:
        return f"{self.rate.partition('.')[0]}.scaling_efficiency"


_WORKS = (
    Work("matrix products", "gemm.rate", "FLOP/s", ("dtype",), {"backend": "best", "shape": "best"}),
    Work("triad from main memory", "bandwidth.rate", "B/s", ("dtype",), {"backend": "best", "op": "triad"}),
    Work("training steps", "training.rate", "samples/s", ("model", "dtype"), {"backend": "torch"}),
)


def show(view: View) -> Iterable[Exhibit]:
    """A table of the first and the last number of threads; a figure if there are more between."""
    found = {work: lines for work in _WORKS if (lines := _lines(view, work))}
    if not found:
        return
    threads = {int(cell["threads"]) for lines in found.values() for line in lines.values() for cell in line}
    drawing = _drawing(view, found) if len(threads) + 1 >= FEWEST_POINTS else None
    yield Exhibit([view.say(_reading(found))], drawing, _table(view, found), wide=True)


def _lines(view: View, work: Work) -> dict[str, list[dict[str, Any]]]:
    """Efficiencies by line, from few threads to many; of several batches the largest."""
    cells = view.quantity(work.efficiency, device="cpu", **work.wanted)
    if not len(cells):
        return {}
    if "batch" in cells.labels:
        largest = cells.frame.groupby("model")["batch"].transform("max")
        cells = cells.at((cells.frame["batch"] == largest).to_numpy(bool))
    lines: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(records(cells), key=lambda cell: int(cell["threads"])):
        lines.setdefault(", ".join(str(cell[name]) for name in work.lines), []).append(cell)
    return dict(sorted(lines.items()))


def _gain(cell: Mapping[str, Any], name: str = "estimate") -> float:
    return float(cell[name]) * int(cell["threads"])


def _scaled(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The gain of all threads together, with its interval, from the gain per thread."""
    return {name: _gain(cell, name) for name in ("estimate", "low", "high")}


def _gains(line: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """One thread, which is the base, and the gains of more."""
    return {
        "xs": [1.0, *(float(cell["threads"]) for cell in line)],
        "y": [1.0, *(_gain(cell) for cell in line)],
        "low": [1.0, *(known(_gain(cell, "low")) for cell in line)],
        "high": [1.0, *(known(_gain(cell, "high")) for cell in line)],
    }


def _drawing(view: View, found: Mapping[Work, Mapping[str, list[dict[str, Any]]]]) -> Drawing:
    panels = []
    for work, lines in found.items():
        looks = colours(list(lines))
        drawn = [series(_gains(line), label, looks[label]) for label, line in lines.items()]
        most = max(one["xs"][-1] for one in drawn)
        panels.append(
            {
                "title": work.title,
                "series": drawn,
                "guides": [{"xs": [1.0, most], "ys": [1.0, most], "label": "ideal"}],
            }
        )
    shows = {"panels": panels, "along": "threads", "x": "threads", "y": "gain", "unit": "1", "base": 2}
    caption = (
        f"Gain with more threads over one, with {LEVEL} intervals; the dashed line is as many times the rate as "
        "threads."
    )
    return sweep.drawing(view.name("scaling"), shows, caption, view.where())


def _table(view: View, found: Mapping[Work, Mapping[str, list[dict[str, Any]]]]) -> Table:
    rows = []
    most = {int(line[-1]["threads"]) for lines in found.values() for line in lines.values()}
    for work, lines in found.items():
        rates = view.quantity(work.rate, device="cpu", **work.wanted)
        for label, line in lines.items():
            last = line[-1]
            same = {name: last[name] for name in ("dtype", "model", "batch", "op") if name in rates.labels}
            mine = records(rates.only(**same))
            told = {int(cell["threads"]): with_unit(cell["estimate"], work.unit) for cell in mine}
            threads = int(last["threads"])
            many = told.get(threads, NOTHING) + ("" if len(most) == 1 else f" ({count(threads, 'thread')})")
            gain = [factor(_scaled(last)), stated(last, "1")]
            rows.append([f"{work.title}, {label}", told.get(1, NOTHING), many, *gain])
    head = count(most.pop(), "thread") if len(most) == 1 else "Most threads"
    return Table(
        f"The gain from more threads, and per thread: the rate over as many times that of one thread; {view.where()}",
        ["Work", "1 thread", head, "Gain", "Gain per thread"],
        rows,
        "lrrrr",
        [28, 16, 16, 20, 20],
    )


def _reading(found: Mapping[Work, Mapping[str, list[dict[str, Any]]]]) -> str:
    """The kind of work that gains most from the cores, and the one that gains least."""
    last = [(work, label, line[-1]) for work, lines in found.items() for label, line in lines.items()]
    last.sort(key=lambda one: -one[2]["estimate"])
    ends = [last[0]] if len(last) == 1 else [last[0], last[-1]]
    named = [
        f"{work.title} ({label}) by {stated(_scaled(cell), '1')} with {count(int(cell['threads']), 'thread')}"
        for work, label, cell in ends
    ]
    if len(named) == 1:
        return f"More threads multiply the rate of {named[0]}."
    return f"More threads multiply the rate of {several(named)}: the most and the least of what was measured."


FAMILY = Family("scaling", "More cores", show)
