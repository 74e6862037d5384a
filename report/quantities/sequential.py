"""Quantities of sequential and branching work: latency of a chain's step, what prediction and caches are worth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.estimates import Estimates, exact, merged
from report.formatting import with_unit
from report.quantities import plateau_detection, quantity
from report.quantities.gemm import clock
from report.quantities.memory import CACHE_MULTIPLE, last_level_cache

# A footprint that fits the level 2 cache of one core of any processor sold as new in the last ten years.
NEAR_BYTES = 256 * 2**10
_TASK = ("kernel", "data", "footprint")
_NEEDS = {"experiments": ["sequential"], "device": "any"}
_BOTH = {"experiments": ["sequential"], "device": "both"}
_CPU = {"experiments": ["sequential"], "device": "cpu"}


def steps(data: Dataset) -> Estimates:
    """Seconds of one step of one chain, by kernel, chains, footprint, data and threads."""
    cells = data.summary("sequential", "step_time")
    return cells.without("backend", "dtype") if len(cells) else cells


def device_steps(data: Dataset) -> Estimates:
    """Seconds per step of a whole device at work: the time of a step over the chains in flight."""
    cells, chains = steps(data), data.summary("sequential", "chains_in_flight")
    if not len(cells) or not len(chains):
        return Estimates.empty()
    cells = cells.only(chains="full")
    on = ["node", "device", "threads", "chains", *_TASK]
    counts = cells.frame[on].merge(chains.frame[[*on, "estimate"]], how="left", on=on)["estimate"]
    return cells.scaled_by(1 / counts.astype(float))


def one_chain(data: Dataset, device: str) -> Estimates:
    """Seconds of one step of a chain that is alone on a device of this kind (cpu, gpu)."""
    cells = steps(data)
    return cells.only(chains="one", device=device).without("chains", "threads") if len(cells) else cells


@quantity(
    "sequential.step_time",
    unit="s",
    needs=_NEEDS,
    labels=("chains", "threads", *_TASK),
    says="On {node}, one step of a chain ({labels}) takes {value}",
)
def step_time(data: Dataset) -> Estimates:
    """Time of one step of one chain; with chains full, of every chain at the same time."""
    return steps(data)


@quantity(
    "sequential.chain_speed_ratio",
    unit="1",
    needs=_BOTH,
    labels=_TASK,
    says="On {node}, one CPU core runs a chain ({labels}) at {value} times the speed of one GPU thread",
)
def chain_speed_ratio(data: Dataset) -> Estimates:
    """Time of a step on one GPU thread over that on one CPU core, same kernel, data and footprint."""
    return one_chain(data, "gpu") / one_chain(data, "cpu").without("device") if _both(data) else Estimates.empty()


@quantity(
    "sequential.gpu_over_cpu_one_thread",
    unit="1",
    needs=_BOTH,
    labels=_TASK,
    says="On {node}, one GPU thread runs a chain ({labels}) at {value} times the speed of one CPU core",
)
def gpu_over_cpu_one_thread(data: Dataset) -> Estimates:
    """The inverse of sequential.chain_speed_ratio."""
    return one_chain(data, "cpu").without("device") / one_chain(data, "gpu") if _both(data) else Estimates.empty()


@quantity(
    "sequential.gpu_over_cpu_full_chip",
    unit="1",
    needs=_BOTH,
    labels=_TASK,
    says="On {node}, a full GPU does {value} times as many steps a second as all CPU cores ({labels})",
)
def gpu_over_cpu_full_chip(data: Dataset) -> Estimates:
    """Steps per second of as many chains as the GPU holds, over those of one chain on every core, same kernel."""
    cells = device_steps(data)
    if not len(cells):
        return cells
    cells = cells.without("chains")
    gpu, cpu = cells.only(device="gpu").without("threads"), cells.only(device="cpu")
    if not len(gpu) or not len(cpu):
        return Estimates.empty()
    return cpu.only(threads=int(cpu.frame["threads"].max())).without("device", "threads") / gpu


def _both(data: Dataset) -> bool:
    return bool(len(one_chain(data, "cpu")) and len(one_chain(data, "gpu")))


@quantity(
    "sequential.prediction_gain",
    unit="1",
    needs=_NEEDS,
    labels=("chains", "threads", "footprint"),
    says="On {node}, branches that nothing can predict take {value} times as long as predictable ones ({labels})",
)
def prediction_gain(data: Dataset) -> Estimates:
    """Time of a step of the branching loop on random data over that on predictable data, same code and device.

    Both take either branch equally often. Where a GPU is full, its threads also part
    ways on random data: one chain alone shows prediction, and nothing else.
    """
    random, predictable = _branches(data, "random"), _branches(data, "predictable")
    return random / predictable if len(random) and len(predictable) else Estimates.empty()


def _branches(data: Dataset, kind: str) -> Estimates:
    cells = steps(data)
    return cells.only(kernel="branches", data=kind).without("kernel", "data") if len(cells) else cells


@quantity(
    "sequential.mispredict_cycles",
    unit="cycles",
    needs={"experiments": ["sequential", "clock"], "device": "cpu"},
    labels=("footprint",),
    says="On {node}, a branch that was guessed wrong costs {value} ({labels})",
)
def mispredict_cycles(data: Dataset) -> Estimates:
    """Clock cycles that a wrong guess costs: twice what a step on random data takes longer, times the clock.

    No predictor does better on random bits than to be wrong every other time. The
    ends of the difference's interval are multiplied by those of the clock's, which
    is conservative.
    """
    random, predictable, clocks = _branches(data, "random"), _branches(data, "predictable"), clock(data)
    if not len(random) or not len(predictable) or not len(clocks):
        return Estimates.empty()
    on = ["node", "device", "footprint"]
    pairs = (
        random.only(device="cpu", chains="one")
        .frame.merge(predictable.only(chains="one").frame, on=on, suffixes=("", "_below"))
        .merge(clocks.frame, on="node", suffixes=("", "_clock"))
    )
    above, below = pairs["estimate"], pairs["estimate_below"]
    se, df = statistics.combine(above * pairs["se"], pairs["df"], below * pairs["se_below"], pairs["df_below"])
    half = statistics.half_width(se, df)
    found = pairs.assign(
        estimate=2 * (above - below) * pairs["estimate_clock"],
        low=2 * (above - below - half) * pairs["low_clock"],
        high=2 * (above - below + half) * pairs["high_clock"],
        n_rounds=pairs[["n_rounds", "n_rounds_below"]].min(axis=1),
        n_samples=pairs["n_samples"] + pairs["n_samples_below"],
        source_rows=pairs["source_rows"] + pairs["source_rows_below"] + pairs["source_rows_clock"],
    )
    return _given(found[[*on, "estimate", "low", "high", "n_rounds", "n_samples", "source_rows"]])


@quantity(
    "sequential.load_cycles",
    unit="cycles",
    needs={"experiments": ["sequential", "clock"], "device": "cpu"},
    labels=("footprint",),
    says="On {node}, a load that waits for the one before takes {value} ({labels})",
)
def load_cycles(data: Dataset) -> Estimates:
    """Clock cycles of one load of a chain through memory in random order, by how much of it the chain runs through."""
    chase, clocks = _chase(data), clock(data)
    if not len(chase) or not len(clocks):
        return Estimates.empty()
    one = clocks.frame
    return chase / Estimates(one.assign(estimate=1 / one["estimate"], low=1 / one["high"], high=1 / one["low"]))


@quantity(
    "sequential.cache_gain",
    unit="1",
    needs=_CPU,
    says="On {node}, a load that main memory serves takes {value} times as long as one that the caches of a core serve",
)
def cache_gain(data: Dataset) -> Estimates:
    """Latency at the largest footprint, at least four times the last-level cache, over that of one near the core.

    Near is the largest measured footprint up to NEAR_BYTES and to a core's own share
    of the level 2 cache, where the system tells it.
    """
    chase = _chase(data)
    if not len(chase):
        return chase
    near, far = [], []
    for (node, device), part in chase.frame.groupby(["node", "device"]):
        footprint = part["footprint"].astype(float)
        within = footprint[footprint <= min(NEAR_BYTES, _level_2(data, str(node)))]
        beyond = footprint[footprint >= CACHE_MULTIPLE * last_level_cache(data, str(node), str(device))]
        if len(within) and len(beyond):
            near.append(within.idxmax())
            far.append(beyond.idxmax())
    below, above = chase.at(near), chase.at(far)
    detail = [
        f"{with_unit(float(a), 'B')} over {with_unit(float(b), 'B')}"
        for a, b in zip(above.frame["footprint"], below.frame["footprint"], strict=True)
    ]
    above = Estimates(above.frame.assign(detail=detail))
    return above.without("footprint") / below.without("footprint")


@quantity(
    "sequential.cache_level",
    unit="B",
    needs=_CPU,
    labels=("level",),
    says="On {node}, latency leaves a plateau at a footprint of {value} ({labels})",
)
def cache_level(data: Dataset) -> Estimates:
    """Caches as a chain of loads sees them: the footprints at which its latency rises from one plateau to the next.

    One cell for each step of `report.quantities.plateau_detection`, level 1 nearest to the core; low and
    high are the neighbouring footprints between which it lies, the estimate their
    geometric mean, `detail` the latency of its plateau. A step may also be the reach
    of a TLB; a cache that others use at the same time shows smaller than it is.
    """
    chase = _chase(data)
    if not len(chase):
        return chase
    rows = []
    for (node, device), part in chase.frame.groupby(["node", "device"]):
        part = part.assign(footprint=part["footprint"].astype(float)).sort_values("footprint")
        found = plateau_detection.steps(part["footprint"], part["estimate"], part["se"])
        rows += [
            {
                "node": node, "device": device, "level": number, "estimate": float(np.sqrt(step.low * step.high)),
                "low": step.low, "high": step.high, "n_rounds": int(part["n_rounds"].min()),
                "n_samples": int(part["n_samples"].sum()), "detail": f"{with_unit(step.level, 's')} up to there",
                "source_rows": merged(part["source_rows"]),
            }
            for number, step in enumerate(found, start=1)
        ]  # fmt: skip
    return _given(pd.DataFrame(rows)) if rows else Estimates.empty()


def _chase(data: Dataset) -> Estimates:
    cells = one_chain(data, "cpu")
    return cells.only(kernel="chase", data="random").without("kernel", "data") if len(cells) else cells


def _level_2(data: Dataset, node: str) -> float:
    """Bytes of one instance of the level 2 cache; infinite where the system does not tell."""
    record = next(one.record for one in data.nodes.nodes if one.id == node)
    cpu = record["hardware"]["cpu"]
    level = cpu.get("caches", {}).get("L2") if isinstance(cpu, dict) else None
    return level["bytes"] / level["instances"] if level else float("inf")


def _given(frame: pd.DataFrame) -> Estimates:
    """Cells whose intervals stand as computed."""
    made = exact([{str(name): value for name, value in row.items()} for row in frame.to_dict("records")])
    return Estimates(made.frame.assign(n_rounds=frame["n_rounds"], n_samples=frame["n_samples"]), log=False)
