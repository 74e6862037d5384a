"""Training steps over the batch size: samples per second, and the time of each phase; a panel per model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.quantities.ladder import LOOPS
from report.render import sweep
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.gemm import DEFAULT
from report.render.measurements.marks import colours, fewest_and_most, filled, hollow, rates, series, times, who

_PHASES = {"time": "whole step", "time.forward": "forward", "time.backward": "backward", "time.update": "update"}
_AXIS = {"x": "batch size (samples)", "base": 2}


def show(view: View) -> Iterable[Exhibit]:
    """Two figures per device: rates and phases."""
    for device in view.devices():
        whole = view.of("training", device=device)
        # Plain loops stand on the ladder.
        whole = fewest_and_most(whole[~whole["backend"].isin(LOOPS)])
        if not len(whole):
            continue
        whole["x"] = whole["batch"].astype(float)
        told = f"Training rate by model, batch size and number format{hollow(whole)}, with 95% intervals."
        shows = {**_AXIS, "panels": _rates(whole), "y": "rate", "unit": "samples/s"}
        yield Exhibit(
            drawing=sweep.drawing(view.name("training-rate", device), shows, told, view.where(device)), wide=True
        )
        told = "Where the time of a training step goes, with 95% intervals: forward, backward, update."
        shows = {**_AXIS, "panels": _phases(view, whole, device), "y": "time", "unit": "s"}
        yield Exhibit(
            drawing=sweep.drawing(view.name("training-phases", device), shows, told, view.where(device)), wide=True
        )


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


FAMILY = Family("training", "Training steps", show)
