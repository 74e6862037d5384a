"""Training steps, from one core with PyTorch as it comes to everything that a machine has."""

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
    """The rungs of each model at the batch size with the most that differ, from the slowest."""
    found: dict[tuple[str, int], Rungs] = {}
    for case in sorted(records(view.quantity("training.ladder")), key=lambda one: (one["place"], one["estimate"])):
        found.setdefault((str(case["model"]), int(case["batch"])), {})[str(case["rung"])] = case
    chosen: dict[str, tuple[str, int]] = {}
    for at in sorted(found, key=lambda one: (len({rung["estimate"] for rung in found[one].values()}), one[1])):
        if BASE in found[at] and len(found[at]) > 2:
            chosen[at[0]] = at
    return {at: found[at] for at in sorted(chosen.values())}


def tuned(evidence: Evidence) -> dict[str, Any] | None:
    """Where tuning gains most on the same cores: model, node and the factor; None without a gain that is certain.

    A gain is certain if its whole interval is above 1 and spans less than WIDE. The user's own machines come first.
    """
    gains: list[dict[str, Any]] = [
        {"model": model, "view": view, "batch": batch, "gain": gain}
        for view in evidence.views
        for (model, batch), rungs in ladders(view).items()
        if WHOLE in rungs and DEFAULT in rungs
        and (gain := divide_cases(rungs[WHOLE], rungs[DEFAULT])).low and gain.low > 1 and gain.is_narrow
    ]  # fmt: skip
    return max(gains, key=lambda one: (one["view"].own, one["gain"].value), default=None)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each node the rungs of each model and networks by name; for each GPU, captured steps beside eager ones."""
    return exhibits_per_machine(evidence, _machine)


def _machine(view: View, place: int) -> Iterable[Exhibit]:
    yield from _ladder(view, place)
    for device in view.devices():
        yield from _named(view, device, f"training-named-{figure_suffix(place, device)}")
    yield from show_captured(view, f"training-captured-{place}")


def _ladder(view: View, place: int) -> Iterable[Exhibit]:
    if models := ladders(view):
        rows = [
            {"model": f"{model}, batch {batch:,}", "rung": name, "gain": rung["estimate"] / rungs[BASE]["estimate"],
             "by": str(rung["detail"]), "rate": format_estimate(rung, "samples/s")}
            for (model, batch), rungs in models.items()
            for name, rung in rungs.items()
        ]  # fmt: skip
        table = pd.DataFrame(rows)
        best = [
            divide_cases(max(rungs.values(), key=lambda one: one["estimate"]), rungs[BASE]) for rungs in models.values()
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


def _named(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Steps of networks that people know: examples a second of each format in its fastest backend, and memory."""
    rates = view.quantity("training.rate", device=device, model=list(NETWORKS))
    best = records(rates.best_per_group(_STEP, keep=["backend", "threads"]) if len(rates) else rates)
    if not best:
        return
    best.sort(key=lambda one: (GROUPS.index(group(str(one["model"]))), str(one["model"]), int(one["batch"]),
                               float(one["estimate"])))  # fmt: skip
    held = {_key(record): record for record in records(view.quantity("training.peak_memory_bytes", device=device))}
    entries = [
        (f"{title(str(one['model']))}, batch {int(one['batch']):,}, {one['dtype']}", one,
         [library_name(str(one["backend"])), str(int(one["threads"])) if one["threads"] else NOTHING,
          format_estimate(held[_key(one)], "B") if _key(one) in held else NOTHING])
        for one in best
    ]  # fmt: skip
    where = "" if device == "cpu" else " on the GPU"
    plain = {_key({**record, "backend": ""}): record for record in records(rates) if record["backend"] == "torch"}
    tuned_steps = [(one, plain[key]) for one in best if (key := _key({**one, "backend": ""})) in plain]
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
        groups=[group(str(one["model"])) for one in best],
    )  # fmt: skip


def _key(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(case[name] for name in (*_STEP[1:], "backend", "threads"))


def _format_gains(cases: Iterable[Mapping[str, Any]]) -> list[Number]:
    """Rates of the fastest other format over those of float32, by network and batch."""
    found: dict[tuple[Any, ...], dict[bool, Mapping[str, Any]]] = {}
    for one in sorted(cases, key=lambda one: float(one["estimate"])):
        found.setdefault((one["model"], one["batch"]), {})[one["dtype"] == "float32"] = one
    return [divide_cases(both[False], both[True]) for both in found.values() if len(both) == 2]


def show_captured(view: View, name: str) -> Iterable[Exhibit]:
    """The gain of one launch for a whole step over a launch for each operator, which is the host's work."""
    cases = sorted(
        records(view.quantity("training.capture_gain")),
        key=lambda one: (str(one["model"]), int(one["batch"]), str(one["dtype"])),
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
        [(label, one, []) for label, one in zip(labels, cases, strict=True)],
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
