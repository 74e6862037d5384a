"""Batch-size curves: samples per second of each device by the size of the batch, and from where they saturate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from report import statistics
from report.estimates import Estimates, device_kind
from report.formatting import count, interval, number, several
from report.quantities.ladder import LOOPS
from report.quantities.scaling import SATURATED
from report.render.central import curves
from report.render.central.base import Central, Machine, Shown, deciding, fastest, machine_names, of_all
from report.render.figures import MARKERS, MUTED, SERIES, Drawing, without_interval
from report.render.measurements.base import NOTHING, Table, View
from report.render.measurements.marks import known, multiple, over, records, stated, who
from report.render.words import LEVEL

MOST_MODELS = 6
# More are told by their number.
MOST_TOLD = 4
_DECIDES = ("scaling.throughput_over_eighth",)
_WORKS = {"training": "training.rate", "answering": "inference.throughput"}


@dataclass(frozen=True)
class Line:
    """A model on a machine, trained or answering: its cells by one library in one format, by rising batch."""

    model: str
    machine: Machine
    work: str
    cells: tuple[dict[str, Any], ...]

    @cached_property
    def enough(self) -> int | None:
        """Place of the least batch that surely does nine tenths of what every larger one does; None if there is none.

        Surely: the interval of the ratio to each larger batch lies above it. The largest batch has no larger one.
        """
        rate, se, df = (
            np.array([known(cell[name]) for cell in self.cells], float) for name in ("estimate", "se", "df")
        )
        for place in range(len(rate) - 1):
            half = statistics.half_width(*statistics.combine(se[place], df[place], se[place + 1 :], df[place + 1 :]))
            if (rate[place] / rate[place + 1 :] * np.exp(-half) >= SATURATED).all():
                return place
        return None

    @cached_property
    def gain(self) -> dict[str, Any]:
        """The highest rate of a larger batch over that of the smallest."""
        return over(max(self.cells[1:], key=_rate_of), self.cells[0])

    @property
    def highest(self) -> dict[str, Any]:
        return max(self.cells, key=_rate_of)

    @property
    def by(self) -> str:
        """The library, the format and, of a processor, the threads."""
        first = self.cells[0]
        return who(f"{first['backend']}, {first['dtype']}", first["threads"])

    @property
    def called(self) -> str:
        return f"{self.model} {self.work}"


def _rate_of(cell: Mapping[str, Any]) -> float:
    return float(cell["estimate"])


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A panel for each model that was measured at several sizes of its batch."""
    lines = [line for work, name in _WORKS.items() for line in _lines(work, of_all(views, name))]
    machines = _machines(views, lines)
    models = _models([line for line in lines if line.machine in machines])
    lines = [line for line in lines if line.machine in machines and line.model in models]
    if not lines:
        return None
    names = machine_names(views, machines)
    return Shown(
        _title(lines, names),
        [*_gains(lines, names), _saturation(lines, names)],
        _drawing(lines, models, names),
        _table(lines, names),
        deciding(document, *_DECIDES, along="batch"),
    )


def _lines(work: str, rates: Estimates) -> Iterator[Line]:
    """Of each model and machine one curve: that of the library, format and threads with the most batches.

    Of several such the one with the highest rate at its largest batch. What is joined is alike in all but the batch.
    """
    if not len(rates):
        return
    found: dict[tuple[str, Machine], dict[tuple[str, str, int], list[dict[str, Any]]]] = {}
    keep = ~rates.frame["backend"].isin([*LOOPS, "best"])
    for cell in sorted(records(rates.at(keep.to_numpy(bool))), key=lambda cell: int(cell["batch"])):
        here = found.setdefault((str(cell["model"]), (str(cell["node"]), str(cell["device"]))), {})
        here.setdefault((str(cell["backend"]), str(cell["dtype"]), int(cell["threads"])), []).append(cell)
    for (model, machine), by in found.items():
        cells = max(by.values(), key=lambda group: (len(group), float(group[-1]["estimate"])))
        if len(cells) > 1:
            yield Line(model, machine, work, tuple(cells))


def _machines(views: Sequence[View], lines: Sequence[Line]) -> list[Machine]:
    """The machines that are shown: with the most points, then the highest rate."""
    rank: dict[Machine, tuple[int, float]] = {}
    for line in lines:
        many, high = rank.get(line.machine, (0, 0.0))
        rank[line.machine] = many + len(line.cells), max(high, float(line.highest["estimate"]))
    return fastest(views, rank)


def _models(lines: Sequence[Line]) -> list[str]:
    """The models with the most points, by name."""
    points: dict[str, int] = {}
    for line in lines:
        points[line.model] = points.get(line.model, 0) + len(line.cells)
    return sorted(sorted(points, key=lambda model: (-points[model], model))[:MOST_MODELS])


def _title(lines: Sequence[Line], names: Mapping[Machine, str]) -> str:
    """The line that gains most from larger batches."""
    top = max(lines, key=lambda line: float(line.gain["estimate"]))
    does = {"training": "trains", "answering": "answers"}[top.work]
    first, last = int(top.cells[0]["batch"]), int(top.highest["batch"])
    return (
        f"With {last:,} samples at a time in place of {first:,}, {top.model} {does} {multiple(top.gain)} as many a "
        f"second on {names[top.machine]}"
    )


def _gains(lines: Sequence[Line], names: Mapping[Machine, str]) -> Iterator[str]:
    """What batches give where they give least and where they give most; of each kind of device where both are there."""
    for kind, named in (("cpu", "processor"), ("gpu", "GPU")):
        mine = sorted((line for line in lines if device_kind(line.machine[1]) == kind), key=_gained)
        if len(mine) > 1:
            low, high = (
                f"{multiple(line.gain)} as much ({line.called}{_on(line, names)}, at the least batch "
                f"{stated(line.cells[0], 'samples/s')})"
                for line in (mine[0], mine[-1])
            )
            yield f"Larger batches make a {named} do from {low} to {high}."


def _gained(line: Line) -> float:
    return float(line.gain["estimate"])


def _on(line: Line, names: Mapping[Machine, str]) -> str:
    return f", {names[line.machine]}" if len(names) > 1 else ""


def _saturation(lines: Sequence[Line], names: Mapping[Machine, str]) -> str:
    """Which curves are known to level off, and from which batch on."""
    found = [
        f"{line.called}{_on(line, names)} from {int(line.cells[line.enough]['batch']):,}"
        for line in lines
        if line.enough is not None
    ]
    if not found:
        return (
            f"None of {count(len(lines), 'curve')} is known to level off: at no batch does one surely have nine tenths "
            "of its rate at every larger one."
        )
    told = several(found) if len(found) <= MOST_TOLD else several([*found[:MOST_TOLD], "others"])
    return (
        f"{len(found):,} of {count(len(lines), 'curve')} surely {'has' if len(found) == 1 else 'have'} nine tenths of "
        f"the rate of every larger batch before the largest: {told}."
    )


def _drawing(lines: Sequence[Line], models: Sequence[str], names: Mapping[Machine, str]) -> Drawing:
    looks = _looks(lines, names)
    panels = []
    for model in models:
        mine = [line for line in lines if line.model == model]
        panels.append({"title": model, "lines": [_drawn(line, looks, names) for line in mine]})
    legend = [{"label": work, "look": look} for (_, work), look in looks.items()]
    if len(names) > 1:
        marks_of = {work: [MUTED, look[1]] for (_, work), look in looks.items()}
        legend = [{"label": name, "look": [SERIES[place], "o"]} for place, name in enumerate(names.values())]
        legend += [{"label": work, "look": look} for work, look in marks_of.items()]
    shows = {
        "panels": panels, "legend": legend, "x": "samples in a batch", "y": "rate", "unit": "samples/s",
    }  # fmt: skip
    marks = [cell for line in lines for cell in line.cells]
    bare = sum(known(cell["low"]) is None or known(cell["high"]) is None for cell in marks)
    caption = (
        f"Samples per second by the size of the batch, with {LEVEL} intervals, each curve by one library in one number "
        "format; a ring marks the least batch that surely has nine tenths of the rate of every larger one. "
        f"{several(list(names.values()))}.{without_interval(bare, len(marks))}"
    )
    told = [
        f"{line.called}, {names[line.machine]}: "
        + several([f"{number(_rate_of(cell))} at {int(cell['batch']):,}" for cell in line.cells])
        for line in lines
    ]
    return Drawing(FIGURE.name, shows, curves.draw, f"Samples per second by the size of the batch. {'. '.join(told)}.",
                   caption)  # fmt: skip


def _looks(lines: Sequence[Line], names: Mapping[Machine, str]) -> dict[tuple[Machine, str], list[str]]:
    """A colour for each machine and a mark for each work; of one machine alone a colour for each work too."""
    works = list(_WORKS)
    found = {}
    for place, machine in enumerate(names):
        for work in works:
            if any(line.machine == machine and line.work == work for line in lines):
                colour = SERIES[works.index(work) if len(names) == 1 else place]
                found[machine, work] = [colour, MARKERS[works.index(work)]]
    return found


def _rate(cell: Mapping[str, Any]) -> str:
    return interval(float(cell["estimate"]), known(cell["low"]), known(cell["high"]), "samples/s")


def _drawn(line: Line, looks: Mapping[tuple[Machine, str], list[str]], names: Mapping[Machine, str]) -> dict[str, Any]:
    return {
        "xs": [int(cell["batch"]) for cell in line.cells],
        "y": [float(cell["estimate"]) for cell in line.cells],
        "low": [known(cell["low"]) for cell in line.cells],
        "high": [known(cell["high"]) for cell in line.cells],
        "look": looks[line.machine, line.work],
        "ring": line.enough,
        "told": [
            f"{line.called}, batch {int(cell['batch']):,}{_on(line, names)}: {_rate(cell)} ({line.by})"
            for cell in line.cells
        ],
    }


def _table(lines: Sequence[Line], names: Mapping[Machine, str]) -> Table:
    rows = []
    for line in sorted(lines, key=lambda line: (line.model, line.work)):
        first, top = line.cells[0], line.highest
        enough = f"batch {int(line.cells[line.enough]['batch']):,}" if line.enough is not None else NOTHING
        rows.append(
            [
                line.called, names[line.machine], f"{_rate(first)} at {int(first['batch']):,}",
                f"{_rate(top)} at {int(top['batch']):,}", line.by, f"×{stated(line.gain, '1')}", enough,
            ]
        )  # fmt: skip
    return Table(
        f"Larger batches, with {LEVEL} intervals. Gain: the highest rate of a larger batch over that of the smallest. "
        f"Enough: the least batch that surely has {number(100 * SATURATED, 2)}% of the rate of every larger one",
        ["Work", "Machine", "Smallest batch", "Highest rate", "By", "Gain", "Enough"],
        rows, "llrrlrr", [14, 16, 22, 22, 14, 16, 10],
    )  # fmt: skip


FIGURE = Central("batches", show)
