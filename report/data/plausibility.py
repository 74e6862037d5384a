"""What a node says against what can be true: rates, clocks and bandwidths that no machine has, times that did not pass.

The limits are published figures, of `data/reference`, or follow from the round's own records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.errors import StudyError
from contract.node import utc
from contract.operation_counts import FLOP
from report.data.gpu_specs import find_gpu, gpu_specs
from report.data.reference_figures import REFERENCE, read_reference
from report.formatting import format_number

# A rate may exceed its limit by this share: the clock was read at another moment than the rate, and the cores of one
# processor may differ in theirs. The published node comes to 0.99 of its limits.
MARGIN = 1.3
# A chip may exceed what it is rated for by this factor: formats of which it is not rated, clocks beyond the rated one.
RATED_MARGIN = 4.0
# Caches of a GPU are quicker than its memory, by less than this.
CACHES_OF_GPUS = 20.0
# Memory that a CPU reaches, over the quickest known; an array this many times all caches has to come from it.
MEMORY_MARGIN, BEYOND_CACHES = 1.5, 4.0
# The least time that any call from Python takes is several times this.
SHORTEST_CALL_S = 1e-8
# Clocks that read the same time may differ by this share, and by these seconds.
CLOCKS_AGREE, CLOCKS_AGREE_S = 1.1, 0.5
# Samples of several calls follow each other closely: in the median, that share of the time between them at least.
LEAST_SHARE = 0.05
# What libraries do for a call is counted, and they may choose another way in another round: within this factor.
SAME_WORK = 1.1
# A clock may be wrong by this: what is dated later has not happened.
AHEAD_S = 86_400.0
# When this was written: a clock that shows an earlier time says nothing about the future.
WRITTEN = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
FLOPS_PER_CYCLE, MATRIX, MATRIX_INT8 = "avx512.fp32_flop_per_cycle", "amx.bf16_flop_per_cycle", "amx.int8_ops_per_cycle"
OUTER, CACHE, CLOCK = "sme.fp32_flop_per_cycle", "zen5.l1_bytes_per_cycle", "cpu.highest_clock_hz"
MEMORY, GPU, GPU_MEMORY = "vera.memory_bytes_per_s", "mi355x.bf16_flops", "mi355x.memory_bytes_per_s"
ENTRIES = (FLOPS_PER_CYCLE, MATRIX, MATRIX_INT8, OUTER, CACHE, CLOCK, MEMORY, GPU, GPU_MEMORY)
_SIZES = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
_POINT = ["experiment", "device", "backend", "dtype", "threads", "params", "metric"]

Numbers = NDArray[np.float64]
Fault = tuple[int, str]


def faults(
    record: Mapping[str, Any], samples: pd.DataFrame, file: NDArray[np.int64], rounds: Sequence[Mapping[str, Any]]
) -> dict[int, str]:
    """Files that hold what cannot be true, by their number, each with the first reason.

    samples: of one node, validated. file: the number of each one's file, of shape (samples,). rounds: what each file
    says about its round.
    """
    found: dict[int, str] = {}
    table = samples.reset_index(drop=True).assign(file=file)
    timed = table[table["value"].notna() & table["status"].isin(("ok", "wrong")) & table["stop_reason"].ne("")]
    seconds = timed[timed["unit"].eq("s") & ~timed["metric"].str.contains(".", regex=False)]
    for at, reason in [
        *_device_faults(record, table),
        *_date_faults(record, rounds),
        *_clock_faults(table),
        *_rate_faults(record, table, timed),
        *_duration_faults(seconds, rounds),
        *_gap_faults(seconds),
        *_work_faults(table),
    ]:
        found.setdefault(at, reason)
    return found


@cache
def _reference() -> dict[str, dict[str, Any]]:
    return read_reference(REFERENCE)


def _figure(entry: str) -> float:
    return float(_reference()[entry]["value"])


def _first_per_file(table: pd.DataFrame, bad: pd.Series | NDArray[np.bool_]) -> list[Any]:
    """The first bad row of each file."""
    if not np.any(bad):
        return []
    return list(table[np.asarray(bad)].drop_duplicates("file").itertuples())


def _label(row: Any) -> str:
    """Which sample: 'gemm on cpu, round 1, torch float32 {"k":64}, sample 3'."""
    words = " ".join(filter(None, (row.backend, row.dtype, row.params)))
    return f"{row.experiment} on {row.device}, round {row.round}, {words}, {row.metric} {row.sample}"


def _device_faults(record: Mapping[str, Any], table: pd.DataFrame) -> list[Fault]:
    known = [device["id"] for device in record["devices"]]
    return [
        (row.file, f"{_label(row)}: node.json lists no device {row.device!r}, only {', '.join(known)}")
        for row in _first_per_file(table, ~table["device"].isin(known))
    ]


def _date_faults(record: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> list[Fault]:
    if time.time() < WRITTEN:
        return []
    latest = utc(-AHEAD_S)
    told = []
    for at, about in enumerate(rounds):
        dates = {f"{key} {one[key]}" for one in (about, record) for key in ("started_utc", "ended_utc") if key in one}
        ahead = sorted(date for date in dates if date.split()[1] > latest)
        if ahead:
            told.append((at, f"{ahead[0]} lies in the future: set the machine's clock and measure again"))
    return told


def _clock_faults(table: pd.DataFrame) -> list[Fault]:
    limit = _figure(CLOCK)
    shown = np.where(table["metric"].eq("clock"), table["value"], table["clock_mhz"] * 1e6)
    return [
        (row.file, f"{_label(row)}: a clock of {format_number(shown[row.Index] / 1e9, 3)} GHz; none above "
        f"{format_number(limit / 1e9, 3)} GHz has been seen ({CLOCK})")
        for row in _first_per_file(table, shown > limit)
    ]  # fmt: skip


def _rate_faults(record: Mapping[str, Any], table: pd.DataFrame, timed: pd.DataFrame) -> list[Fault]:
    """Arithmetic and bandwidth beyond what the device can do, and calls that are over before they can begin."""
    whole = timed[timed["metric"].isin(("time", "graph_time", "rate"))].reset_index(drop=True)
    value, rated = whole["value"].to_numpy(float), whole["metric"].eq("rate").to_numpy()
    flops = np.where(rated, value, whole["flop"].to_numpy(float) / value)
    bytes_per_s = np.where(rated, np.nan, whole["bytes"].to_numpy(float) / value)
    told: list[Fault] = [
        (
            row.file,
            f"{_label(row)}: {format_number(row.value, 3)} s; no call from Python is over in {SHORTEST_CALL_S:g} s",
        )
        for row in _first_per_file(whole, whole["metric"].eq("time").to_numpy() & (value < SHORTEST_CALL_S))
    ]
    for device in whole["device"].unique():
        own = whole["device"].eq(device).to_numpy()
        most, moved, why, whence = (
            _cpu_limits(record, table, whole) if device == "cpu" else _gpu_limits(record, device, whole)
        )
        for rate, limit, unit, reason in ((flops, most, "FLOP/s", why), (bytes_per_s, moved, "B/s", whence)):
            for row in _first_per_file(whole, own & (rate > limit)):
                share = rate[row.Index] / limit[row.Index]
                told.append(
                    (
                        row.file,
                        f"{_label(row)}: {rate[row.Index]:.3g} {unit} is {format_number(share, 3)} times the most that "
                        f"can be, {limit[row.Index]:.3g} {unit} ({reason})",
                    )
                )
    return told


def _cpu_limits(
    record: Mapping[str, Any], table: pd.DataFrame, timed: pd.DataFrame
) -> tuple[Numbers, Numbers, str, str]:
    """The most FLOP/s and B/s of each sample on the CPU, and what they follow from."""
    cpu = record["hardware"]["cpu"]
    own = table[table["device"].eq("cpu")]
    seen = [own.loc[own["metric"].eq("clock"), "value"].max(), own["clock_mhz"].max() * 1e6]
    seen = [clock for clock in seen if clock > 0]
    clock = min(MARGIN * max(seen), _figure(CLOCK)) if seen else _figure(CLOCK)
    cores = timed["threads"].to_numpy(float)
    most_cores = max(cpu.get("cores", 1), cpu["usable_cores"])
    cores = np.where(cores > 0, np.minimum(cores, most_cores), most_cores)
    units = {dtype: _operations_per_cycle(cpu, dtype) for dtype in timed["dtype"].unique()}
    flops = timed["dtype"].map(units).to_numpy(float) * cores * clock
    moved = _figure(CACHE) * cores * clock
    caches = sum(level["bytes"] for level in cpu.get("caches", {}).values())
    if caches:
        sizes = {text: json.loads(text).get("footprint") for text in timed["params"].unique()}
        sizes = {text: size if isinstance(size, (int, float)) else np.nan for text, size in sizes.items()}
        beyond = timed["params"].map(sizes).to_numpy(float) > BEYOND_CACHES * caches
        memory = MEMORY_MARGIN * _figure(MEMORY) * cpu.get("sockets", 1)
        moved = np.where(beyond, np.minimum(moved, memory), moved)
    at = f"{format_number(clock / 1e9, 3)} GHz" + (
        f", {MARGIN - 1:.0%} above the highest clock measured here" if seen else ""
    )
    return (
        flops,
        moved,
        f"cores x the widest units known x {at}; {FLOPS_PER_CYCLE} and its like",
        f"cores x the widest first cache known, {CACHE}, x {at}; memory: {MEMORY} and half as much again",
    )


def _operations_per_cycle(cpu: Mapping[str, Any], dtype: str) -> float:
    """Operations of one core in one cycle at most: numbers of half the size, twice as many."""
    size = _SIZES.get(dtype, 1)
    x86 = str(cpu.get("architecture", "")).lower() in ("x86_64", "amd64", "i386", "i686")
    most = _figure(FLOPS_PER_CYCLE if x86 else OUTER) * 4 / size
    if any(str(name).startswith("amx") for name in cpu.get("matrix", ())) and (size < 4 or dtype == "tf32"):
        most = max(most, _figure(MATRIX_INT8 if size == 1 else MATRIX))
    return most


def _gpu_limits(record: Mapping[str, Any], device: str, timed: pd.DataFrame) -> tuple[Numbers, Numbers, str, str]:
    """As `_cpu_limits`, from what the chip is rated for, or the quickest one where it is not known."""
    rated, memory, name, of_memory = _figure(GPU), _figure(GPU_MEMORY), GPU, GPU_MEMORY
    called = next((one["name"] for one in record["devices"] if one["id"] == device), "")
    with suppress(StudyError):
        chip = find_gpu(called, gpu_specs(_reference()))
        if (peak := chip.peak("bfloat16")) is not None:
            rated, name = peak, f"{chip.id}.bf16_flops"
        if "memory_bytes_per_s" in chip.figures:
            memory, of_memory = chip.figures["memory_bytes_per_s"], f"{chip.id}.memory_bytes_per_s"
    sizes = timed["dtype"].map({dtype: _SIZES.get(dtype, 1) for dtype in timed["dtype"].unique()}).to_numpy(float)
    return (
        RATED_MARGIN * rated * 2 / sizes,
        np.full(len(timed), CACHES_OF_GPUS * memory),
        f"{RATED_MARGIN:g} times {name}, by the size of a number",
        f"{CACHES_OF_GPUS:g} times {of_memory}",
    )


def _duration_faults(seconds: pd.DataFrame, rounds: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Rounds whose samples take longer than the round did."""
    spent = (seconds["value"] * seconds["calls"]).groupby(seconds["file"]).sum()
    last = seconds["elapsed_s"].groupby(seconds["file"]).max()
    told: list[Fault] = []
    for at, about in enumerate(rounds):
        if "wall_s" not in about or "timed_s" not in about:
            told.append((at, "its metadata do not say how long the round took (wall_s, timed_s)"))
            continue
        wall, timed = float(about["wall_s"]), float(about["timed_s"])
        for what, took, within, limit in (
            ("its samples", float(spent.get(at, 0.0)), "timed_s", timed),
            ("warming up and timing", float(about.get("warmup_s", 0.0)) + timed, "wall_s", wall),
            ("its last sample's elapsed_s", float(last.get(at, 0.0)), "wall_s", wall),
        ):
            if took > CLOCKS_AGREE * limit + CLOCKS_AGREE_S:
                told.append(
                    (
                        at,
                        f"{what} come to {format_number(took, 3)} s, "
                        f"but the round's {within} is {format_number(limit, 3)} s",
                    )
                )
    return told


def _gap_faults(seconds: pd.DataFrame) -> list[Fault]:
    """Series whose samples take longer, or far shorter, than the time that passed from each to the next."""
    part = seconds[["file", "sample", "elapsed_s"]].to_numpy(float)
    follows = (np.diff(part[:, 0]) == 0) & (np.diff(part[:, 1]) == 1)
    gap = np.diff(part[:, 2])
    taken = (seconds["value"] * seconds["calls"]).to_numpy(float)[1:]
    usable = follows & (gap > 0)
    series = np.cumsum(~follows)
    shares = pd.Series(taken[usable] / gap[usable]).groupby(series[usable]).median()
    row_of = pd.Series(np.flatnonzero(usable) + 1).groupby(series[usable]).first()
    rows = seconds.iloc[row_of.to_numpy()].reset_index(drop=True)
    share = shares.to_numpy(float)
    # A call alone may be one of many that were made, and steps of a call are told by the step.
    low = (share < LEAST_SHARE) & rows["calls"].gt(1).to_numpy() & rows["metric"].eq("time").to_numpy()
    return [
        (row.file, f"{_label(row)}: its samples take {format_number(share[row.Index], 3)} times the time that passed "
        f"between them by the round's own clock ({LEAST_SHARE:g} to {CLOCKS_AGREE:g} can be)")
        for row in _first_per_file(rows, low | (share > CLOCKS_AGREE))
    ]  # fmt: skip


def _work_faults(table: pd.DataFrame) -> list[Fault]:
    """Calls whose operations or bytes are not those of their parameters, or change from round to round."""
    series = table[table["sample"].eq(0) & (table["flop"].notna() | table["bytes"].notna())].reset_index(drop=True)
    told: list[Fault] = []
    for name in FLOP:
        own = series[series["experiment"].eq(name) & series["flop"].notna()].reset_index(drop=True)
        wanted = own["params"].map({params: _declared_flop(name, params) for params in own["params"].unique()})
        told += [
            (row.file, f"{_label(row)}: {row.flop:g} FLOP a call, and {wanted[row.Index]:g} are declared")
            for row in _first_per_file(own, ~np.isclose(own["flop"], wanted.astype(float), rtol=1e-6))
        ]
    for column, unit in (("flop", "FLOP"), ("bytes", "B")):
        kinds = series.dropna(subset=[column]).drop_duplicates([*_POINT, column])
        first = kinds.groupby(_POINT, sort=False)[column].transform("first")
        told += [
            (
                row.file,
                f"{_label(row)}: {getattr(row, column):g} {unit} a call, {first[row.Index]:g} in another round",
            )
            for row in _first_per_file(kinds, ~kinds[column].between(first / SAME_WORK, first * SAME_WORK))
        ]
    return told


def _declared_flop(experiment: str, params: str) -> float:
    """Operations of a call with these parameters; nan if they are not those of the experiment."""
    try:
        return float(FLOP[experiment](**json.loads(params)))
    except (TypeError, ValueError, OverflowError):
        return float("nan")
