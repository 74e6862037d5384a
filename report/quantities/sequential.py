"""Sequential and branching work: latency per step in a chain, and gains from prediction and caches."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.estimates import VALUES, Estimates
from report.formatting import with_unit
from report.quantities import quantity
from report.quantities.gemm import core_clock
from report.quantities.memory import CACHE_MULTIPLE, last_level_cache
from report.quantities.shared_rounds import pair_rounds

# This footprint fits into one core's level 2 cache on any processor sold as new in the last ten years.
NEAR_BYTES = 256 * 2**10
_TASK = ("kernel", "data", "footprint")
_cpu_quantity, _both_quantity = partial(quantity, device="cpu"), partial(quantity, device="both")


def step_times(data: Dataset) -> Estimates:
    """Return seconds per step in one chain, by kernel, chains, footprint, data and threads."""
    return data.summary("sequential", "step_time").drop_labels("backend", "dtype")


def device_step_times(data: Dataset) -> Estimates:
    """Return seconds per step for a fully used device: a step's time, divided by the chains in flight."""
    times, chains = step_times(data).filter(chains="full"), data.summary("sequential", "chains_in_flight")
    point = ["node", "device", "threads", "chains", *_TASK]
    in_flight = dict(zip(chains.rows(*point), chains["estimate"], strict=True))
    return times.scaled_by(1 / pd.Series([in_flight.get(row, np.nan) for row in times.rows(*point)], dtype=float))


def single_chain_times(data: Dataset, device: str) -> Estimates:
    """Return seconds per step for a chain that runs alone on a device of one kind (cpu or gpu)."""
    return step_times(data).filter(chains="one", device=device).drop_labels("chains", "threads")


@_both_quantity("sequential.chain_speed_ratio", "1", _TASK)
def chain_speed_ratio(data: Dataset) -> Estimates:
    """Time per step on one GPU thread, divided by that on one CPU core, with the same kernel, data and footprint."""
    return single_chain_times(data, "gpu") / single_chain_times(data, "cpu").drop_labels("device")


@_both_quantity("sequential.gpu_over_cpu_one_thread", "1", _TASK)
def gpu_over_cpu_one_thread(data: Dataset) -> Estimates:
    """Steps per second on one GPU thread, relative to one CPU core: reciprocal of `sequential.chain_speed_ratio`."""
    return single_chain_times(data, "cpu").drop_labels("device") / single_chain_times(data, "gpu")


@_both_quantity("sequential.gpu_over_cpu_full_chip", "1", _TASK)
def gpu_over_cpu_full_chip(data: Dataset) -> Estimates:
    """Steps per second on a GPU with as many chains as it holds, relative to a CPU with one chain on every core.

    Both run the same kernel.
    """
    times = device_step_times(data).drop_labels("chains")
    cpu = times.filter(device="cpu")
    cpu = cpu.filter(threads=cpu["threads"].max()).drop_labels("device", "threads")
    return cpu / times.filter(device="gpu").drop_labels("threads")


@quantity("sequential.prediction_gain", "1", ("chains", "threads", "footprint"))
def prediction_gain(data: Dataset) -> Estimates:
    """Time per step in a loop with branches on random data, relative to predictable data: same code, same device.

    With both kinds of data, the loop takes either branch equally often. On a full GPU, random data also make threads
    diverge, so only the cases with one chain show prediction alone.
    """
    return _branch_times(data, "random") / _branch_times(data, "predictable")


def _branch_times(data: Dataset, kind: str) -> Estimates:
    return step_times(data).filter(kernel="branches", data=kind).drop_labels("kernel", "data")


@_cpu_quantity("sequential.mispredict_cycles", "cycles", ("footprint",), experiments=["sequential", "clock"])
def mispredict_cycles(data: Dataset) -> Estimates:
    """Clock cycles lost per misprediction: twice the extra time per step on random data, times the clock.

    The factor is two because on random bits every predictor is wrong half the time. The bounds on the extra time are
    multiplied by those on the clock, which is conservative.
    """
    place = ["node", "device", "footprint"]
    random, predictable = (
        _branch_times(data, kind).filter(device="cpu", chains="one").keep_labels(*place)
        for kind in ("random", "predictable")
    )
    pairs = random.frame.merge(predictable.frame, on=place, suffixes=("", "_below"))
    pairs = pairs.merge(core_clock(data).keep_labels("node").frame, on="node", suffixes=("", "_clock"))
    above, below = pairs["estimate"], pairs["estimate_below"]
    se, df = statistics.combine(above * pairs["se"], pairs["df"], below * pairs["se_below"], pairs["df_below"])
    half = statistics.half_width(se, df)
    cycles = pairs.assign(
        estimate=2 * (above - below) * pairs["estimate_clock"],
        low=2 * (above - below - half) * pairs["low_clock"],
        high=2 * (above - below + half) * pairs["high_clock"],
        se=np.nan,
        df=np.inf,
        n_rounds=pairs[["n_rounds", "n_rounds_below"]].min(axis=1),
        n_samples=pairs["n_samples"] + pairs["n_samples_below"],
        source_rows=pairs["source_rows"] + pairs["source_rows_below"] + pairs["source_rows_clock"],
    )
    return Estimates(cycles[[*place, *VALUES]], log=False)


@_cpu_quantity("sequential.load_cycles", "cycles", ("footprint",), experiments=["sequential", "clock"])
def load_cycles(data: Dataset) -> Estimates:
    """Clock cycles per load in a chain through memory in random order, by footprint."""
    return pair_rounds(data, _chase_times(data) / core_clock(data).inverse(), (1, 1))


@_cpu_quantity("sequential.cache_gain", "1")
def cache_gain(data: Dataset) -> Estimates:
    """Memory latency at the largest footprint, relative to the latency at a footprint near the core.

    The largest footprint must be at least four times the last-level cache. The near footprint is the largest measured
    footprint up to 256 KiB (NEAR_BYTES) and, if the system reports the level 2 cache, up to a core's share of it.
    """
    times = _chase_times(data).sort_by("node", "device", "footprint")
    sizes, places = times.numbers("footprint"), times.rows("node", "device")
    near = sizes <= [min(NEAR_BYTES, _level_2_bytes(data, node)) for node, _ in places]
    far = sizes >= [CACHE_MULTIPLE * last_level_cache(data, *place) for place in places]
    above, below = (times.take(mask).last_per_group("node", "device") for mask in (far, near))
    above, below = above.label(far=above["footprint"]), below.label(near=below["footprint"])
    gains = above.drop_labels("footprint") / below.drop_labels("footprint")
    detail = [f"{with_unit(most, 'B')} over {with_unit(least, 'B')}" for most, least in gains.rows("far", "near")]
    return gains.label(detail=detail).drop_labels("far", "near")


def _chase_times(data: Dataset) -> Estimates:
    return single_chain_times(data, "cpu").filter(kernel="chase", data="random").drop_labels("kernel", "data")


def _level_2_bytes(data: Dataset, node: str) -> float:
    """Return bytes per level 2 cache instance; infinite if the system does not report it."""
    cpu = data.record(node)["hardware"]["cpu"]
    level = cpu.get("caches", {}).get("L2") if isinstance(cpu, dict) else None
    return level["bytes"] / level["instances"] if level else float("inf")
