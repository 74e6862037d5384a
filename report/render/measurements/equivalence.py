"""The same training script elsewhere: how far its losses lie from those of the CPU as it comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.estimates import Estimates
from report.formatting import count, number, several
from report.quantities.equivalence import outcomes
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, formats, mark, records
from report.render.words import LEVEL

_AGREES, _TOLERANCE = "difference", "tolerance"
_FAILURES = {"unsupported": "unsupported", "oom": "out of memory", "wrong": "wrong loss"}


def show(view: View) -> Iterable[Exhibit]:
    """One figure for each device."""
    every = outcomes(view.data)
    for device in view.devices():
        mine = every[(every["node"] == view.node) & (every["device"] == device)]
        apart = view.cells("equivalence", "loss_deviation", device=device)
        if len(mine) and len(apart):
            reading = [view.say(line, device) for line in _reading(view, device)]
            yield Exhibit(reading, _drawing(view, device, mine, apart))


def _reading(view: View, device: str) -> Iterable[str]:
    """On how many models each format and library agrees, and which stand out."""
    name = "equivalence.backends_that_agree" if device == "cpu" else "equivalence.models_that_agree"
    for cell in records(view.quantity(name, device=device)):
        models, *others = str(cell["detail"]).split(", ", 1)
        share = "all" if cell["estimate"] == 1 else f"{number(100 * cell['estimate'])}%"
        rounds = count(int(cell["n_rounds"]), "round")
        text = f"In {cell['dtype']} through {cell['backend']}, {share} of {models} train as the CPU does as it comes"
        yield f"{text} ({rounds}{''.join(f'; {other}' for other in others)})."


def _drawing(view: View, device: str, mine: pd.DataFrame, apart: Estimates) -> Drawing:
    looks = colours([_AGREES, _TOLERANCE])
    allowed = view.cells("equivalence", "loss_tolerance", device=device)
    groups: list[dict[str, Any]] = []
    for dtype in formats(mine["dtype"]):
        for backend in sorted(mine.loc[mine["dtype"] == dtype, "backend"].unique()):
            these = mine[(mine["dtype"] == dtype) & (mine["backend"] == backend)]
            rows = [
                _row(str(model), tried, apart, allowed, {"dtype": dtype, "backend": backend}, looks)
                for model, tried in these.groupby("model", sort=True)
            ]
            groups.append({"title": f"{dtype}, {backend}", "rows": rows})
    same = any(mark["estimate"] == 0 for group in groups for row in group["rows"] for mark in row["marks"])
    scale = "zero" if same else "log"
    shows = {
        "groups": groups, "x": "largest difference of the losses", "unit": "1", "scale": scale, "none": "0",
        "legend": [
            {"label": "difference from the reference", "look": looks[_AGREES]},
            {"label": "what is allowed", "look": looks[_TOLERANCE], "hollow": True},
        ],
    }  # fmt: skip
    steps = several([f"{steps:,.0f}" for steps in sorted(apart.frame["steps"].astype(float).unique())])
    caption = (
        f"Largest difference between the losses of {steps} steps of training and those of the CPU in float32 with "
        f"PyTorch as it comes, from equal weights and with equal batches, over the first loss, with {LEVEL} intervals "
        f"over rounds; {view.where(device)}."
    )
    return dots.drawing(view.name("equivalence", device), shows, caption, caption)


def _row(
    model: str,
    tried: pd.DataFrame,
    apart: Estimates,
    allowed: Estimates,
    which: dict[str, Any],
    looks: dict[Any, list[str]],
) -> dict[str, Any]:
    """A model: its difference and its tolerance, and in words whether it agrees in every round."""
    marks = []
    for cells, name in ((apart, _AGREES), (allowed, _TOLERANCE)):
        same = records(cells.only(model=model, **which)) if len(cells) else []
        marks += [mark(cell, looks[name], hollow=name == _TOLERANCE) for cell in same]
    failed = tried[~tried["status"].isin(("ok",))]
    if len(failed):
        status = str(failed["status"].iloc[0])
        told = _FAILURES.get(status, "does not run")
    else:
        told = "agrees" if tried["agrees"].all() else "differs" if not tried["agrees"].any() else "at times"
    return {"label": model, "marks": marks, "told": told}


FAMILY = Family("equivalence", "The same script elsewhere", show)
