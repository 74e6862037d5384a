"""The plan of a run: what it measures on each device, how long that should take, and what a budget leaves out.

Times are predicted from rates on data sheets before anything has run, so that a run
fits the time that somebody has. Where it does not fit, points go by what they are
worth (a preset says it, block by block) for the time that they take: details first,
then rounds beyond the third, then what adds to a comparison. What a comparison
cannot do without stays; a budget too small for it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from experiments.sweep import Point, Sweep, sweep

# FLOP/s of an H100 SXM with 132 multiprocessors, dense, and bytes per second of its memory
# (NVIDIA, H100 Tensor Core GPU data sheet, 2023); other GPUs in proportion to theirs.
GPU_FLOPS = {
    "float64": 34e12, "float32": 67e12, "tf32": 494e12, "bfloat16": 989e12, "float16": 989e12,
    "float8_e4m3fn": 1979e12, "int8": 1979e12,
}  # fmt: skip
GPU_MULTIPROCESSORS = 132
# A core of 3 GHz that does two multiply-adds of 8 float32 a cycle; formats without units of their own take long.
CORE_FLOPS = {"float64": 48e9, "float32": 96e9, "bfloat16": 96e9, "float16": 1e9}
# Bytes of random data that are drawn and checked in a second: by one core, and by a GPU.
CORE_DATA, GPU_DATA = 0.8e9, 50e9
# Seconds for whatever a point does besides: allocate, compile, check, answer; and to start a round's processes.
POINT_S, ROUND_S, ROUND_GPU_S = 0.15, 2.0, 3.0
# Share of a point's seconds that warm-up and samples take: half is the least, some go on to the end.
USED_SHARE = 0.8
# Calls that every point makes, however long they take.
FEWEST_CALLS = 4
FEWEST_ROUNDS = 3
ESSENTIAL, ADDS, DETAIL = 1, 2, 3


@dataclass(frozen=True)
class Job:
    """One experiment on one device, in every round: its points with the seconds that each should take."""

    sweep: Sweep
    device: str
    points: Mapping[Point, float]

    def seconds(self, number: int, left_out: frozenset[tuple[str, Point]]) -> float:
        """Seconds of round `number` without what is left out."""
        kept = [
            seconds
            for point, seconds in self.points.items()
            if number <= point.rounds and (self.device, point) not in left_out
        ]
        start = ROUND_S if self.device == "cpu" else ROUND_GPU_S
        return start + min(sum(kept), self.sweep.round_s) if kept else 0.0


@dataclass(frozen=True)
class Plan:
    """Jobs, the number of rounds, and the (device, point) pairs that the budget leaves out."""

    jobs: Sequence[Job]
    rounds: int
    left_out: frozenset[tuple[str, Point]] = frozenset()

    @property
    def seconds(self) -> float:
        """What the whole run should take."""
        return sum(job.seconds(number, self.left_out) for job in self.jobs for number in range(1, self.rounds + 1))


def full_plan(preset: Mapping[str, Any], source: str, devices: Iterable[Mapping[str, Any]], cores: int) -> Plan:
    """Everything in a preset on these devices (entries of a node record), without a budget."""
    jobs = []
    for device in devices:
        for name in preset["experiments"]:
            part = sweep(dict(preset), name, source)
            if device["kind"] not in part.experiment.fits:
                continue
            points = {point: predicted_s(point, part, device, cores) for point in part.points(device["kind"])}
            if points:
                jobs.append(Job(part, str(device["id"]), points))
    return Plan(jobs, int(preset["rounds"]))


def predicted_s(point: Point, part: Sweep, device: Mapping[str, Any], cores: int) -> float:
    """Seconds that a point should take in one round, set-up and check included."""
    params = dict(point.params)
    experiment, dtype = part.experiment, str(params.get("dtype") or "float32")
    if device["kind"] == "cpu":
        rate = CORE_FLOPS.get(dtype, 1e9) * max(1, min(int(params.get("threads") or 1), cores))
        data = CORE_DATA
    else:
        rate = GPU_FLOPS.get(dtype, 1e12) * device.get("multiprocessors", GPU_MULTIPROCESSORS) / GPU_MULTIPROCESSORS
        data = GPU_DATA
    call_s = experiment.flop(**params) / rate if experiment.flop else 0.0
    held = experiment.memory(**params) if experiment.memory else 0.0
    return POINT_S + held / data + max(USED_SHARE * point.point_s, min(FEWEST_CALLS * call_s, 2 * point.point_s))


def within(plan: Plan, budget_s: float) -> Plan:
    """The plan, trimmed to fit the budget. Raises StudyError if not even what is essential fits."""
    dearest = sorted(
        ((device.device, point, seconds) for device in plan.jobs for point, seconds in device.points.items()),
        key=lambda one: (-one[1].value, -one[2]),
    )
    steps = [(rounds, DETAIL) for rounds in range(plan.rounds, min(FEWEST_ROUNDS, plan.rounds) - 1, -1)]
    trimmed = plan
    for rounds, least in [*steps, (min(FEWEST_ROUNDS, plan.rounds), ADDS)]:
        trimmed = _without([one for one in dearest if one[1].value >= least], Plan(plan.jobs, rounds), budget_s)
        if trimmed.seconds <= budget_s:
            return trimmed
    raise StudyError(
        f"a budget of {budget_s / 60:g} min: what the comparisons need takes about {trimmed.seconds / 60:.0f} min "
        f"in {trimmed.rounds} rounds. Give it that, or take a smaller preset."
    )


def _without(candidates: Sequence[tuple[str, Point, float]], plan: Plan, budget_s: float) -> Plan:
    """The plan without as many of the candidates, in their order, as it takes to fit."""
    excess, gone = plan.seconds - budget_s, set()
    for device, point, seconds in candidates:
        if excess <= 0:
            break
        gone.add((device, point))
        excess -= seconds * min(point.rounds, plan.rounds)
    return Plan(plan.jobs, plan.rounds, frozenset(gone))


def budget_min(preset: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> float | None:
    """Minutes that a preset grants a run, with accelerators or without; None if it does not say."""
    kind = "gpu" if any(device["kind"] == "gpu" for device in devices) else "cpu"
    granted: float | None = preset.get("budget_min", {}).get(kind)
    return granted


def record(plan: Plan, minutes: float | None) -> dict[str, Any]:
    """The plan as JSON: rounds, and by experiment and device each round's seconds and the points that are left out."""
    left_out = {
        f"{job.sweep.experiment.name}.{job.device}": [
            dict(point.params) for point in job.points if (job.device, point) in plan.left_out
        ]
        for job in plan.jobs
    }
    seconds = {
        f"{job.sweep.experiment.name}.{job.device.replace(':', '-')}": [
            round(job.seconds(number, plan.left_out), 1) for number in range(1, plan.rounds + 1)
        ]
        for job in plan.jobs
    }
    return {
        "rounds": plan.rounds,
        "budget_min": minutes,
        "predicted_s": round(plan.seconds),
        "seconds": seconds,
        "left_out": left_out,
    }


def left_out(path: Path | None, experiment: str, device: str) -> tuple[frozenset[Point], str]:
    """The points of an experiment that a recorded plan leaves out, and why. Raises StudyError if it cannot be read."""
    if path is None:
        return frozenset(), ""
    plan = read_json(path)
    points = plan["left_out"].get(f"{experiment}.{device}", [])
    return (
        frozenset(Point.of(experiment, params) for params in points),
        f"plan: left out to fit {plan['budget_min']} min" if points else "",
    )


def told(plan: Plan, minutes: float | None) -> str:
    """The plan in words: a line for each experiment and device, and what the budget leaves out."""
    lines = [f"{'experiment':14} {'device':8} {'points':>6} {'left out':>8} {'s a round':>9} {'min in all':>10}"]
    for job in plan.jobs:
        out = sum((job.device, point) in plan.left_out for point in job.points)
        every = [job.seconds(number, plan.left_out) for number in range(1, plan.rounds + 1)]
        lines.append(
            f"{job.sweep.experiment.name:14} {job.device:8} {len(job.points) - out:6} {out:8} "
            f"{sum(every) / len(every):9.0f} {sum(every) / 60:10.1f}"
        )
    given = f" of {minutes:g}" if minutes else ""
    measured = sum((job.device, point) not in plan.left_out for job in plan.jobs for point in job.points)
    experiments = len({job.sweep.experiment.name for job in plan.jobs})
    lines.append(
        f"{experiments} experiments, {measured:,} points: in all about {plan.seconds / 60:.1f}{given} min in "
        f"{plan.rounds} rounds, predicted from data sheets"
    )
    return "\n".join(lines)
