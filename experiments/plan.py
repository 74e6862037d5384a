"""Plan a run: its points on each device, the predicted time, and the points omitted to fit a budget.

Times are predicted from data sheet rates before anything runs. To fit a budget, details are dropped first, then rounds
beyond the third, then points that add to a comparison; the preset's `value` tells which points these are. Among points
with the same value, the longest are dropped first. Points that a comparison requires stay; a budget too small for them
is an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contract.errors import StudyError
from contract.node import LACKS, gpu_cache_bytes
from experiments import hardware
from experiments.jobs import COMPILE_S, COMPILING_MAKERS, HANG_S, JOB_S, MEMORY_SHARE, NO_TORCH, Job, Plan, Point
from experiments.models.network_names import has_attention
from experiments.sweep import FORMATS, Sweep, find_sweep

# Dense FLOP/s for an H100 SXM with 132 multiprocessors (NVIDIA, H100 Tensor Core GPU data sheet, 2023); other GPUs are
# scaled by multiprocessor count.
GPU_FLOPS = {
    "float64": 34e12, "float32": 67e12, "tf32": 494e12, "bfloat16": 989e12, "float16": 989e12,
    "float8_e4m3fn": 1979e12, "int8": 1979e12,
}  # fmt: skip
GPU_MULTIPROCESSORS = 132
# FLOP/s of one multiprocessor in earlier NVIDIA cards, by least compute capability, from NVIDIA's data sheets: P100 (56
# multiprocessors), V100 (80), T4 (40), A100 (108), A10 (72), L4 (58).
EARLIER_FLOPS = {
    (6, 0): {"float64": 95e9, "float32": 189e9, "float16": 379e9},
    (7, 0): {"float64": 98e9, "float32": 196e9, "float16": 1.56e12},
    (7, 5): {"float64": 6.3e9, "float32": 203e9, "float16": 1.63e12, "int8": 3.25e12},
    (8, 0): {"float64": 90e9, "float32": 181e9, "tf32": 1.44e12, "bfloat16": 2.9e12, "float16": 2.9e12, "int8": 5.8e12},
    (8, 6): {"float64": 6.8e9, "float32": 433e9, "tf32": 868e9, "bfloat16": 1.7e12, "float16": 1.7e12, "int8": 3.5e12},
    (8, 9): {
        "float64": 8.2e9, "float32": 522e9, "tf32": 1.03e12, "bfloat16": 2.09e12, "float16": 2.09e12, "int8": 4.2e12,
        "float8_e4m3fn": 4.2e12,
    },
}  # fmt: skip
# Data of an H100, with which `plan --gpu` plans for a GPU that this machine lacks. Source for the cache: NVIDIA, H100
# Tensor Core GPU Architecture, 2022.
H100 = {"multiprocessors": GPU_MULTIPROCESSORS, "last_level_cache_bytes": 50 << 20}
# FLOP/s by format, for a 3 GHz core with two 8-wide float32 multiply-adds per cycle. float16 is slow, since such a core
# has no unit for it.
CORE_FLOPS = {"float64": 48e9, "float32": 96e9, "bfloat16": 96e9, "float16": 1e9, "int8": 96e9}
# FLOP/s per core for the backends that use no library: `python` is an interpreted loop, `scalar` a compiled loop. The
# rate for `python` is from the calibration machine, on which the constants below and in the experiments were measured;
# `slowdown` compares another machine's rate with this rate.
LOOP_FLOPS = {"python": 33e6, "scalar": 4e9}
# EMULATED_FLOPS: a core that reaches at most this rate in a format has no instructions for the format. Most libraries
# then convert the operands, on one thread.
# EVERYWHERE: the formats for which every core has instructions.
EMULATED_FLOPS, EVERYWHERE = 5e9, ("float32", "float64")
# Libraries that refuse a format for which the core has no instructions; such a point takes hardly any time.
REFUSING = ("onednn", "llvm")
# Bytes of random data that one CPU core (CORE_DATA) or a GPU (GPU_DATA) draws and checks per second.
CORE_DATA, GPU_DATA = 0.8e9, 50e9
# A model's step in eager mode reaches this share of the GPU's FLOP/s.
STEP_SHARE = 0.3
# ATTENTION_S: seconds that cuDNN takes to plan attention for a new shape (measured on a B200: 0.44 forward and 0.55
# backward). ATTENTION_DTYPES: the formats for which cuDNN does so.
ATTENTION_S, ATTENTION_DTYPES = 1.0, ("bfloat16", "float16")
# Fixed seconds per point, to allocate, compile, check and answer.
POINT_S = 0.04
# Default seconds until a measuring process is ready, by the device's kind; under NO_TORCH, for a process without torch.
START_S = {"cpu": 3.0, "gpu": 7.0, NO_TORCH: 0.8}
# USED_SHARE: predicted share of a point's budget that warm-up and samples use. In fact, they use half to all of it.
# OBSERVED_SHARE: predicted share of a point's budget that observations use.
USED_SHARE, OBSERVED_SHARE = 0.66, 0.8
# FEWEST_CALLS: the prediction assumes at least this many calls per point.
# LONGEST_CALL: the prediction assumes that a point is skipped if a call takes more than this many times its budget.
FEWEST_CALLS, LONGEST_CALL = 4, 2
FEWEST_ROUNDS = 3
# Memory in bytes that the driver and a desktop's windows take from a card.
DESKTOP_BYTES = 1.2e9
ADDS, DETAIL = 2, 3


def full_plan(
    preset: Mapping[str, Any],
    source: str,
    devices: Iterable[Mapping[str, Any]],
    cores: int,
    start_s: Mapping[str, float] | None = None,
    core_flops: Mapping[str, float] | None = None,
) -> Plan:
    """Plan everything in a preset on these devices (node record entries), without a budget.

    Stages run in sequence. Within a stage, each round measures GPUs first, so that an interrupted run has at least the
    results from GPUs, which are harder to get; otherwise, a round follows the preset's order.
    source: the preset's file, for error messages. cores: number of usable physical cores.
    start_s: measured seconds until a measuring process is ready, by device; under NO_TORCH, for one without torch.
    core_flops: measured FLOP/s per core, by format; under `python`, for an interpreted loop.
    """
    device_list, start_by_device, jobs = list(devices), START_S | dict(start_s or {}), []
    for device in sorted(device_list, key=lambda entry: str(entry["kind"]) == "cpu"):
        for name in preset["experiments"]:
            part = find_sweep(dict(preset), name, source)
            if device["kind"] in part.experiment.fits:
                planned_job = plan_job(part, device, cores, device_list, core_flops)
                start = str(device["id"]) if planned_job.needs_torch else NO_TORCH
                ready = start_by_device.get(start, start_by_device[str(device["kind"])])
                jobs.append(replace(planned_job, start_s=ready + part.experiment.load_s * slowdown(core_flops or {})))
    return Plan(tuple(planned for planned in jobs if planned.points), int(preset["rounds"]))


def plan_job(
    part: Sweep,
    device: Mapping[str, Any],
    cores: int,
    beside: Sequence[Mapping[str, Any]] = (),
    core_flops: Mapping[str, float] | None = None,
) -> Job:
    """Plan an experiment's sweep on one device (a node record entry).

    beside: all devices on the node; if given, the points that cannot run on this node are left out.
    """

    def plan_point(point: Point) -> Point:
        # `Experiment.lacks` expects the measured device as the first of the node's devices.
        others = [entry for entry in beside if entry["id"] != device["id"]]
        lacking = part.experiment.lacks([device, *others], dict(point.params)) if beside else ""
        known = replace(
            point, call_s=call_s(point, part, device, cores, core_flops or {}), memory=memory_needed(point, part)
        )
        seconds = round(predicted_s(known, part, device, core_flops or {}), 3)
        return replace(known, predicted_s=seconds, left_out=LACKS + lacking if lacking else "")

    own_cache, largest = cache_bytes(device), max(map(cache_bytes, [device, *beside]))
    known_points = part.points(device["kind"], own_cache, largest, device.get("substitutes"), room_bytes(device))
    points = tuple(map(plan_point, known_points))
    limits = part.target, part.round_s, part.max_samples
    hang_s = part.hang_s.get(device["kind"], HANG_S) + COMPILE_S * (device.get("maker") in COMPILING_MAKERS)
    return Job(
        part.experiment.name,
        str(device["id"]),
        str(device["kind"]),
        *limits,
        points,
        stage=part.stage,
        hang_s=hang_s,
        lasting=part.experiment.lasting,
        protocol=part.experiment.protocol,
        metric_protocols=part.experiment.metric_protocols,
    )


def cache_bytes(device: Mapping[str, Any]) -> int:
    """Return a device's last-level cache size in bytes. device: an entry in this machine's record."""
    return hardware.last_level_cache_bytes() if device["kind"] == "cpu" else gpu_cache_bytes(device)


def room_bytes(device: Mapping[str, Any]) -> float:
    """Return the largest memory in bytes that a point may need on a device with nothing but a desktop on it."""
    memory = device.get("memory_bytes")
    return MEMORY_SHARE * max(0.0, memory - DESKTOP_BYTES) if memory else math.inf


def slowdown(core_flops: Mapping[str, float]) -> float:
    """Return how many times slower this core interprets a loop than the calibration machine; at least 1."""
    calibrated = LOOP_FLOPS["python"]
    return max(1.0, calibrated / core_flops.get("python", calibrated))


def memory_needed(point: Point, part: Sweep) -> float | None:
    """Return the bytes that a point needs; None if its experiment does not define `memory`."""
    return part.experiment.memory(**dict(point.params)) if part.experiment.memory else None


def call_s(
    point: Point, part: Sweep, device: Mapping[str, Any], cores: int, core_flops: Mapping[str, float]
) -> float | None:
    """Predict the seconds per call; None if the experiment has no prediction."""
    params = dict(point.params)
    if part.experiment.call_s:
        return part.experiment.call_s(**params) * (slowdown(core_flops) if device["kind"] == "cpu" else 1.0)
    if part.experiment.flop is None:
        return None
    dtype = str(params.get("dtype") or "float32")
    if device["kind"] == "cpu":
        rate = core_flops.get(dtype, CORE_FLOPS.get(dtype, 1e9))
        if not is_emulated(dtype, rate):
            rate *= max(1, min(int(params.get("threads") or 1), cores))
        if loop := LOOP_FLOPS.get(str(params.get("backend"))):
            rate = min(rate, loop / slowdown(core_flops))
    else:
        rate = gpu_flops(dtype, device)
    return part.experiment.flop(**params) / rate


def gpu_flops(dtype: str, device: Mapping[str, Any]) -> float:
    """Return a GPU's rated FLOP/s in a format, scaled from a card of its generation by multiprocessor count."""
    number = device.get("multiprocessors", GPU_MULTIPROCESSORS)
    capability = tuple(map(int, str(device.get("compute_capability", "9.0")).split(".")))
    earlier = [rates for least, rates in EARLIER_FLOPS.items() if least <= capability < (9, 0)]
    if earlier:
        return earlier[-1].get(dtype, earlier[-1]["float32"]) * number
    return GPU_FLOPS.get(dtype, 1e12) * number / GPU_MULTIPROCESSORS


def is_emulated(dtype: str, rate: float) -> bool:
    """Tell if a core at `rate` FLOP/s lacks instructions for a format."""
    return dtype not in EVERYWHERE and rate <= EMULATED_FLOPS


def predicted_s(point: Point, part: Sweep, device: Mapping[str, Any], core_flops: Mapping[str, float]) -> float:
    """Predict the seconds per round for a point with known call time and memory, including set-up and check."""
    experiment, one_s, on_cpu = part.experiment, point.call_s or 0.0, device["kind"] == "cpu"
    slow, extra, params = slowdown(core_flops) if on_cpu else 1.0, experiment.extra_s, dict(point.params)
    dtype = str(params.get("dtype"))
    if on_cpu and params.get("backend") in REFUSING and dtype in core_flops and is_emulated(dtype, core_flops[dtype]):
        return slow * POINT_S
    if callable(extra):
        # `extra_s` expects and returns times on the calibration machine. Convert the arguments to that machine here,
        # and the returned time to this machine below.
        extra = extra(call_s=one_s / slow, point_s=point.point_s / slow, **params)
    sampling_s = (OBSERVED_SHARE * slow if experiment.observed else USED_SHARE) * point.point_s
    fixed = slow * (POINT_S + extra)
    if not on_cpu and "model" in params:
        one_s /= STEP_SHARE
        if dtype in ATTENTION_DTYPES and has_attention(params["model"]):
            fixed += ATTENTION_S
    # A point with a call longer than LONGEST_CALL allows is skipped, but only after a probe, which takes time.
    fewest = FEWEST_CALLS * one_s if one_s <= LONGEST_CALL * point.point_s else LONGEST_CALL * point.point_s
    return fixed + (point.memory or 0.0) / (CORE_DATA if on_cpu else GPU_DATA) + max(sampling_s, fewest)


def fit_budget(plan: Plan, minutes: float, at_least_essential: bool = False) -> Plan:
    """Trim the plan to fit a budget in minutes.

    at_least_essential: if the points that comparisons require exceed the budget, return a plan with only these points
    instead of raising StudyError. The option is used for a budget from the preset instead of from the user, so that a
    run is possible even if processes start slowly.
    """
    dearest = sorted(
        ((index, point) for index, job in enumerate(plan.jobs) for point in job.points if not point.left_out),
        key=lambda indexed: (-indexed[1].value, -indexed[1].predicted_s),
    )
    plan = replace(plan, budget_min=minutes)
    fewest = min(FEWEST_ROUNDS, plan.rounds)
    steps = [(rounds, DETAIL) for rounds in range(plan.rounds, fewest - 1, -1)]
    trimmed = plan
    for rounds, worth in [*steps, (fewest, ADDS)]:
        candidates = [(index, point) for index, point in dearest if point.value >= worth]
        trimmed = _trim_points(candidates, replace(plan, rounds=rounds), minutes)
        if trimmed.seconds <= minutes * 60:
            return trimmed
    if at_least_essential:
        return trimmed
    enough = math.ceil(trimmed.seconds / 6) / 10
    raise StudyError(
        f"a budget of {minutes:g} min is too small: the points that comparisons require take about {enough:g} min "
        f"in {trimmed.rounds} rounds. Raise the budget, or choose a smaller preset."
    )


def _trim_points(candidates: Sequence[tuple[int, Point]], plan: Plan, minutes: float) -> Plan:
    """Leave out candidates (job index, point), in their order, until the plan fits."""
    trimmed = plan
    omitted: list[tuple[int, Point]] = []
    excess = plan.seconds - minutes * 60
    for at in candidates:
        if excess <= 0:
            # Predict the plan's time again: if `round_s` limits a round, omitting a point saves less than its time.
            trimmed = _leave_out(omitted, plan, minutes)
            excess = trimmed.seconds - minutes * 60
        if excess <= 0:
            break
        omitted.append(at)
        excess -= at[1].predicted_s * min(at[1].rounds, plan.rounds)
    trimmed = _leave_out(omitted, plan, minutes)
    # The plan may now be much shorter than the budget: put points back while they fit, the most valuable first.
    room = minutes * 60 - trimmed.seconds
    started, out = [{point.process_key for point in job.points if not point.left_out} for job in trimmed.jobs], []
    for place, point in reversed(omitted):
        start_s = 0.0 if point.process_key in started[place] else plan.jobs[place].start_s
        start_s += 0.0 if started[place] else JOB_S
        cost = (start_s + point.predicted_s) * min(point.rounds, plan.rounds)
        if cost > room:
            out.append((place, point))
        else:
            started[place].add(point.process_key)
            room -= cost
    return _leave_out(out, plan, minutes)


def _leave_out(omitted: Iterable[tuple[int, Point]], plan: Plan, minutes: float) -> Plan:
    """Return the plan with points (job index, point) marked as omitted."""
    reasons: list[dict[Point, str]] = [{} for _ in plan.jobs]
    for place, point in omitted:
        reasons[place][point] = f"plan: left out to fit {minutes:g} min"
    return replace(plan, jobs=tuple(job.leave_out(out) for job, out in zip(plan.jobs, reasons, strict=True)))


def budget_min(preset: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the preset's budget in minutes, which depends on whether there is a GPU; None without a budget."""
    kind = "gpu" if any(device["kind"] == "gpu" for device in devices) else "cpu"
    minutes: float | None = preset.get("budget_min", {}).get(kind)
    return minutes


def format_plan(plan: Plan, repeat_share: float = 0.0) -> str:
    """Format the plan: one line per experiment and device, with the points omitted for the budget.

    repeat_share: share of the time that measuring disturbed points again may add.
    """
    lines = [f"{'experiment':14} {'device':8} {'points':>6} {'left out':>8} {'s a round':>9} {'min in all':>10}"]
    for planned_job in plan.jobs:
        out = sum(bool(point.left_out) for point in planned_job.points)
        round_s = [job.seconds(number) for number, job in plan.order if job.name == planned_job.name]
        lines.append(
            f"{planned_job.experiment:14} {planned_job.device:8} {len(planned_job.points) - out:6} {out:8} "
            f"{sum(round_s) / max(1, len(round_s)):9.0f} {sum(round_s) / 60:10.1f}"
        )
    lines.append(f"{'between jobs':40} {JOB_S:9.1f} {JOB_S * len(plan.order) / 60:10.1f}")
    lines += _format_changes(plan)
    budget = f" of {plan.budget_min:g}" if plan.budget_min else ""
    measured = sum(not point.left_out for planned_job in plan.jobs for point in planned_job.points)
    experiments = len({planned_job.experiment for planned_job in plan.jobs})
    lines.append(
        f"{experiments} experiments, {measured:,} points: in all about {plan.seconds / 60:.1f}{budget} min in "
        f"{plan.rounds} rounds, predicted from data sheets"
        + (f"; up to {repeat_share * plan.seconds / 60:.1f} more to repeat what others disturb" if repeat_share else "")
    )
    return "\n".join(lines)


def _format_changes(plan: Plan) -> list[str]:
    """Format a line for each change of the preset's values for a device: its lack, the new value, the point count."""
    changes: Counter[tuple[str, str, Any, Any]] = Counter(
        (job.device, key, before, dict(point.params)[key])
        for job in plan.jobs
        for point in job.points
        if not point.left_out
        for key, before in point.instead_of.items()
    )
    return [
        f"{device} has {'no units' if key in FORMATS else 'too little memory'} for {key} {before}: {count} "
        f"{'point has' if count == 1 else 'points have'} {key} {value} instead"
        for (device, key, before, value), count in changes.items()
    ]
