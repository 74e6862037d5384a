"""Kernels and model steps, with the operations, bytes and launches needed to predict their time.

Kernels are matrix products, memory passes, the computation in requests, and model steps. In each round, the fastest
product in each format and the fastest memory pass set the ceilings, so they do not count as kernels.
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

# Fewest kernels to which a prediction is fitted, and also fewest kernels on which the fit is judged.
LEAST = 6
PLACE = ["node", "device", "threads"]
# Backends that are plain loops. They are left out, because they show a language's cost, not a device's limits.
_LOOPS = ("python", "scalar", "simd", "numba", "llvm-scalar")
_KERNELS = ("gemm", "bandwidth", "offload", "roofline")


@dataclass
class Kernels:
    """Kernels on one node, device and thread count, in one round.

    keys: key per kernel.
    work: kind per kernel, which is its phase, or its experiment if it has no phase.
    judged: True for the kernels to judge the fit by, False for the kernels to fit.
    flop, bytes: FLOP and bytes per kernel and operator kind, with shape (kernels, operator kinds). All other arrays
    have shape (kernels,).
    launches: launch count per kernel.
    cached: share of a kernel's bytes that the last-level cache holds.
    peak: highest FLOP/s in the kernel's format.
    seconds: measured time.
    bandwidth: memory bandwidth in bytes/s.
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

        numbers: `peak` and `bandwidth` are the shares of the ceilings that kernels attain. Optional are `launch`, the
        seconds per launch, and `cache`, the cache speed relative to memory.
        """
        moved = self.bandwidth * numbers["bandwidth"]
        of_cache = self.cached * (1 / numbers.get("cache", 1.0) - 1)
        memory_s = self.bytes / moved * (1 + of_cache)[:, None]
        arithmetic_s = self.flop / (self.peak * numbers["peak"])[:, None]
        spent: Floats = np.maximum(arithmetic_s, memory_s).sum(axis=1) + self.launches * numbers.get("launch", 0.0)
        return spent

    def select(self, judged: bool) -> Kernels:
        """Return the kernels to judge the fit by if `judged` is True, or else the kernels to fit."""
        selected = self.judged == judged
        arrays = {name: value[selected] for name, value in vars(self).items() if name != "bandwidth"}
        return Kernels(**arrays, bandwidth=self.bandwidth)


def kernel_rounds(data: Dataset, node: str | None = None) -> dict[tuple[str, str, int], list[Kernels]]:
    """List the rounds for each node, device and thread count. All rounds in a list have the same kernels.

    node: if given, return only the lists for this node.
    """
    return {place: rounds for place, rounds in _rounds_by_place(data).items() if node in (None, place[0])}


@cached_per_dataset
def _rounds_by_place(data: Dataset) -> dict[tuple[str, str, int], list[Kernels]]:
    points = _points(data)
    rounds: dict[tuple[str, str, int], list[Kernels]] = {}
    for place, rows in (
        pd.DataFrame({name: points[name] for name in PLACE}).groupby(PLACE, observed=True).indices.items()
    ):
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
    """Return the summary's row numbers for the kernels and ceilings on one node, device and thread count."""
    return tuple(sorted(_rows_by_place(data).get((node, device, threads), ())))


@dataclass(frozen=True)
class _Points:
    """Measured points that may be kernels or ceilings, on all nodes, or on one node, device and thread count.

    columns: arrays with one value per point: POINT, flop and bytes per call, launches, cached, and the columns that
    `_with_keys` adds.
    seconds: time with shape (points, rounds), nan if not measured.
    flop, bytes: work by operator kind, with shape (points, kinds).
    """

    columns: Mapping[str, NDArray[Any]]
    seconds: Floats
    flop: Floats
    bytes: Floats

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def take(self, rows: NDArray[np.intp]) -> _Points:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return _Points(columns, self.seconds[rows], self.flop[rows], self.bytes[rows])


def _points(data: Dataset) -> _Points:
    """Read all measured points that may be kernels or ceilings."""
    columns = [*POINT, "round", "metric", "value", "flop", "bytes", "status"]
    samples = data.samples("peak", *_KERNELS, columns=columns)
    usable = (samples["status"] == "ok") & ~samples["backend"].isin(_LOOPS)
    ok = samples.loc[usable, columns[:-1]]
    # On a GPU, the computation in a request is timed by itself, but FLOP and bytes are known only for the whole
    # request.
    part = (ok["experiment"] == "offload") & (ok["device"] != "cpu")
    is_time = np.where(part, ok["metric"] == "device_time.compute", ok["metric"] == "time")
    timed = ok.loc[is_time, [*POINT, "round", "value"]]
    seconds = timed.groupby([*POINT, "round"], observed=True)["value"].median().unstack("round")
    table = ok.groupby(POINT, observed=True)[["flop", "bytes"]].max().join(seconds, how="inner").reset_index()
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
    """Add each point's key, kind (`work`) and footprint, and three flags.

    judged: True for a kernel to judge the fit by. whole: False for a request that cannot count as a kernel. fma: True
    for the kernel that measures the peak of multiply-adds.
    """
    # Each distinct point is parsed only once, because points recur on every node.
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
        # A request counts only if it uses all its data once and keeps no weights on the device.
        whole=(points["experiment"] != "offload")
        | pd.Series(
            [chosen.get("uses") == 1 and chosen.get("op") in ("elementwise", "gemm") for chosen in params], dtype=bool
        ),
    )
    return table.merge(points, on=by, how="left")


def is_judged(key: str) -> bool:
    """Return True for a kernel to judge the fit by, and False for a kernel to fit, by the parity of its key's hash."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0


def _step_metrics(data: Dataset) -> pd.DataFrame:
    """Return the metrics that model steps record: one row per point, one column per metric."""
    steps = data.table[(data.table["experiment"] == "roofline") & (data.table["status"] == "ok")]
    steps = steps.astype({name: object for name in [*POINT, "metric"] if name != "threads"})
    return steps.pivot(index=POINT, columns="metric", values="estimate").astype(float)


def _split_by_intensity(table: pd.DataFrame, steps: pd.DataFrame) -> list[Floats]:
    """Split each model step's FLOP and bytes by operator intensity, as the step recorded them.

    Return FLOP and bytes as two arrays with shape (points, operator kinds), where each kind is an intensity range. A
    kernel that is no model step counts as one operator.
    """
    texts = {name.split(".", 1)[1].removesuffix("_share") for name in steps.columns if "_below." in name}
    by_measure = []
    for measure in ("flop", "bytes"):
        names = [f"{measure}_below.{text}_share" for text in sorted(texts, key=float)]
        below = steps.reindex(columns=names).to_numpy(float).T
        # The shares are cumulative over the limits, so a limit without a value takes the value of the limit below it.
        up_to = np.fmax.accumulate([np.zeros(len(table)), *below, np.ones(len(table))], axis=0)
        by_measure.append(np.nan_to_num(table[measure].to_numpy(float))[:, None] * np.diff(up_to, axis=0).T)
    used = np.any([parts.any(axis=0) for parts in by_measure], axis=0)
    return [parts[:, used] for parts in by_measure]


def _place_kernels(points: _Points, cache: float) -> list[Kernels]:
    """Return, for each round, the kernels that all rounds measured on one node, device and thread count.

    The list is empty if there are fewer than LEAST kernels to fit or to judge. Some experiments have more rounds than
    others, so only the rounds with the most experiments are used.
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
    # Every call of a memory pass or GPU request uses the same data, which may fit into the cache. Products and CPU
    # requests cycle through copies that are larger than the caches.
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
    """Ceilings on one node, device and thread count, in one round.

    seconds: time per point.
    usable: True for points that count as kernels.
    peak: highest FLOP/s in each point's format. If a format has no product, its peak is the highest in any format.
    bandwidth: memory bandwidth in bytes/s.
    """

    seconds: Floats
    usable: Bools
    peak: Floats
    bandwidth: float


def _ceilings(points: _Points, seconds: Floats, cache: float) -> _Ceilings | None:
    """Compute a round's ceilings, and mark the points that count as kernels. Return None if a ceiling is missing."""
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
    # Only memory passes have formats without products. They compute almost nothing, so the highest peak in any format
    # will do.
    return _Ceilings(seconds, usable, np.where(np.isnan(peak), np.nanmax(peak), peak), float(speeds[widest]))


def _argmax(values: Floats, among: Bools) -> int:
    """Find the index of the largest value where `among` is True."""
    places = np.flatnonzero(among)
    return int(places[np.nanargmax(values[places])])
