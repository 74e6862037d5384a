"""Choose the points to measure in further rounds: those behind undecided cases, and anchors in a new session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import contract.looks
from contract.errors import StudyError
from contract.looks import KEY
from contract.node import parse_time
from contract.node_pack import parse_round_file
from contract.sample_table import load_samples
from experiments.jobs import JOB_S, Job, Plan, Point, point_key

# Number of anchors per experiment and device.
ANCHORS = 5

Key = tuple[Any, ...]


@dataclass(frozen=True)
class MeasuredRounds:
    """Facts from a node's finished rounds.

    paces: ratio of running time to predicted time in the plan's own rounds, by job name. further_s: running time of
    further rounds before the looks. ended: end of the last round; None without rounds. sound: the points measured
    without a failure.
    """

    paces: Mapping[str, float]
    further_s: float
    ended: datetime | None
    sound: frozenset[Key]


def read_measured_rounds(folder: Path, plan: Plan) -> MeasuredRounds:
    """Read a node's rounds. plan: the plan without further rounds. Raises StudyError if a file cannot be read."""
    ran_s: dict[str, float] = {}
    further_s, ended, sound = 0.0, [], set()
    last_look = contract.looks.look_rounds(plan.rounds)[-1]
    for path in sorted(folder.glob("[!.]*.parquet")):
        if (place := parse_round_file(path.name)) is None:
            continue
        samples, about = load_samples(path)
        seconds = float(about["wall_s"]) - float(about.get("stood_s", 0.0))
        ended.append(parse_time(about["ended_utc"]))
        if plan.rounds < place[2] <= last_look:
            further_s += seconds
        elif place[2] <= plan.rounds and place[3] == 1:
            name = path.name.rsplit(".", 2)[0]
            ran_s[name] = ran_s.get(name, 0.0) + seconds
        rows = samples.select([*KEY, "status"]).to_pylist()
        sound |= {tuple(row[name] for name in KEY) for row in rows if row["status"] == "ok"}
    predicted = {job.name: sum(job.seconds(number) for number in range(1, plan.rounds + 1)) for job in plan.jobs}
    paces = {name: seconds / predicted[name] for name, seconds in ran_s.items() if predicted.get(name)}
    return MeasuredRounds(paces, further_s, max(ended, default=None), frozenset(sound))


class PlannedPoints:
    """Points that a plan measures, by key, with their predicted times."""

    def __init__(self, plan: Plan, measured: MeasuredRounds) -> None:
        self._measured = measured
        self._points: dict[Key, tuple[Job, Point]] = {
            point_key(job, point): (job, point) for job in plan.jobs for point in job.points if not point.left_out
        }

    def keys(self, points: Iterable[Mapping[str, Any]]) -> list[Key]:
        """Return the keys of those points that the plan measures, without duplicates."""
        keys = dict.fromkeys(tuple(point[name] for name in KEY) for point in points)
        return [key for key in keys if key in self._points]

    def round_s(self, keys: Iterable[Key]) -> float:
        """Predict the time of one round of these points in seconds, with the time between jobs."""
        return sum(JOB_S + seconds for seconds in self.job_s(keys).values())

    def job_s(self, keys: Iterable[Key]) -> dict[str, float]:
        """Predict the seconds of one round of these points by job: predicted by the plan, times the job's pace."""
        by_job: dict[str, tuple[Job, list[Point]]] = {}
        for job, point in map(self._points.__getitem__, dict.fromkeys(keys)):
            by_job.setdefault(job.name, (job, []))[1].append(replace(point, rounds=1))
        return {
            name: self._measured.paces.get(name, 1.0) * replace(job, points=tuple(points)).seconds(1)
            for name, (job, points) in by_job.items()
        }

    def anchors(self, beside: Sequence[Key] | None = None) -> list[Key]:
        """Return anchors: up to ANCHORS points of each job that were measured without a failure.

        They are spread evenly over the job's points, sorted by predicted time. beside: take only jobs with these
        points, and none of these points.
        """
        jobs = None if beside is None else {key[:2] for key in beside}
        by_job: dict[Key, list[Key]] = {}
        for key in self._points:
            if key in self._measured.sound and (jobs is None or key[:2] in jobs) and key not in (beside or ()):
                by_job.setdefault(key[:2], []).append(key)
        anchors: list[Key] = []
        for keys in by_job.values():
            keys.sort(key=lambda key: self._points[key][1].predicted_s)
            number = min(ANCHORS, len(keys))
            anchors += [keys[(2 * at + 1) * len(keys) // (2 * number)] for at in range(number)]
        return anchors


def choose_look_rounds(
    plan: Plan,
    measured: MeasuredRounds,
    cases: Sequence[Mapping[str, Any]],
    look: int,
    minutes: float,
    now: datetime,
) -> tuple[dict[str, Any], str]:
    """Choose the points to measure before a look; return the further rounds, and a sentence that announces them.

    A case is measured with all of its points or not at all. Cases are taken in their order while the time suffices for
    all rounds up to the last look. If the rounds begin a session, anchors are measured beside the points.

    plan: the plan without further rounds. cases: as from `contract.looks.read_open_cases`. look: number of rounds.
    minutes: time limit for the further rounds of all looks. Raises StudyError if the plan has no such look.
    """
    looks = contract.looks.look_rounds(plan.rounds)
    if look not in looks[1:]:
        raise StudyError(f"--look {look}: a plan with {plan.rounds} rounds has the looks {looks[1:]}")
    stage, planned = contract.looks.further_stages(plan.rounds)[f"look-{look}"], PlannedPoints(plan, measured)
    left_s, begins = 60 * minutes - measured.further_s, contract.looks.session_begins(measured.ended, now)
    points: list[Key] = []
    anchors: list[Key] = []
    number = 0
    for case in cases:
        trial = list(dict.fromkeys([*points, *planned.keys(case["points"])]))
        beside = planned.anchors(trial) if begins else []
        if len(trial) == len(points) or (looks[-1] - stage[0] + 1) * planned.round_s([*trial, *beside]) <= left_s:
            points, anchors, number = trial, beside, number + 1
    rounds = stage if points else range(0)
    took = len(rounds) * planned.round_s([*points, *anchors]) / 60
    limit = f"limit for all looks: {minutes:g} min"
    text = (
        f"rounds {rounds[0]} to {look}: {_format_points(points, anchors)}, behind {number:,} of {len(cases):,} "
        f"undecided cases, about {took:.1f} min ({limit})"
        if points
        else f"no round before the look after {look} rounds: of {len(cases):,} undecided cases none fits ({limit})"
    )
    return _document(planned, rounds, points, anchors, look), text


def choose_session_rounds(plan: Plan, measured: MeasuredRounds, session: int) -> tuple[dict[str, Any], str]:
    """Choose the anchors of a session; return its further rounds, and a sentence that announces them.

    plan: the plan without further rounds.
    """
    planned = PlannedPoints(plan, measured)
    anchors, rounds = planned.anchors(), contract.looks.session_rounds(session)
    took = len(rounds) * planned.round_s(anchors) / 60
    text = f"session {session}: {len(anchors):,} points again, in {len(rounds)} rounds, about {took:.1f} min"
    return _document(planned, rounds, [], anchors, None), text


def _format_points(points: Sequence[Key], anchors: Sequence[Key]) -> str:
    return f"{len(points):,} points" + (f" and {len(anchors):,} anchors" if anchors else "")


def _document(
    planned: PlannedPoints, rounds: Sequence[int], points: Sequence[Key], anchors: Sequence[Key], look: int | None
) -> dict[str, Any]:
    """Return further rounds, as `contract.looks.read_further_rounds` reads them."""
    listed = [[dict(zip(KEY, key, strict=True)) for key in keys] for keys in (points, anchors)]
    seconds = {name: round(value, 1) for name, value in planned.job_s([*points, *anchors]).items()}
    return {"rounds": list(rounds), "points": listed[0], "anchors": listed[1], "look": look, "seconds": seconds}
