"""The central figures: matrix products, bandwidth and training over their sweeps, from the summary table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from report.render.figures import MARKERS, SERIES, Drawing
from report.render.sweep import draw
from report.wording import count, with_unit

_PHASES = {"time": "whole step", "time.forward": "forward", "time.backward": "backward", "time.update": "update"}


def read_summary(data: Path) -> pd.DataFrame:
    """The summary table with the points' parameters as columns. Raises StudyError if it is not there."""
    path = data / "summary.parquet"
    try:
        table = pd.read_parquet(path)
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file: write it with `python -m report gather`") from None
    except (OSError, ValueError) as broken:
        raise StudyError(f"{path}: cannot be read ({str(broken).splitlines()[0]}): gather again") from None
    params = pd.DataFrame([json.loads(text) for text in table["params"]], index=table.index)
    return table.join(params[[name for name in params.columns if name not in table.columns]])


def left_out_points(data: Path) -> list[dict[str, Any]]:
    """Points without a result, counted by node, experiment, device, status and reason."""
    table = read_summary(data)
    lost = table[table["status"] != "ok"]
    keys = ["node", "experiment", "device", "status", "reason"]
    return [
        {**{name: str(value) for name, value in zip(keys, key, strict=True)}, "count": len(group)}
        for key, group in lost.groupby(keys, sort=True)
    ]


def central_drawings(data: Path, nodes: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """A figure per experiment, node and device that has something to show. Raises StudyError."""
    table = read_summary(data)
    table = table[table["status"] == "ok"]
    labels = {str(node["id"]): str(node.get("label") or node["id"]) for node in nodes}
    caches = {str(node["id"]): _caches(node) for node in nodes}
    drawings: list[Drawing] = []
    for key, part in table.groupby(["node", "device"], sort=True):
        node, device = map(str, key)
        where = f"{labels.get(node, node)}, {device}"
        made = [
            _gemm(part),
            _bandwidth(part, caches.get(node, []) if device == "cpu" else []),
            *_training(part),
        ]
        place = len(drawings)
        for shows in made:
            if shows["panels"]:
                name = f"{shows['name']}-{list(labels).index(node) + 1 if node in labels else place}-{device}"
                drawings.append(
                    Drawing(name.replace(":", "-"), shows, draw, _alt(shows, where), f"{shows['caption']} {where}.")
                )
    return drawings


def _gemm(table: pd.DataFrame) -> dict[str, Any]:
    """Rate of the matrix product over its size, a panel per number format."""
    products = _of(table, "gemm", "time")
    panels = []
    if len(products):
        products["x"] = (products["m"] * products["n"] * products["k"]).astype(float) ** (1 / 3)
        products["square"] = (products["m"] == products["n"]) & (products["n"] == products["k"])
        colours = _colours(products["backend"])
        peaks = _of(table, "peak", "time")
        for dtype, part in products.groupby("dtype", sort=True):
            series = []
            for (backend, threads), line in part.groupby(["backend", "threads"], sort=True):
                look = {"label": _who(backend, threads), "look": colours[backend], "dashed": threads == 1}
                series.append({**_rates(line[line["square"]], "flop"), **look, "joined": True})
                # Other shapes have no order along the axis: nothing lies between them to interpolate.
                series.append({**_rates(line[~line["square"]], "flop"), **look, "label": "", "joined": False})
            panels.append({"title": str(dtype), "series": _filled(series), "marks": [], "limits": _peaks(peaks, dtype)})
    return {
        "name": "gemm", "panels": panels, "x": "cube root of m·n·k", "y": "rate", "unit": "FLOP/s", "base": 2,
        "caption": "Rate of matrix products by size, library and threads, with 95% intervals; lines join square "
        "shapes, lone marks are the shapes of transformers, and the level lines are the measured peak of fused "
        "multiply-adds.",
    }  # fmt: skip


def _peaks(peaks: pd.DataFrame, dtype: Any) -> list[dict[str, Any]]:
    """The measured peak FMA rate of a number format, for each number of threads."""
    if not len(peaks):
        return []
    fma = peaks[(peaks["dtype"] == dtype) & (peaks["kernel"] == "fma")]
    best = fma.groupby("threads", sort=True)["flop_per_s"].max()
    return [{"y": float(rate), "label": _who("peak", threads)} for threads, rate in zip(best.index, best, strict=True)]


def _bandwidth(table: pd.DataFrame, caches: Sequence[tuple[str, float, int]]) -> dict[str, Any]:
    """Bytes per second over the footprint, a panel per number of threads and library."""
    moved = _of(table, "bandwidth", "time")
    panels = []
    if len(moved):
        moved["x"] = moved["footprint"].astype(float)
        colours = _colours(moved["op"])
        for key, part in moved.groupby(["backend", "threads"], sort=True):
            backend, threads = str(key[0]), int(part["threads"].iloc[0])
            series = [
                {**_rates(line, "bytes"), "label": str(op), "look": colours[op], "dashed": False, "joined": True}
                for op, line in part.groupby("op", sort=True)
            ]
            # One thread has one core's caches; all threads have as many as there are instances.
            marks = [
                {"x": each * min(instances, max(1, int(threads))), "label": level} for level, each, instances in caches
            ]
            panels.append({"title": _who(backend, threads), "series": _filled(series), "marks": marks, "limits": []})
    return {
        "name": "bandwidth", "panels": panels, "x": "footprint of all arrays", "y": "bandwidth", "unit": "B/s",
        "base": 2, "sizes": True,
        "caption": "Memory bandwidth over the footprint, with 95% intervals; the upright lines are the sizes of the "
        "caches within reach of the threads.",
    }  # fmt: skip


def _training(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Samples per second over the batch size, and the time of each phase of a step; a panel per model."""
    steps = table[(table["experiment"] == "training") & table["metric"].isin(_PHASES)].copy()
    rates, phases = [], []
    if len(steps):
        steps["x"] = steps["batch"].astype(float)
        colours = _colours(steps["dtype"])
        inks = _colours(_PHASES)
        for model, part in steps.groupby("model", sort=True):
            whole = part[part["metric"] == "time"]
            series = [
                {**_rates(line, "batch"), "label": _who(dtype, threads), "look": colours[dtype],
                 "dashed": threads == 1, "joined": True}
                for (dtype, threads), line in whole.groupby(["dtype", "threads"], sort=True)
            ]  # fmt: skip
            rates.append({"title": str(model), "series": _filled(series), "marks": [], "limits": []})
            dtype, threads = _plainest(whole)
            split = part[(part["dtype"] == dtype) & (part["threads"] == threads)]
            series = [
                {**_times(split[split["metric"] == metric]), "label": name, "look": inks[metric],
                 "dashed": metric == "time", "joined": True}
                for metric, name in _PHASES.items()
            ]  # fmt: skip
            phases.append(
                {"title": f"{model}, {_who(dtype, threads)}", "series": _filled(series), "marks": [], "limits": []}
            )
    shared = {"x": "batch size (samples)", "base": 2}
    return [
        {**shared, "name": "training-rate", "panels": rates, "y": "training rate", "unit": "samples/s",
         "caption": "Training rate by model, batch size, number format and threads, with 95% intervals."},
        {**shared, "name": "training-phases", "panels": phases, "y": "time", "unit": "s",
         "caption": "Where the time of a training step goes, with 95% intervals: forward, backward, update."},
    ]  # fmt: skip


def _of(table: pd.DataFrame, experiment: str, metric: str) -> pd.DataFrame:
    return table[(table["experiment"] == experiment) & (table["metric"] == metric)].copy()


def _plainest(whole: pd.DataFrame) -> tuple[str, int]:
    """float32 where there is one, with the most threads."""
    dtypes = list(whole["dtype"].unique())
    dtype = "float32" if "float32" in dtypes else sorted(dtypes)[0] if dtypes else ""
    return dtype, int(whole.loc[whole["dtype"] == dtype, "threads"].max()) if dtypes else 0


def _who(name: Any, threads: Any) -> str:
    return f"{name}, {count(int(threads), 'thread')}" if threads else str(name)


def _colours(names: Iterable[Any]) -> dict[Any, list[str]]:
    """A colour and a mark for each name, the same in every panel."""
    found = list(names) if isinstance(names, Mapping) else sorted(set(names))
    return {name: [SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]] for i, name in enumerate(found)}


def _points(line: pd.DataFrame, value: Callable[[pd.Series], pd.Series], turned: bool) -> dict[str, list[Any]]:
    line = line.sort_values("x")
    low, high = ("high", "low") if turned else ("low", "high")
    columns = {"y": line["estimate"], "low": line[low], "high": line[high]}
    told = {name: [None if pd.isna(v) else float(v) for v in value(series)] for name, series in columns.items()}
    return {"xs": [float(x) for x in line["x"]], **told}


def _rates(line: pd.DataFrame, work: str) -> dict[str, list[Any]]:
    """Work per second: the shortest time is the highest rate."""
    done = line.sort_values("x")[work].astype(float)
    return _points(line, lambda times: done / times, turned=True)


def _times(line: pd.DataFrame) -> dict[str, list[Any]]:
    return _points(line, lambda times: times, turned=False)


def _filled(series: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in series if one["xs"]]


def _caches(node: Mapping[str, Any]) -> list[tuple[str, float, int]]:
    """Level, bytes of one instance, and instances, of the caches that hold data."""
    cpu = (node.get("hardware") or {}).get("cpu")
    caches = cpu.get("caches") if isinstance(cpu, Mapping) else None
    found = []
    for level, cache in (caches or {}).items():
        if level != "L1i" and isinstance(cache, Mapping) and cache.get("bytes"):
            instances = int(cache.get("instances") or 1)
            found.append((str(level), cache["bytes"] / instances, instances))
    return found


def _told(value: float, shows: Mapping[str, Any]) -> str:
    return with_unit(value, shows["unit"])


def _alt(shows: Mapping[str, Any], where: str) -> str:
    """Per panel: which series, and the highest and lowest of each, from the numbers that are drawn."""
    told = []
    for panel in shows["panels"]:
        lines = [
            f"{one['label']} from {_told(min(one['y']), shows)} to {_told(max(one['y']), shows)}"
            for one in panel["series"]
            if one["label"]
        ]
        told.append(f"{panel['title']}: {'; '.join(lines)}.")
    axis = f"{shows['y']} over {shows['x']}"
    return f"{axis[:1].upper()}{axis[1:]} on {where}. {' '.join(told)}"
