"""How well two, three and four numbers of a device foretell its kernels and steps: part of the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from report.formatting import count, number, several
from report.quantities.prediction import MODELS, Foretold, foretold, spelt
from report.render import sweep
from report.render.measurements.base import NOTHING, Exhibit, Table, View
from report.render.measurements.marks import colours, records, series
from report.render.words import LEVEL

WORKS = {
    "gemm": "products", "batched": "products in batches", "bandwidth": "passes over memory", "offload": "requests",
    "training": "training steps", "forward": "forward passes", "prefill": "prompts", "decode": "tokens",
}  # fmt: skip
_NAMES = {(2, "measured"): "two, as measured", (2, "fitted"): "two, fitted", (3, "fitted"): "three: and a launch",
          (4, "fitted"): "four: and a cache"}  # fmt: skip
_DRAWN = {(2, "fitted"): "two numbers", (4, "fitted"): "four numbers"}


def show(view: View, device: str) -> Iterable[Exhibit]:
    """For the most threads: predicted over measured, and tables of the errors by how many numbers and by work."""
    found = [one for one in foretold(view.data, view.node) if one.labels["device"] == device]
    if not found:
        return
    threads = max(one.labels["threads"] for one in found)
    models = {_model(one): one for one in found if one.labels["threads"] == threads}
    yield Exhibit(
        _reading(view, device, models), _drawing(view, device, models), _errors(view, device, models), wide=True
    )
    yield Exhibit(table=_by_work(view, device, models))


def _model(one: Foretold) -> tuple[int, str]:
    return one.labels["numbers"], one.labels["ceilings"]


def _works(one: Foretold) -> list[str]:
    return [name for name in WORKS if (one.work == name).any()]


def _medians(one: Foretold) -> Any:
    """Each kernel's error, the median over rounds."""
    return np.median(one.errors, axis=0)


def _drawing(view: View, device: str, models: dict[tuple[int, str], Foretold]) -> Any:
    looks = colours(WORKS)
    panels = []
    for model, title in _DRAWN.items():
        one = models[model]
        measured = np.median(one.measured, axis=0) * 1e3
        ratio = np.median(one.predicted / one.measured, axis=0)
        lines = []
        for name in _works(one):
            at = np.flatnonzero(one.work == name)
            at = at[np.argsort(measured[at])]
            points: dict[str, list[Any]] = {"xs": list(map(float, measured[at])), "y": list(map(float, ratio[at])),
                      "low": [None] * len(at), "high": [None] * len(at)}  # fmt: skip
            lines.append(series(points, WORKS[name], looks[name], joined=False))
        panels.append({"title": title, "series": lines, "limits": [{"y": 1.0, "label": ""}]})
    shows = {"panels": panels, "x": "measured time (ms)", "y": "predicted ÷ measured", "unit": "1", "base": 10,
             "bare": "each is one kernel; the errors' intervals over rounds are in the table"}  # fmt: skip
    caption = (
        "Predicted over measured time of the kernels and steps that no number was fitted on; dashed: where both are "
        "equal. Two numbers: peak arithmetic and bandwidth; four: and what a launch costs, and the bandwidth of the "
        "last cache"
    )
    return sweep.drawing(view.name("foretold", device), shows, f"{caption}.", view.where(device))


def _errors(view: View, device: str, models: dict[tuple[int, str], Foretold]) -> Table:
    """The distribution of the error, a row for each way to predict."""
    cells = {(int(cell["numbers"]), str(cell["ceilings"])): cell for cell in _cells(view, device, models)}
    rows = []
    for model in MODELS:
        each, cell = _medians(models[model]), cells[model]
        low, high = float(cell["low"]), float(cell["high"])
        known = "" if np.isnan(low) else f" [{_percent(low)}, {_percent(high)}]"
        quartiles = [_percent(float(np.quantile(each, at))) for at in (0.25, 0.75)]
        rows.append(
            [_NAMES[model], f"{_percent(float(cell['estimate']))}{known}", *quartiles, spelt(models[model].fits)]
        )
    return Table(
        f"Error of predictions, |predicted / measured − 1|: the median over kernels with the {LEVEL} interval from "
        f"rounds, and its quartiles over kernels; {view.where(device)}.",
        ["Numbers", "Median", "Lower quartile", "Upper quartile", "Which"],
        rows, "lrrrl", [20, 22, 12, 12, 34],
    )  # fmt: skip


def _cells(view: View, device: str, models: dict[tuple[int, str], Foretold]) -> list[dict[str, Any]]:
    threads = next(iter(models.values())).labels["threads"]
    return records(view.quantity("roofline.prediction_error", device=device, threads=threads))


def _by_work(view: View, device: str, models: dict[tuple[int, str], Foretold]) -> Table:
    """The median error by kind of work."""
    first = models[MODELS[0]]
    rows = []
    for name in _works(first):
        same = [float(np.median(_medians(models[model])[models[model].work == name])) for model in MODELS]
        rows.append([WORKS[name], str(int((first.work == name).sum())), *map(_percent, same)])
    return Table(
        f"Median error of predictions by kind of work; {view.where(device)}.",
        ["Work", "Kernels", *(_NAMES[model] for model in MODELS)],
        rows, "lrrrrr", [24, 10, 16, 16, 17, 17],
    )  # fmt: skip


def _reading(view: View, device: str, models: dict[tuple[int, str], Foretold]) -> Sequence[str]:
    """What so many numbers miss, and where two of them miss most."""
    cells = {(int(cell["numbers"]), str(cell["ceilings"])): cell for cell in _cells(view, device, models)}
    two, *more = ((2, "fitted"), (3, "fitted"), (4, "fitted"))
    missed = {model: _percent(float(cells[model]["estimate"])) for model in (two, *more)}
    said = (
        f"Half of {count(len(models[two].what), 'kernel')} that no number was fitted on are foretold to within "
        f"{missed[two]} by two numbers, {missed[more[0]]} by three and {missed[more[1]]} by four."
    )
    each = {name: float(np.median(_medians(models[two])[models[two].work == name])) for name in _works(models[two])}
    worst = sorted(each, key=lambda name: each[name])
    told = several([f"{_percent(each[name])} for {WORKS[name]}" for name in (worst[0], worst[-1])])
    where = f"Two numbers miss by {told}, in the median." if len(worst) > 1 else NOTHING
    return [view.say(text, device) for text in (said, where) if text != NOTHING]


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)}%"
