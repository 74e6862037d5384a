"""Plausibility checks for nodes: reject rates, clocks and bandwidths that no machine can reach, and inconsistent times.

The limits are published figures from `data/reference`, or follow from the round's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.errors import StudyError
from contract.operation_counts import FLOP
from contract.study_dates import impossible_date
from report.data.gpu_specs import find_gpu, gpu_specs
from report.data.reference_figures import REFERENCE, read_reference
from report.formatting import format_number

# Factor over a CPU's highest measured clock, for the limits on its rates. Clock and rate are measured at different
# moments, and cores may run at different clocks. Without this factor, the highest published rate would be 0.99 times
# its limit.
MARGIN = 1.3
# Factor over a GPU's rated peak. It allows for number formats that have no rating, and for boost clocks.
RATED_MARGIN = 4.0
# Maximum ratio of a GPU's cache bandwidth to its memory bandwidth.
CACHES_OF_GPUS = 20.0
# MEMORY_MARGIN: factor over the bandwidth of the fastest known CPU memory.
# BEYOND_CACHES: the memory limit applies only to arrays that are larger than all caches together by more than this
# factor, because such arrays must come from memory.
MEMORY_MARGIN, BEYOND_CACHES = 1.5, 4.0
# Minimum time for a call from Python. Real calls take several times longer.
SHORTEST_CALL_S = 1e-8
# Tolerance for two durations that different clocks measured. The longer duration may exceed the other by the factor
# CLOCKS_AGREE, plus CLOCKS_AGREE_S seconds.
CLOCKS_AGREE, CLOCKS_AGREE_S = 1.1, 0.5
# In each series, the median ratio of a sample's duration to the time since the previous sample must be at least this.
# Only samples with several calls are checked, because they are taken one directly after another.
LEAST_SHARE = 0.05
# Maximum ratio between the counted work of two rounds, because libraries may choose another algorithm in another round.
SAME_WORK = 1.1
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
    """Return each implausible file's index, with the first reason to reject the file.

    samples: validated samples from one node. file: for each sample, its file's index, shape (samples,). rounds: each
    file's metadata.
    """
    reasons: dict[int, str] = {}
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
        reasons.setdefault(at, reason)
    return reasons


@cache
def _reference() -> dict[str, dict[str, Any]]:
    return read_reference(REFERENCE)


def _figure(entry: str) -> float:
    return float(_reference()[entry]["value"])


def _first_per_file(table: pd.DataFrame, bad: pd.Series | NDArray[np.bool_]) -> list[Any]:
    """Return each file's first row for which `bad` is true."""
    if not np.any(bad):
        return []
    return list(table[np.asarray(bad)].drop_duplicates("file").itertuples())


def _label(row: Any) -> str:
    """Format a sample's position, for example 'gemm on cpu, round 1, torch float32 {"k":64}, time 3'."""
    words = " ".join(filter(None, (row.backend, row.dtype, row.params)))
    return f"{row.experiment} on {row.device}, round {row.round}, {words}, {row.metric} {row.sample}"


def _device_faults(record: Mapping[str, Any], table: pd.DataFrame) -> list[Fault]:
    known = [device["id"] for device in record["devices"]]
    return [
        (row.file, f"{_label(row)}: node.json lists no device {row.device!r}, only {', '.join(known)}")
        for row in _first_per_file(table, ~table["device"].isin(known))
    ]


def _date_faults(record: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> list[Fault]:
    return [(at, fault) for at, about in enumerate(rounds) if (fault := impossible_date(about, record))]


def _clock_faults(table: pd.DataFrame) -> list[Fault]:
    limit = _figure(CLOCK)
    clocks = np.where(table["metric"].eq("clock"), table["value"], table["clock_mhz"] * 1e6)
    return [
        (row.file, f"{_label(row)}: a clock of {format_number(clocks[row.Index] / 1e9, 3)} GHz; none above "
        f"{format_number(limit / 1e9, 3)} GHz has been seen ({CLOCK})")
        for row in _first_per_file(table, clocks > limit)
    ]  # fmt: skip


def _rate_faults(record: Mapping[str, Any], table: pd.DataFrame, timed: pd.DataFrame) -> list[Fault]:
    """Find arithmetic rates and bandwidths above the device's limits, and calls shorter than SHORTEST_CALL_S."""
    calls = timed[timed["metric"].isin(("time", "graph_time", "rate"))].reset_index(drop=True)
    value, rated = calls["value"].to_numpy(float), calls["metric"].eq("rate").to_numpy()
    flops = np.where(rated, value, calls["flop"].to_numpy(float) / value)
    bytes_per_s = np.where(rated, np.nan, calls["bytes"].to_numpy(float) / value)
    faults: list[Fault] = [
        (
            row.file,
            f"{_label(row)}: {format_number(row.value, 3)} s; no call from Python is over in {SHORTEST_CALL_S:g} s",
        )
        for row in _first_per_file(calls, calls["metric"].eq("time").to_numpy() & (value < SHORTEST_CALL_S))
    ]
    for device in calls["device"].unique():
        on_device = calls["device"].eq(device).to_numpy()
        flop_limits, byte_limits, flop_reason, byte_reason = (
            _cpu_limits(record, table, calls) if device == "cpu" else _gpu_limits(record, device, calls)
        )
        for rate, limit, unit, reason in (
            (flops, flop_limits, "FLOP/s", flop_reason),
            (bytes_per_s, byte_limits, "B/s", byte_reason),
        ):
            for row in _first_per_file(calls, on_device & (rate > limit)):
                share = rate[row.Index] / limit[row.Index]
                faults.append(
                    (
                        row.file,
                        f"{_label(row)}: {rate[row.Index]:.3g} {unit} is {format_number(share, 3)} times the most that "
                        f"can be, {limit[row.Index]:.3g} {unit} ({reason})",
                    )
                )
    return faults


def _cpu_limits(
    record: Mapping[str, Any], table: pd.DataFrame, timed: pd.DataFrame
) -> tuple[Numbers, Numbers, str, str]:
    """Return upper bounds on each CPU sample's FLOP/s and B/s, and two texts to explain these bounds."""
    cpu = record["hardware"]["cpu"]
    cpu_rows = table[table["device"].eq("cpu")]
    clocks = [cpu_rows.loc[cpu_rows["metric"].eq("clock"), "value"].max(), cpu_rows["clock_mhz"].max() * 1e6]
    clocks = [clock for clock in clocks if clock > 0]
    clock = min(MARGIN * max(clocks), _figure(CLOCK)) if clocks else _figure(CLOCK)
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
    source = f", {MARGIN - 1:.0%} above the highest clock measured here" if clocks else ""
    clock_text = f"{format_number(clock / 1e9, 3)} GHz{source}"
    return (
        flops,
        moved,
        f"cores x the widest units known x {clock_text}; {FLOPS_PER_CYCLE} and its like",
        f"cores x the widest first cache known, {CACHE}, x {clock_text}; memory: {MEMORY} and half as much again",
    )


def _operations_per_cycle(cpu: Mapping[str, Any], dtype: str) -> float:
    """Return an upper bound for a core's operations per cycle. It is larger for smaller number formats."""
    size = _SIZES.get(dtype, 1)
    x86 = str(cpu.get("architecture", "")).lower() in ("x86_64", "amd64", "i386", "i686")
    most = _figure(FLOPS_PER_CYCLE if x86 else OUTER) * 4 / size
    if any(str(name).startswith("amx") for name in cpu.get("matrix", ())) and (size < 4 or dtype == "tf32"):
        most = max(most, _figure(MATRIX_INT8 if size == 1 else MATRIX))
    return most


def _gpu_limits(record: Mapping[str, Any], device: str, timed: pd.DataFrame) -> tuple[Numbers, Numbers, str, str]:
    """Return bounds like `_cpu_limits`, but for a GPU. If its ratings are unknown, use the fastest known GPU's."""
    rated, memory, name, memory_name = _figure(GPU), _figure(GPU_MEMORY), GPU, GPU_MEMORY
    gpu_name = next((device_record["name"] for device_record in record["devices"] if device_record["id"] == device), "")
    with suppress(StudyError):
        chip = find_gpu(gpu_name, gpu_specs(_reference()))
        if (peak := chip.peak("bfloat16")) is not None:
            rated, name = peak, f"{chip.id}.bf16_flops"
        if "memory_bytes_per_s" in chip.figures:
            memory, memory_name = chip.figures["memory_bytes_per_s"], f"{chip.id}.memory_bytes_per_s"
    sizes = timed["dtype"].map({dtype: _SIZES.get(dtype, 1) for dtype in timed["dtype"].unique()}).to_numpy(float)
    return (
        RATED_MARGIN * rated * 2 / sizes,
        np.full(len(timed), CACHES_OF_GPUS * memory),
        f"{RATED_MARGIN:g} times {name}, by the size of a number",
        f"{CACHES_OF_GPUS:g} times {memory_name}",
    )


def _duration_faults(seconds: pd.DataFrame, rounds: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Find rounds with contradictory durations, for example samples that take longer than the round itself."""
    spent = (seconds["value"] * seconds["calls"]).groupby(seconds["file"], observed=True).sum()
    last = seconds["elapsed_s"].groupby(seconds["file"], observed=True).max()
    faults: list[Fault] = []
    for at, about in enumerate(rounds):
        if "wall_s" not in about or "timed_s" not in about:
            faults.append((at, "its metadata do not say how long the round took (wall_s, timed_s)"))
            continue
        wall, timed = float(about["wall_s"]), float(about["timed_s"])
        for what, took, within, limit in (
            ("its samples", float(spent.get(at, 0.0)), "timed_s", timed),
            ("warming up and timing", float(about.get("warmup_s", 0.0)) + timed, "wall_s", wall),
            ("its last sample's elapsed_s", float(last.get(at, 0.0)), "wall_s", wall),
        ):
            if took > CLOCKS_AGREE * limit + CLOCKS_AGREE_S:
                faults.append(
                    (
                        at,
                        f"{what} come to {format_number(took, 3)} s, "
                        f"but the round's {within} is {format_number(limit, 3)} s",
                    )
                )
    return faults


def _gap_faults(seconds: pd.DataFrame) -> list[Fault]:
    """Find series whose samples take more time, or far less, than the round's clock shows between two samples.

    The series' median ratio between the two times is checked.
    """
    columns = seconds[["file", "sample", "elapsed_s"]].to_numpy(float)
    follows = (np.diff(columns[:, 0]) == 0) & (np.diff(columns[:, 1]) == 1)
    gap = np.diff(columns[:, 2])
    durations = (seconds["value"] * seconds["calls"]).to_numpy(float)[1:]
    usable = follows & (gap > 0)
    series = np.cumsum(~follows)
    shares = pd.Series(durations[usable] / gap[usable]).groupby(series[usable], observed=True).median()
    row_of = pd.Series(np.flatnonzero(usable) + 1).groupby(series[usable], observed=True).first()
    rows = seconds.iloc[row_of.to_numpy()].reset_index(drop=True)
    share = shares.to_numpy(float)
    # Apply the lower limit only to `time` with several calls per sample. A sample with a single call may be selected
    # from many calls, and other metrics may cover only one step of a call.
    low = (share < LEAST_SHARE) & rows["calls"].gt(1).to_numpy() & rows["metric"].eq("time").to_numpy()
    return [
        (row.file, f"{_label(row)}: its samples take {format_number(share[row.Index], 3)} times the time that passed "
        f"between them by the round's own clock ({LEAST_SHARE:g} to {CLOCKS_AGREE:g} can be)")
        for row in _first_per_file(rows, low | (share > CLOCKS_AGREE))
    ]  # fmt: skip


def _work_faults(table: pd.DataFrame) -> list[Fault]:
    """Find calls whose operation count contradicts their parameters, or whose operations or bytes vary by round."""
    series = table[table["sample"].eq(0) & (table["flop"].notna() | table["bytes"].notna())].reset_index(drop=True)
    faults: list[Fault] = []
    for name in FLOP:
        rows = series[series["experiment"].eq(name) & series["flop"].notna()].reset_index(drop=True)
        declared = rows["params"].map({params: _declared_flop(name, params) for params in rows["params"].unique()})
        faults += [
            (row.file, f"{_label(row)}: {row.flop:g} FLOP a call, and {declared[row.Index]:g} are declared")
            for row in _first_per_file(rows, ~np.isclose(rows["flop"], declared.astype(float), rtol=1e-6))
        ]
    for column, unit in (("flop", "FLOP"), ("bytes", "B")):
        kinds = series.dropna(subset=[column]).drop_duplicates([*_POINT, column])
        first = kinds.groupby(_POINT, sort=False, observed=True)[column].transform("first")
        faults += [
            (
                row.file,
                f"{_label(row)}: {getattr(row, column):g} {unit} a call, {first[row.Index]:g} in another round",
            )
            for row in _first_per_file(kinds, ~kinds[column].between(first / SAME_WORK, first * SAME_WORK))
        ]
    return faults


def _declared_flop(experiment: str, params: str) -> float:
    """Return the operations per call that follow from the parameters; nan if these do not fit the experiment."""
    try:
        return float(FLOP[experiment](**json.loads(params)))
    except (TypeError, ValueError, OverflowError):
        return float("nan")
