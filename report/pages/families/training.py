"""Training steps, from one core with PyTorch as it comes to everything that a machine has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.formatting import number, two_digits
from report.pages.charts import Chart, bars
from report.pages.evidence import Evidence, View
from report.pages.exhibit import Exhibit, Family, Table, records, stated, times
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
    """Where tuning alone gains most on the same cores: model, node and the factor; None without ladders."""
    gains = [
        {"model": model, "view": view, "batch": batch, "gain": rungs[WHOLE]["estimate"] / rungs[DEFAULT]["estimate"]}
        for view in evidence.views
        for (model, batch), rungs in ladders(view).items()
        if WHOLE in rungs and DEFAULT in rungs
    ]
    return max(gains, key=lambda one: one["gain"], default=None)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each node, of each model the rungs of the ladder."""
    for place, view in enumerate(evidence.views):
        models = ladders(view)
        if not models:
            continue
        rows = [
            {"model": f"{model}, batch {batch:,}", "rung": name, "gain": rung["estimate"] / rungs[BASE]["estimate"],
             "by": str(rung["detail"]), "rate": stated(rung, "samples/s")}
            for (model, batch), rungs in models.items()
            for name, rung in rungs.items()
        ]  # fmt: skip
        table = pd.DataFrame(rows)
        best = table.groupby("model")["gain"].max()
        title = (
            f"Everything the machine has trains {two_digits(best.min())} to {times(best.max())} as fast as one core as "
            "PyTorch comes"
        )
        top = any(TOP in rungs for rungs in models.values())
        yield Exhibit(
            Chart(
                f"training-{place + 1}",
                title,
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
        )


FAMILY = Family(
    "training", "Training, from one core to all that there is",
    "How much does a training step gain from tuning, from all cores and from a GPU?", show,
)  # fmt: skip
