"""Whole jobs: how well their time is predicted; and the ladder of jobs from seconds to centuries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.data.dataset import MissingSourceError
from report.estimates import Estimates, device_kind
from report.formatting import count, number, several
from report.quantities.time_to_train import fastest, over_measured
from report.quantities.train_hours import DAYS, LARGE, RUNS
from report.quantities.whole_runs import Coverage, coverage
from report.render import dots
from report.render.figures import BLUE, GREEN, VERMILION
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import mark, multiple, records, stated
from report.render.words import LEVEL

_MEASURED, _PREDICTED = [BLUE, "o"], [VERMILION, "D"]
_DERIVED = [GREEN, "s"]
# In hours.
_DAY, _YEAR = 24.0, 8766.0
# Upper ends of the groups of the ladder.
_BANDS = ((1.0, "up to an hour"), (_DAY, "up to a day"), (DAYS * _DAY, f"up to {DAYS} days"), (_YEAR, "up to a year"))
_BEYOND = "more than a year"


def show(view: View) -> Iterable[Exhibit]:
    """For each device, whole jobs against their prediction, and the ladder."""
    for device in view.devices():
        yield from _whole(view, device)
        yield from _ladder(view, device)


def _whole(view: View, device: str) -> Iterable[Exhibit]:
    """Measured and predicted times side by side."""
    measured = {_key(cell): cell for cell in records(view.quantity("time_to_train.job_time", device=device))}
    predicted = {_key(cell): cell for cell in records(view.quantity("time_to_train.predicted", device=device))}
    rows = []
    for key, cell in sorted(measured.items(), key=lambda one: float(one[1]["estimate"])):
        marks, told = [mark(cell, _MEASURED)], spoken(cell["estimate"] / 3600)
        if key in predicted:
            marks.append(mark(predicted[key], _PREDICTED, hollow=True))
            told = f"{told} / {spoken(predicted[key]['estimate'] / 3600)}"
        rows.append({"label": str(cell["job"]), "below": ", ".join(filter(None, key[1:3])), "marks": marks,
                     "told": told})  # fmt: skip
    if not rows:
        return
    legend: list[dict[str, Any]] = [{"label": "measured", "look": _MEASURED}]
    if predicted:
        legend.append({"label": "predicted from its parts", "look": _PREDICTED, "hollow": True})
    shows = {"groups": [{"title": "", "rows": rows}], "x": "time of the job", "unit": "s", "scale": "log",
             "legend": legend}  # fmt: skip
    caption = (
        f"Whole jobs from data on disk to a declared accuracy on held-out samples, with {LEVEL} intervals: measured"
        f"{' / predicted from their parts, each timed alone before' if predicted else ''}; {view.where(device)}."
    )
    yield Exhibit(
        [view.say(text, device) for text in _errors(view, device)],
        dots.drawing(view.name("time-to-train", device), shows, caption, caption),
    )


def _key(cell: dict[str, Any]) -> tuple[str, str, str, int]:
    return str(cell["job"]), str(cell["dtype"]), str(cell["backend"]), int(cell["threads"])


def _errors(view: View, device: str) -> list[str]:
    """How far off the prediction is by either method, at its worst."""
    cells = view.pick(over_measured(view.data), device=device)
    said = []
    parts = cells.only(method="parts") if len(cells) else cells
    if len(parts):
        worst = max(records(parts), key=lambda cell: abs(cell["estimate"] - 1))
        said.append(
            f"Predicted from the time of a step, of drawing a batch and of a test, each alone, "
            f"{count(len(parts), 'job')} should have taken {_times(parts)} the measured time; farthest off is "
            f"{worst['job']} in {worst['dtype']}, with {stated(worst, '1')}."
        )
    rate = cells.only(method="rate") if len(cells) else cells
    if len(rate):
        said.append(
            f"By the best training rate of their kind of model, as the published runs below are derived, "
            f"{several(sorted(set(rate.frame['job'])))} should have taken {_times(rate)} the measured time."
        )
    return said


def _times(cells: Estimates) -> str:
    """'0.98 [0.95, 1.01] times (mlp) to 1.09 [0.92, 1.28] times (cnn)': the least and the greatest."""
    ends = [end(records(cells), key=lambda cell: float(cell["estimate"])) for end in (min, max)]
    low, high = (f"{multiple(cell)} ({cell['job']})" for cell in ends)
    return low if low == high else f"{low} to {high}"


def _ladder(view: View, device: str) -> Iterable[Exhibit]:
    """All tasks in order of their time, in groups up to an hour, a day, 90 days and a year."""
    try:
        derived = view.quantity("ladder.hours_to_train", device=device)
        nodes = view.quantity("ladder.nodes_for_90_days", device=device)
    except MissingSourceError:
        return
    if not len(derived):
        return
    known = coverage(view.data, device_kind(device))
    jobs = view.quantity("time_to_train.job_time", device=device)
    jobs = fastest(jobs) * (1 / 3600) if len(jobs) else jobs
    tasks = [(str(cell["job"]), cell, _MEASURED) for cell in records(jobs)]
    tasks += [(str(cell["run"]), cell, _DERIVED) for cell in records(derived)]
    tasks.sort(key=lambda task: float(task[1]["estimate"]))
    groups: dict[str, dict[str, Any]] = {}
    for name, cell, look in tasks:
        end, title = next((band for band in _BANDS if cell["estimate"] <= band[0]), (None, _BEYOND))
        lines = [{"x": end * 3600}] if end else []
        group = groups.setdefault(title, {"title": title, "rows": [], "lines": lines})
        seconds = {**cell, **{key: cell[key] * 3600 for key in ("estimate", "low", "high")}}
        group["rows"].append(
            {"label": name, "marks": [mark(seconds, look, hollow=look is _DERIVED)], "told": spoken(cell["estimate"])}
        )
    legend: list[dict[str, Any]] = [{"label": "derived", "look": _DERIVED, "hollow": True}]
    if len(jobs):
        legend.insert(0, {"label": "measured", "look": _MEASURED})
    shows = {"groups": list(groups.values()), "x": "time", "unit": "seconds", "scale": "log", "legend": legend}
    caption = (
        f"How long training takes, with {LEVEL} intervals: published runs, derived from their operations and the best "
        f"rate of training a small model of their kind{', and the jobs that were run whole' if len(jobs) else ''}; "
        f"dashed: the time that ends each group; {view.where(device)}."
    )
    yield Exhibit(
        [view.say(text, device) for text in _said(records(derived), records(nodes), known)],
        dots.drawing(view.name("hours-to-train", device), shows, caption, caption),
    )


def _said(derived: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]], known: Coverage | None) -> Iterable[str]:
    """Where a day ends, what the large runs would take, how sure derived times are, and what they leave out."""
    short = [cell for cell in sorted(derived, key=lambda cell: float(cell["estimate"])) if cell["high"] <= _DAY]
    if short:
        yield f"The largest published run here that would be done within a day is {short[-1]['run']}."
    names = {run.name for run in RUNS if run.id in LARGE}
    large = sorted((cell for cell in nodes if cell["run"] in names), key=lambda cell: float(cell["parameters"]))
    if large:
        each = [f"{_short(cell['estimate'])} ({cell['run']})" for cell in large]
        what = "machines like this one" if device_kind(large[0]["device"]) == "cpu" else "such GPUs"
        yield f"To be done in {DAYS} days takes {several(each)} {what}, if none has to wait for another."
    if known:
        yield (
            f"Derived times are corrected by {count(known.jobs, 'job')} that were run whole, and their intervals are "
            f"those of one more such job. {known.predicted} of the {known.jobs} are predicted so from the others."
        )
    else:
        yield "No interval: too few jobs were run whole to tell how far derived times are off."
    yield (
        "That runs beyond the largest of these jobs keep its rate is assumed; memory and what machines tell each other "
        "are left out."
    )


def spoken(hours: float) -> str:
    """A time in the unit that one would say it in: '0.42 s', '3.1 h', '52 days', '1.2 million years'."""
    for most, size, unit in (
        (1 / 60, 1 / 3600, "s"), (1.0, 1 / 60, "min"), (2 * _DAY, 1.0, "h"), (2 * _YEAR, _DAY, "days"),
    ):  # fmt: skip
        if hours < most:
            return f"{_short(hours / size)} {unit}"
    return f"{_short(hours / _YEAR)} years"


def _short(value: float) -> str:
    """Two digits: 12, 3.1, 81,000."""
    return number(float(f"{value:.2g}"), 2)


FAMILY = Family("time-to-train", "From seconds to centuries: time to train", show)
