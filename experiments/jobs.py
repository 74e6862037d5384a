"""Jobs (one experiment on one device, with resolved points) and plans.

A job contains everything that is needed to measure its points. Without jobs, each process would have to load the preset
and all experiment modules, which takes a second.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from contract.looks import KEY, look_rounds, points_digest
from experiments.user_models import VARIABLE

# Parameters with their own column in the samples table; all other parameters go into the column `params`.
COMMON = ("backend", "dtype", "threads")
# Name prefixes for libraries that need no torch: our own kernels, and table libraries.
WITHOUT_TORCH = ("llvm", "numba", "pandas", "polars", "xgboost", "lightgbm", "sklearn")
# The library with which the start of a measuring process without torch is timed; also the key for that time in plans.
NO_TORCH = "llvm"
# Seconds that a job adds to its measuring process's time: for Snakemake's scheduling, and the parent's imports and
# writes.
JOB_S = 1.25
# A point is skipped if it needs more than this share of the device's free memory.
MEMORY_SHARE = 0.6
# A point counts as hanging if its time exceeds the predicted time by HANG_S seconds plus HANG_FACTOR times the point's
# budget.
HANG_S, HANG_FACTOR = 60.0, 5.0
# COMPILE_S: extra seconds in a point's timeout if kernels are compiled at the first call for each shape.
# COMPILED: the backends that compile kernels at the first call (`torch.compile`).
# COMPILING_MAKERS: the makers of GPUs whose libraries compile kernels at the first call (AMD's MIOpen).
COMPILE_S, COMPILED, COMPILING_MAKERS = 120.0, ("inductor",), ("AMD",)
# Version of the plan file's format. Increase it if this program can no longer read earlier plan files.
PLAN_SCHEMA = 4


@dataclass(frozen=True)
class Point:
    """One combination of an experiment's parameters.

    point_s: the budget for warm-up and samples, in seconds per round.
    rounds: number of rounds that measure the point, from the first round on.
    more_rounds: numbers of further rounds that measure it (`add_rounds`).
    value: 1 if a comparison requires the point, 2 if the point adds to a comparison, 3 if the point is a detail.
    environment: environment variables for the point's measuring process.
    predicted_s: predicted seconds per round, including set-up and check.
    call_s: predicted seconds per call; None if unknown.
    memory: number of bytes that the point needs; None if unknown.
    left_out: the plan's reason to omit the point; '' if the point is measured.
    instead_of: the preset's values for the parameters that the plan changed, because the device has no units for a
        number format or too little memory.
    """

    experiment: str
    params: tuple[tuple[str, Any], ...]
    point_s: float = field(default=0.0, compare=False)
    rounds: int = field(default=1_000, compare=False)
    more_rounds: tuple[int, ...] = field(default=(), compare=False)
    value: int = field(default=2, compare=False)
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    predicted_s: float = field(default=0.0, compare=False)
    call_s: float | None = field(default=None, compare=False)
    memory: float | None = field(default=None, compare=False)
    left_out: str = field(default="", compare=False)
    instead_of: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_params(cls, experiment: str, params: dict[str, Any], **limits: Any) -> Point:
        """Make a point; the parameter order does not matter."""
        return cls(experiment, tuple(sorted(params.items())), **limits)

    @property
    def columns(self) -> dict[str, Any]:
        """Return the point's columns in the samples table: backend, dtype, threads, params."""
        params = dict(self.params)
        other_params = {key: value for key, value in params.items() if key not in COMMON}
        return {
            "backend": params.get("backend", ""),
            "dtype": params.get("dtype", ""),
            "threads": int(params.get("threads", 0)),
            "params": json.dumps(other_params, sort_keys=True, separators=(",", ":")),
        }

    @property
    def process_key(self) -> tuple[tuple[str, str], ...]:
        """Key of the point's measuring process: points with equal environment variables share a process."""
        return tuple(sorted(self.environment.items()))

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the point as JSON data, without the experiment and further rounds."""
        own = {key: value for key, value in asdict(self).items() if key not in ("experiment", "more_rounds")}
        return {**own, "params": dict(self.params), "environment": dict(self.environment)}


def needs_torch(params: Mapping[str, Any]) -> bool:
    """Tell if a point with these parameters needs torch."""
    return not str(params.get("backend")).startswith(WITHOUT_TORCH)


@dataclass(frozen=True)
class Job:
    """One experiment on one device, with its limits and its points for all rounds.

    kind: the device's kind, cpu or gpu.
    target, round_s, max_samples: limits from the preset (`experiments.sweep.preset_schema`).
    start_s: predicted seconds until a measuring process is ready.
    stage: the job starts after all rounds of the jobs in lower stages.
    hang_s: extra seconds before a point counts as hanging.
    lasting: True if each point uses exactly its budget.
    protocol, metric_protocols: those of the experiment (`Experiment`).
    """

    experiment: str
    device: str
    kind: str
    target: float
    round_s: float
    max_samples: int
    points: tuple[Point, ...]
    start_s: float = 0.0
    stage: int = 1
    hang_s: float = HANG_S
    lasting: bool = False
    protocol: int = 1
    metric_protocols: Mapping[str, int] = field(default_factory=dict)

    @property
    def needs_torch(self) -> bool:
        """True if a point needs torch, or the device is a GPU, which torch opens."""
        return self.kind != "cpu" or any(needs_torch(dict(point.params)) for point in self.points)

    @property
    def name(self) -> str:
        """Prefix for the names of the job's files, for example gemm.cuda-0."""
        return f"{self.experiment}.{self.device.replace(':', '-')}"

    def order(self, point: Point) -> dict[str, Any]:
        """Return the order to send to a measuring process for a point."""
        return {
            "experiment": self.experiment,
            "device": self.device,
            "params": dict(point.params),
            # If the plan predicts a short call, the measuring process need not predict the call's time itself.
            "known": {"call_s": point.call_s, "memory": point.memory},
            "policy": {"target": self.target, "budget_s": point.point_s, "max_samples": self.max_samples},
        }

    def limit_s(self, point: Point) -> float:
        """Return the timeout for a point in seconds."""
        compiling_s = COMPILE_S if dict(point.params).get("backend") in COMPILED else 0.0
        if self.lasting:
            return self.hang_s + compiling_s + max(point.point_s, point.predicted_s)
        return self.hang_s + compiling_s + point.predicted_s + HANG_FACTOR * point.point_s

    def round_points(self, number: int) -> list[Point]:
        """Return the points in round `number`, including omitted ones."""
        return [point for point in self.points if number <= point.rounds or number in point.more_rounds]

    def has_points(self, number: int) -> bool:
        """Tell if round `number` has any point to measure."""
        return any(not point.left_out for point in self.round_points(number))

    def seconds(self, number: int) -> float:
        """Predict the seconds for round `number`: one process start per environment, and all points' times."""
        points = [point for point in self.round_points(number) if not point.left_out]
        processes = len({point.process_key for point in points})
        longest = max((point.predicted_s for point in points), default=0.0)
        # `round_s` only limits when points may start, so the last point can end later.
        return processes * self.start_s + min(sum(point.predicted_s for point in points), self.round_s + longest)

    def leave_out(self, omitted: Mapping[Point, str]) -> Job:
        """Return the job with the points in `omitted` left out. omitted: the reason for each point."""
        return replace(
            self, points=tuple(replace(point, left_out=omitted.get(point, point.left_out)) for point in self.points)
        )

    def digest(self, number: int) -> str:
        """Hash the settings for round `number` to 12 digits. If the digest changes, the round is measured again."""
        points = [
            [point.params, point.point_s, not point.left_out, *filter(None, [point.environment.get(VARIABLE)])]
            for point in self.round_points(number)
        ]
        settings = [self.target, self.round_s, self.max_samples, points, *filter(None, [dict(self.metric_protocols)])]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the job as JSON data."""
        return {**vars(self), "points": [point.as_json for point in self.points]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Job:
        """Read a job from JSON data."""
        points = tuple(Point.from_params(plain["experiment"], **point) for point in plain["points"])
        return cls(**{**plain, "points": points})


@dataclass(frozen=True)
class Plan:
    """A run's jobs and its number of rounds.

    jobs: the jobs; within a stage, each round measures the jobs in this order.
    preset: the preset's name or path.
    budget_min: the budget in minutes; None for no limit.
    request: the user's request, with the keys `sweeps` (a digest of the preset and the user's models) and `budget_min`
        (the requested budget in minutes; 0 for none). Empty in plans from earlier versions of this program.
    looks: the node's looks, as in its record (`contract.looks`).
    """

    jobs: tuple[Job, ...]
    rounds: int
    preset: str = ""
    budget_min: float | None = None
    request: Mapping[str, Any] = field(default_factory=dict, compare=False)
    looks: tuple[Mapping[str, Any], ...] = ()

    @property
    def seconds(self) -> float:
        """The predicted duration for the run, in seconds."""
        return sum(job.seconds(number) + JOB_S for number, job in self.order)

    @property
    def order(self) -> list[tuple[int, Job]]:
        """All (round number, job) pairs, in the order to run."""
        numbered_jobs = [(number, job) for number in range(1, self.rounds + 1) for job in self.round_jobs(number)]
        return sorted(numbered_jobs, key=lambda numbered: numbered[1].stage)

    def round_jobs(self, number: int) -> list[Job]:
        """Return the jobs with any point to measure in round `number`."""
        return [job for job in self.jobs if number <= self.rounds and job.has_points(number)]

    def job(self, experiment: str, device: str) -> Job:
        """Find the job for an experiment and a device. Raises StudyError if the plan has none."""
        for job in self.jobs:
            if (job.experiment, job.device) == (experiment, device):
                return job
        measured = ", ".join(f"{job.experiment} on {job.device}" for job in self.jobs)
        raise StudyError(f"the plan does not measure {experiment} on {device}. It measures {measured}.")

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON data; its key `seconds` maps each job's name to the predicted seconds per round."""
        return {
            "schema": PLAN_SCHEMA,
            "preset": self.preset,
            "rounds": self.rounds,
            "budget_min": self.budget_min,
            "asked": dict(self.request),
            "predicted_s": round(self.seconds),
            "seconds": {
                job.name: [round(job.seconds(number), 1) for number in range(1, self.rounds + 1)] for job in self.jobs
            },
            "jobs": [job.as_json for job in self.jobs],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], where: Path | str) -> Plan:
        """Read a plan from JSON data. Raises StudyError if another version wrote it, or it is damaged."""
        advice = "make the plan again (python -m experiments plan --out, which the workflow does by itself)"
        try:
            if plain["schema"] != PLAN_SCHEMA:
                raise StudyError(f"{where}: another version of this program wrote it: {advice}")
            jobs = tuple(Job.from_json(job) for job in plain["jobs"])
            return cls(jobs, int(plain["rounds"]), plain["preset"], plain["budget_min"], plain.get("asked", {}))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise StudyError(f"{where}: the plan is damaged or incomplete: {advice}") from None


def point_key(job: Job, point: Point) -> tuple[Any, ...]:
    """Return the values that identify a point on a node, in the order of `contract.looks.KEY`."""
    return (job.experiment, job.device, *point.columns.values())


def add_rounds(plan: Plan, further: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan with further rounds of some points (`contract.looks`).

    The other points keep their rounds. With rounds before a look, the plan also gets all its looks.
    """
    looks = [{"rounds": number} for number in look_rounds(plan.rounds)]
    jobs = [
        replace(job, points=tuple(replace(point, rounds=min(point.rounds, plan.rounds)) for point in job.points))
        for job in plan.jobs
    ]
    rounds, looked = plan.rounds, bool(plan.looks)
    for part in further:
        chosen = {tuple(point[name] for name in KEY) for point in (*part["points"], *part["anchors"])}
        jobs = [
            replace(
                job,
                points=tuple(
                    replace(point, more_rounds=(*point.more_rounds, *part["rounds"]))
                    if point_key(job, point) in chosen
                    else point
                    for point in job.points
                ),
            )
            for job in jobs
        ]
        rounds = max([rounds, *part["rounds"]])
        if part["look"] is not None:
            looked = True
            numbers = {"points": len(part["points"]), "anchors": len(part["anchors"])}
            about = {"rounds": part["look"], **numbers, "digest": points_digest(part)}
            looks = [about if look["rounds"] == part["look"] else look for look in looks]
    return replace(plan, jobs=tuple(jobs), rounds=rounds, looks=tuple(looks) if looked else ())


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises StudyError if it cannot be read."""
    return Plan.from_json(read_json(path), path)
