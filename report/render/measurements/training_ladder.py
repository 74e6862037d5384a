"""The ladder of training: one step, from one core as PyTorch comes to all that the node has, model by model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import count, number, several
from report.quantities.training_ladder import BASE, DEFAULT, TOP, WHOLE
from report.render import dots
from report.render.figures import BLUE, GREEN, VERMILION, Drawing
from report.render.measurements.base import Exhibit, Family, Table, View
from report.render.measurements.marks import mark, records, stated
from report.render.words import LEVEL

# Fewer rungs make no ladder; more models make no figure that can be read.
FEWEST_RUNGS, MOST_DRAWN = 3, 6
_LOOKS = {"base": [VERMILION, "D"], "cpu": [BLUE, "o"], "gpu": [GREEN, "s"]}
Model = tuple[str, int]


def show(view: View) -> Iterable[Exhibit]:
    """A figure of the models with the most rungs, and a table of all that have a ladder."""
    rates, gains = view.quantity("training.ladder"), view.quantity("training.ladder_gain")
    if not len(rates) or not len(gains):
        return
    ladders = _ladders(rates, gains)
    if ladders:
        yield Exhibit(_reading(view, rates, ladders), _drawing(view, ladders), _table(view, ladders))


def _ladders(rates: Estimates, gains: Estimates) -> dict[Model, list[dict[str, Any]]]:
    """The rungs of each model at one batch size: that with the most rungs that differ, of several such the largest.

    Each rung with its gain over the base; of several GPUs the fastest. The model with the most rungs comes first.
    Where nothing else was measured, what comes is also the best, and no rung of its own.
    """
    over = {(cell["model"], cell["batch"], cell["device"], cell["rung"]): cell for cell in records(gains)}
    found: dict[Model, dict[str, dict[str, Any]]] = {}
    for cell in sorted(records(rates), key=lambda cell: (cell["place"], cell["estimate"])):
        key = (cell["model"], cell["batch"], cell["device"], cell["rung"])
        rungs = found.setdefault((str(cell["model"]), int(cell["batch"])), {})
        rungs[str(cell["rung"])] = {**cell, "gain": over.get(key)}
    chosen: dict[str, Model] = {}
    differ = {model: len({rung["estimate"] for rung in rungs.values()}) for model, rungs in found.items()}
    for model in sorted(found, key=lambda model: (differ[model], model[1])):
        if BASE in found[model] and differ[model] >= FEWEST_RUNGS:
            chosen[model[0]] = model
    ordered = sorted(chosen.values(), key=lambda model: (-differ[model], model))
    return {model: list(found[model].values()) for model in ordered}


def _title(model: Model) -> str:
    return f"{model[0]}, batch {model[1]:,}"


def _samples(cell: dict[str, Any]) -> str:
    return f"{number(cell['estimate'])}/s"


def _drawing(view: View, ladders: dict[Model, list[dict[str, Any]]]) -> Drawing:
    drawn = dict(list(ladders.items())[:MOST_DRAWN])
    groups = []
    for model, rungs in drawn.items():
        rows = []
        for rung in rungs:
            gain = rung["gain"] or {"estimate": 1.0, "low": 1.0, "high": 1.0}
            look = "base" if rung["gain"] is None else "gpu" if rung["device"] != "cpu" else "cpu"
            told = f"{_samples(rung)}  ×{number(gain['estimate'], 2)}"
            rows.append(
                {"label": rung["rung"], "marks": [mark(gain, _LOOKS[look])], "told": told, "strong": look == "base"}
            )
        groups.append({"title": _title(model), "rows": rows})
    shows = {"groups": groups, "x": "rate over one core as PyTorch comes", "unit": "1", "scale": "log"}
    rest = len(ladders) - len(drawn)
    caption = (
        "Training steps from one core with PyTorch as it comes (the base, ×1) to everything that the node has: rates "
        f"over the base with {LEVEL} intervals, beside them samples per second{_beyond(rest)}; {view.label}."
    )
    about = f"Training on {view.label}, rung by rung, over one core with PyTorch as it comes."
    return dots.drawing(view.name("training-ladder"), shows, caption, about)


def _beyond(rest: int) -> str:
    return f" ({count(rest, 'more model')} in the table)" if rest else ""


def _table(view: View, ladders: dict[Model, list[dict[str, Any]]]) -> Table:
    rows = []
    for model, rungs in ladders.items():
        for rung in rungs:
            gain = f"×{stated(rung['gain'], '1')}" if rung["gain"] else "base"
            rows.append([_title(model), rung["rung"], str(rung["detail"]), stated(rung, "samples/s"), gain])
    rounds = sorted({int(rung["n_rounds"]) for rungs in ladders.values() for rung in rungs})
    told = count(rounds[0], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    return Table(
        f"Training steps, rung by rung, with {LEVEL} intervals from {told}. Gain: over one core with PyTorch as it "
        f"comes, in float32. {view.label}",
        ["Step", "Rung", "By", "Rate", "Gain"],
        rows,
        "lllrr",
        [16, 22, 18, 26, 20],
    )


def _reading(view: View, rates: Estimates, ladders: dict[Model, list[dict[str, Any]]]) -> Sequence[str]:
    """How much the base case decides: the span over the models of each step up."""

    def times(above: str, below: str) -> str:
        higher, lower = rates.only(rung=above), rates.only(rung=below)
        return _span(higher / lower.without("device", "rung", "place"), ladders)

    lines = []
    if cores := times(WHOLE, BASE):
        lines.append(f"All cores at their best train {cores} as fast as one core with PyTorch as it comes.")
    if default := times(WHOLE, DEFAULT):
        lines.append(f"All cores at their best do {default} what they do with PyTorch as it comes.")
    if top := times(TOP, BASE):
        lines.append(f"The GPU at its best trains {top} as fast as one core with PyTorch as it comes.")
    if whole := times(TOP, WHOLE):
        lines.append(f"The GPU at its best trains {whole} as fast as all cores of its host at their best.")
    fleet = view.quantity("training.speedup", baseline="fleet", precision="best")
    if top and (others := _span(fleet, ladders)):
        names = several(sorted({str(one).removeprefix("over ").rpartition(" in ")[0] for one in fleet.frame["detail"]}))
        lines.append(f"The GPU at its best trains {others} as fast as the fastest CPU of all nodes ({names}).")
    return [view.say(line) for line in lines]


def _span(ratios: Estimates, ladders: dict[Model, list[dict[str, Any]]]) -> str:
    """'from 2.1 [2.0, 2.2] (mlp) to 7.4 [7.2, 7.6] times (gpt)': the least and the greatest over the models."""
    found = [cell for cell in records(ratios) if (str(cell["model"]), int(cell["batch"])) in ladders]
    if not found:
        return ""
    ends = [end(found, key=lambda cell: float(cell["estimate"])) for end in (min, max)]
    low, high = (f"{stated(cell, '1')} times ({cell['model']})" for cell in ends)
    return low if low == high else f"from {low} to {high}"


FAMILY = Family("training-ladder", "Training, from one core to all that there is", show)
