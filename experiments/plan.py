"""The plan of a run: what it measures on each device, how long that should take, and what a budget leaves out.

Times are predicted from rates on data sheets before anything has run, so that a run
fits the time that somebody has. Where it does not fit, points go by what they are
worth (a preset says it, block by block) for the time that they take: details first,
then rounds beyond the third, then what adds to a comparison. What a comparison
cannot do without stays; a budget too small for it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contract.errors import StudyError
from contract.node import LACKS, gpu_cache_bytes
from experiments import hardware
from experiments.jobs import COMPILE_S, COMPILING_MAKERS, HANG_S, JOB_S, NO_TORCH, Job, Plan, Point
from experiments.models.network_names import has_attention
from experiments.sweep import Sweep, find_sweep

# FLOP/s of an H100 SXM with 132 multiprocessors, dense, and bytes per second of its memory
# (NVIDIA, H100 Tensor Core GPU data sheet, 2023); other GPUs in proportion to theirs.
GPU_FLOPS = {
    "float64": 34e12, "float32": 67e12, "tf32": 494e12, "bfloat16": 989e12, "float16": 989e12,
    "float8_e4m3fn": 1979e12, "int8": 1979e12,
}  # fmt: skip
GPU_MULTIPROCESSORS = 132
# An H100's facts, for the plan of a GPU that is not here. Cache: NVIDIA, H100 Tensor Core GPU Architecture, 2022.
H100 = {"multiprocessors": GPU_MULTIPROCESSORS, "last_level_cache_bytes": 50 << 20}
# A core of 3 GHz that does two multiply-adds of 8 float32 a cycle; formats without units of their own take long.
CORE_FLOPS = {"float64": 48e9, "float32": 96e9, "bfloat16": 96e9, "float16": 1e9, "int8": 96e9}
# What a core does without a library: an interpreted loop, and a compiled one without vectors. The former, of the
# machine by which the constants below and the experiments' were found, tells how slow another's host side is.
LOOP_FLOPS = {"python": 33e6, "scalar": 4e9}
# A core that does no more than this has no instructions for a format, as every core has for some: it is converted, by
# one thread, or refused at once.
EMULATED_FLOPS, EVERYWHERE = 5e9, ("float32", "float64")
REFUSING = ("onednn", "llvm")
# Bytes of random data that are drawn and checked in a second: by one core, and by a GPU.
CORE_DATA, GPU_DATA = 0.8e9, 50e9
# Share of a GPU's FLOP/s that whole steps of models reach, operator by operator.
STEP_SHARE = 0.3
# Seconds in which cuDNN plans attention in 16 bits for a new shape (seen on a B200: 0.44 forward, 0.55 backward).
ATTENTION_S, ATTENTION_DTYPES = 1.0, ("bfloat16", "float16")
# Seconds for whatever a point does besides: allocate, compile, check, answer.
POINT_S = 0.04
# Seconds until a measuring process is ready, where nobody has timed it: by kind of device, or without torch.
START_S = {"cpu": 3.0, "gpu": 7.0, NO_TORCH: 0.8}
# Share of a point's seconds that warm-up and samples take (half is the least, some go on to the end); observations.
USED_SHARE, OBSERVED_SHARE = 0.66, 0.8
# Calls that every point makes, if one takes no longer than so many times the point's seconds.
FEWEST_CALLS, LONGEST_CALL = 4, 2
FEWEST_ROUNDS = 3
ADDS, DETAIL = 2, 3


def full_plan(
    preset: Mapping[str, Any],
    source: str,
    devices: Iterable[Mapping[str, Any]],
    cores: int,
    start_s: Mapping[str, float] | None = None,
    core_flops: Mapping[str, float] | None = None,
) -> Plan:
    """Everything in a preset on these devices (entries of a node record), without a budget.

    Stages come one after the other. In each, GPUs come first in every round, and otherwise the preset's own order: a
    run that is cut off has then lost least of what is hardest to come by. start_s: seconds until a measuring process
    is ready, by device (NO_TORCH: one that needs none), where they are known. core_flops: FLOP/s of a core, by format,
    where they are known.
    """
    there, known, jobs = list(devices), START_S | dict(start_s or {}), []
    for device in sorted(there, key=lambda one: str(one["kind"]) == "cpu"):
        for name in preset["experiments"]:
            part = find_sweep(dict(preset), name, source)
            if device["kind"] in part.experiment.fits:
                made = plan_job(part, device, cores, there, core_flops)
                start = str(device["id"]) if made.needs_torch else NO_TORCH
                ready = known.get(start, known[str(device["kind"])])
                jobs.append(replace(made, start_s=ready + part.experiment.load_s * slowdown(core_flops or {})))
    return Plan(tuple(one for one in jobs if one.points), int(preset["rounds"]))


def plan_job(
    part: Sweep,
    device: Mapping[str, Any],
    cores: int,
    beside: Sequence[Mapping[str, Any]] = (),
    core_flops: Mapping[str, float] | None = None,
) -> Job:
    """An experiment's part of a preset on one device (an entry of a node record).

    beside: all devices of the node, without which it is not known what it lacks.
    """

    def planned(point: Point) -> Point:
        # The device itself comes first.
        others = [one for one in beside if one["id"] != device["id"]]
        lacking = part.experiment.lacks([device, *others], dict(point.params)) if beside else ""
        known = replace(
            point, call_s=call_s(point, part, device, cores, core_flops or {}), memory=memory_needed(point, part)
        )
        seconds = round(predicted_s(known, part, device, core_flops or {}), 3)
        return replace(known, predicted_s=seconds, left_out=LACKS + lacking if lacking else "")

    own, largest = cache_bytes(device), max(map(cache_bytes, [device, *beside]))
    points = tuple(map(planned, part.points(device["kind"], own, largest)))
    asked = part.target, part.round_s, part.max_samples
    hang_s = part.hang_s.get(device["kind"], HANG_S) + COMPILE_S * (device.get("maker") in COMPILING_MAKERS)
    made = Job(part.experiment.name, str(device["id"]), str(device["kind"]), *asked, points, stage=part.stage)
    return replace(made, hang_s=hang_s, lasting=part.experiment.lasting)


def cache_bytes(device: Mapping[str, Any]) -> int:
    """Bytes of the last-level cache of a device, an entry of this machine's record."""
    return hardware.last_level_cache_bytes() if device["kind"] == "cpu" else gpu_cache_bytes(device)


def slowdown(core_flops: Mapping[str, float]) -> float:
    """How many times as long a core takes for what is interpreted as that by which the constants were found."""
    usual = LOOP_FLOPS["python"]
    return max(1.0, usual / core_flops.get("python", usual))


def memory_needed(point: Point, part: Sweep) -> float | None:
    """Bytes that a point needs; None where its experiment does not say."""
    return part.experiment.memory(**dict(point.params)) if part.experiment.memory else None


def call_s(
    point: Point, part: Sweep, device: Mapping[str, Any], cores: int, core_flops: Mapping[str, float]
) -> float | None:
    """Seconds that one call of a point should take; None where its experiment does not tell."""
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
        rate = GPU_FLOPS.get(dtype, 1e12) * device.get("multiprocessors", GPU_MULTIPROCESSORS) / GPU_MULTIPROCESSORS
    return part.experiment.flop(**params) / rate


def is_emulated(dtype: str, rate: float) -> bool:
    """Whether a core that does `rate` FLOP/s in a format has no instructions for it."""
    return dtype not in EVERYWHERE and rate <= EMULATED_FLOPS


def predicted_s(point: Point, part: Sweep, device: Mapping[str, Any], core_flops: Mapping[str, float]) -> float:
    """Seconds that a point, whose call and memory are known, should take in one round, set-up and check included."""
    experiment, one_s, on_cpu = part.experiment, point.call_s or 0.0, device["kind"] == "cpu"
    slow, extra, params = slowdown(core_flops) if on_cpu else 1.0, experiment.extra_s, dict(point.params)
    dtype = str(params.get("dtype"))
    if on_cpu and params.get("backend") in REFUSING and dtype in core_flops and is_emulated(dtype, core_flops[dtype]):
        return slow * POINT_S
    if callable(extra):
        # The call is this machine's: only what is added to it was found on another.
        extra = extra(call_s=one_s / slow, point_s=point.point_s / slow, **params)
    used = (OBSERVED_SHARE * slow if experiment.observed else USED_SHARE) * point.point_s
    fixed = slow * (POINT_S + extra)
    if not on_cpu and "model" in params:
        one_s /= STEP_SHARE
        if dtype in ATTENTION_DTYPES and has_attention(params["model"]):
            fixed += ATTENTION_S
    # A call that takes longer than that is not made, and what comes before it is.
    fewest = FEWEST_CALLS * one_s if one_s <= LONGEST_CALL * point.point_s else LONGEST_CALL * point.point_s
    return fixed + (point.memory or 0.0) / (CORE_DATA if on_cpu else GPU_DATA) + max(used, fewest)


def fit_budget(plan: Plan, minutes: float, least: bool = False) -> Plan:
    """The plan, trimmed to fit the budget.

    least: where not even what is essential fits, give that: nobody has asked for this budget but the preset, and a
    slow start is no reason to measure nothing. Otherwise raises StudyError.
    """
    dearest = sorted(
        ((place, point) for place, one in enumerate(plan.jobs) for point in one.points if not point.left_out),
        key=lambda at: (-at[1].value, -at[1].predicted_s),
    )
    plan = replace(plan, budget_min=minutes)
    fewest = min(FEWEST_ROUNDS, plan.rounds)
    steps = [(rounds, DETAIL) for rounds in range(plan.rounds, fewest - 1, -1)]
    trimmed = plan
    for rounds, worth in [*steps, (fewest, ADDS)]:
        candidates = [(place, point) for place, point in dearest if point.value >= worth]
        trimmed = _trim_points(candidates, replace(plan, rounds=rounds), minutes)
        if trimmed.seconds <= minutes * 60:
            return trimmed
    if least:
        return trimmed
    enough = math.ceil(trimmed.seconds / 6) / 10
    raise StudyError(
        f"a budget of {minutes:g} min: what the comparisons need takes about {enough:g} min "
        f"in {trimmed.rounds} rounds. Give it that, or take a smaller preset."
    )


def _trim_points(candidates: Sequence[tuple[int, Point]], plan: Plan, minutes: float) -> Plan:
    """The plan without as many of the candidates (numbers of jobs, and points), in their order, as it takes to fit."""
    trimmed = plan
    gone: list[tuple[int, Point]] = []
    excess = plan.seconds - minutes * 60
    for at in candidates:
        if excess <= 0:
            # A round that its own limit cuts saves less than its points take.
            trimmed = _leave_out(gone, plan, minutes)
            excess = trimmed.seconds - minutes * 60
        if excess <= 0:
            break
        gone.append(at)
        excess -= at[1].predicted_s * min(at[1].rounds, plan.rounds)
    trimmed = _leave_out(gone, plan, minutes)
    # The last to go may have cost far more than what was too much: what is worth most comes back while there is room.
    room = minutes * 60 - trimmed.seconds
    started, out = [{point.process_key for point in job.points if not point.left_out} for job in trimmed.jobs], []
    for place, point in reversed(gone):
        start_s = 0.0 if point.process_key in started[place] else plan.jobs[place].start_s
        start_s += 0.0 if started[place] else JOB_S
        cost = (start_s + point.predicted_s) * min(point.rounds, plan.rounds)
        if cost > room:
            out.append((place, point))
        else:
            started[place].add(point.process_key)
            room -= cost
    return _leave_out(out, plan, minutes)


def _leave_out(gone: Iterable[tuple[int, Point]], plan: Plan, minutes: float) -> Plan:
    """The plan without these points (with the numbers of their jobs)."""
    reasons: list[dict[Point, str]] = [{} for _ in plan.jobs]
    for place, point in gone:
        reasons[place][point] = f"plan: left out to fit {minutes:g} min"
    return replace(plan, jobs=tuple(job.leave_out(out) for job, out in zip(plan.jobs, reasons, strict=True)))


def budget_min(preset: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> float | None:
    """Minutes that a preset grants a run, with accelerators or without; None if it does not say."""
    kind = "gpu" if any(device["kind"] == "gpu" for device in devices) else "cpu"
    granted: float | None = preset.get("budget_min", {}).get(kind)
    return granted


def format_plan(plan: Plan) -> str:
    """The plan in words: a line for each experiment and device, and what the budget leaves out."""
    lines = [f"{'experiment':14} {'device':8} {'points':>6} {'left out':>8} {'s a round':>9} {'min in all':>10}"]
    for one in plan.jobs:
        out = sum(bool(point.left_out) for point in one.points)
        every = [job.seconds(number) for number, job in plan.order if job.name == one.name]
        lines.append(
            f"{one.experiment:14} {one.device:8} {len(one.points) - out:6} {out:8} "
            f"{sum(every) / max(1, len(every)):9.0f} {sum(every) / 60:10.1f}"
        )
    lines.append(f"{'between jobs':40} {JOB_S:9.1f} {JOB_S * len(plan.order) / 60:10.1f}")
    given = f" of {plan.budget_min:g}" if plan.budget_min else ""
    measured = sum(not point.left_out for one in plan.jobs for point in one.points)
    experiments = len({one.experiment for one in plan.jobs})
    lines.append(
        f"{experiments} experiments, {measured:,} points: in all about {plan.seconds / 60:.1f}{given} min in "
        f"{plan.rounds} rounds, predicted from data sheets"
    )
    return "\n".join(lines)
