"""Training steps, from one core with PyTorch as it comes to everything that a machine has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.formatting import number, two_digits
from report.pages.charts import Chart, bars
from report.pages.evidence import Evidence, View
from report.pages.exhibit import Exhibit, Family, Table, on_each, records, stated
from report.pages.heading import quotient, ratios, sentence
from report.pages.listed import listed, on_gpu
from report.quantities.training_ladder import BASE, DEFAULT, TOP, WHOLE

Rungs = dict[str, dict[str, Any]]


def ladders(view: View) -> dict[tuple[str, int], Rungs]:
    """The rungs of each model at the batch size with the most that differ, from the slowest."""
    found: dict[tuple[str, int], Rungs] = {}
    for cell in sorted(records(view.quantity("training.ladder")), key=lambda one: (one["place"], one["estimate"])):
        found.setdefault((str(cell["model"]), int(cell["batch"])), {})[str(cell["rung"])] = cell
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
        and (gain := quotient(rungs[WHOLE], rungs[DEFAULT])).low and gain.low > 1 and gain.narrow
    ]  # fmt: skip
    return max(gains, key=lambda one: (one["view"].own, one["gain"].value), default=None)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each node, of each model the rungs of the ladder; for each GPU, captured steps beside eager ones."""
    return on_each(evidence, _machine)


def _machine(view: View, place: int) -> Iterable[Exhibit]:
    yield from _ladder(view, place)
    yield from show_captured(view, f"training-captured-{place}")


def _ladder(view: View, place: int) -> Iterable[Exhibit]:
    if models := ladders(view):
        rows = [
            {"model": f"{model}, batch {batch:,}", "rung": name, "gain": rung["estimate"] / rungs[BASE]["estimate"],
             "by": str(rung["detail"]), "rate": stated(rung, "samples/s")}
            for (model, batch), rungs in models.items()
            for name, rung in rungs.items()
        ]  # fmt: skip
        table = pd.DataFrame(rows)
        best = [
            quotient(max(rungs.values(), key=lambda one: one["estimate"]), rungs[BASE]) for rungs in models.values()
        ]
        title = sentence(
            "With the best that was tried, training is {gain} as on one core as PyTorch comes",
            "What tuning and all cores gain over one core as PyTorch comes cannot be told from this run",
            gain=ratios(best, "as fast"),
        )
        top = any(TOP in rungs for rungs in models.values())
        yield Exhibit(
            Chart(
                f"training-{place}",
                str(title),
                bars(table, "gain", "model", "rate over one core as PyTorch comes", hue="rung"),
                f"● measured on {view.name}.",
                "; ".join(f"{row['model']}, {row['rung']}: {two_digits(row['gain'])}" for row in rows),
            ),
            [] if top else ["The rungs of a GPU follow once one is measured."],
            Table(
                ["Step", "Rung", "By", "Rate", "Gain"],
                [[row["model"], row["rung"], row["by"], row["rate"], f"×{number(row['gain'], 2)}"] for row in rows],
                "lllrr",
                f"Training steps on {view.name}",
            ),
            ["N11", "G04", "W02"],
            title,
        )


def show_captured(view: View, name: str) -> Iterable[Exhibit]:
    """The gain of one launch for a whole step over a launch for each operator, which is the host's work."""
    cells = sorted(
        records(view.quantity("training.capture_gain")),
        key=lambda one: (str(one["model"]), int(one["batch"]), str(one["dtype"])),
    )
    if not cells:
        return
    labels = [f"{one['model']}, batch {int(one['batch']):,}, {one['dtype']}{on_gpu(one['device'])}" for one in cells]
    yield listed(
        name,
        sentence(
            "Captured in one graph, a training step on the GPU is {gain} as launched operator by operator",
            "What capturing a training step in one graph gains on the GPU cannot be told from this run",
            gain=ratios(cells, "as fast"),
        ),
        [(label, one, []) for label, one in zip(labels, cells, strict=True)],
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
