"""The time ladder: hours for published trainings on a CPU, a server, one H100 and their makers' machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.formatting import format_count
from report.pages.charts import BLUE, INK, PAPER, ROW, SKY, VERMILION, Chart, add_legend, is_narrow, wrap_text
from report.pages.exhibit_types import Exhibit, Family, Table, records
from report.pages.families.time_to_train import format_hours
from report.pages.figure_data import Evidence, View
from report.pages.pictures.drawing import connect_marks, set_time_ticks
from report.pages.verdict_words import NOTHING
from report.quantities.gpu_hours import GPU

Case = Mapping[str, Any]
SERVER = "a server of two processors"


@dataclass(frozen=True)
class Series:
    """A machine on which each run is shown. name: in the legend; short: in the title; cases: its hours, by run."""

    name: str
    short: str
    colour: str
    marker: str
    fill: str
    cases: Mapping[str, Case]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the runs with a time by their makers, each with its hours on all machines."""
    series = _machine_series(evidence)
    makers = series[-1].cases
    runs = [run for run in _runs_by_size(evidence) if run in makers]
    if not runs:
        return
    large = runs[-1]
    hours = [
        f"{_hours(machine.cases[large])} on {machine.short or makers[large]['machine']}"
        for machine in reversed(series)
        if large in machine.cases and machine.name != SERVER
    ]
    title = f"{large}: {', '.join(hours)}"
    rows = [[run, *(_hours(machine.cases.get(run)) for machine in series), str(makers[run]["machine"])] for run in runs]
    yield Exhibit(
        Chart(
            "picture-time-ladder",
            title,
            _ladder_drawing(runs, series),
            "◑ derived: the run’s operations over rates of training, measured here on the CPU and by MLPerf on the "
            "server and the GPU, which small networks do not reach. □ documented: as the makers report it. Bars: "
            "intervals, where they are known. That each model fits into memory is assumed.",
            _alt_text(rows, series),
        ),
        ["Large trainings need many GPUs at once; small ones take minutes on a laptop’s CPU."],
        Table(["Training", *(machine.name for machine in series), "Makers’ machine"], rows, f"l{'r' * len(series)}l",
              "Published trainings, from the fewest operations to the most"),
        ["N04", "G25", "W04", "N13"],
    )  # fmt: skip


def _alt_text(rows: Sequence[Sequence[str]], series: Sequence[Series]) -> str:
    texts = (
        ", ".join(f"{machine.name} {text}" for machine, text in zip(series, row[1:], strict=False)) for row in rows
    )
    return "; ".join(f"{row[0]}: {text}" for row, text in zip(rows, texts, strict=True))


def _runs_by_size(evidence: Evidence) -> list[str]:
    """Return the published runs, from the fewest operations to the most."""
    cases = records(evidence.quantity("ladder.server_hours", list="published"))
    hours = {str(case["run"]): float(case["estimate"]) for case in records(evidence.quantity("ladder.gpu_hours"))}
    return sorted((str(case["run"]) for case in cases), key=lambda run: hours.get(run, 0.0))


def _machine_series(evidence: Evidence) -> list[Series]:
    """Return the machines from the slowest to the makers' own, and none of ours without a measured CPU."""
    fixed = [
        Series(SERVER, SERVER, SKY, "s", "left",
               _cases_by_run(evidence.quantity("ladder.server_hours", list="published", scale="large"))),
        Series(f"one {GPU.split()[0]}", "one", VERMILION, "o", "left",
               _cases_by_run(evidence.quantity("ladder.gpu_hours", scale="large"))),
        Series("its makers’ machine", "", INK, "s", "none", _cases_by_run(evidence.quantity("ladder.makers_hours"))),
    ]  # fmt: skip
    view = next((view for view in evidence.views if len(_own_hours(view))), None)
    own = [Series(view.name, _cores(view), BLUE, "o", "left", _cases_by_run(_own_hours(view)))] if view else []
    return [*own, *fixed]


def _cores(view: View) -> str:
    """Count the machine's cores: '2 CPU cores'."""
    cores = (view.record["hardware"].get("cpu") or {}).get("usable_cores")
    return format_count(int(cores), "CPU core") if cores else "a CPU"


def _own_hours(view: View) -> Any:
    return view.quantity("ladder.hours_to_train", device="cpu")


def _cases_by_run(cases: Any) -> dict[str, Case]:
    return {str(case["run"]): case for case in records(cases)}


def _hours(case: Case | None) -> str:
    return format_hours(float(case["estimate"])) if case else NOTHING


def _ladder_drawing(runs: Sequence[str], series: Sequence[Series]) -> Callable[[float], Figure]:
    """Return a drawing with a row per run and a mark per machine, on an axis from seconds to millions of years."""

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, ROW * 1.15 * len(runs) + 1.5))
        axes = figure.add_subplot()
        axes.set_xscale("log")
        for place, run in enumerate(runs):
            cases = [machine.cases[run] for machine in series if run in machine.cases]
            connect_marks(axes, [float(case["estimate"]) for case in cases], place)
            for machine in series:
                if run in machine.cases:
                    _draw_mark(axes, machine, machine.cases[run], place)
        values = [float(machine.cases[run]["estimate"]) for machine in series for run in runs if run in machine.cases]
        limits = (min(values) / 3, max(values) * 3)
        axes.set_xlim(*limits)
        set_time_ticks(axes, limits, width)
        axes.set_ylim(len(runs) - 0.5, -0.5)
        axes.set_yticks(range(len(runs)), [wrap_text(run, 17 if is_narrow(width) else 30) for run in runs])
        axes.tick_params(axis="y", length=0, pad=7)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        handles = [Line2D([], [], **_mark_style(machine), label=machine.name) for machine in series]
        add_legend(figure, handles, width)
        return figure

    return draw


def _mark_style(series: Series) -> dict[str, Any]:
    return {"marker": series.marker, "fillstyle": series.fill, "color": series.colour, "linestyle": "none",
            "markerfacecoloralt": PAPER, "markeredgecolor": series.colour, "markersize": 7,
            "markeredgewidth": 1.4}  # fmt: skip


def _draw_mark(axes: Any, series: Series, case: Case, place: float) -> None:
    low, high = float(case["low"]), float(case["high"])
    if np.isfinite([low, high]).all() and high > low:
        axes.plot([low, high], [place, place], color=series.colour, linewidth=2.6, alpha=0.45, solid_capstyle="butt")
    axes.plot([float(case["estimate"])], [place], **_mark_style(series), zorder=3)


FAMILY = Family(
    "time-ladder", "From seconds to millions of years",
    "How long does a training take on a CPU, a server, one GPU, and where it was really done?", show, "pictures",
)  # fmt: skip
