"""Kernels and steps as a few numbers of a device would foretell them: what each computes, moves and takes.

Products, passes over memory, requests' computations and steps of models, round by round; and the ceilings that
the same round has measured, which are no kernels then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report.evidence import Data
from report.quantities import memory
from report.summary import POINT

Floats = NDArray[np.float64]

# A half with fewer kernels says nothing.
LEAST = 6
PLACE = ["node", "device", "threads"]
# Plain loops show what a language costs, not what a device can do.
_LOOPS = ("python", "scalar", "simd", "numba", "llvm-scalar")
_KERNELS = ("gemm", "batched", "bandwidth", "offload", "roofline")


@dataclass
class Kernels:
    """Kernels of one node, device, number of threads and round.

    what: each one's key; work: its kind; held: whether it is judged, not fitted on; launches; cached: share of its
    bytes that the last cache holds; peak: FLOP/s in its format; seconds: all of shape (kernels,). flop, bytes: shape
    (kernels, kinds of operators). bandwidth: bytes/s of memory.
    """

    what: NDArray[np.str_]
    work: NDArray[np.str_]
    held: NDArray[np.bool_]
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


def rounds(data: Data, node: str | None = None) -> dict[tuple[str, str, int], list[Kernels]]:
    """The kernels of each node (or of one), device and number of threads, by round; those that every round has."""
    table = _measured(data, node)
    found: dict[tuple[str, str, int], list[Kernels]] = {}
    if not len(table):
        return found
    steps = _steps(data)
    for (place, device, threads), part in table.groupby(PLACE, sort=True):
        cache = memory.last_level_cache(data, str(place), str(device))
        ready = [_ceilings(one, cache) for _, one in part.groupby("round", sort=True)]
        per_round = [one for one in ready if one is not None]
        common = set.intersection(*(set(one.rows["what"]) for one in per_round)) if per_round else set()
        made = [_kernels(one, common, cache, steps) for one in per_round]
        enough = all(min(one.held.sum(), (~one.held).sum()) >= LEAST for one in made)
        if made and enough:
            found[str(place), str(device), int(str(threads))] = made
    return found


def _measured(data: Data, node: str | None) -> pd.DataFrame:
    """Seconds of each kernel and ceiling by round, with FLOP and bytes: columns POINT, round, given, work, what."""
    samples = data.nodes.samples()
    known = samples["experiment"].isin(["peak", *_KERNELS]) & (samples["node"].eq(node) if node else True)
    ok = samples[known & (samples["status"] == "ok") & ~samples["backend"].isin(_LOOPS)]
    # On a GPU a request's computation is a part of it; what it computes and moves is told by the whole.
    part = (ok["experiment"] == "offload") & (ok["device"] != "cpu")
    read = ok[ok["metric"] == np.where(part, "device_time.compute", "time")]
    if not len(read):
        return pd.DataFrame()
    table = read.groupby([*POINT, "round"])["value"].median().rename("seconds").reset_index()
    table = table.join(ok.groupby(POINT)[["flop", "bytes"]].max(), on=POINT)
    table = table.assign(given=[json.loads(text) for text in table["params"]])
    table = table[[_whole(row) for row in _rows(table)]].reset_index(drop=True)
    work = [row["given"].get("phase") or row["experiment"] for row in _rows(table)]
    return table.assign(work=work, what=[_key(row) for row in _rows(table)])


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


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


@dataclass(frozen=True)
class _Round:
    """One round's kernels, the peak FLOP/s of each format and the bandwidth in bytes/s."""

    rows: pd.DataFrame
    peaks: Mapping[str, float]
    bandwidth: float


def _ceilings(table: pd.DataFrame, cache: float) -> _Round | None:
    """The ceilings of a round, and its kernels without those that are ceilings; None where one is lacking."""
    kinds = table["experiment"]
    footprints = table["given"].map(lambda one: float(one.get("footprint", 0)))
    fma = table["given"].map(lambda one: one.get("kernel") == "fma")
    arithmetic = table[(kinds == "gemm") | (kinds == "peak") & fma]
    passes = table[(kinds == "bandwidth") & (footprints >= memory.CACHE_MULTIPLE * cache)]
    if not len(arithmetic) or not len(passes):
        return None
    rate = arithmetic["flop"] / arithmetic["seconds"]
    moved = passes["bytes"] / passes["seconds"]
    top = rate.groupby(arithmetic["dtype"]).idxmax()
    peaks = {str(dtype): float(rate[at]) for dtype, at in top.items()}
    counted = (table["bytes"] > 0) & (table["dtype"].isin(list(peaks)) | table["flop"].isna())
    judged = counted & (kinds != "peak") & ~table.index.isin([*top, moved.idxmax()])
    return _Round(table[judged], peaks, float(moved.max()))


def _steps(data: Data) -> dict[tuple[Any, ...], pd.Series]:
    """What is told of each step's operators, by metric; keys as POINT."""
    rows = data.table[(data.table["experiment"] == "roofline") & (data.table["status"] == "ok")]
    told = rows.pivot_table(index=POINT, columns="metric", values="estimate")
    return {tuple(key): row for key, row in told.iterrows()}  # type: ignore[arg-type]


def _kernels(one: _Round, common: set[str], cache: float, steps: Mapping[tuple[Any, ...], pd.Series]) -> Kernels:
    """The kernels that every round has, a step split into its operators by their intensity."""
    table = one.rows[one.rows["what"].isin(common)].sort_values("what")
    flop, moved, launches, cached = [], [], [], []
    for row in _rows(table):
        step = steps.get(tuple(row[name] for name in POINT), pd.Series(dtype=float))
        flop.append(_parts(float(row["flop"]), "flop", step))
        moved.append(_parts(float(row["bytes"]), "bytes", step))
        launches.append(float(step.get("kernels", 1.0)))
        cached.append(float(step.get("cached_bytes_share", _cached(row, cache))))
    wide = max((len(parts) for parts in (*flop, *moved)), default=1)
    return Kernels(
        what=table["what"].to_numpy(str),
        work=table["work"].to_numpy(str),
        held=np.array([is_held(what) for what in table["what"]], dtype=bool),
        flop=np.array([np.pad(parts, (0, wide - len(parts))) for parts in flop]).reshape(-1, wide),
        bytes=np.array([np.pad(parts, (0, wide - len(parts))) for parts in moved]).reshape(-1, wide),
        launches=np.array(launches),
        cached=np.array(cached),
        # A pass over memory in a format without products computes next to nothing.
        peak=np.array([one.peaks.get(dtype, max(one.peaks.values())) for dtype in table["dtype"]], dtype=float),
        seconds=table["seconds"].to_numpy(float),
        bandwidth=one.bandwidth,
    )


def _parts(whole: float, measure: str, step: pd.Series) -> Floats:
    """FLOP or bytes of operators of about the same intensity, from the lowest on; of a kernel, all at once."""
    limits = sorted((float(name.split(".", 1)[1].removesuffix("_share")), name) for name in step.dropna().index
                    if name.startswith(f"{measure}_below."))  # fmt: skip
    below = np.array([0.0, *(step[name] for _, name in limits), 1.0])
    parts: Floats = np.nan_to_num(whole) * np.maximum(np.diff(below), 0.0)
    return parts


def _cached(row: Mapping[str, Any], cache: float) -> float:
    """Share of a kernel's bytes that come from the last cache, where nothing has told it.

    Products and requests on a CPU use copies of their data in turn, more than caches hold; a request's
    computation on a GPU stays where it is, as passes over memory do.
    """
    if row["experiment"] == "bandwidth":
        return float(row["given"]["footprint"] <= cache)
    return float(row["experiment"] == "offload" and row["device"] != "cpu" and row["bytes"] <= cache)
