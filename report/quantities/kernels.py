"""Kernels and model steps, with the operations, bytes and launches needed to predict their time.

Matrix products, memory passes, the compute part in requests, and model steps, round by round; and the ceilings measured
in the same round, which then do not count as kernels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report.data.dataset import Dataset, cached_per_dataset
from report.data.summary import POINT
from report.quantities import memory

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Fewest kernels in each half, to fit or to judge.
LEAST = 6
PLACE = ["node", "device", "threads"]
# Plain loops show the cost of a language, not the limits of a device.
_LOOPS = ("python", "scalar", "simd", "numba", "llvm-scalar")
_KERNELS = ("gemm", "bandwidth", "offload", "roofline")


@dataclass
class Kernels:
    """Kernels on one node, device and thread count, in one round.

    keys: kernel keys; work: kinds; judged: True for kernels to judge, False for kernels to fit; launches; cached: share
    of bytes that the last-level cache holds; peak: FLOP/s in the kernel's format; seconds: all with shape (kernels,).
    flop, bytes: shape (kernels, operator kinds). bandwidth: memory bytes/s.
    """

    keys: NDArray[np.str_]
    work: NDArray[np.str_]
    judged: Bools
    flop: Floats
    bytes: Floats
    launches: Floats
    cached: Floats
    peak: Floats
    seconds: Floats
    bandwidth: float

    def predict_seconds(self, numbers: Mapping[str, float]) -> Floats:
        """Predict the seconds per kernel.

        numbers: attained shares for peak and bandwidth; with more numbers, seconds per launch, and cache speed relative
        to memory.
        """
        moved = self.bandwidth * numbers["bandwidth"]
        of_cache = self.cached * (1 / numbers.get("cache", 1.0) - 1)
        memory_s = self.bytes / moved * (1 + of_cache)[:, None]
        arithmetic_s = self.flop / (self.peak * numbers["peak"])[:, None]
        spent: Floats = np.maximum(arithmetic_s, memory_s).sum(axis=1) + self.launches * numbers.get("launch", 0.0)
        return spent

    def select(self, judged: bool) -> Kernels:
        """Select the kernels to judge, or those to fit."""
        selected = self.judged == judged
        arrays = {name: value[selected] for name, value in vars(self).items() if name != "bandwidth"}
        return Kernels(**arrays, bandwidth=self.bandwidth)


def kernel_rounds(data: Dataset, node: str | None = None) -> dict[tuple[str, str, int], list[Kernels]]:
    """Return kernels by node (or one node), device and thread count, per round; only those measured in every round."""
    return {place: rounds for place, rounds in _rounds_by_place(data).items() if node in (None, place[0])}


@cached_per_dataset
def _rounds_by_place(data: Dataset) -> dict[tuple[str, str, int], list[Kernels]]:
    points = _points(data)
    rounds: dict[tuple[str, str, int], list[Kernels]] = {}
    for place, rows in pd.DataFrame({name: points[name] for name in PLACE}).groupby(PLACE).indices.items():
        node, device, threads = cast(tuple[str, str, int], place)
        kernels = _place_kernels(points.take(np.asarray(rows)), memory.last_level_cache(data, node, device))
        if kernels:
            rounds[node, device, int(threads)] = kernels
    return rounds


@cached_per_dataset
def _rows_by_place(data: Dataset) -> Mapping[Any, Any]:
    table = data.table
    used = table["experiment"].isin(["peak", *_KERNELS]) & ~table["backend"].isin(_LOOPS) & (table["status"] == "ok")
    groups: Mapping[Any, Any] = table[used].groupby(PLACE, observed=True).groups
    return groups


def source_rows(data: Dataset, node: str, device: str, threads: int) -> tuple[int, ...]:
    """Return the summary's row numbers behind the kernels and ceilings at a place."""
    return tuple(sorted(_rows_by_place(data).get((node, device, threads), ())))


@dataclass(frozen=True)
class _Points:
    """Kernels and ceilings on all nodes, or at one place.

    columns: POINT, flop and bytes per call, and those added by `_with_keys`. seconds: shape (rows, rounds), nan if not
    measured. flop, bytes: by operator kind, with shape (rows, kinds).
    """

    columns: Mapping[str, NDArray[Any]]
    seconds: Floats
    flop: Floats
    bytes: Floats

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def take(self, rows: NDArray[np.intp]) -> _Points:
        """Select rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return _Points(columns, self.seconds[rows], self.flop[rows], self.bytes[rows])


def _points(data: Dataset) -> _Points:
    """Read all measured kernels and ceilings."""
    columns = [*POINT, "round", "metric", "value", "flop", "bytes", "status"]
    samples = data.samples("peak", *_KERNELS, columns=columns)
    usable = (samples["status"] == "ok") & ~samples["backend"].isin(_LOOPS)
    ok = samples.loc[usable, columns[:-1]]
    # On a GPU a request's compute part is timed separately; its FLOP and bytes are known for the whole request.
    part = (ok["experiment"] == "offload") & (ok["device"] != "cpu")
    is_time = np.where(part, ok["metric"] == "device_time.compute", ok["metric"] == "time")
    timed = ok.loc[is_time, [*POINT, "round", "value"]]
    seconds = timed.groupby([*POINT, "round"])["value"].median().unstack("round")
    table = ok.groupby(POINT)[["flop", "bytes"]].max().join(seconds, how="inner").reset_index()
    table = _with_keys(table.astype({name: object for name in POINT if name != "threads"}))
    table = table[table["whole"]].reset_index(drop=True)
    steps = _step_metrics(data).reindex(pd.MultiIndex.from_frame(table[POINT])).reset_index(drop=True)
    flop, moved = _split_by_intensity(table, steps)
    table = table.assign(
        launches=steps.get("kernels", pd.Series(1.0, table.index)).fillna(1.0),
        cached=steps.get("cached_bytes_share", np.nan),
    )
    arrays = {str(name): column.to_numpy() for name, column in table.drop(columns=seconds.columns).items()}
    return _Points(arrays, table[seconds.columns].to_numpy(float), flop, moved)


def _with_keys(table: pd.DataFrame) -> pd.DataFrame:
    """Add each point's key and kind, and flags: to judge, whole, and fma."""
    # Parsed once per distinct point: points recur on every node.
    by = ["experiment", "backend", "dtype", "params"]
    points = table[by].drop_duplicates(ignore_index=True)
    params = [json.loads(text) for text in points["params"]]
    places = zip(points["experiment"], points["backend"], points["dtype"], params, strict=True)
    keys = ["|".join([*place, json.dumps(chosen, sort_keys=True)]) for *place, chosen in places]
    points = points.assign(
        key=keys,
        work=[chosen.get("phase") or name for chosen, name in zip(params, points["experiment"], strict=True)],
        judged=pd.Series(map(is_judged, keys), dtype=bool),
        footprint=pd.Series([chosen.get("footprint", 0) for chosen in params], dtype=float),
        fma=pd.Series([chosen.get("kernel") == "fma" for chosen in params], dtype=bool),
        # Only requests that use all their data once, without resident weights.
        whole=(points["experiment"] != "offload")
        | pd.Series(
            [chosen.get("uses") == 1 and chosen.get("op") in ("elementwise", "gemm") for chosen in params], dtype=bool
        ),
    )
    return table.merge(points, on=by, how="left")


def is_judged(key: str) -> bool:
    """Tell if a kernel is judged (even hash) or fitted (odd)."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0


def _step_metrics(data: Dataset) -> pd.DataFrame:
    """Return the metrics recorded by model steps: one row per point, one column per metric."""
    steps = data.table[(data.table["experiment"] == "roofline") & (data.table["status"] == "ok")]
    steps = steps.astype({name: object for name in [*POINT, "metric"] if name != "threads"})
    return steps.pivot(index=POINT, columns="metric", values="estimate").astype(float)


def _split_by_intensity(table: pd.DataFrame, steps: pd.DataFrame) -> list[Floats]:
    """Split FLOP and bytes by operator intensity, as recorded by model steps; other kernels count as one operator."""
    texts = {name.split(".", 1)[1].removesuffix("_share") for name in steps.columns if "_below." in name}
    by_measure = []
    for measure in ("flop", "bytes"):
        names = [f"{measure}_below.{text}_share" for text in sorted(texts, key=float)]
        below = steps.reindex(columns=names).to_numpy(float).T
        # Limits without a value repeat the one below.
        up_to = np.fmax.accumulate([np.zeros(len(table)), *below, np.ones(len(table))], axis=0)
        by_measure.append(np.nan_to_num(table[measure].to_numpy(float))[:, None] * np.diff(up_to, axis=0).T)
    used = np.any([parts.any(axis=0) for parts in by_measure], axis=0)
    return [parts[:, used] for parts in by_measure]


def _place_kernels(points: _Points, cache: float) -> list[Kernels]:
    """Return a place's kernels, limited to those in every round; none if either half has too few.

    Some experiments have more rounds than others: only the rounds with the most experiments count.
    """
    experiment, moved, judged = points["experiment"], points["bytes"], points["judged"]
    experiments = [len(set(experiment[measured])) for measured in ~np.isnan(points.seconds.T)]
    counting = [seconds for seconds, n in zip(points.seconds.T, experiments, strict=True) if n == max(1, *experiments)]
    per_round = [ceilings for seconds in counting if (ceilings := _ceilings(points, seconds, cache))]
    if not per_round:
        return []
    usable = np.flatnonzero(np.logical_and.reduce([roof.usable for roof in per_round]))
    if min(judged[usable].sum(), (~judged[usable]).sum()) < LEAST:
        return []
    usable = usable[np.argsort(points["key"][usable], kind="stable")]
    # Products and CPU requests cycle through copies larger than the caches; a GPU request's data stay in place, as do
    # those for memory passes.
    fits = (experiment == "bandwidth") & (points["footprint"] <= cache)
    fits |= (experiment == "offload") & (points["device"] != "cpu") & (moved <= cache)
    columns = {
        "keys": points["key"][usable].astype(str),
        "work": points["work"][usable].astype(str),
        "judged": judged[usable],
        "flop": points.flop[usable],
        "bytes": points.bytes[usable],
        "launches": points["launches"][usable],
        "cached": np.where(np.isnan(points["cached"]), fits, points["cached"])[usable],
    }
    return [
        Kernels(**columns, peak=roof.peak[usable], seconds=roof.seconds[usable], bandwidth=roof.bandwidth)
        for roof in per_round
    ]


@dataclass(frozen=True)
class _Ceilings:
    """Ceilings at a place in one round.

    seconds: per point. usable: True for usable kernels. peak: FLOP/s in the point's format, or the highest if the
    format has none. bandwidth: memory bytes/s.
    """

    seconds: Floats
    usable: Bools
    peak: Floats
    bandwidth: float


def _ceilings(points: _Points, seconds: Floats, cache: float) -> _Ceilings | None:
    """Compute a round's ceilings, and mark the kernels other than the ceilings; None if a ceiling is missing."""
    experiment, dtype, measured = points["experiment"], points["dtype"], ~np.isnan(seconds)
    products = measured & ((experiment == "gemm") | (experiment == "peak") & points["fma"])
    passes = measured & (experiment == "bandwidth") & (points["footprint"] >= memory.CACHE_MULTIPLE * cache)
    if not products.any() or not passes.any():
        return None
    rates, speeds = points["flop"] / seconds, points["bytes"] / seconds
    fastest = {name: _argmax(rates, products & (dtype == name)) for name in set(dtype[products])}
    widest = _argmax(speeds, passes)
    peak = np.array([rates[fastest[name]] if name in fastest else np.nan for name in dtype])
    usable = (points["bytes"] > 0) & (~np.isnan(peak) | np.isnan(points["flop"])) & measured & (experiment != "peak")
    usable[[*fastest.values(), widest]] = False
    # Memory passes in formats without products compute almost nothing.
    return _Ceilings(seconds, usable, np.where(np.isnan(peak), np.nanmax(peak), peak), float(speeds[widest]))


def _argmax(values: Floats, among: Bools) -> int:
    """Return the index with the largest value where `among` is true."""
    places = np.flatnonzero(among)
    return int(places[np.nanargmax(values[places])])
