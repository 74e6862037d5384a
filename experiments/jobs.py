"""A job: one experiment on one device, with its points in numbers, as a plan records it.

Whoever measures a job needs nothing else: neither the preset nor the experiments' modules, which take a second to load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from experiments.user_models import VARIABLE

# Columns of the table of samples; every other parameter of an experiment goes into `params`.
COMMON = ("backend", "dtype", "threads")
# What the names of libraries begin with that need no torch: kernels of our own, and libraries for tables.
WITHOUT_TORCH = ("llvm", "numba", "pandas", "polars", "xgboost", "lightgbm", "sklearn")
# One of them, by which it is timed how long a process of theirs takes to start.
NO_TORCH = "llvm"
# Seconds of each job before and after its measuring process: Snakemake's next step, and a parent that loads and writes.
JOB_S = 1.25
# Seconds that a point may take besides, and times that it may take its own, before it counts as hanging.
HANG_S, HANG_FACTOR = 60.0, 5.0
# Seconds more where kernels are compiled at the first call of each shape: by `torch.compile`, and by AMD's MIOpen.
COMPILE_S, COMPILED, COMPILING_MAKERS = 120.0, ("inductor",), ("AMD",)
# Raised when plans of earlier versions cannot be read any more.
PLAN_SCHEMA = 3


@dataclass(frozen=True)
class Point:
    """One combination of an experiment's parameters.

    point_s: seconds for its warm-up and samples. rounds: it is measured in so many of the first rounds.
    value: 1 if a comparison cannot do without it, 2 if it adds to one, 3 if it is a detail.
    environment: variables of the process that measures it. predicted_s: what it should take in one round,
    set-up and check included; call_s: what one call should, and memory: bytes that it needs, where they are known.
    left_out: why the plan does without it; '' if it is measured.
    """

    experiment: str
    params: tuple[tuple[str, Any], ...]
    point_s: float = field(default=0.0, compare=False)
    rounds: int = field(default=1_000, compare=False)
    value: int = field(default=2, compare=False)
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    predicted_s: float = field(default=0.0, compare=False)
    call_s: float | None = field(default=None, compare=False)
    memory: float | None = field(default=None, compare=False)
    left_out: str = field(default="", compare=False)

    @classmethod
    def from_params(cls, experiment: str, params: dict[str, Any], **limits: Any) -> Point:
        """The point with these parameters, in whatever order."""
        return cls(experiment, tuple(sorted(params.items())), **limits)

    @property
    def columns(self) -> dict[str, Any]:
        """The point as columns of the table of samples: backend, dtype, threads, params."""
        every = dict(self.params)
        rest = {key: value for key, value in every.items() if key not in COMMON}
        return {
            "backend": every.get("backend", ""),
            "dtype": every.get("dtype", ""),
            "threads": int(every.get("threads", 0)),
            "params": json.dumps(rest, sort_keys=True, separators=(",", ":")),
        }

    @property
    def process_key(self) -> tuple[tuple[str, str], ...]:
        """What points of a job that one process measures have in common: their environment."""
        return tuple(sorted(self.environment.items()))

    @property
    def as_json(self) -> dict[str, Any]:
        """The point as JSON, without the experiment."""
        own = {key: value for key, value in asdict(self).items() if key != "experiment"}
        return {**own, "params": dict(self.params), "environment": dict(self.environment)}


def needs_torch(params: Mapping[str, Any]) -> bool:
    """Whether a point with these parameters needs torch."""
    return not str(params.get("backend")).startswith(WITHOUT_TORCH)


@dataclass(frozen=True)
class Job:
    """One experiment on one device, in every round: its limits and its points.

    kind: of the device. start_s: seconds until a process that measures on it is ready.
    hang_s: seconds that a point may take besides its own before it counts as hanging. lasting: its points take the
    seconds that they are given, and not more.
    stage: its jobs begin once those of lower stages have been measured in all rounds.
    The other limits are those of `experiments.sweep.Sweep`.
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

    @property
    def needs_torch(self) -> bool:
        """True if one of its points does; torch opens a GPU."""
        return self.kind != "cpu" or any(needs_torch(dict(point.params)) for point in self.points)

    @property
    def name(self) -> str:
        """As in the names of its files: gemm.cuda-0."""
        return f"{self.experiment}.{self.device.replace(':', '-')}"

    def order(self, point: Point) -> dict[str, Any]:
        """The order by which a measuring process measures one of the points."""
        return {
            "experiment": self.experiment,
            "device": self.device,
            "params": dict(point.params),
            # The measuring process need not find out again values that the plan knows.
            "known": {"call_s": point.call_s, "memory": point.memory},
            "policy": {"target": self.target, "budget_s": point.point_s, "max_samples": self.max_samples},
        }

    def limit_s(self, point: Point) -> float:
        """Seconds after which a point that has not been answered hangs."""
        compiling_s = COMPILE_S if dict(point.params).get("backend") in COMPILED else 0.0
        if self.lasting:
            return self.hang_s + compiling_s + max(point.point_s, point.predicted_s)
        return self.hang_s + compiling_s + point.predicted_s + HANG_FACTOR * point.point_s

    def round_points(self, number: int) -> list[Point]:
        """The points of round `number`, those that the plan does without among them."""
        return [point for point in self.points if number <= point.rounds]

    def measures(self, number: int) -> bool:
        """Whether round `number` has anything to measure."""
        return any(not point.left_out for point in self.round_points(number))

    def seconds(self, number: int) -> float:
        """What round `number` should take: a process for each environment, and the points."""
        kept = [point for point in self.round_points(number) if not point.left_out]
        processes = len({point.process_key for point in kept})
        longest = max((point.predicted_s for point in kept), default=0.0)
        # The last point that begins within the round's seconds is still measured.
        return processes * self.start_s + min(sum(point.predicted_s for point in kept), self.round_s + longest)

    def leave_out(self, gone: Mapping[Point, str]) -> Job:
        """The job without some of its points, with the reason for each."""
        return replace(
            self, points=tuple(replace(point, left_out=gone.get(point, point.left_out)) for point in self.points)
        )

    def digest(self, number: int) -> str:
        """What round `number` measures, in twelve digits: when they change, it is measured again."""
        points = [
            [one.params, one.point_s, not one.left_out, *filter(None, [one.environment.get(VARIABLE)])]
            for one in self.round_points(number)
        ]
        asked = [self.target, self.round_s, self.max_samples, points]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]

    @property
    def as_json(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**vars(self), "points": [point.as_json for point in self.points]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Job:
        """The job that `plain` describes."""
        points = tuple(Point.from_params(plain["experiment"], **point) for point in plain["points"])
        return cls(**{**plain, "points": points})


@dataclass(frozen=True)
class Plan:
    """The jobs of a run in the order in which a round measures those of one stage, and the number of rounds.

    preset: its name or path. budget_min: minutes that it had to fit; None for as many as it takes.
    asked: the digest of the preset (`sweeps`) and the budget that was asked for, 0 for none (`budget_min`); empty in
    earlier plans.
    """

    jobs: tuple[Job, ...]
    rounds: int
    preset: str = ""
    budget_min: float | None = None
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def seconds(self) -> float:
        """What the whole run should take."""
        return sum(job.seconds(number) + JOB_S for number, job in self.order)

    @property
    def order(self) -> list[tuple[int, Job]]:
        """Every job with the number of its round, in the order in which they run."""
        every = [(number, job) for number in range(1, self.rounds + 1) for job in self.round_jobs(number)]
        return sorted(every, key=lambda one: one[1].stage)

    def round_jobs(self, number: int) -> list[Job]:
        """The jobs that have anything to measure in round `number`."""
        return [job for job in self.jobs if number <= self.rounds and job.measures(number)]

    def job(self, experiment: str, device: str) -> Job:
        """Raises StudyError if the plan has no such job."""
        for one in self.jobs:
            if (one.experiment, one.device) == (experiment, device):
                return one
        known = ", ".join(f"{job.experiment} on {job.device}" for job in self.jobs)
        raise StudyError(f"the plan does not measure {experiment} on {device}. It measures {known}.")

    @property
    def as_json(self) -> dict[str, Any]:
        """The plan as JSON; `seconds` tells what each round of a job should take."""
        return {
            "schema": PLAN_SCHEMA,
            "preset": self.preset,
            "rounds": self.rounds,
            "budget_min": self.budget_min,
            "asked": dict(self.asked),
            "predicted_s": round(self.seconds),
            "seconds": {
                job.name: [round(job.seconds(number), 1) for number in range(1, self.rounds + 1)] for job in self.jobs
            },
            "jobs": [job.as_json for job in self.jobs],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], where: Path | str) -> Plan:
        """The plan that `plain` describes. Raises StudyError if another version wrote it, or it is damaged."""
        advice = "make the plan again (python -m experiments plan --out, which the workflow does by itself)"
        try:
            if plain["schema"] != PLAN_SCHEMA:
                raise StudyError(f"{where}: another version of this program wrote it: {advice}")
            jobs = tuple(Job.from_json(job) for job in plain["jobs"])
            return cls(jobs, int(plain["rounds"]), plain["preset"], plain["budget_min"], plain.get("asked", {}))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise StudyError(f"{where}: not a whole plan: {advice}") from None


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises StudyError if it cannot be read."""
    return Plan.from_json(read_json(path), path)
