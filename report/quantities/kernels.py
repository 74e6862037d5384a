"""Kernels and steps as a few numbers of a device would foretell them: what each computes, moves and takes.

Products, passes over memory, requests' computations and steps of models, round by round; and the ceilings that
the same round has measured, which are no kernels then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report.data import groups
from report.data.dataset import Dataset, once
from report.data.groups import keys
from report.data.summary import POINT
from report.quantities import memory

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# A half with fewer kernels says nothing.
LEAST = 6
PLACE = ["node", "device", "threads"]
# Plain loops show what a language costs, not what a device can do.
_LOOPS = ("python", "scalar", "simd", "numba", "llvm-scalar")
_KERNELS = ("gemm", "batched", "bandwidth", "offload", "roofline")
# What a kernel is, on whatever machine.
_KIND = ["experiment", "backend", "dtype", "params"]


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


def rounds(data: Dataset, node: str | None = None) -> dict[tuple[str, str, int], list[Kernels]]:
    """The kernels of each node (or of one), device and number of threads, by round; those that every round has."""
    found: dict[tuple[str, str, int], list[Kernels]] = _all_rounds(data)
    return found if node is None else {place: kernels for place, kernels in found.items() if place[0] == node}


@once
def _all_rounds(data: Dataset) -> dict[tuple[str, str, int], list[Kernels]]:
    points = _points(data)
    if points is None:
        return {}
    found: dict[tuple[str, str, int], list[Kernels]] = {}
    code, _ = groups.fold(groups.ranks(points.table[name]) for name in PLACE)
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    places = points.table[PLACE].iloc[order[starts]].itertuples(index=False, name=None)
    for (place, device, threads), at in zip(places, np.split(order, starts[1:]), strict=True):
        made = _of_place(points, at, device, memory.last_level_cache(data, place, device))
        if made:
            found[place, device, int(threads)] = made
    return found


@once
def _rows_behind(data: Dataset) -> dict[tuple[str, str, int], tuple[int, ...]]:
    table = data.table
    used = table["experiment"].isin(["peak", *_KERNELS]) & ~table["backend"].isin(_LOOPS) & (table["status"] == "ok")
    rows = table.loc[used.to_numpy(bool), PLACE]
    places: Any = rows.groupby(PLACE, sort=False, observed=True).indices
    numbers = rows.index.to_numpy()
    return {
        (str(node), str(device), int(threads)): tuple(numbers[np.sort(at)].tolist())
        for (node, device, threads), at in places.items()
    }


def source_rows(data: Dataset, node: str, device: str, threads: int) -> tuple[int, ...]:
    """Numbers of the summary's rows from which the kernels of a place and what foretells them are taken."""
    return _rows_behind(data).get((node, device, threads), ())


@dataclass(frozen=True)
class _Kinds:
    """Kernels as they are on whatever machine. Arrays are of shape (kinds,), in the order of their keys."""

    experiment: NDArray[np.str_]
    what: NDArray[np.str_]
    work: NDArray[np.str_]
    held: Bools
    footprint: Floats
    fma: Bools


@dataclass(frozen=True)
class _Points:
    """Kernels and ceilings of all nodes: columns POINT, in their order. Arrays are of shape (points, ...).

    kind: each one's place among `kinds`. format: a number of its dtype. seconds: by round, nan where it was not
    measured. whole_flop, moved: FLOP and bytes of a call; flop, bytes: the same by kinds of operators.
    """

    table: pd.DataFrame
    kinds: _Kinds
    kind: groups.Ints
    format: groups.Ints
    seconds: Floats
    whole_flop: Floats
    moved: Floats
    flop: Floats
    bytes: Floats
    launches: Floats
    cached: Floats


def _points(data: Dataset) -> _Points | None:
    """Everything that was measured of kernels and ceilings; None if that is nothing."""
    columns = [*POINT, "round", "metric", "value", "flop", "bytes"]
    samples = data.samples("peak", *_KERNELS, columns=[*columns, "status"])
    ok = samples.loc[(samples["status"] == "ok") & ~samples["backend"].isin(_LOOPS), columns]
    # On a GPU a request's computation is a part of it; what it computes and moves is told by the whole.
    part = (ok["experiment"] == "offload") & (ok["device"] != "cpu")
    read = np.where(part, ok["metric"] == "device_time.compute", ok["metric"] == "time")
    if not read.any():
        return None
    point, _ = groups.ranks(groups.fold(groups.ranks(ok[name]) for name in POINT)[0])
    most = ok[["flop", "bytes"]].groupby(point).max()
    timed = pd.Series(ok["value"].to_numpy(float)[read]).groupby([point[read], ok["round"].to_numpy()[read]]).median()
    seconds = timed.unstack()
    first = np.full(len(most), -1)
    first[point[::-1]] = np.arange(len(point))[::-1]
    table = ok[POINT].iloc[first[seconds.index]].reset_index(drop=True)
    most = most.loc[seconds.index]
    kinds, kind, whole = _kinds(table)
    table = table[whole].reset_index(drop=True)
    flop, moved = (most[name].to_numpy(float)[whole] for name in ("flop", "bytes"))
    split, launches, cached = _steps(data, table, {"flop": flop, "bytes": moved})
    return _Points(
        table, kinds, kind[whole], groups.ranks(table["dtype"])[0], seconds.to_numpy(float)[whole], flop, moved,
        split["flop"], split["bytes"], launches, cached,
    )  # fmt: skip


def _kinds(table: pd.DataFrame) -> tuple[_Kinds, groups.Ints, Bools]:
    """The kinds of the points of a table, each point's place among them, and whether it is a whole kernel."""
    code, _ = groups.ranks(groups.fold(groups.ranks(table[name]) for name in _KIND)[0])
    _, first = np.unique(code, return_index=True)
    rows: list[dict[str, Any]] = [
        {**dict(zip(_KIND, row, strict=True)), "given": json.loads(row[-1])}
        for row in table[_KIND].iloc[first].itertuples(index=False, name=None)
    ]
    names = [_key(row) for row in rows]
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    whole = np.array([_whole(row) for row in rows], dtype=bool)
    rows = [rows[at] for at in order]
    kinds = _Kinds(
        experiment=np.array([row["experiment"] for row in rows]),
        what=np.array([names[at] for at in order]),
        work=np.array([row["given"].get("phase") or row["experiment"] for row in rows]),
        held=np.array([is_held(names[at]) for at in order], dtype=bool),
        footprint=np.array([float(row["given"].get("footprint", 0)) for row in rows]),
        fma=np.array([row["given"].get("kernel") == "fma" for row in rows], dtype=bool),
    )
    return kinds, rank[code], whole[code]


def _whole(row: Mapping[str, Any]) -> bool:
    """Of requests those whose data are all that is computed with, once: no weights that lie there already."""
    return row["experiment"] != "offload" or (
        row["given"]["uses"] == 1 and row["given"]["op"] in ("elementwise", "gemm")
    )


def _key(row: Mapping[str, Any]) -> str:
    """What a kernel is, on whatever machine: its hash decides the half that it is in."""
    return "|".join([row["experiment"], row["backend"], row["dtype"], json.dumps(row["given"], sort_keys=True)])


def is_held(what: str) -> bool:
    """Whether a kernel is judged (even hash) or fitted on (odd)."""
    return hashlib.sha256(what.encode()).digest()[0] % 2 == 0


def _steps(data: Dataset, table: pd.DataFrame, whole: Mapping[str, Floats]) -> tuple[dict[str, Floats], Floats, Floats]:
    """FLOP and bytes of each point by kinds of operators; its launches; the share of its bytes from the last cache.

    Steps of models tell these; nan for the share where nothing does, and other kernels are one operator and a launch.
    whole: FLOP and bytes of each point.
    """
    told = data.table[(data.table["experiment"] == "roofline") & (data.table["status"] == "ok")]
    mine, theirs = keys(table, told, POINT)
    order = np.argsort(mine, kind="stable")
    row = order[np.minimum(np.searchsorted(mine[order], theirs), len(order) - 1)]
    known, metric = mine[row] == theirs, told["metric"].to_numpy(object)
    value = told["estimate"].to_numpy(float)

    def of(name: str, otherwise: float) -> Floats:
        found = np.full(len(table), otherwise)
        here = known & (metric == name) & ~np.isnan(value)
        found[row[here]] = value[here]
        return found

    limits = sorted({_limit(str(name)) for name in np.unique(metric.astype(str)) if "_below." in name})
    split = {}
    for measure, amount in whole.items():
        below = [of(f"{measure}_below.{text}_share", np.nan) for _, text in limits]
        # What is not told of a limit is what is told of the one before.
        up_to = np.fmax.accumulate([np.zeros(len(table)), *below, np.ones(len(table))], axis=0)
        split[measure] = np.nan_to_num(amount)[:, None] * np.diff(up_to, axis=0).T
    used = np.any([parts.any(axis=0) for parts in split.values()], axis=0)
    return {name: parts[:, used] for name, parts in split.items()}, of("kernels", 1.0), of("cached_bytes_share", np.nan)


def _limit(metric: str) -> tuple[float, str]:
    """The intensity up to which a metric such as `bytes_below.0.5_share` counts operators, and its text."""
    text = metric.split(".", 1)[1].removesuffix("_share")
    return float(text), text


@dataclass(frozen=True)
class _Round:
    """Which points of a place are kernels in a round; the peak FLOP/s of each format, the highest where there is none.

    column: of `seconds`. bandwidth: bytes/s.
    """

    judged: Bools
    peak: Floats
    bandwidth: float
    column: int


def _of_place(points: _Points, at: groups.Ints, device: str, cache: float) -> list[Kernels]:
    """The kernels of a place, whose points are `at`, that every round has; none if a half has too few.

    Experiments may have more rounds than others: those count in which most of them were measured.
    """
    experiment = points.kinds.experiment[points.kind[at]]
    measured = ~np.isnan(points.seconds[at])
    had = np.array([len(np.unique(experiment[there])) for there in measured.T])
    ready = [_ceilings(points, at, column, cache) for column in np.flatnonzero(had == max(1, had.max())).tolist()]
    per_round = [one for one in ready if one is not None]
    if not per_round:
        return []
    mine = at[np.logical_and.reduce([one.judged for one in per_round])]
    mine = mine[np.argsort(points.kind[mine])]
    kind = points.kind[mine]
    held = points.kinds.held[kind]
    if min(held.sum(), (~held).sum()) < LEAST:
        return []
    what, work = points.kinds.what[kind], points.kinds.work[kind]
    cached = _cached(points, mine, device, cache)
    return [
        Kernels(
            what, work, held, points.flop[mine], points.bytes[mine], points.launches[mine], cached,
            peak=one.peak[points.format[mine]], seconds=points.seconds[mine, one.column], bandwidth=one.bandwidth,
        )
        for one in per_round
    ]  # fmt: skip


def _ceilings(points: _Points, at: groups.Ints, column: int, cache: float) -> _Round | None:
    """The ceilings of a round, and its kernels without those that are ceilings; None where one is lacking."""
    kind, seconds = points.kind[at], points.seconds[at, column]
    flop, moved, dtype = points.whole_flop[at], points.moved[at], points.format[at]
    experiment, there = points.kinds.experiment[kind], ~np.isnan(seconds)
    arithmetic = there & ((experiment == "gemm") | (experiment == "peak") & points.kinds.fma[kind])
    big = points.kinds.footprint[kind] >= memory.CACHE_MULTIPLE * cache
    passes = there & (experiment == "bandwidth") & big
    if not arithmetic.any() or not passes.any():
        return None
    rate, speed = np.where(arithmetic, flop / seconds, -np.inf), np.where(passes, moved / seconds, -np.inf)
    peak, top = np.full(int(points.format.max()) + 1, np.nan), [int(np.argmax(speed))]
    for one in np.unique(dtype[arithmetic]):
        top.append(int(np.argmax(np.where(dtype == one, rate, -np.inf))))
        peak[one] = rate[top[-1]]
    judged = there & (moved > 0) & (~np.isnan(peak[dtype]) | np.isnan(flop)) & (experiment != "peak")
    judged[top] = False
    # A pass over memory in a format without products computes next to nothing.
    return _Round(judged, np.where(np.isnan(peak), np.nanmax(peak), peak), float(speed[top[0]]), column)


def _cached(points: _Points, at: Sequence[int] | groups.Ints, device: str, cache: float) -> Floats:
    """Share of each kernel's bytes that come from the last cache: as its steps tell it, else by what it is.

    Products and requests on a CPU use copies of their data in turn, more than caches hold; a request's
    computation on a GPU stays where it is, as passes over memory do.
    """
    kind, told = points.kind[at], points.cached[at]
    experiment = points.kinds.experiment[kind]
    of_pass = (experiment == "bandwidth") & (points.kinds.footprint[kind] <= cache)
    of_request = (experiment == "offload") & (device != "cpu") & (points.moved[at] <= cache)
    return np.where(np.isnan(told), (of_pass | of_request).astype(float), told)
