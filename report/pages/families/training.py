"""Training steps, from one core with default PyTorch to the whole machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.data.network_labels import GROUPS, NETWORKS, group, title
from report.formatting import format_number, two_digits
from report.pages.chart_rows import figure_suffix, library_name
from report.pages.charts import Chart, bar_chart
from report.pages.estimate_list import estimate_list, gpu_suffix
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, amounts, divide_cases, filled_texts, ratios, sentence
from report.pages.verdict_words import NOTHING
from report.quantities.training import BASE, DEFAULT, TOP, WHOLE

Rungs = dict[str, dict[str, Any]]
_STEP = ["device", "model", "batch", "dtype"]


def ladders(view: View) -> dict[tuple[str, int], Rungs]:
    """Return each model's rungs (ways to train, plainest first), by model and batch size.

    Each model has a single batch size here: the size with the largest number of different rates among its rungs.
    """
    rungs_by_step: dict[tuple[str, int], Rungs] = {}
    for case in sorted(records(view.quantity("training.ladder")), key=lambda case: (case["place"], case["estimate"])):
        rungs_by_step.setdefault((str(case["model"]), int(case["batch"])), {})[str(case["rung"])] = case
    chosen: dict[str, tuple[str, int]] = {}
    for at in sorted(
        rungs_by_step, key=lambda key: (len({rung["estimate"] for rung in rungs_by_step[key].values()}), key[1])
    ):
        if BASE in rungs_by_step[at] and len(rungs_by_step[at]) > 2:
            chosen[at[0]] = at
    return {at: rungs_by_step[at] for at in sorted(chosen.values())}


def largest_tuning_gain(evidence: Evidence) -> dict[str, Any] | None:
    """Find the largest certain gain from tuning on the same cores; return its model, view, batch and gain.

    A gain is certain if its interval lies above 1 and the bounds differ by less than the factor WIDE. Gains on the
    user's own machines come before others. Returns None if no gain is certain.
    """
    gains: list[dict[str, Any]] = [
        {"model": model, "view": view, "batch": batch, "gain": gain}
        for view in evidence.views
        for (model, batch), rungs in ladders(view).items()
        if WHOLE in rungs and DEFAULT in rungs
        and (gain := divide_cases(rungs[WHOLE], rungs[DEFAULT])).low and gain.low > 1 and gain.is_narrow
    ]  # fmt: skip
    return max(gains, key=lambda gain: (gain["view"].own, gain["gain"].value), default=None)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node the rungs per model, training steps of published networks, and gains from capturing graphs."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _ladder_exhibit(view, place)
    for device in view.devices():
        yield from _network_exhibit(view, device, f"training-named-{figure_suffix(place, device)}")
    yield from captured_exhibit(view, f"training-captured-{place}")


def _ladder_exhibit(view: View, place: int) -> Iterable[Exhibit]:
    if models := ladders(view):
        rows = [
            {"model": f"{model}, batch {batch:,}", "rung": name, "gain": rung["estimate"] / rungs[BASE]["estimate"],
             "by": str(rung["detail"]), "rate": format_estimate(rung, "samples/s")}
            for (model, batch), rungs in models.items()
            for name, rung in rungs.items()
        ]  # fmt: skip
        table = pd.DataFrame(rows)
        best = [
            divide_cases(max(rungs.values(), key=lambda rung: rung["estimate"]), rungs[BASE])
            for rungs in models.values()
        ]
        heading = sentence(
            "With the best that was tried, training is {gain} as on one core as PyTorch comes",
            "What tuning and all cores gain over one core as PyTorch comes cannot be told from this run",
            gain=ratios(best, "as fast"),
        )
        top = any(TOP in rungs for rungs in models.values())
        yield Exhibit(
            Chart(
                f"training-{place}",
                str(heading),
                bar_chart(table, "gain", "model", "rate over one core as PyTorch comes", hue="rung"),
                f"● measured on {view.name}.",
                "; ".join(f"{row['model']}, {row['rung']}: {two_digits(row['gain'])}" for row in rows),
            ),
            [] if top else ["The rungs of a GPU follow once one is measured."],
            Table(
                ["Step", "Rung", "By", "Rate", "Gain"],
                [
                    [row["model"], row["rung"], row["by"], row["rate"], f"×{format_number(row['gain'], 2)}"]
                    for row in rows
                ],
                "lllrr",
                f"Training steps on {view.name}",
            ),
            ["N11", "G04", "W02"],
            heading,
        )


def _network_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show training steps of published networks: examples per second and peak memory.

    Each network, batch size and number format is shown in its fastest backend.
    """
    rates = view.quantity("training.rate", device=device, model=list(NETWORKS))
    best = records(rates.best_per_group(_STEP, keep=["backend", "threads"]) if len(rates) else rates)
    if not best:
        return
    best.sort(key=lambda case: (GROUPS.index(group(str(case["model"]))), str(case["model"]), int(case["batch"]),
                               float(case["estimate"])))  # fmt: skip
    memory = {
        _point_key(record): record for record in records(view.quantity("training.peak_memory_bytes", device=device))
    }
    entries = [
        (f"{title(str(case['model']))}, batch {int(case['batch']):,}, {case['dtype']}", case,
         [library_name(str(case["backend"])), str(int(case["threads"])) if case["threads"] else NOTHING,
          format_estimate(memory[_point_key(case)], "B") if _point_key(case) in memory else NOTHING])
        for case in best
    ]  # fmt: skip
    where = "" if device == "cpu" else " on the GPU"
    plain = {_point_key({**record, "backend": ""}): record for record in records(rates) if record["backend"] == "torch"}
    tuned_steps = [(case, plain[key]) for case in best if (key := _point_key({**case, "backend": ""})) in plain]
    yield estimate_list(
        name,
        sentence(
            f"Networks that people know train at {{rate}} examples a second{where}",
            f"How fast networks that people know train{where} cannot be told from this run",
            rate=amounts(best),
        ),
        entries, "samples/s", "examples a second",
        f"● measured on {view.device_name(device)}: a step of AdamW, each format in its fastest backend.",
        ["Step", "By", "Threads", "Memory at its peak", "Rate"], log=True,
        says=[*filled_texts([
            sentence("The fastest other format trains {gain} as float32.", gain=ratios(_format_gains(best), "as fast")),
            sentence("The fastest backend trains {gain} as PyTorch as it comes, in the same format.",
                     gain=ratios([divide_cases(*pair) for pair in tuned_steps], "as fast")),
        ])],
        groups=[group(str(case["model"])) for case in best],
    )  # fmt: skip


def _point_key(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(case[name] for name in (*_STEP[1:], "backend", "threads"))


def _format_gains(cases: Iterable[Mapping[str, Any]]) -> list[Number]:
    """Return how much faster the fastest other format is than float32, for each network and batch."""
    pairs: dict[tuple[Any, ...], dict[bool, Mapping[str, Any]]] = {}
    for case in sorted(cases, key=lambda case: float(case["estimate"])):
        pairs.setdefault((case["model"], case["batch"]), {})[case["dtype"] == "float32"] = case
    return [divide_cases(pair[False], pair[True]) for pair in pairs.values() if len(pair) == 2]


def captured_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how much faster a step is if it is launched as one graph, not operator by operator."""
    cases = sorted(
        records(view.quantity("training.capture_gain")),
        key=lambda case: (str(case["model"]), int(case["batch"]), str(case["dtype"])),
    )
    if not cases:
        return
    labels = [
        f"{case['model']}, batch {int(case['batch']):,}, {case['dtype']}{gpu_suffix(case['device'])}" for case in cases
    ]
    yield estimate_list(
        name,
        sentence(
            "Captured in one graph, a training step on the GPU is {gain} as launched operator by operator",
            "What capturing a training step in one graph gains on the GPU cannot be told from this run",
            gain=ratios(cases, "as fast"),
        ),
        [(label, case, []) for label, case in zip(labels, cases, strict=True)],
        "1", "time as PyTorch comes (eager) over time captured in one graph",
        f"● measured on {view.name}, with Adam fused into one pass where captured.",
        ["Step", "Captured over eager"], 1.0, [1.0], "1: equally fast", None,
        ["Eager PyTorch launches each operator from the host; steps of small models wait for that. Comparisons with a "
         "CPU take the faster of both."],
        ["W02"],
    )  # fmt: skip


FAMILY = Family(
    "training", "Training, from one core to all that there is",
    "How much does a training step gain from tuning, from all cores and from a GPU?", show,
)  # fmt: skip
