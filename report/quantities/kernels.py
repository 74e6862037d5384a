"""Kernels and steps as a few numbers of a device would predict them: what each computes, moves and takes.

Products, passes over memory, requests' computations and steps of models, round by round; and the ceilings that
the same round has measured, which are no kernels then.
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

# A half with fewer kernels says nothing.
LEAST = 6
PLACE = ["node", "device", "threads"]
# Plain loops show what a language costs, not what a device can do.
_LOOPS = ("python", "scalar", "simd", "numba", "llvm-scalar")
_KERNELS = ("gemm", "bandwidth", "offload", "roofline")


@dataclass
class Kernels:
    """Kernels of one node, device, number of threads and round.

    what: each one's key; work: its kind; held: whether it is judged, not fitted on; launches; cached: share of its
    bytes that the last cache holds; peak: FLOP/s in its format; seconds: all of shape (kernels,). flop, bytes: shape
    (kernels, kinds of operators). bandwidth: bytes/s of memory.
    """

    what: NDArray[np.str_]
    work: NDArray[np.str_]
    held: Bools
    flop: Floats
    bytes: Floats
    launches: Floats
    cached: Floats
    peak: Floats
    seconds: Floats
    bandwidth: float

    def predicted(self, numbers: Mapping[str, float]) -> Floats:
        """Seconds of each kernel. numbers: of the peak and of the bandwidth the shares that are reached;
        where there are more, s a launch and how many times faster the cache is than memory."""
        moved = self.bandwidth * numbers["bandwidth"]
        of_cache = self.cached * (1 / numbers.get("cache", 1.0) - 1)
        memory_s = self.bytes / moved * (1 + of_cache)[:, None]
        arithmetic_s = self.flop / (self.peak * numbers["peak"])[:, None]
        spent: Floats = np.maximum(arithmetic_s, memory_s).sum(axis=1) + self.launches * numbers.get("launch", 0.0)
        return spent

    def half(self, held: bool) -> Kernels:
        """Those that are judged, or those that numbers are fitted on."""
        at = self.held == held
        arrays = {name: value[at] for name, value in vars(self).items() if name != "bandwidth"}
        return Kernels(**arrays, bandwidth=self.bandwidth)


def kernel_rounds(data: Dataset, node: str | None = None) -> dict[tuple[str, str, int], list[Kernels]]:
    """The kernels of each node (or of one), device and number of threads, by round; those that every round has."""
    return {place: found for place, found in _rounds_by_place(data).items() if node in (None, place[0])}


@cached_per_dataset
def _rounds_by_place(data: Dataset) -> dict[tuple[str, str, int], list[Kernels]]:
    points = _points(data)
    found: dict[tuple[str, str, int], list[Kernels]] = {}
    for place, at in pd.DataFrame({name: points[name] for name in PLACE}).groupby(PLACE).indices.items():
        node, device, threads = cast(tuple[str, str, int], place)
        kernels = _place_kernels(points.at(np.asarray(at)), memory.last_level_cache(data, node, device))
        if kernels:
            found[node, device, int(threads)] = kernels
    return found


@cached_per_dataset
def _rows_by_place(data: Dataset) -> Mapping[Any, Any]:
    table = data.table
    used = table["experiment"].isin(["peak", *_KERNELS]) & ~table["backend"].isin(_LOOPS) & (table["status"] == "ok")
    found: Mapping[Any, Any] = table[used].groupby(PLACE, observed=True).groups
    return found


def source_rows(data: Dataset, node: str, device: str, threads: int) -> tuple[int, ...]:
    """Numbers of the summary's rows from which the kernels of a place and what predicts them are taken."""
    return tuple(sorted(_rows_by_place(data).get((node, device, threads), ())))


@dataclass(frozen=True)
class _Points:
    """Kernels and ceilings of all nodes, or of a place.

    columns: an entry for each, of POINT, flop and bytes of a call, and what _described adds. seconds: of each
    round, of shape (rows, rounds); nan where it was not measured. flop, bytes: by kinds of operators, of shape
    (rows, kinds).
    """

    columns: Mapping[str, NDArray[Any]]
    seconds: Floats
    flop: Floats
    bytes: Floats

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def at(self, rows: NDArray[np.intp]) -> _Points:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return _Points(columns, self.seconds[rows], self.flop[rows], self.bytes[rows])


def _points(data: Dataset) -> _Points:
    """Everything that was measured of kernels and ceilings."""
    columns = [*POINT, "round", "metric", "value", "flop", "bytes", "status"]
    samples = data.samples("peak", *_KERNELS, columns=columns)
    kept = (samples["status"] == "ok") & ~samples["backend"].isin(_LOOPS)
    ok = samples.loc[kept, columns[:-1]]
    # On a GPU a request's computation is a part of it; what it computes and moves is known of the whole.
    part = (ok["experiment"] == "offload") & (ok["device"] != "cpu")
    of_time = np.where(part, ok["metric"] == "device_time.compute", ok["metric"] == "time")
    timed = ok.loc[of_time, [*POINT, "round", "value"]]
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
    of_all = {str(name): column.to_numpy() for name, column in table.drop(columns=seconds.columns).items()}
    return _Points(of_all, table[seconds.columns].to_numpy(float), flop, moved)


def _with_keys(table: pd.DataFrame) -> pd.DataFrame:
    """Points with what each is (its key), its kind of work, and whether it is judged, whole and a ceiling."""
    # The same point recurs on every node.
    by = ["experiment", "backend", "dtype", "params"]
    points = table[by].drop_duplicates(ignore_index=True)
    params = [json.loads(text) for text in points["params"]]
    places = zip(points["experiment"], points["backend"], points["dtype"], params, strict=True)
    what = ["|".join([*place, json.dumps(given, sort_keys=True)]) for *place, given in places]
    points = points.assign(
        what=what,
        work=[given.get("phase") or name for given, name in zip(params, points["experiment"], strict=True)],
        held=pd.Series(map(is_judged, what), dtype=bool),
        footprint=pd.Series([given.get("footprint", 0) for given in params], dtype=float),
        fma=pd.Series([given.get("kernel") == "fma" for given in params], dtype=bool),
        # Of requests those whose data are all that is computed with, once: no weights that lie there already.
        whole=(points["experiment"] != "offload")
        | pd.Series(
            [given.get("uses") == 1 and given.get("op") in ("elementwise", "gemm") for given in params], dtype=bool
        ),
    )
    return table.merge(points, on=by, how="left")


def is_judged(what: str) -> bool:
    """Whether a kernel is judged (even hash) or fitted on (odd)."""
    return hashlib.sha256(what.encode()).digest()[0] % 2 == 0


def _step_metrics(data: Dataset) -> pd.DataFrame:
    """What steps of models record of themselves: a row for each point, a column for each metric."""
    steps = data.table[(data.table["experiment"] == "roofline") & (data.table["status"] == "ok")]
    steps = steps.astype({name: object for name in [*POINT, "metric"] if name != "threads"})
    return steps.pivot(index=POINT, columns="metric", values="estimate").astype(float)


def _split_by_intensity(table: pd.DataFrame, steps: pd.DataFrame) -> list[Floats]:
    """FLOP and bytes of each point by kinds of operators, as its steps have them; other kernels are one operator."""
    texts = {name.split(".", 1)[1].removesuffix("_share") for name in steps.columns if "_below." in name}
    found = []
    for measure in ("flop", "bytes"):
        names = [f"{measure}_below.{text}_share" for text in sorted(texts, key=float)]
        below = steps.reindex(columns=names).to_numpy(float).T
        # What is not known of a limit is what is known of the one before.
        up_to = np.fmax.accumulate([np.zeros(len(table)), *below, np.ones(len(table))], axis=0)
        found.append(np.nan_to_num(table[measure].to_numpy(float))[:, None] * np.diff(up_to, axis=0).T)
    used = np.any([parts.any(axis=0) for parts in found], axis=0)
    return [parts[:, used] for parts in found]


def _place_kernels(points: _Points, cache: float) -> list[Kernels]:
    """The kernels of a place that every round has; none if a half has too few.

    Experiments may have more rounds than others: those count in which most of them were measured.
    """
    experiment, moved, held = points["experiment"], points["bytes"], points["held"]
    had = [len(set(experiment[measured])) for measured in ~np.isnan(points.seconds.T)]
    counting = [seconds for seconds, n in zip(points.seconds.T, had, strict=True) if n == max(1, *had)]
    found = [ceilings for seconds in counting if (ceilings := _ceilings(points, seconds, cache))]
    if not found:
        return []
    mine = np.flatnonzero(np.logical_and.reduce([one.judged for one in found]))
    if min(held[mine].sum(), (~held[mine]).sum()) < LEAST:
        return []
    mine = mine[np.argsort(points["what"][mine], kind="stable")]
    # Products and requests on a CPU use copies of their data in turn, more than caches hold; a request's
    # computation on a GPU stays where it is, as passes over memory do.
    fits = (experiment == "bandwidth") & (points["footprint"] <= cache)
    fits |= (experiment == "offload") & (points["device"] != "cpu") & (moved <= cache)
    of_kernels = {
        "what": points["what"][mine].astype(str),
        "work": points["work"][mine].astype(str),
        "held": held[mine],
        "flop": points.flop[mine],
        "bytes": points.bytes[mine],
        "launches": points["launches"][mine],
        "cached": np.where(np.isnan(points["cached"]), fits, points["cached"])[mine],
    }
    return [
        Kernels(**of_kernels, peak=one.peak[mine], seconds=one.seconds[mine], bandwidth=one.bandwidth) for one in found
    ]


@dataclass(frozen=True)
class _Ceilings:
    """Of a place in a round: bytes/s of memory; and for each point its seconds, the peak FLOP/s of its format (the
    highest where there is none), and whether it is a kernel that is judged."""

    seconds: Floats
    judged: Bools
    peak: Floats
    bandwidth: float


def _ceilings(points: _Points, seconds: Floats, cache: float) -> _Ceilings | None:
    """The ceilings of a round, and its kernels without those that are ceilings; None where one is missing."""
    experiment, dtype, measured = points["experiment"], points["dtype"], ~np.isnan(seconds)
    products = measured & ((experiment == "gemm") | (experiment == "peak") & points["fma"])
    passes = measured & (experiment == "bandwidth") & (points["footprint"] >= memory.CACHE_MULTIPLE * cache)
    if not products.any() or not passes.any():
        return None
    rates, speeds = points["flop"] / seconds, points["bytes"] / seconds
    fastest = {name: _argmax(rates, products & (dtype == name)) for name in set(dtype[products])}
    widest = _argmax(speeds, passes)
    peak = np.array([rates[fastest[name]] if name in fastest else np.nan for name in dtype])
    judged = (points["bytes"] > 0) & (~np.isnan(peak) | np.isnan(points["flop"])) & measured & (experiment != "peak")
    judged[[*fastest.values(), widest]] = False
    # A pass over memory in a format without products computes next to nothing.
    return _Ceilings(seconds, judged, np.where(np.isnan(peak), np.nanmax(peak), peak), float(speeds[widest]))


def _argmax(values: Floats, among: Bools) -> int:
    """Position of the largest value among some."""
    places = np.flatnonzero(among)
    return int(places[np.nanargmax(values[places])])
