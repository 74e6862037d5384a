"""Training steps: rates and phases over the batch size, a panel per model; and all models side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.estimates import Estimates
from report.formatting import number, with_unit
from report.quantities.ladder import LOOPS
from report.quantities.training import PHASES
from report.render import stacks, sweep
from report.render.figures import Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.gemm import DEFAULT
from report.render.measurements.marks import (
    colours,
    fewest_and_most,
    filled,
    hollow,
    rates,
    records,
    series,
    stated,
    times,
    who,
)
from report.render.words import LEVEL

_PHASES = {"time": "whole step", "time.forward": "forward", "time.backward": "backward", "time.update": "update"}
_HOW = ("backend", "dtype", "threads")
_AXIS = {"along": "batch", "x": "batch size (samples)", "base": 2}


def show(view: View) -> Iterable[Exhibit]:
    """Per device two figures over the batch size, rates and phases; then all models, with what a step of each takes."""
    for device in view.devices():
        whole = view.of("training", device=device)
        # Plain loops stand on the ladder.
        whole = fewest_and_most(whole[~whole["backend"].isin(LOOPS)])
        if not len(whole):
            continue
        whole["x"] = whole["batch"].astype(float)
        told = f"Training rate by model, batch size and number format{hollow(whole)}, with {LEVEL} intervals."
        swept = _swept(whole)
        shows = {**_AXIS, "panels": _rates(swept), "y": "rate", "unit": "samples/s"}
        yield Exhibit(
            drawing=sweep.drawing(view.name("training-rate", device), shows, told, view.where(device)), wide=True
        )
        told = f"Where the time of a training step goes, with {LEVEL} intervals: forward, backward, update."
        shows = {**_AXIS, "panels": _phases(view, swept, device), "y": "time", "unit": "s"}
        yield Exhibit(
            drawing=sweep.drawing(view.name("training-phases", device), shows, told, view.where(device)), wide=True
        )
        if whole["model"].nunique() > 1:
            yield Exhibit(_utilisation(view, device), _split(view, whole, device), _models(view, device))


def _swept(whole: pd.DataFrame) -> pd.DataFrame:
    """The models that were measured at several batch sizes; all, if none was."""
    several_sizes = whole[whole.groupby("model")["batch"].transform("nunique") > 1]
    return several_sizes if len(several_sizes) else whole


def _rates(whole: pd.DataFrame) -> list[dict[str, Any]]:
    whole = whole.assign(line=[_line(*pair) for pair in whole[["dtype", "backend"]].itertuples(index=False)])
    looks = colours(whole["line"])
    panels = []
    for model, part in whole.groupby("model", sort=True):
        lines = [
            series(rates(line, "batch"), str(name), looks[name], hollow=threads == 1, told=who(name, threads))
            for (name, threads), line in part.groupby(["line", "threads"], sort=True)
        ]
        panels.append({"title": str(model), "series": filled(lines)})
    return panels


def _line(dtype: Any, backend: Any) -> str:
    return str(dtype) if backend == DEFAULT else f"{dtype}, {backend}"


def _phases(view: View, whole: pd.DataFrame, device: str) -> list[dict[str, Any]]:
    looks = colours(_PHASES)
    panels = []
    for model, part in whole[whole["backend"] == DEFAULT].groupby("model", sort=True):
        dtype, threads = _plainest(part)
        lines = []
        for metric, name in _PHASES.items():
            line = view.of("training", metric, device)
            line = line[(line["model"] == model) & (line["dtype"] == dtype) & (line["threads"] == threads)]
            line = line[line["backend"] == DEFAULT].copy()
            line["x"] = line["batch"].astype(float)
            lines.append(series(times(line), name, looks[metric], hollow=metric == "time"))
        panels.append({"title": f"{model}, {who(dtype, threads)}", "series": filled(lines)})
    return panels


def _plainest(whole: pd.DataFrame) -> tuple[str, int]:
    """float32 where there is one, with the most threads."""
    dtypes = sorted(whole["dtype"].unique())
    dtype = "float32" if "float32" in dtypes else dtypes[0]
    return dtype, int(whole.loc[whole["dtype"] == dtype, "threads"].max())


def _plain(whole: pd.DataFrame) -> pd.DataFrame:
    """One point of each model: PyTorch as it comes in its plainest format, the largest batch."""
    points = []
    for _, part in whole[whole["backend"] == DEFAULT].groupby("model", sort=True):
        dtype, threads = _plainest(part)
        same = part[(part["dtype"] == dtype) & (part["threads"] == threads)]
        points.append(same[same["batch"] == same["batch"].max()].iloc[:1])
    return pd.concat(points) if points else whole.iloc[:0]


def _split(view: View, whole: pd.DataFrame, device: str) -> Drawing | None:
    """Where the time of a step goes, a bar for each model."""
    cells = view.quantity("training.split", device=device, backend=DEFAULT)
    plain = _plain(whole) if len(cells) else whole.iloc[:0]
    groups: dict[str, list[dict[str, Any]]] = {}
    for _, point in plain.iterrows():
        same = {name: point[name] for name in ("model", "batch", "dtype", "threads")}
        shares = {str(cell["phase"]): float(cell["estimate"]) for cell in records(cells.only(**same))}
        if set(shares) == set(PHASES):
            total = sum(shares.values())
            told = f"batch {int(point['batch']):,}, {with_unit(float(point['estimate']), 's')}"
            row = {"label": str(point["model"]), "told": told, "shares": [shares[name] / total for name in PHASES]}
            groups.setdefault(who(point["dtype"], point["threads"]), []).append(row)
    if not groups:
        return None
    parts = [{"label": name, "colour": look[0]} for name, look in colours(list(PHASES)).items()]
    shows = {
        "groups": [{"title": title, "rows": rows} for title, rows in groups.items()],
        "parts": parts,
        "x": "share of a training step",
    }
    about = f"Where the time of a training step goes on {view.where(device)}, model by model."
    caption = (
        "Where the time of a training step goes, model by model at its largest batch, with PyTorch as it comes: "
        f"shares of the whole step's median time; {view.where(device)}."
    )
    return stacks.drawing(view.name("training-split", device), shows, caption, about)


def _fastest(rates: Estimates) -> list[dict[str, Any]]:
    """The cell with the highest rate of each model."""
    return records(rates.at(rates.frame.groupby("model", sort=True)["estimate"].idxmax().tolist()))


def _utilisation(view: View, device: str) -> list[str]:
    """Between which shares of the measured peak the models stay."""
    cells = view.quantity("training.mfu", device=device)
    # What exceeds the peak has no interval: one of the two was disturbed.
    told = [cell for cell in records(cells) if cell["backend"] not in LOOPS and not pd.isna(cell["low"])]
    if not told:
        return []
    # Of each model the last, its highest.
    best = {str(cell["model"]): cell for cell in sorted(told, key=lambda cell: float(cell["estimate"]))}
    ordered = sorted(best.values(), key=lambda cell: float(cell["estimate"]))
    low, high = (
        f"{stated({end: 100 * float(cell[end]) for end in ('estimate', 'low', 'high')}, '1')}% ({cell['model']})"
        for cell in (ordered[0], ordered[-1])
    )
    reached = low if low == high else f"from {low} to {high}"
    return [view.say(f"At its best batch, format and library a model reaches {reached} of the device's peak.", device)]


def _models(view: View, device: str) -> Table:
    """The fastest step of each model, what share of the peak it reaches, and what memory and energy it takes."""
    rates = view.quantity("training.rate", device=device)
    rates = rates.at((~rates.frame["backend"].isin(LOOPS)).to_numpy(bool))
    beside = {
        name: view.quantity(f"training.{name}", device=device)
        for name in ("mfu", "peak_memory_bytes", "energy_per_sample")
    }
    rows = []
    for cell in _fastest(rates):
        same = {name: cell[name] for name in ("model", "batch", *_HOW)}
        mfu, memory, energy = (
            next(iter(records(cells.only(**same))), None) if len(cells) else None for cells in beside.values()
        )
        rows.append(
            [
                f"{cell['model']}, batch {int(cell['batch']):,}",
                f"{cell['backend']}, {who(cell['dtype'], cell['threads'])}",
                stated(cell, "samples/s"),
                f"{number(100 * mfu['estimate'], 2)}%" if mfu else NOTHING,
                with_unit(memory["estimate"], "B") if memory else NOTHING,
                stated(energy, "J") if energy else NOTHING,
            ]
        )
    return Table(
        f"The fastest step of each model, with {LEVEL} intervals. Of the peak: its operations over the device's "
        f"measured peak in that format; memory: at the peak of a step. {view.where(device)}",
        ["Model", "By", "Rate", "Of the peak", "Memory", "Energy a sample"],
        rows,
        "llrrrr",
        [18, 24, 26, 10, 12, 18],
    )


FAMILY = Family("training", "Training steps", show)
