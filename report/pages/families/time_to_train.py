"""Time to train: derived times for published trainings on each machine, and measured times for whole jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from report.estimates import device_kind
from report.formatting import join_words
from report.pages.chart_rows import alt_text, estimate_row, figure_suffix, format_rough
from report.pages.charts import Chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, records
from report.pages.families.checks import coverage_text
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Sentence, amounts, filled_texts, ratios, sentence
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.time_to_train import fastest_jobs
from report.quantities.train_hours import DAYS
from report.quantities.whole_runs import coverage, parts_coverage

# Hours in a day and in a year.
_DAY, _YEAR = 24.0, 8766.0
# Names of ticks on a time axis, by hours.
TICKS = {
    0.01 / 3600: "0.01 s", 0.1 / 3600: "0.1 s", 1 / 3600: "1 s", 1 / 360: "10 s", 1 / 60: "1 min", 1 / 6: "10 min",
    1.0: "1 hour", _DAY: "1 day", _YEAR / 12: "1 month", _YEAR: "1 year", 100 * _YEAR: "100 years",
    1e4 * _YEAR: "10,000 years", 1e6 * _YEAR: "1 million years",
}  # fmt: skip
Case = dict[str, Any]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show published trainings and whole jobs, per device."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        name = figure_suffix(place, device)
        yield from _published_exhibit(view, device, name)
        yield from _whole_job_exhibit(view, device, name)


def format_hours(hours: float) -> str:
    """Format hours in a suitable unit: '0.42 s', '3.1 hours', '52 days', '1.2 million years'."""
    for most, size, unit in (
        (1 / 60, 1 / 3600, "s"), (1.0, 1 / 60, "min"), (2 * _DAY, 1.0, "hours"), (2 * _YEAR, _DAY, "days"),
    ):  # fmt: skip
        if hours < most:
            text = format_rough(hours / size)
            return f"{text} {unit if text != '1' or unit in ('s', 'min') else unit[:-1]}"
    return f"{format_rough(hours / _YEAR)} years"


def _range_text(case: Case, scale: float = 1.0) -> str:
    """Format the interval around a time. scale: factor to convert the time to hours."""
    if case["low"] is None or case["low"] != case["low"]:
        return NOTHING
    return f"{format_hours(case['low'] * scale)} to {format_hours(case['high'] * scale)}"


def _published_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show the derived time that each published training run would take on the device."""
    cases = sorted(records(view.quantity("ladder.hours_to_train", device=device)), key=lambda case: case["estimate"])
    if not cases:
        return
    rows = [estimate_row(case["run"], case, "h", text=format_hours(case["estimate"]), tier="derived") for case in cases]
    long = sum(case["estimate"] > _DAY for case in cases)
    nodes = sorted(records(view.quantity("ladder.nodes_for_90_days", device=device)), key=lambda case: case["estimate"])
    machines = "such GPUs" if device_kind(device) == "gpu" else "such machines"
    title = sentence(
        f"{long} of {len(cases)} published trainings would take more than a day{_device_suffix(view, device)}; "
        f"{cases[-1]['run']} would take {{time}}",
        f"This run does not show how long published trainings would take{_device_suffix(view, device)}",
        time=amounts([cases[-1]], format_hours, limit=math.inf),
    )
    each = join_words(
        [f"{text} ({node['run']})" for node in nodes if (text := amounts([node], format_rough, limit=math.inf).text)]
    )
    laptops = records(view.quantity("time_to_train.ratio", device=device)) if device_kind(device) == "gpu" else []
    yield Exhibit(
        Chart(
            f"time-to-train-{name}",
            str(title),
            estimate_chart(rows, "time for the whole training", [_DAY], "one day", log=True, ticks=TICKS),
            f"◑ derived for {view.device_name(device)}. {BARS}.",
            alt_text(rows),
        ),
        [
            *_method_sentences(view, device, sum(case["method"] == "own step" for case in cases), len(cases)),
            *([f"Finishing in {DAYS} days would take {each} {machines}, with perfect scaling."] if each else []),
            *filled_texts(sentence("The fastest laptop takes {gain} as this GPU for the same fine-tune.",
                                  gain=ratios([laptop], "as long")) for laptop in laptops),
        ],
        Table(["Training", "Operations (FLOP)", "Time", "Between", "By"],
              [[case["run"], f"{case['flop']:.2g}", format_hours(case["estimate"]), _range_text(case),
                _METHODS[case["method"]]] for case in cases], "lrrrl",
              f"Published trainings on {view.device_name(device)}"),
        ["N04", "G25", *(["W01"] if laptops else [])],
        title,
    )  # fmt: skip


# Words for a derived time's method.
_METHODS = {"own step": "its own step", "line": "the best rate"}


def _method_sentences(view: View, device: str, own: int, times: int) -> Iterable[str]:
    """Tell how the times are derived, and how well jobs that were run whole confirm each method.

    own: number of times from the training's own step. times: number of all times.
    """
    kind = device_kind(device)
    sums, line = parts_coverage(view.data, kind), coverage(view.data, kind)
    uncorrected = " No whole job was run to correct these times, so no interval is known."
    if own:
        yield (
            f"{own} of {times} times come from the training's own step, timed here: samples over samples per second."
            + (
                f" We tested such sums on whole jobs and corrected them: {coverage_text(sums)}."
                if sums
                else uncorrected
            )
        )
    if own < times:
        yield (
            f"{'The other times are' if own else 'Each time is'} the number of operations over the best rate at which "
            "a small model of the training's kind trains here."
            + (
                f" We tested this estimate on whole jobs and corrected it: {coverage_text(line)}. For a training "
                "larger than all jobs, the interval is a range of models, not a measurement."
                if line
                else uncorrected
            )
            + " We assume that large models fit into memory and keep this rate."
        )


def _device_suffix(view: View, device: str) -> str:
    """Return ' on an NVIDIA H100' for a GPU; '' for the CPU, which the page names."""
    return f" on {view.device_name(device)}" if device_kind(device) == "gpu" else ""


def _whole_job_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show how long each whole job takes in its fastest format; the table adds the total time of the job's parts."""
    cases = view.quantity("time_to_train.job_time", device=device)
    if not len(cases):
        return
    parts = {(case["job"], case["dtype"], case["backend"]): case
             for case in records(view.quantity("time_to_train.predicted", device=device))}  # fmt: skip
    jobs = sorted(records(fastest_jobs(cases)), key=lambda case: case["estimate"])
    rows = [estimate_row(case["job"], case, "h", 3600, format_hours(case["estimate"] / 3600)) for case in jobs]
    lines = []
    for case in sorted(records(cases), key=lambda case: case["estimate"]):
        part = parts.get((case["job"], case["dtype"], case["backend"]))
        should = format_hours(part["estimate"] / 3600) if part else NOTHING
        lines.append(
            [case["job"], case["dtype"], format_hours(case["estimate"] / 3600), _range_text(case, 1 / 3600), should]
        )
    title = _job_title(jobs, _device_suffix(view, device))
    yield Exhibit(
        Chart(
            f"time-to-train-whole-{name}",
            str(title),
            estimate_chart(rows, "time from data on disk to the declared accuracy", log=True, ticks=TICKS),
            f"● measured on {view.device_name(device)}, in the fastest number format. {BARS}.",
            alt_text(rows),
        ),
        ["A job's name gives its data and its model. It ends when the model reaches the declared accuracy on samples "
         "that it was not trained on."],
        Table(["Job", "Format", "Time", "Between", "By its parts"], lines, "llrrr",
              "Whole jobs, and the sum of their parts, each timed alone before").without_empty_columns(),
        heading=title,
    )  # fmt: skip


def _job_title(jobs: list[Case], on: str) -> Sentence:
    """Return a title with the fastest and the slowest job.

    The title names both jobs, because times for different jobs are not comparable.
    """
    first, last = jobs[0], jobs[-1]
    ends = {"quick": first} if first["job"] == last["job"] else {"quick": first, "long": last}
    parts = [f"{case['job']} takes {{{name}}}" for name, case in ends.items()]
    return sentence(
        f"From start to end{on}, {join_words(parts)}",
        f"This run does not show how long whole jobs take{on}",
        **{name: amounts([case], lambda seconds: format_hours(seconds / 3600)) for name, case in ends.items()},
    )


FAMILY = Family(
    "time-to-train", "Time to train: from seconds to centuries",
    "How long would well-known trainings take on these machines?", show,
)  # fmt: skip
