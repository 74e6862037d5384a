"""Whole training runs: test error and its spread over seeds against the batch, by how the learning rate is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from report.formatting import number, with_unit
from report.quantities.convergence import FEWEST_BATCHES, RULES
from report.render import sweep
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, known, records, series, stated
from report.render.words import LEVEL

Cell = dict[str, Any]


def show(view: View) -> Iterable[Exhibit]:
    """For each device the error with its trend, and the spread with what a tuned batch takes."""
    for device in view.devices():
        accuracy = _drawable(view, device, "accuracy")
        if not accuracy:
            continue
        yield Exhibit(
            [view.say(line, device) for line in _reading(view, device, "accuracy")],
            _drawing(view, device, "error", accuracy, _error, "test error", _ERROR),
            _trends(view, device),
            wide=True,
        )
        spread = _drawable(view, device, "spread")
        if spread:
            yield Exhibit(
                [view.say(line, device) for line in _reading(view, device, "spread")],
                _drawing(view, device, "spread", spread, _as_it_is, "spread", _SPREAD),
                _tuned(view, device),
                wide=True,
            )


_ERROR = "Share of the test images that are told wrongly after a fixed number of epochs: mean over seeds"
_SPREAD = (
    "Spread of the test accuracy over seeds, as a standard deviation, after a fixed number of epochs (none where "
    "all seeds agree)"
)


def _drawable(view: View, device: str, what: str) -> dict[str, list[Cell]]:
    """Panels with batches enough for a trend: runs that were made for equal updates differ in their epochs too."""
    found = _by_panel(records(view.quantity(f"convergence.{what}", device=device)))
    return {title: cells for title, cells in found.items() if len({cell["batch"] for cell in cells}) >= FEWEST_BATCHES}


def _by_panel(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by data and model; where there are several formats or so, they are told as well."""
    found: dict[str, list[Cell]] = {}
    listed = list(cells)
    several = ("dtype", "backend", "threads", "epochs")
    many = [name for name in several if len({cell.get(name) for cell in listed}) > 1]
    for cell in listed:
        told = [cell["data"], cell["model"]] + [f"{name} {cell[name]}" if name == "epochs" else str(cell[name])
                                               for name in many]  # fmt: skip
        if "updates" in cell:
            told.append(f"{int(cell['updates']):,} updates")
        found.setdefault(", ".join(told), []).append(cell)
    return dict(sorted(found.items()))


def _slopes(view: View, device: str, what: str, **scope: str) -> dict[str, list[Cell]]:
    """What a doubling changes, by panel: at equal epochs, then at equal updates."""
    names = (f"convergence.{what}_per_doubling{held}" for held in ("", "_of_equal_updates"))
    return {
        title: cells
        for name in names
        for title, cells in _by_panel(records(view.quantity(name, device=device, **scope))).items()
    }


def _error(cell: Cell) -> tuple[float, float | None, float | None]:
    low, high = known(cell["low"]), known(cell["high"])
    return 1 - cell["estimate"], None if high is None else 1 - high, None if low is None else 1 - low


def _as_it_is(cell: Cell) -> tuple[float, float | None, float | None]:
    return cell["estimate"], known(cell["low"]), known(cell["high"])


def _drawing(
    view: View,
    device: str,
    name: str,
    found: dict[str, list[Cell]],
    value: Callable[[Cell], tuple[float, float | None, float | None]],
    y: str,
    caption: str,
) -> Drawing | None:
    """A panel for each set of images and model, a line for each rule; what is zero has no place on a logarithm."""
    looks = colours(list(RULES))
    panels = []
    for title, cells in found.items():
        lines = []
        for rule in RULES:
            mine = sorted(
                (cell for cell in cells if cell["learning_rate"] == rule), key=lambda cell: int(cell["batch"])
            )
            points = [(float(cell["batch"]), value(cell)) for cell in mine]
            points = [(x, values) for x, values in points if values[0] > 0]
            if points:
                line: dict[str, list[Any]] = {
                    "xs": [x for x, _ in points],
                    **{key: [values[i] for _, values in points] for i, key in enumerate(("y", "low", "high"))},
                }
                # An end at or below zero has no place either.
                line["low"] = [None if low is None or low <= 0 else low for low in line["low"]]
                lines.append(series(line, rule, looks[rule]))
        if lines:
            panels.append({"title": title, "series": lines})
    if not panels:
        return None
    shows = {
        "panels": panels,
        "along": "batch",
        "x": "images in a batch",
        "y": y,
        "unit": "1",
        "base": 2,
        "narrow": len(panels) == 1,
    }
    text = (
        f"{caption}, by the batch, with {LEVEL} intervals; learning rate fixed, linear in the batch, or tuned for each "
        "batch on validation images;"
    )
    return sweep.drawing(view.name(name, device), shows, text, view.where(device))


def _reading(view: View, device: str, what: str) -> Iterable[str]:
    """What a batch twice as large does with a tuned rate."""
    for title, cells in _slopes(view, device, what, learning_rate="tuned").items():
        for cell in cells:
            low, high = known(cell["low"]), known(cell["high"])
            if low is None or high is None:
                continue
            held = ", after as many updates" if "updates" in cell else ""
            moved = "shows no trend" if low <= 0 <= high else "rises" if low > 0 else "falls"
            subject = "test accuracy" if what == "accuracy" else "spread of the test accuracy"
            yield (
                f"With the learning rate tuned for each batch{held}, the {subject} {moved} with the batch: every "
                f"doubling changes it by {stated(cell, '1')} ({title}; {cell['detail']})."
            )


def _trends(view: View, device: str) -> Table | None:
    """Both slopes of every set, model and rule."""
    slopes = {what: _slopes(view, device, what) for what in ("accuracy", "spread")}
    rows = []
    for title, cells in slopes["accuracy"].items():
        for cell in sorted(cells, key=lambda cell: RULES.index(cell["learning_rate"])):
            rule = cell["learning_rate"]
            same = [one for one in slopes["spread"].get(title, []) if one["learning_rate"] == rule]
            rows.append([title, rule, stated(cell, "1"), stated(same[0], "1") if same else NOTHING])
    if not rows:
        return None
    return Table(
        f"What every doubling of the batch changes: slopes over the logarithm of the batch, with {LEVEL} intervals "
        f"over seeds; {view.where(device)}",
        ["Images, model", "Learning rate", "Test accuracy", "Its spread"],
        rows,
        "llrr",
        [26, 16, 30, 28],
    )


def _tuned(view: View, device: str) -> Table | None:
    """What each batch gives and takes with its tuned rate."""
    columns = {
        name: {(title, cell["batch"]): cell for title, cells in _by_panel(
            records(view.quantity(f"convergence.{name}", device=device, learning_rate="tuned"))).items()
            for cell in cells}
        for name in ("accuracy", "spread", "time_to_target_s", "noise_scale")
    }  # fmt: skip
    rows = []
    for (title, batch), cell in sorted(columns["accuracy"].items(), key=lambda one: (one[0][0], int(one[0][1]))):
        said = [
            with_unit(other["estimate"], unit) if (other := columns[name].get((title, batch))) else NOTHING
            for name, unit in (("time_to_target_s", "s"), ("noise_scale", "samples"))
        ]
        rows.append([title, f"{int(batch):,}", _rate(cell), number(cell["estimate"]), *said])
    if not rows:
        return None
    return Table(
        "With the tuned learning rate: the rate over the base rate, the test accuracy, the time of training to the "
        "target accuracy where every seed gets there, and the batch at which the gradient is as much noise as signal "
        f"then; {view.where(device)}",
        ["Images, model", "Batch", "Rate", "Test accuracy", "To the target", "Noise scale"],
        rows,
        "lrrrrr",
        [26, 12, 16, 16, 16, 14],
    )


def _rate(cell: Cell) -> str:
    """The tuned rate, as the quantity tells it; marked where no lower or no higher one was tried."""
    told = str(cell["detail"]).partition(", ")[2]
    rate = told.partition(" times")[0]
    return f"{rate} (edge)" if told.endswith("tried") else rate


FAMILY = Family("convergence", "The batch, the accuracy and its spread", show)
