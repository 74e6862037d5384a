"""Measure disturbed rounds of points again, after all rounds of the run, when the disturbance may have ended.

Each further attempt at a round is a file beside the round's own, so that an interrupted command resumes with the next
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contract.attempts import MOST_ATTEMPTS, disturbed_attempts
from contract.errors import StudyError
from contract.node_pack import repeat_files, round_file_name
from contract.sample_table import read_samples
from experiments.jobs import Job, Plan, Point
from experiments.node_writer import begin_node
from experiments.round_files import measure_into_file
from experiments.rounds import Round, round_seed, shuffle_points

# A point's identity within a round, as in `Point.columns`.
_KEY = ["backend", "dtype", "threads", "params"]
Keys = set[tuple[object, ...]]


@dataclass(frozen=True)
class Attempt:
    """The points of one attempt at a round, as sets of their values in _KEY. ran_s: running seconds without pauses."""

    points: Keys
    disturbed: Keys
    quiet: Keys
    ran_s: float


def read_attempt(path: Path) -> Attempt:
    """Read an attempt at a round. Raises StudyError if the file cannot be read."""
    samples, about = read_samples(path)
    state = disturbed_attempts(samples)
    by_state: dict[bool, Keys] = {True: set(), False: set()}
    for key, disturbed in zip(state.reset_index()[_KEY].itertuples(index=False, name=None), state, strict=True):
        by_state[bool(disturbed)].add(key)
    points = set(samples[_KEY].drop_duplicates().itertuples(index=False, name=None))
    ran_s = float(about.get("wall_s", 0.0)) - float(about.get("stood_s", 0.0))
    return Attempt(points, by_state[True], by_state[False], ran_s)


def repeat_rounds(folder: Path, probe: Path, node: str, plan: Plan, share: float, seed: int) -> str:
    """Measure each disturbed point of each round again, at most twice, and return a sentence with the numbers.

    The second attempts at all rounds precede the third attempts. folder: the node's folder, with the plan's rounds.
    probe: file with the machine's record. node: the node's name. share: limit for the time of all further attempts, as
    a share of the rounds' running time; a point is left as it is if its predicted time, corrected by the ratio of
    running to predicted time in its round, exceeds the time that is left. seed: the study's seed.
    Raises StudyError if a round cannot be read, and OSError if a file cannot be written.
    """
    rounds = [(number, job, folder / round_file_name(job.experiment, job.device, number)) for number, job in plan.order]
    attempts = {path: [read_attempt(path)] for _, _, path in rounds}
    limit_s = share * sum(first.ran_s for (first,) in attempts.values())
    spent_s = sum(earlier.ran_s for path in attempts for earlier in _read_repeats(path))
    for attempt in range(2, MOST_ATTEMPTS + 1):
        for number, job, path in rounds:
            out = path.with_name(round_file_name(job.experiment, job.device, number, attempt))
            if len(attempts[path]) < attempt - 1:
                continue
            if (finished := _read_or_none(out)) is None:
                points = [point for point in job.round_points(number) if _key(point) in attempts[path][-1].disturbed]
                order = round_seed(seed, job.experiment, job.device, number, attempt)
                pace = attempts[path][0].ran_s / job.seconds(number)
                chosen = _fitting_points(job, shuffle_points(points, order), pace, limit_s - spent_s)
                if not chosen:
                    continue
                begin_node(folder, probe, plan)
                part = replace(job, points=tuple(chosen), round_s=min(job.round_s, limit_s - spent_s))
                # Record only the preset's file name, since full paths name people and machines.
                options = {"preset": Path(plan.preset).name, "seed": seed}
                repeat = Round(part, number, order, attempt=attempt)
                spent_s += measure_into_file(out, repeat, node, options, job.digest(number))
                finished = read_attempt(out)
            attempts[path].append(finished)
    return _summary(list(attempts.values()), spent_s, limit_s)


def _summary(attempts: Sequence[Sequence[Attempt]], spent_s: float, limit_s: float) -> str:
    firsts = [first for first, *_ in attempts]
    disturbed, points = sum(len(first.disturbed) for first in firsts), sum(len(first.points) for first in firsts)
    if not disturbed:
        return f"others disturbed none of {points:,} points in a round: nothing is measured again"
    repeated = sum(len(second.points) for _, *later in attempts for second in later[:1])
    quiet = sum(len(attempt.quiet) for _, *later in attempts for attempt in later)
    return (
        f"others disturbed {disturbed:,} of {points:,} points in a round: {repeated:,} measured again in "
        f"{spent_s / 60:.1f} min (limit: {limit_s / 60:.1f}), {quiet:,} of them are quiet now"
    )


def _key(point: Point) -> tuple[object, ...]:
    return tuple(point.columns[name] for name in _KEY)


def _fitting_points(job: Job, points: Sequence[Point], pace: float, left_s: float) -> list[Point]:
    """Return the points, from the first on, whose predicted times, multiplied by `pace`, fit together into `left_s`."""
    chosen: list[Point] = []
    for point in points:
        trial = replace(job, points=(*chosen, point))
        if pace * trial.seconds(1) <= left_s:
            chosen.append(point)
    return chosen


def _read_repeats(path: Path) -> list[Attempt]:
    return [attempt for repeat in repeat_files(path) if (attempt := _read_or_none(repeat))]


def _read_or_none(path: Path) -> Attempt | None:
    """Read an attempt; return None if the file is missing or damaged, so that it is measured again."""
    try:
        return read_attempt(path) if path.exists() else None
    except StudyError:
        return None
