"""The study's models: their size, how many levels of their graphs wait for one another, and how wide those are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.formatting import count, number, several, with_unit
from report.quantities.architecture import LEVELS, TRANSFORMER, WIDTHS, counted
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, formats, mark, records, stated
from report.render.words import LEVEL

# Counts below this are told to the last digit.
_SHORT = 1e5


def show(view: View) -> Iterable[Exhibit]:
    """The models once, for they are the same on every node; then what a GPU makes of a recurrence."""
    if view.node == _first(view):
        names = _names(view)
        yield Exhibit(_reading(view, names), _levels(view, names), _table(view, names))
        yield Exhibit(_widths_reading(view, names), _widths(view, names))
    yield from _recurrence(view)


def _first(view: View) -> str | None:
    """The first node of the report that has counted the models."""
    cells = counted(view.data, "levels")
    with_models = set(cells.frame["node"]) if len(cells) else set()
    return next((node.id for node in view.data.nodes.nodes if node.id in with_models), None)


def _whole(value: float) -> str:
    """A count: whole as long as it is short."""
    return f"{value:,.0f}" if value < _SHORT else number(value)


def _values(view: View, metric: str) -> dict[str, float]:
    return {str(cell["model"]): float(cell["estimate"]) for cell in records(view.pick(counted(view.data, metric)))}


def _names(view: View) -> list[str]:
    """The models by the number of levels."""
    levels = _values(view, "levels")
    return sorted(levels, key=lambda name: (levels[name], name))


def _reading(view: View, names: Sequence[str]) -> list[str]:
    """The shallowest and the deepest model, and what makes a model deeper that has no more weights."""
    levels, spans = _values(view, "levels"), _values(view, "span")
    ends = list(dict.fromkeys([names[0], names[-1]]))
    chains = several([f"{_whole(levels[name])} in {name}" for name in ends])
    trees = several([_whole(spans[name]) for name in ends])
    said = [
        f"The longest chain of operators that each need the last one's result: {chains}; with every sum as a tree of "
        f"additions, {trees} levels."
    ]
    lengths, weights = _values(view, "length"), _values(view, "parameters")
    for first in names:
        longer = [name for name in names if weights[name] == weights[first] and lengths[name] > lengths[first]]
        shorter = [name for name in names if weights[name] == weights[first] and lengths[name] < lengths[first]]
        if longer and not shorter and levels[longer[-1]] > levels[first]:
            said.append(
                f"The same weights over longer sequences: {number(levels[first])} levels for "
                f"{count(int(lengths[first]), 'step')}, "
                + several([f"{_whole(levels[name])} for {_whole(lengths[name])}" for name in longer])
                + "."
            )
            break
    return said


def _levels(view: View, names: Sequence[str]) -> Drawing:
    cells = records(view.quantity("sequential.dependent_levels"))
    looks = colours(list(LEVELS))
    shows = {
        "groups": [{"title": "", "rows": _rows(cells, names, "counted", looks, list(LEVELS))}],
        "x": "levels that wait for one another", "unit": "", "scale": "log",
        "legend": [{"label": name, "look": look} for name, look in looks.items()],
    }  # fmt: skip
    caption = (
        "Longest chain of operators of which each needs the last one's result, in one forward pass of one sample; "
        "counted as operators, and with each sum as a tree of additions. Counted from the traced graph: exact, and "
        "the same on every machine."
    )
    return dots.drawing(view.name("models-levels"), shows, caption, caption)


def _rows(
    cells: list[dict[str, Any]],
    names: Sequence[str],
    label: str,
    looks: dict[Any, list[str]],
    spoken: Sequence[str],
) -> list[Any]:
    """A row for each model, a mark for each value of the label; `spoken` are told beside them."""
    rows = []
    for name in names:
        mine = {cell[label]: cell for cell in cells if cell["model"] == name}
        marks = [mark(mine[kind], look) for kind, look in looks.items() if kind in mine]
        told = " / ".join(_whole(mine[kind]["estimate"]) for kind in spoken if kind in mine)
        rows.append({"label": name, "marks": marks, "told": told})
    return rows


def _widths_reading(view: View, names: Sequence[str]) -> list[str]:
    median = _values(view, WIDTHS["median"])
    narrow, wide = (pick(names, key=lambda name: median[name]) for pick in (min, max))
    return [
        "In the median level of one sample's graph, the calculations that may run at the same moment are "
        f"{_whole(median[narrow])} in {narrow} and {_whole(median[wide])} in {wide}; a batch multiplies them."
    ]


def _widths(view: View, names: Sequence[str]) -> Drawing:
    cells = records(view.quantity("sequential.parallel_width"))
    looks = colours(list(WIDTHS))
    shows = {
        "groups": [{"title": "", "rows": _rows(cells, names, "level", looks, ["median"])}],
        "x": "calculations in a level", "unit": "", "scale": "log",
        "legend": [{"label": f"{name} level", "look": look} for name, look in looks.items()],
    }  # fmt: skip
    caption = (
        "Calculations of one sample that may run at the same moment: multiply-adds of products, elements of other "
        "operators, in the median (told) and in the widest level of the graph. Counted: exact, and the same on every "
        "machine."
    )
    return dots.drawing(view.name("models-width"), shows, caption, caption)


def _table(view: View, names: Sequence[str]) -> Table:
    metrics = ("parameters", "forward_flop", "step_flop", "length", "activation_bytes", "levels", *WIDTHS.values())
    found = {metric: _values(view, metric) for metric in metrics}
    units = {"forward_flop": "FLOP", "step_flop": "FLOP", "activation_bytes": "B"}

    def told(metric: str, name: str) -> str:
        value = found[metric].get(name)
        if value is None or (metric == "length" and value == 1):
            return NOTHING
        return with_unit(value, units[metric]) if metric in units else _whole(value)

    order = sorted(names, key=lambda name: (found["parameters"].get(name, 0.0), name))
    return Table(
        "The models: weights; operations of one sample in products, forward and in a training step; tokens or steps "
        "of a sample; what a training step keeps of it in float32; levels that wait for one another, and "
        "calculations in the median and in the widest one",
        ["Model", "Weights", "Forward", "Step", "Length", "Kept", "Levels", "Median", "Widest"],
        [[name, *(told(metric, name) for metric in metrics)] for name in order],
        "lrrrrrrrr",
        [12, 12, 13, 13, 8, 11, 9, 12, 12],
    )


def _recurrence(view: View) -> Iterable[Exhibit]:
    """The GPU's speed-up of the recurrent network over that of the transformer, by length, batch and format."""
    cells = view.quantity("sequential.recurrent_over_transformer", baseline="node", precision="equal")
    for device in view.devices():
        mine = view.pick(cells, device=device)
        if not len(mine):
            continue
        found = records(mine)
        looks = colours(formats(cell["dtype"] for cell in found))
        rows = []
        for model, batch in dict.fromkeys((cell["model"], int(cell["batch"])) for cell in found):
            these = [cell for cell in found if (cell["model"], int(cell["batch"])) == (model, batch)]
            these.sort(key=lambda cell: list(looks).index(cell["dtype"]))
            told = " / ".join(number(cell["estimate"], 2) for cell in these)
            marks = [mark(cell, looks[cell["dtype"]]) for cell in these]
            rows.append({"label": f"{model}, batch {batch}", "marks": marks, "told": told})
        shows = {
            "groups": [{"title": "", "rows": rows, "lines": [{"x": 1.0, "label": ""}]}],
            "x": f"speed-up over that of {TRANSFORMER}", "unit": "", "scale": "log",
            "legend": [{"label": name, "look": look} for name, look in looks.items()],
        }  # fmt: skip
        caption = (
            f"How many times faster a GPU trains the recurrent network than all cores of its host, over the same for "
            f"the transformer {TRANSFORMER} at like operations a step, with {LEVEL} intervals; below 1 the recurrence "
            f"gains less; {view.where(device)}."
        )
        least = min(found, key=lambda cell: float(cell["estimate"]))
        reading = (
            f"The GPU's speed-up of the recurrent network is at the least {stated(least, '1')} times that of "
            f"{TRANSFORMER} ({least['model']}, batch {int(least['batch'])}, {least['dtype']})."
        )
        drawing = dots.drawing(view.name("models-recurrence", device), shows, caption, caption)
        yield Exhibit([view.say(reading, device)], drawing)


FAMILY = Family("models", "The models, and how much of them can run at once", show)
